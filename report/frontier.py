"""Compare methods at equal movement, from a tree with a sweep. `report.sweep` writes these files:

sweep/frontier.csv   a row for each model, method and point of the sweep: movement, area and score, means over seeds
sweep/matched.csv    a row for each model, measure and method: area minus the baseline's, at the scale's settings
                     (`total`) and at equal movement, over the range between their two movements
                     (`evals.stats.frontier`); the same for scores where every point is evaluated
sweep/frontier.md    matched.csv as text
sweep/frontier.svg   areas from both as a picture; also .png and .pdf

A method is better than another only where it lies above it at equal movement: up to a point, larger movement means
faster learning, and a table at one learning rate is largely a table of step sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import correlation, geometric_mean
from typing import Any

from core.errors import MissingInputError, unknown
from core.files import to_csv
from core.layout import REFERENCE, Checkpoint, Run
from evals.scores import POOLED
from evals.tree import Tree
from report import draw, figures
from report.markdown import FEWEST, arrow, escape_markdown, markdown_table, with_interval

ARMS = (
    "model", "row", "title", "method", "values", "own", "seeds", "movement", "area", "area_low", "area_high", "score",
    "score_low", "score_high", "failed", "broken",
)  # fmt: skip
MATCHED = (
    "model", "measure", "row", "title", "versus", "seeds", "clusters", "movement", "versus_movement", "total",
    "total_low", "total_high", "range_low", "range_high", "difference", "difference_low", "difference_high", "se", "df",
    "p", "p_holm", "tests", "mark", "how",
)  # fmt: skip
MOVEMENTS = {"movement": "median over a run's rollouts", "movement_first": "of a run's first rollout"}
MEASURES = {"area": "area under the reward curve", "score": "pooled score"}


# Points of a sweep.


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
            row[f"{by}_seeds"] = tuple(self.figures(by).values())
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
    return [_point(tree, entry, sweep["select_seeds"], by) for entry in sweep["points"]]


def _point(tree: Tree, entry: Mapping[str, Any], seeds: Sequence[int], by: str) -> Point:
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


# Methods at equal movement.


def arms(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of frontier.csv; movement: geometric mean over seeds of a run's median rollout, or None."""
    return [
        dict.fromkeys(ARMS)
        | point.columns(tree, _shared_measures(found, point.model))
        | {"own": yes(point.is_own), "movement": _movement(point), "broken": yes(point.broken)}
        for point in found
    ]


def _shared_measures(found: Sequence[Point], model: str) -> list[str]:
    """Return the measures that all points of a model have: area, and score where every run is evaluated."""
    points = [point for point in found if point.model == model]
    return [by for by in MEASURES if all(point.figures(by).keys() == point.area.keys() for point in points)]


