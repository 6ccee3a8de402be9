"""What a sweep found, as rows of its tables: on the seeds that chose the values, and on fresh ones.

`selection` gives the rows of sweep/sweep.csv, `choice` those of sweep/choice.csv, `fresh` those of sweep/fresh.csv.
There, `compared` names the comparison that a row belongs to: `chosen`, every method at the value that was best for it
on the selection seeds; `own`, every method at the scale's own value, which stands for the paper's single one. Regret is
what the latter costs a method: its chosen value minus the scale's, paired by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from core.errors import MissingInputError
from core.layout import REFERENCE, Checkpoint, Run
from core.results_tree import Tree
from core.scores import POOLED
from report.tables.render import arrow

SELECTION = (
    "model", "row", "title", "method", "values", "own", "seeds", "score", "score_low", "score_high", "area", "area_low",
    "area_high", "rank", "rank_low", "rank_high", "methods", "best", "best_how", "failed", "regret", "chosen", "edge",
    "scores_by_seed", "areas_by_seed",
)  # fmt: skip
FRESH = (
    "compared", "model", "row", "title", "method", "values", "seeds", "area", "area_low", "area_high", "versus",
    "difference", "difference_low", "difference_high", "p", "p_holm", "tests", "mark", "rank", "rank_low", "rank_high",
    "methods", "best", "best_how", "final", "final_low", "final_high", "score", "score_low", "score_high", "failed",
    "regret", "regret_low", "regret_high", "regret_p", "regret_p_holm", "regret_mark", "areas_by_seed",
)  # fmt: skip
CHOICE = (
    "model", "row", "method", "values", "by", "select_seeds", "mean", "by_seed", "chosen", "edge", "test_seeds",
    "question",
)  # fmt: skip
COMPARED = {"chosen": "Each method at its own value", "own": "Every method at the scale's own value"}


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
        value = tree.scores.get((checkpoint, POOLED))
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


# Rows of the tables.


def selection(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """The rows of sweep.csv. A method without a swept option stands at every point of that axis."""
    sweep = of_sweep(tree)
    by, best = sweep["by"], chosen(found, sweep["by"])
    rows = []
    for model in dict.fromkeys(point.model for point in found):
        for combination in product(*sweep["axes"].values()):
            grid = dict(zip(sweep["axes"], combination, strict=True))
            here = [p for p in found if p.model == model and p.values.items() <= grid.items()]
            for point, row in zip(here, _measures(here, by), strict=True):
                top = best[model, point.row]
                row |= {"values": words(grid), "own": _yes(point.is_own), "chosen": _yes(top is point)}
                row |= {"edge": _yes(_at_edge(point, sweep["axes"])), "scores_by_seed": _by_seed(point.score)}
                rows.append(row | {"regret": (top.mean(by) or 0.0) - (point.mean(by) or 0.0)})
    return rows


def choice(tree: Tree) -> list[dict[str, Any]]:
    """The rows of choice.csv."""
    sweep, found = of_sweep(tree), selecting(tree)
    by, best = sweep["by"], chosen(found, sweep["by"])
    seeds = {key: " ".join(map(str, sweep[key])) for key in ("select_seeds", "test_seeds")}
    return [
        {
            "model": point.model,
            "row": point.row,
            "method": point.method,
            "values": point.words,
            "by": by,
            "mean": point.mean(by),
            "by_seed": _by_seed(point.figures(by)),
            "chosen": _yes(best[point.model, point.row] is point),
            "edge": _yes(_at_edge(point, sweep["axes"])),
            "question": sweep["question"],
            **seeds,
        }
        for point in found
    ]


def fresh(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """The rows of fresh.csv; none before the second round is planned. found: the points on the selection seeds.

    Raises MissingInputError where a planned run is not finished.
    """
    sweep = of_sweep(tree)
    best = chosen(found, sweep["by"])
    entries = {(entry["model"], entry["row"], entry["method"]): entry for entry in sweep["points"]}
    own = {(e["model"], e["row"]): e["method"] for e in sweep["points"] if e["method"] == e["base"]}
    rows = []
    for model in dict.fromkeys(point.model for point in found):
        sides: dict[str, dict[str, Point]] = {name: {} for name in COMPARED}
        for row in dict.fromkeys(point.row for point in found if point.model == model):
            wanted = {"chosen": best[model, row].method, "own": own.get((model, row))}
            for name, method in wanted.items():
                seeds = [seed for seed in sweep["test_seeds"] if method and Run(model, method, seed) in tree.runs]
                if method and seeds:
                    sides[name][row] = measured(tree, entries[model, row, method], seeds)
        if len(sides["own"]) < len(sides["chosen"]):
            sides["own"] = {}  # only methods whose chosen value is the scale's: no comparison of all at one value
        baseline = str(tree.matrix.get("baseline") or REFERENCE)
        for name, points in sides.items():
            base = next((point for point in points.values() if baseline in (point.base, point.row)), None)
            versus = {row: base for row, point in points.items() if base and point is not base}
            differences = _differences(points, versus, "difference")
            regrets: dict[str, dict[str, Any]] = {}
            if name == "own":  # 0, and no test, where the chosen value is the scale's own
                others = {row: p for row, p in points.items() if sides["chosen"][row].method != p.method}
                regrets = {row: {"regret": 0.0} for row in points} | _differences(sides["chosen"], others, "regret")
            for row, line in zip(points, _measures(list(points.values()), "area"), strict=True):
                line |= {"compared": name, "values": points[row].words}
                rows.append(dict.fromkeys(FRESH) | line | differences.get(row, {}) | regrets.get(row, {}))
    return rows


def _measures(points: Sequence[Point], by: str) -> list[dict[str, Any]]:
    """What each of several points on one model is, and its place among them by `by`."""
    from evals.stats import compare

    figures = {point.row: point.figures(by) for point in points}
    means = {point.row: point.mean(by) or 0.0 for point in points}
    chances, how = compare.chances_of_being_best(figures)
    places = compare.ranks(figures)
    rows = []
    for point in points:
        low, high = places.get(point.row, (None, None))
        row: dict[str, Any] = {
            "model": point.model,
            "row": point.row,
            "title": point.title,
            "method": point.method,
            "seeds": " ".join(map(str, sorted(point.area))),
            "rank": 1 + sum(other > means[point.row] for other in means.values()),
            "rank_low": low,
            "rank_high": high,
            "methods": len(points),
            "best": chances.get(point.row),
            "best_how": how,
            "failed": len(point.failed),
            "areas_by_seed": _by_seed(point.area),
        }
        for key, by_seed in (("score", point.score), ("area", point.area), ("final", point.final)):
            estimate = compare.over_seeds(by_seed) if by_seed else None
            for name, field in ((key, "value"), (f"{key}_low", "low"), (f"{key}_high", "high")):
                row[name] = getattr(estimate, field, None)
        rows.append(row)
    return rows


def _differences(points: Mapping[str, Point], versus: Mapping[str, Point], key: str) -> dict[str, dict[str, Any]]:
    """By row, the area minus that of another point, paired by seed and corrected over all of them; columns by `key`."""
    from evals.stats import compare

    found = {row: compare.compare_seeds(points[row].area, other.area) for row, other in versus.items()}
    corrected = compare.holm([difference.p for difference in found.values()])
    prefix = "" if key == "difference" else f"{key}_"
    rows = {}
    for (row, difference), p in zip(found.items(), corrected, strict=True):
        rows[row] = {
            key: difference.difference,
            f"{key}_low": difference.low,
            f"{key}_high": difference.high,
            f"{prefix}p": difference.p,
            f"{prefix}p_holm": p,
            f"{prefix}mark": arrow(difference.difference, difference.low, difference.high, p),
        }
        if key == "difference":
            tests = sum(p is not None for p in corrected)
            rows[row] |= {"versus": versus[row].method, "tests": tests}
    return rows


def _at_edge(point: Point, axes: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a better value may lie beyond those tried: smallest or largest of three numbers or more."""
    for axis, value in point.values.items():
        tried = axes[axis]
        if len(tried) > 2 and all(isinstance(v, int | float) for v in tried) and value in (min(tried), max(tried)):
            return True
    return False


def _by_seed(values: Mapping[int, float]) -> str:
    return " ".join(f"{seed}:{values[seed]!r}" for seed in sorted(values))


def _yes(value: bool) -> str:
    return "yes" if value else "no"
