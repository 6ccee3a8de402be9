"""What the runs of a sweep say: each method with each value that was tried, by seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from records.errors import MissingInputError
from records.layout import Checkpoint, Run
from records.results_tree import Tree

SCORE = "avg_pooled"


@dataclass(frozen=True)
class Point:
    """A method with one combination of the swept values, on some seeds. Figures are by seed."""

    model: str
    row: str  # the method as the configuration names it
    base: str  # its key without the sweep
    method: str  # its key with options and variant
    title: str  # of the row
    values: Mapping[str, Any]  # axis -> value, of the axes that the method has
    area: Mapping[int, float]
    final: Mapping[int, float]  # reward of the last three rollouts
    score: Mapping[int, float]  # pooled average; empty where these runs are not evaluated
    failed: tuple[int, ...]  # seeds that ended with no more reward than they began with, collapsed ones among them

    def figures(self, by: str) -> Mapping[int, float]:
        return self.score if by == "score" else self.area

    def mean(self, by: str) -> float | None:
        values = self.figures(by).values()
        return math.fsum(values) / len(values) if values else None

    @property
    def words(self) -> str:
        return words(self.values)

    @property
    def is_own(self) -> bool:
        """Whether all swept values are the scale's own: what is trained without a sweep."""
        return bool(self.values) and self.method == self.base


def of_sweep(tree: Tree) -> Mapping[str, Any]:
    """`sweep` of matrix.json; MissingInputError in a tree without one."""
    sweep = tree.matrix.get("sweep")
    if not sweep:
        raise MissingInputError(
            f"{tree.layout.matrix}: sweep: this tree has none (--config sweep.training.learning_rate=...)"
        )
    return dict(sweep)


def selecting(tree: Tree) -> list[Point]:
    """Every point of the tree's sweep on the selection seeds, in its order. Raises where a seed is not finished."""
    sweep = of_sweep(tree)
    return [measured(tree, entry, sweep["select_seeds"]) for entry in sweep["points"]]


def measured(tree: Tree, entry: Mapping[str, Any], seeds: Sequence[int]) -> Point:
    """A point of matrix.json's sweep on `seeds`. Raises MissingInputError for the first that is not trained, or not
    scored although that was planned."""
    from evals import learning_curves
    from methods import catalog

    area: dict[int, float] = {}
    final: dict[int, float] = {}
    score: dict[int, float] = {}
    failed = []
    for seed in seeds:
        run = Run(entry["model"], entry["method"], seed)
        checkpoint = Checkpoint(run, max(entry["steps"]))
        curve = learning_curves.measure_run(tree, run)
        value = tree.scores.get((checkpoint, SCORE))
        planned = checkpoint in tree.evaluated
        if curve.values["area"] is None or (planned and (value is None or value.value is None)):
            raise MissingInputError(
                f"{tree.layout.run(run)}: not trained{' and scored' * planned} yet: a sweep chooses from all"
            )
        area[seed] = curve.values["area"]
        if planned and value is not None and value.value is not None:
            score[seed] = value.value
        if curve.values["final"] is not None:
            final[seed] = curve.values["final"]
            # The first three rollouts, as many as the last ones: one rollout's reward is mostly chance.
            began = learning_curves.read_curve(tree.layout.run(run) / "curve.csv").series(["reward"], "first")
            first = [reward or 0.0 for reward in began[: learning_curves.WINDOW]]
            if curve.collapsed_at is not None or final[seed] <= math.fsum(first) / len(first):
                failed.append(seed)
    title = catalog.parse(entry["row"]).title
    names = entry["model"], entry["row"], entry["base"], entry["method"]
    return Point(*names, title, entry["values"], area, final, score, tuple(failed))


def chosen(found: Sequence[Point], by: str) -> dict[tuple[str, str], Point]:
    """(model, row) -> the point with the highest mean; of equal ones the first, as the configuration lists them."""
    best: dict[tuple[str, str], Point] = {}
    for point in found:
        place = point.model, point.row
        if place not in best or (point.mean(by) or 0.0) > (best[place].mean(by) or 0.0):
            best[place] = point
    return best


def words(values: Mapping[str, Any]) -> str:
    """`training.learning_rate=0.0002 beta=1`"""
    return " ".join(
        f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}" for axis, value in values.items()
    )
