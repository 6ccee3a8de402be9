"""Invented results trees in which the verdict of a claim is known: two methods, chosen figures, nothing trained."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core.layout import Checkpoint, Results, Run
from evals.scores import COLUMNS, MACRO, NOT_CORRECT, POOLED, write_scores
from evals.tree import Tree
from paper.printed import MODELS
from tests.report.synthetic import write_csv

BENCHMARKS = ("aime24", "aime25", "amc", "math500", "omni_math", "olympiadbench", "minerva")
STEP, LONG, ROLLOUTS, RESPONSES = 8, 15, 16, 1000
CURVE = {
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
    keys = {slot: f"tiny_{slot}" if stand_ins else slot for slot, _ in runs}
    planned = {Run(keys[slot], method, s): f for (slot, method), by in runs.items() for s, f in enumerate(by, 1)}
    methods = list(dict.fromkeys(run.method for run in planned))
    names = ("model", "method", "seed")
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
            {"key": key, "title": slot, "starts": starts, "bases": "injected noise"}
            | ({"stands_for": MODELS[slot]} if stand_ins else {})
            for slot, key in keys.items()
        ],
        "methods": [{"key": m, "row": m, "title": m.upper(), "variant": m.partition("@")[2] or None} for m in methods],
        "benchmarks": [{"key": key, "title": key, "items": 20, "samples": 1} for key in BENCHMARKS],
        "runs": [{name: getattr(run, name) for name in names} | {"steps": [STEP, LONG]} for run in planned],
        "checkpoints": [{n: getattr(run, n) for n in names} | {"step": s} for run in planned for s in (STEP, LONG)],
    }
    layout = Results(root)
    root.mkdir(parents=True)
    layout.matrix.write_text(json.dumps(matrix))
    there = {run: figures for run, figures in planned.items() if figures is not None}
    write_scores(layout.scores, [row for run, figures in there.items() for row in _scores(run, figures)])
    for run, figures in there.items():
        layout.run(run).mkdir(parents=True)
        columns = {name: figures.get(name, value) for name, value in CURVE.items()}
        rows = [
            {"rollout": n + 1, "update": n, "minibatch": 0}
            | {name: value[n] if isinstance(value, list) else value for name, value in columns.items()}
            for n in range(ROLLOUTS)
        ]
        write_csv(layout.run(run) / "curve.csv", rows)
        record = {"spec": {"training": {"rollouts": ROLLOUTS}}, "collapsed_at": None}
        (layout.run(run) / "run.json").write_text(json.dumps(record))
    return Tree(root)


def _scores(run: Run, figures: Figures) -> list[dict[str, Any]]:
    rows = []
    for step, name in ((STEP, "score"), (LONG, "long")):
        right = round(RESPONSES * figures.get(name, figures.get("score", 0.5)))
        score, wrong = right / RESPONSES, RESPONSES - right
        at = Checkpoint(run, step)
        for key in (*BENCHMARKS, POOLED, MACRO):
            row = dict.fromkeys(COLUMNS) | dict.fromkeys(NOT_CORRECT, 0) | {"benchmark": key, "step": at.step}
            row |= {name: getattr(run, name) for name in ("model", "method", "seed")}
            row |= {"score": score, "low": 0.0, "high": 1.0, "level": "problem", "how": "invented", "items": 20}
            row |= {"samples": None if key in (POOLED, MACRO) else 1, "responses": RESPONSES, "correct": right}
            rows.append(row | {"wrong": wrong, "timeout_low": score, "timeout_high": score})
    return rows
