"""Invented results trees in which the verdict of a claim is known: two methods, chosen figures, nothing trained."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.layout import Checkpoint, Results, Run
from evals.scores import COLUMNS, MACRO, NOT_CORRECT, POOLED
from evals.scores import write_scores as write_table
from evals.tree import Tree

MODELS = ("q7", "q14", "l8", "m7", "dq7")
STANDS_FOR = {
    "q7": "Qwen2.5-7B",
    "q14": "Qwen3-14B",
    "l8": "DeepSeek-R1-Distill-Llama-8B",
    "m7": "Mistral-7B-Instruct-v0.2",
    "dq7": "DeepSeek-R1-Distill-Qwen-7B",
}
BENCHMARKS = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")
STEP, LONG, ROLLOUTS, RESPONSES = 8, 15, 16, 1000
COLUMN_DEFAULTS = {
    "reward": 0.5, "grad_norm": 1.0, "entropy": 0.4, "clip_fraction_tokens": 0.01, "clip_fraction_sequences": 0.0,
    "ratio_spread": 0.01, "theorem_sign_agreement": 0.5, "response_tokens": 20.0, "seconds_update": 0.1,
    "seconds_rollout": 1.0,
}  # fmt: skip

Figures = Mapping[str, Any]
"""`score` and `long`: a fraction; a column of the curve: one value for all rollouts, or one per rollout."""


def tree(
    root: Path,
    runs: Mapping[tuple[str, str], Sequence[Figures | None]],
    *,
    stand_ins: bool = False,
    variants: Mapping[str, Any] | None = None,
    starts: int | None = None,
    **training: Any,
) -> Tree:
    """runs: (slot of the model, method) -> the figures of seed 1, 2, ...; None: planned, and not there. starts: clean
    models that the seeds continue."""
    layout = Results(root)
    planned = {Run(_key(slot, stand_ins), method, s): f for (slot, method), by in runs.items() for s, f in _seeds(by)}
    methods = list(dict.fromkeys(run.method for run in planned))
    checkpoints = [Checkpoint(run, step) for run in planned for step in (STEP, LONG)]
    matrix = {
        "schema": 1,
        "scale": "tiny" if stand_ins else "large",
        "title": "Invented",
        "note": "Invented figures.",
        "table_step": STEP,
        "long_step": LONG,
        "training": {"rollouts": ROLLOUTS} | training,
        "variants": variants or {},
        "models": [
            {"key": _key(slot, stand_ins), "title": slot, "starts": starts, "bases": "injected noise"}
            | ({"stands_for": STANDS_FOR[slot]} if stand_ins else {})
            for slot in dict.fromkeys(slot for slot, _ in runs)
        ],
        "methods": [{"key": m, "row": m, "title": m.upper(), "variant": m.partition("@")[2] or None} for m in methods],
        "benchmarks": [{"key": key, "title": key, "items": 20, "samples": 1} for key in BENCHMARKS],
        "runs": [{"model": r.model, "method": r.method, "seed": r.seed, "steps": [STEP, LONG]} for r in planned],
        "checkpoints": [
            {"model": c.run.model, "method": c.run.method, "seed": c.run.seed, "step": c.step} for c in checkpoints
        ],
    }
    root.mkdir(parents=True)
    layout.matrix.write_text(json.dumps(matrix))
    there = {run: figures for run, figures in planned.items() if figures is not None}
    write_table(layout.scores, [row for run, figures in there.items() for row in _scores(run, figures)])
    for run, figures in there.items():
        _run(layout.run(run), figures)
    return Tree(root)


def both(left: Sequence[Figures | None], right: Sequence[Figures | None]) -> dict[tuple[str, str], Any]:
    """TEPO and GRPO/DAPO on the model of Tables 3 and 4."""
    return {("q7", "tepo"): left, ("q7", "grpo"): right}


def _key(slot: str, stand_ins: bool) -> str:
    return f"tiny_{slot}" if stand_ins else slot


def _seeds(figures: Sequence[Figures | None]) -> list[tuple[int, Figures | None]]:
    return list(enumerate(figures, 1))


def _scores(run: Run, figures: Figures) -> list[dict[str, Any]]:
    rows = []
    for step, name in ((STEP, "score"), (LONG, "long")):
        right = round(RESPONSES * figures.get(name, figures.get("score", 0.5)))
        for key in (*BENCHMARKS, POOLED, MACRO):
            score, wrong = right / RESPONSES, RESPONSES - right
            keys = {"model": run.model, "method": run.method, "seed": run.seed, "step": step, "benchmark": key}
            shown = {"score": score, "low": 0.0, "high": 1.0, "level": "problem", "how": "invented", "items": 20}
            asked = {"samples": None if key in (POOLED, MACRO) else 1, "responses": RESPONSES, "correct": right}
            counts = dict.fromkeys(NOT_CORRECT, 0) | {"wrong": wrong, "timeout_low": score, "timeout_high": score}
            rows.append(dict.fromkeys(COLUMNS) | keys | shown | asked | counts)
    return rows


def _run(folder: Path, figures: Figures) -> None:
    folder.mkdir(parents=True)
    collapsed = figures.get("collapsed")
    columns = {name: figures.get(name, value) for name, value in COLUMN_DEFAULTS.items()}
    with open(folder / "curve.csv", "w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ["rollout", "update", "minibatch", *columns], lineterminator="\n")
        writer.writeheader()
        for n in range(collapsed or ROLLOUTS):
            values = {name: value[n] if isinstance(value, list) else value for name, value in columns.items()}
            writer.writerow({"rollout": n + 1, "update": n, "minibatch": 0, **values})
    record = {"spec": {"training": {"rollouts": ROLLOUTS}}, "collapsed_at": collapsed}
    (folder / "run.json").write_text(json.dumps(record))
