"""Points of a sweep: a method with one combination of the swept values, on the selection seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.errors import MissingInputError
from core.layout import REFERENCE, Checkpoint, Run
from evals.scores import POOLED
from evals.tree import Tree


@dataclass(frozen=True)
class Point:
    """A method with one combination of the swept values, on the selection seeds. Figures are by seed."""

    model: str
    row: str  # the method's configured name
    base: str  # its key without the sweep
    method: str  # its key with options and variant
    title: str  # of the row
    values: Mapping[str, Any]  # axis -> value, of the axes that the method has
    area: Mapping[int, float]
    score: Mapping[int, float]  # pooled average; empty where these runs are not evaluated
    movement: Mapping[int, float | None]  # None: not recorded
    failed: tuple[int, ...]  # seeds that ended with no more reward than they began with, including collapsed ones
    broken: bool = False  # a seed failed, or the mean area is below the mean reward of the first rollout

    @property
    def is_own(self) -> bool:
        """True for the method as the scale has it without the sweep."""
        return self.method == self.base

    def figures(self, by: str) -> Mapping[int, float]:
        return self.score if by == "score" else self.area

    def mean(self, by: str) -> float:
        values = self.figures(by).values()
        return math.fsum(values) / len(values) if values else 0.0

    def columns(self, tree: Tree, measures: Sequence[str]) -> dict[str, Any]:
        """Return what the files of a sweep have for a point: names, and means of `measures` with intervals."""
        from evals.stats.compare import over_seeds

        row = {name: getattr(self, name) for name in ("model", "row", "title", "method")}
        row |= {"values": words(self.values), "seeds": tuple(sorted(self.area)), "failed": len(self.failed)}
        for by in measures:
            mean = over_seeds(self.figures(by), clusters=tree.clean_models(self.model))
            row |= {by: mean.value, f"{by}_low": mean.low, f"{by}_high": mean.high}
        return row


def of_sweep(tree: Tree) -> Mapping[str, Any]:
    """Return `sweep` of matrix.json; raises MissingInputError in a tree without one."""
    if not (sweep := tree.matrix.get("sweep")):
        raise MissingInputError(
            f"{tree.layout.matrix}: sweep: this tree has none (--config sweep.training.learning_rate=...)"
        )
    return dict(sweep)


def by_row(
    tree: Tree, found: Sequence[Point], baseline: str | None = None
) -> tuple[dict[str, list[Point]], str | None]:
    """Return one model's points by method, and the method with which the others are compared: None where this model
    lacks it. baseline: a method's key or configured name; None: the tree's."""
    baseline, groups = baseline or str(tree.matrix.get("baseline") or REFERENCE), dict[str, list[Point]]()
    for point in found:
        groups.setdefault(point.row, []).append(point)
    return groups, next((point.row for point in found if baseline in (point.base, point.row)), None)


def selecting(tree: Tree, by: str = "movement") -> list[Point]:
    """Return every point of the tree's sweep on the selection seeds, in its order. by: the measure used as movement.

    Raises MissingInputError for the first run that is not trained, or planned to be scored but not scored.
    """
    sweep = of_sweep(tree)
    return [_measured(tree, entry, sweep["select_seeds"], by) for entry in sweep["points"]]


def _measured(tree: Tree, entry: Mapping[str, Any], seeds: Sequence[int], by: str) -> Point:
    from evals import learning_curves
    from methods import catalog

    area, score, movement, began, failed = {}, {}, {}, [], []
    for seed in seeds:
        run = Run(entry["model"], entry["method"], seed)
        checkpoint, curve = Checkpoint(run, max(entry["steps"])), learning_curves.measure_run(tree, run)
        planned = checkpoint in tree.evaluated
        value = learning_curves.figure(tree, checkpoint, POOLED) if planned else None
        if curve.values["area"] is None or (planned and value is None):
            raise MissingInputError(
                f"{tree.layout.run(run)}: not trained{' and scored' * planned} yet: a sweep chooses from all"
            )
        area[seed], movement[seed] = curve.values["area"], curve.values[by]
        if value is not None:
            score[seed] = value
        # The first three rollouts, as many as the last ones: one rollout's reward is mostly chance.
        rewards = learning_curves.read_curve(tree.layout.run(run) / "curve.csv").series(["reward"], "first")
        first, final = [reward or 0.0 for reward in rewards[: learning_curves.WINDOW]], curve.values["final"]
        began.append(first[0])
        if final is not None and (curve.collapsed_at is not None or final <= math.fsum(first) / len(first)):
            failed.append(seed)
    names = entry["model"], entry["row"], entry["base"], entry["method"], catalog.parse(entry["row"]).title
    broken = bool(failed) or math.fsum(area.values()) < math.fsum(began)
    return Point(*names, entry["values"], area, score, movement, tuple(failed), broken)


def words(values: Mapping[str, Any]) -> str:
    """Return values as `training.learning_rate=0.0002 beta=1`."""
    return " ".join(f"{a}={v:g}" if isinstance(v, float) else f"{a}={v}" for a, v in values.items())


def yes(value: bool) -> str:
    return "yes" if value else "no"
