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
from itertools import product
from statistics import correlation, geometric_mean
from typing import Any

from core.errors import unknown
from core.files import to_csv
from evals.tree import Tree
from report import draw, figures
from report.markdown import FEWEST, arrow, escape_markdown, markdown_table, with_interval
from report.points import Point, by_row, selecting, words, yes

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


def arms(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of frontier.csv; movement: geometric mean over seeds of a run's median rollout, or None."""
    rows = []
    for point in found:
        row = dict.fromkeys(ARMS) | point.columns(tree, _measured(found, point.model))
        row |= {"own": yes(point.is_own), "movement": _movement(point), "broken": yes(point.broken)}
        rows.append(row)
    return rows


def _measured(found: Sequence[Point], model: str) -> list[str]:
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
        for by in _measured(found, model) if others else ():
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

    first = compare.first_of(points[0].area, clusters)
    row: dict[str, Any] = dict.fromkeys(MATCHED) | {"measure": by, "versus": base[0].row, "seeds": tuple(first)}
    row |= {name: getattr(points[0], name) for name in ("model", "row", "title")}
    row |= {"clusters": len(set(first.values()))}
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