def matched(tree: Tree, found: Sequence[Point], baseline: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of matched.csv, with p corrected over the methods of a model, each measure separately.

    baseline: a method's key or configured name; None: the tree's baseline.
    """
    from evals.stats.compare import holm

    rows = []
    for model in (model["key"] for model in tree.models):
        groups, base = by_row(tree, [point for point in found if point.model == model], baseline)
        others = [points for row, points in groups.items() if base not in (None, row)]
        for by in _shared_measures(found, model) if others else ():
            here = [_against(points, groups[str(base)], tree.clean_models(model), by) for points in others]
            corrected = holm([row["p"] for row in here])
            for row, p in zip(here, corrected, strict=True):
                mark = arrow(row["difference"], row["difference_low"], row["difference_high"], p)
                row |= {"p_holm": p, "tests": sum(other is not None for other in corrected), "mark": mark}
            rows += here
    return rows


def _against(
    points: Sequence[Point], base: Sequence[Point], clusters: Mapping[int, int] | None, by: str
) -> dict[str, Any]:
    """Compare a method with the baseline by one measure. Step sizes that break a method are left out
    (paper/preregistration.md)."""
    from evals.stats import compare, frontier

    def interval(name: str, c: Any) -> dict[str, Any]:
        return {name: c.difference, f"{name}_low": c.low, f"{name}_high": c.high}

    groups = compare.by_first(points[0].area, clusters)
    row: dict[str, Any] = dict.fromkeys(MATCHED) | {"measure": by, "versus": base[0].row, "clusters": len(groups)}
    row |= {name: getattr(points[0], name) for name in ("model", "row", "title")}
    row |= {"seeds": tuple(sorted(points[0].area))}
    a, b = (next((point for point in every if point.is_own), None) for every in (points, base))
    if a and b:
        total = compare.compare_seeds(a.figures(by), b.figures(by), clusters=clusters)
        row |= {"movement": _movement(a), "versus_movement": _movement(b), **interval("total", total)}
    sides, broken = [], []
    for every in (points, base):
        side = [point for point in every if not point.broken]
        broken += [f"{point.row} at {' and '.join(map(str, point.values.values()))}" for point in every if point.broken]
        own = next((place for place, point in enumerate(side) if point.is_own), None)
        if own is None:
            return row | {"how": f"{every[0].row}: no arm at the scale's own settings that learns"}
        if missing := [words(point.values) for point in side if not all(point.movement.values())]:
            return row | {"how": f"{side[0].row}, {missing[0]}: movement is 0 or not recorded"}
        movement = [{seed: value or 0.0 for seed, value in point.movement.items()} for point in side]
        sides.append(frontier.of_arms(movement, [point.figures(by) for point in side], own))
    c, low, high = frontier.compare(sides[0], sides[1], clusters)
    left_out = f"; left out, because runs fail there: {', '.join(broken)}" if broken else ""
    row |= interval("difference", c) | {"se": c.se, "df": c.df, "p": c.p, "how": c.how + left_out}
    return row | {"range_low": low, "range_high": high}


def _movement(point: Point) -> float | None:
    """Return the geometric mean over seeds; None where the movement of a seed is 0 or not recorded."""
    values = [value for value in point.movement.values() if value]
    return geometric_mean(values) if len(values) == len(point.movement) else None


def markdown(
    tree: Tree, rows: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], movement: str = "movement"
) -> str:
    """Return frontier.md: a table per model and measure, and the relation to movement. points: the rows of
    frontier.csv. movement: the measure taken as movement."""
    lines = ["# Methods at equal movement", ""]
    if not rows:
        lines += ["Nothing to compare: no other method, or no baseline, in this sweep. Its values: sweep/sweep.md.", ""]
    for model, by in product(tree.models, MEASURES):
        own = [row for row in rows if (row["model"], row["measure"]) == (model["key"], by)]
        if not own:
            continue
        heads = ["Method", "Movement", f"{by.capitalize()} − baseline's", "At equal movement", "Over movements",
                 "p (Holm)", ""]  # fmt: skip
        lines += [f"## {escape_markdown(model['title'])}: {MEASURES[by]}", ""]
        lines += [*markdown_table(heads, map(_cells, own)), ""]
        at_own = [p for p in points if p["model"] == model["key"] and p["own"] == "yes"]
        moved = [(p[by], math.log(p["movement"])) for p in at_own if p["movement"] and not p["failed"]]
        if len(moved) >= FEWEST:
            r = correlation(*zip(*moved, strict=True))
            lines += [f"Over {len(moved)} methods there, {by} and log movement correlate: r = {r:.2f}.", ""]
    note = (
        f"Movement: KL of the policy after a rollout to that before it, nats a token; {MOVEMENTS[movement]}, "
        "geometric mean over seeds. Differences to the baseline, in points with 95 % intervals: at the scale's own "
        "settings, then at equal movement, interpolated within each method's points and averaged over the range "
        "between both movements. Points at which a method breaks are left out: a run ends with no more reward than it "
        "began with, or the mean area is below the first reward. Scores are those of the last checkpoint."
    )
    return "\n".join([*lines, note, ""])


def _cells(row: Mapping[str, Any]) -> list[str]:
    p = "–" if row["p_holm"] is None else f"{row['p_holm']:.2g}"
    matched = row["how"] if row["difference"] is None else with_interval(row, "difference")
    span = _nats(row["range_low"], row["range_high"])
    return [row["title"], _nats(row["movement"]), with_interval(row, "total"), matched, span, p, row["mark"]]


def _nats(*values: float | None) -> str:
    return " to ".join("–" if value is None else f"{value:.2g}" for value in values)


def files(tree: Tree, found: Sequence[Point]) -> dict[str, str | bytes]:
    """Return the content of each file by its name."""
    points, compared = arms(tree, found), matched(tree, found)
    titles = {model["key"]: model["title"] for model in tree.models}
    groups, base = by_row(tree, found)
    against = groups[base][0].title if base else ""
    areas = [row for row in compared if row["measure"] == "area"]
    pictures = draw.frontier(points, areas, tree.scale, titles, against, figures.specification().lines)
    texts = {"frontier.csv": to_csv(ARMS, points), "matched.csv": to_csv(MATCHED, compared)}
    texts["frontier.md"] = markdown(tree, compared, points)
    return {**texts, **{f"frontier.{kind}": picture for kind, picture in pictures.items()}}


def page(tree: Tree, versus: str | None, movement: str) -> str:
    """Return frontier.md against a method other than the baseline, or with another movement measure. Raises
    ConfigError for a method that the sweep does not have."""
    found = selecting(tree, movement)
    if versus is not None and by_row(tree, found, versus)[1] is None:
        raise unknown("command line", "--versus", versus, dict.fromkeys(point.row for point in found))
    return markdown(tree, matched(tree, found, versus), arms(tree, found), movement)
