"""Invented results trees in which the verdict of a claim is known: two methods, chosen figures, nothing trained."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.files import to_csv, write_json, write_text
from core.layout import Results, Run
from evals.scores import COLUMNS, MACRO, NOT_CORRECT, POOLED, write_scores
from evals.tree import Tree
from paper.printed import MODELS

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
    models = [{"key": key, "title": slot, "starts": starts, "bases": "injected noise"} for slot, key in keys.items()]
    matrix = {
        "schema": 1, "scale": "tiny" if stand_ins else "large", "title": "Invented", "note": "Invented figures.",
        "table_step": STEP, "long_step": LONG, "training": {"rollouts": ROLLOUTS} | training,
        "variants": variants or {},
        "models": [m | ({"stands_for": MODELS[m["title"]]} if stand_ins else {}) for m in models],
        "methods": [
            {"key": m, "row": m, "title": m.upper(), "variant": m.partition("@")[2] or None}
            for m in dict.fromkeys(run.method for run in planned)
        ],
        "benchmarks": [{"key": key, "title": key, "items": 20, "samples": 1} for key in BENCHMARKS],
        "runs": [vars(run) | {"steps": [STEP, LONG]} for run in planned],
        "checkpoints": [vars(run) | {"step": step} for run in planned for step in (STEP, LONG)],
    }  # fmt: skip
    layout, there = Results(root), {run: figures for run, figures in planned.items() if figures is not None}
    write_json(layout.matrix, matrix)
    write_scores(layout.scores, [row for run, figures in there.items() for row in _scores(run, figures)])
    for run, figures in there.items():
        columns = {name: figures.get(name, value) for name, value in CURVE.items()}
        rows = [
            {"rollout": n + 1, "update": n, "minibatch": 0}
            | {name: value[n] if isinstance(value, list) else value for name, value in columns.items()}
            for n in range(ROLLOUTS)
        ]
        write_text(layout.run(run) / "curve.csv", to_csv(tuple(rows[0]), rows))
        write_json(layout.run(run) / "run.json", {"spec": {"training": {"rollouts": ROLLOUTS}}, "collapsed_at": None})
    return Tree(root)


def _scores(run: Run, figures: Figures) -> Iterator[dict[str, Any]]:
    for step, name in ((STEP, "score"), (LONG, "long")):
        right = round(RESPONSES * figures.get(name, figures.get("score", 0.5)))
        row = dict.fromkeys(COLUMNS) | dict.fromkeys(NOT_CORRECT, 0) | vars(run) | {"step": step, "items": 20}
        row |= {"score": right / RESPONSES, "low": 0.0, "high": 1.0, "level": "problem", "how": "invented"}
        row |= {"responses": RESPONSES, "correct": right, "wrong": RESPONSES - right}
        yield from (row | {"benchmark": key} for key in (*BENCHMARKS, POOLED, MACRO))
