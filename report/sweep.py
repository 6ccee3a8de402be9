"""`python -m report.sweep --results results/tuned`: results of a sweep. `--choose` writes each method's chosen value.
With `--versus METHOD` it prints methods at equal movement against a method other than the baseline, with `--first`
those at equal movement in the first rollout.

sweep/sweep.csv     a row for each model, point of the grid and method: score and area over the selection seeds, regret
                    against the method's best point, runs that failed; sweep.md is the readable version
sweep/choice.csv    a row for each point with the values behind the choice; the next round trains the chosen ones
sweep/frontier.csv  a row for each model, method and point: movement, area and score, means over seeds
sweep/matched.csv   a row for each model, measure and method: area minus the baseline's, at the scale's settings
                    (`total`) and at equal movement, over the range between their two movements
                    (`evals.stats.frontier`); the same for scores where every point is evaluated
sweep/frontier.md   matched.csv as text; frontier.svg, .png and .pdf: areas from both as a picture

Methods are compared on fresh seeds, which were not used for choosing, in the table of all runs. A method is better than
another only where it lies above it at equal movement: up to a point, larger movement means faster learning, and a table
at one learning rate is largely a table of step sizes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import correlation, geometric_mean
from typing import Any

import numpy as np

from core import errors
from core.errors import CorruptInputError, MissingInputError, Parser, unknown
from core.files import cells_of, read_csv, to_csv, write_all, write_text
from core.layout import REFERENCE, Checkpoint, Run
from evals import learning_curves
from evals.scores import POOLED
from evals.stats import compare, frontier
from evals.tree import Tree, open_tree
from methods import catalog
from report import draw, figures, view
from report.markdown import FEWEST, arrow, ends, escape_markdown, markdown_table, percent, with_interval, yes

SELECTION = (
    "model", "row", "title", "method", "values", "own", "seeds", "score", "score_low", "score_high", "area", "area_low",
    "area_high", "failed", "regret", "regret_low", "regret_high", "chosen", "edge", "selected", "versus", "fresh",
    "fresh_low", "fresh_high", "fresh_how", "choice_sd",
)  # fmt: skip
CHOICE = (
    "model", "row", "method", "values", "by", "select_seeds", "mean", "chosen", "edge", "test_seeds", "question",
)  # fmt: skip
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
MEASURES = {"score": ("Avg. (pooled)", "pooled score"), "area": ("Area under reward", "area under the reward curve")}

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

    @property
    def moved(self) -> float | None:
        """The geometric mean of movement over seeds; None where the movement of a seed is 0 or not recorded."""
        values = [value for value in self.movement.values() if value]
        return geometric_mean(values) if len(values) == len(self.movement) else None

    def cells(self, tree: Tree, measures: Sequence[str]) -> dict[str, Any]:
        """Return the columns that files of a sweep share: means of `measures` have intervals, others are empty."""
        row = dict.fromkeys(ARMS) | {name: getattr(self, name) for name in ("model", "row", "title", "method")}
        row |= {"values": words(self.values), "own": yes(self.is_own), "seeds": tuple(sorted(self.area))}
        row |= {"movement": self.moved, "failed": len(self.failed), "broken": yes(self.broken)}
        for by in measures:
            mean = compare.over_seeds(self.figures(by), clusters=tree.clean_models(self.model))
            row |= ends(by, mean.value, mean, self.figures(by).values())
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


def selecting(tree: Tree, movement: str = "movement") -> list[Point]:
    """Return every point of the tree's sweep on the selection seeds, in its order. movement: the measure taken as such.

    Raises MissingInputError for the first run that is not trained, or planned to be scored but not scored.
    """
    sweep = of_sweep(tree)
    return [_point(tree, entry, sweep["select_seeds"], movement) for entry in sweep["points"]]


def _point(tree: Tree, entry: Mapping[str, Any], seeds: Sequence[int], by: str) -> Point:
    area, movement, score = {}, {}, dict[int, float]()
    began, failed = [], []
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
        score |= {} if value is None else {seed: value}
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


# The choice of values.


def chosen(tree: Tree, found: Sequence[Point]) -> dict[tuple[str, str], Point]:
    """Return (model, row) -> the point with the highest mean; of equal ones the first in the configuration's order."""
    by, best = of_sweep(tree)["by"], dict[tuple[str, str], Point]()
    for point in sorted(found, key=lambda point: point.mean(by), reverse=True):
        best.setdefault((point.model, point.row), point)
    return best


def choice(tree: Tree) -> list[dict[str, Any]]:
    """Return the rows of choice.csv."""
    sweep, found = of_sweep(tree), selecting(tree)
    best, common = chosen(tree, found), {name: sweep[name] for name in ("by", "question")}
    common |= {name: tuple(sweep[name]) for name in ("select_seeds", "test_seeds")}
    return [
        point.cells(tree, ())
        | {"mean": point.mean(sweep["by"]), "edge": _at_edge(point, sweep["axes"])}
        | {"chosen": yes(best[point.model, point.row] is point), **common}
        for point in found
    ]


def check_choice(tree: Tree, found: Sequence[Point]) -> None:
    """Raise CorruptInputError where choice.csv has another value than this sweep's runs now choose: the selection runs
    were retrained, and the fresh runs are at the value that was best before."""
    path, best = tree.root / "sweep/choice.csv", chosen(tree, found)
    rows = read_csv(path, "the choice of a sweep", CHOICE) if path.is_file() else []
    for row in rows:
        if (row["question"], row["chosen"]) == (of_sweep(tree)["question"], "yes"):
            with cells_of(path):
                point = best[row["model"], row["row"]]
            if point.method != row["method"]:
                raise CorruptInputError(
                    f"{path}: {row['model']} {row['row']}: {row['method']} was chosen, the runs now choose "
                    f"{point.method}; delete it and type the command again"
                )


def _at_edge(point: Point, axes: Mapping[str, Sequence[Any]]) -> str:
    """Return "yes" where a better value may lie outside those tried: at either end of three numbers or more."""
    numeric = {axis: tried for axis, tried in axes.items() if all(isinstance(v, int | float) for v in tried)}
    ends = {axis: (min(tried), max(tried)) for axis, tried in numeric.items() if len(tried) > 2}
    return yes(any(value in ends.get(axis, ()) for axis, value in point.values.items()))


def selection(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of sweep.csv. A method without a swept option is listed at every point of that axis."""
    axes, by, best, rows = of_sweep(tree)["axes"], of_sweep(tree)["by"], chosen(tree, found), []
    for model in dict.fromkeys(point.model for point in found):
        own = [point for point in found if point.model == model]
        again = _chosen_again(tree, own)
        for combination in product(*axes.values()):
            grid = dict(zip(axes, combination, strict=True))
            for point in (point for point in own if point.values.items() <= grid.items()):
                top = best[model, point.row]
                sides = top.figures(by), point.figures(by)
                c = compare.compare_seeds(*sides, clusters=tree.clean_models(model))
                row = dict.fromkeys(SELECTION) | point.cells(tree, [key for key in MEASURES if point.figures(key)])
                row |= {"values": words(grid), "own": yes(bool(point.values) and point.is_own)}
                row |= ends("regret", top.mean(by) - point.mean(by), c, () if top is point else _gains(*sides))
                row |= {"chosen": yes(top is point), "edge": _at_edge(point, axes)}
                rows.append(row | again[point.method])
    return rows


def _chosen_again(tree: Tree, found: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """Return, by method of each point of one model, the share of resamples of the selection seeds that choose it
    (`selected`); at the chosen one also the difference to the baseline, each at its own value, over the available fresh
    seeds. Its standard error includes `choice_sd`: the standard deviation over resamples of the difference of both
    means, over all selection seeds, at the values that these resamples choose."""
    by, clusters = of_sweep(tree)["by"], tree.clean_models(found[0].model)
    groups, base = by_row(tree, found)
    cells: dict[str, dict[str, Any]] = {}
    means = {}
    for row, points in groups.items():
        drawn = compare.chosen_again([point.figures(by) for point in points], clusters)
        means[row] = np.array([point.mean(by) for point in points])[drawn]
        cells |= {point.method: {"selected": float((drawn == k).mean())} for k, point in enumerate(points)}
    best = {row: point for (_, row), point in chosen(tree, found).items()}
    for row, point in best.items():
        if base is not None and row != base:
            sd = float(np.std(means[row] - means[base]))
            sides = [_fresh(tree, side, by) for side in (point, best[base])]
            c = compare.with_choice(compare.compare_seeds(*sides, clusters=clusters), sd)
            cells[point.method] |= ends("fresh", c.difference, c, _gains(*sides))
            cells[point.method] |= {"versus": base, "choice_sd": sd, "fresh_how": c.how}
    return cells


def _gains(one: Mapping[int, float], other: Mapping[int, float]) -> list[float]:
    """Return one minus other by common seed."""
    return [value - other[seed] for seed, value in sorted(one.items()) if seed in other]


def _fresh(tree: Tree, point: Point, by: str) -> dict[int, float]:
    """Return a chosen point's measure by fresh seed, without seeds that are not available yet."""
    values = {}
    for run in (Run(point.model, point.method, seed) for seed in of_sweep(tree)["test_seeds"]):
        if run in tree.runs and tree.record(run):
            last = Checkpoint(run, max(tree.runs[run]["steps"]))
            values[run.seed] = learning_curves.figure(tree, last, POOLED if by == "score" else by)
    return {seed: value for seed, value in values.items() if value is not None}


def markdown(tree: Tree, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return sweep.md: a table for each model, and how to read it."""
    sweep = of_sweep(tree)
    axes = " and ".join(axis.removeprefix("training.").replace("_", " ") for axis in sweep["axes"])
    keys = [key for key in MEASURES if key != "score" or any(row["score"] is not None for row in rows)]
    heads = ["Value", "Method", *(MEASURES[key][0] for key in keys), "Regret", "Failed", "Chosen again, %", "Chosen"]
    lines = [f"# Sweep of {axes}", ""]
    for model in tree.models:
        own = [row for row in rows if row["model"] == model["key"]]
        at_own = {row["row"]: row for row in own if row["fresh"] is not None}
        lines += [f"## {escape_markdown(model['title'])}", ""] if own else []
        if at_own:  # the result first: the means that chose the values are too high
            versus = next(iter(at_own.values()))["versus"]
            lines += ["### Each method at its own value, fresh seeds", "", f"Minus {versus}, in points.", ""]
            cells = [(row["title"], with_interval(row, "fresh"), percent(row["choice_sd"])) for row in at_own.values()]
            lines += [*markdown_table(("Method", "Difference", "SD of the choice"), cells), ""]
            lines += ["### What chose the values", ""]
        lines += [*markdown_table(heads, [_cells(row, keys) for row in own]), ""] if own else []
    seeds = ", ".join(map(str, sweep["select_seeds"]))
    (note,) = view.paragraphs("sweep")
    note = note.format(seeds=seeds, measure=MEASURES[sweep["by"]][0])
    return "\n".join([*lines, note, ""])


def _cells(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    # `training.learning_rate=0.0002 beta=1` -> `0.0002, 1`; a method without the axes has `–`
    value = ", ".join(pair.partition("=")[2] for pair in row["values"].split()) or "–"
    fail = f"{row['failed']} of {len(row['seeds'])}"
    mark = "" if row["chosen"] == "no" else "yes, at the end of the values" if row["edge"] == "yes" else "yes"
    cells = [value + (" (scale's own)" if row["own"] == "yes" else ""), row["title"]]
    cells += [f"{fail} fail" if row["failed"] else with_interval(row, key) for key in keys]
    return [*cells, with_interval(row, "regret"), fail, f"{100 * row['selected']:.0f}", mark]


# Methods at equal movement.


def arms(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of frontier.csv; movement: geometric mean over seeds of a run's median rollout, or None."""
    return [point.cells(tree, _shared_measures(found, point.model)) for point in found]


def _shared_measures(found: Sequence[Point], model: str) -> list[str]:
    """Return the measures that all points of a model have: area, and score where every run is evaluated."""
    points = [point for point in found if point.model == model]
    return [by for by in ("area", "score") if all(point.figures(by).keys() == point.area.keys() for point in points)]


def matched(tree: Tree, found: Sequence[Point], baseline: str | None = None) -> list[dict[str, Any]]:
    """Return the rows of matched.csv, with p corrected over the methods of a model, each measure separately.

    baseline: a method's key or configured name; None: the tree's baseline.
    """
    rows = []
    for model in (model["key"] for model in tree.models):
        groups, base = by_row(tree, [point for point in found if point.model == model], baseline)
        others = [points for row, points in groups.items() if base not in (None, row)]
        for by in _shared_measures(found, model) if others else ():
            here = [_against(points, groups[str(base)], tree.clean_models(model), by) for points in others]
            corrected = compare.holm([row["p"] for row in here])
            for row, p in zip(here, corrected, strict=True):
                mark = arrow(row["difference"], row["difference_low"], row["difference_high"], p)
                rows.append(row | {"p_holm": p, "tests": sum(p is not None for p in corrected), "mark": mark})
    return rows


def _against(
    points: Sequence[Point], base: Sequence[Point], clusters: Mapping[int, int] | None, by: str
) -> dict[str, Any]:
    """Compare a method with the baseline by one measure. Step sizes that break a method are left out
    (paper/preregistration.md)."""
    row: dict[str, Any] = dict.fromkeys(MATCHED) | {"measure": by, "versus": base[0].row}
    row |= {name: getattr(points[0], name) for name in ("model", "row", "title")}
    row |= {"seeds": tuple(sorted(points[0].area)), "clusters": len(compare.by_first(points[0].area, clusters))}
    a, b = (next((point for point in every if point.is_own), None) for every in (points, base))
    if a and b:
        total = compare.compare_seeds(a.figures(by), b.figures(by), clusters=clusters)
        row |= {"movement": a.moved, "versus_movement": b.moved, **ends("total", total.difference, total)}
    sides, broken = [], []
    for every in (points, base):
        side = [point for point in every if not point.broken]
        broken += [f"{point.row} at {' and '.join(map(str, point.values.values()))}" for point in every if point.broken]
        own = next((place for place, point in enumerate(side) if point.is_own), None)
        if own is None:
            return row | {"how": f"{every[0].row}: no arm at the scale's own settings that learns"}
        if missing := [words(point.values) for point in side if point.moved is None]:
            return row | {"how": f"{side[0].row}, {missing[0]}: movement is 0 or not recorded"}
        movement = [{seed: value or 0.0 for seed, value in point.movement.items()} for point in side]
        sides.append(frontier.of_arms(movement, [point.figures(by) for point in side], own))
    c, low, high = frontier.compare(sides[0], sides[1], clusters)
    left_out = f"; left out, because runs fail there: {', '.join(broken)}" if broken else ""
    row |= ends("difference", c.difference, c) | {"se": c.se, "df": c.df, "p": c.p, "how": c.how + left_out}
    return row | {"range_low": low, "range_high": high}


def equal_movement(
    tree: Tree, rows: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]], movement: str = "movement"
) -> str:
    """Return frontier.md from the rows of matched.csv and frontier.csv: a table per model and measure, and the relation
    to movement. movement: the measure taken as such."""
    lines = ["# Methods at equal movement", ""]
    if not rows:
        lines += ["Nothing to compare: no other method, or no baseline, in this sweep. Its values: sweep/sweep.md.", ""]
    for model, by in product(tree.models, ("area", "score")):
        own = [row for row in rows if (row["model"], row["measure"]) == (model["key"], by)]
        if not own:
            continue
        heads = ["Method", "Movement", f"{by.capitalize()} − baseline's", "At equal movement", "Over movements",
                 "p (Holm)", ""]  # fmt: skip
        lines += [f"## {escape_markdown(model['title'])}: {MEASURES[by][1]}", ""]
        lines += [*markdown_table(heads, map(_matched_cells, own)), ""]
        at_own = [p for p in points if p["model"] == model["key"] and p["own"] == "yes"]
        moved = [(p[by], math.log(p["movement"])) for p in at_own if p["movement"] and not p["failed"]]
        if len(moved) >= FEWEST:
            r = correlation(*zip(*moved, strict=True))
            lines += [f"Over {len(moved)} methods there, {by} and log movement correlate: r = {r:.2f}.", ""]
    (note,) = view.paragraphs("frontier")
    note = note.format(movement=MOVEMENTS[movement])
    return "\n".join([*lines, note, ""])


def _matched_cells(row: Mapping[str, Any]) -> list[str]:
    def nats(*names: str) -> str:
        return " to ".join("–" if row[name] is None else f"{row[name]:.2g}" for name in names)

    at_equal = row["how"] if row["difference"] is None else with_interval(row, "difference")
    span = nats("range_low", "range_high")
    return [row["title"], nats("movement"), with_interval(row, "total"), at_equal, span, nats("p_holm"), row["mark"]]


PANEL, METHOD = 3.0, 0.24  # inches: minimum height of a model's row, and height per method in its right panel


def picture(
    tree: Tree, found: Sequence[Point], rows: Sequence[Mapping[str, Any]], points: Sequence[Mapping[str, Any]]
) -> dict[str, bytes]:
    """Return the areas of matched.csv (`rows`) and frontier.csv (`points`; those without movement are not drawn) as a
    picture in `svg`, `png` and `pdf` bytes. The baseline is black."""
    keys, models = list(dict.fromkeys(row["model"] for row in points)), {m["key"]: m["title"] for m in tree.models}
    titles, (groups, base) = {row["title"]: row["row"] for row in points}, by_row(tree, found)
    baseline = groups[base][0].title if base else ""
    looks = draw.looks(titles.values(), {**figures.specification().lines, "": len(draw.STYLES) - 1})  # the last: black
    styles = {title: draw.style(looks[row], 0.8) for title, row in titles.items()}
    styles |= {baseline: {"color": draw.INK, "linewidth": 2.4, "zorder": 4}} if baseline in styles else {}

    def fill(grid: Any) -> None:
        for (axis, beside), key in zip(grid, keys, strict=True):
            beside.set_visible(bool(baseline))
            _differences(beside, [row for row in rows if (row["model"], row["measure"]) == (key, "area")], baseline)
            drawn = [row for row in points if row["model"] == key and row["movement"] is not None]
            for title, look in styles.items():
                line = sorted((row for row in drawn if row["title"] == title), key=lambda row: row["movement"])
                own = [row for row in line if row["own"] == "yes"]
                for of, marker in ((line, {"markersize": 3, **look}), (own, {"markersize": 6, "linestyle": ""})):
                    x, y = [row["movement"] for row in of], [100 * row["area"] for row in of]
                    axis.plot(x, y, marker="o", **{"color": look["color"], **marker})
            axis.set_xscale("log")
            axis.set_title(models[key], loc="left")
            axis.set_xlabel("movement: KL of a rollout, nats a token")
            axis.set_ylabel("area under the reward curve, %")
            axis.grid()

    text = f"large points: the scale's own settings; {tree.scale} scale"
    return draw.picture(len(keys), 2, max(PANEL, METHOD * len(titles)), styles, text, fill)


def _differences(axis: Any, rows: Sequence[Mapping[str, Any]], baseline: str) -> None:
    """Draw each row's two differences in points with intervals, the largest at own settings on top."""
    rows = sorted(rows, key=lambda row: row["total"] if row["total"] is not None else float("-inf"))
    for name, place, face in (("total", 0.15, "white"), ("difference", -0.15, draw.INK)):  # columns of matched.csv
        found = [
            (100 * row[name], 100 * row[f"{name}_low"], 100 * row[f"{name}_high"], y + place)
            for y, row in enumerate(rows)
            if row[name] is not None and row[f"{name}_low"] is not None
        ]
        if found:
            x, low, high, y = zip(*found, strict=True)
            axis.hlines(y, low, high, color=draw.INK if face == draw.INK else draw.SOFT, linewidth=1)
            axis.plot(x, y, "o", markersize=4, color=draw.INK, markerfacecolor=face)
    axis.axvline(0, color=draw.INK, linewidth=0.8)
    axis.set_yticks(range(len(rows)), [row["title"] for row in rows])
    axis.set_xlabel(f"area − {baseline}'s, points")
    axis.set_title("○ own settings  ● equal movement", loc="right", fontsize=draw.TEXT)
    axis.grid(axis="x")


def write(tree: Tree) -> list[Path]:
    """Write all files but choice.csv; return their paths. Raises MissingInputError where a run is not finished."""
    found = selecting(tree)
    check_choice(tree, found)
    selected, compared, points = selection(tree, found), matched(tree, found), arms(tree, found)
    files: dict[str, str | bytes] = {
        "sweep.csv": to_csv(SELECTION, selected),
        "sweep.md": markdown(tree, selected),
        "frontier.csv": to_csv(ARMS, points),
        "matched.csv": to_csv(MATCHED, compared),
        "frontier.md": equal_movement(tree, compared, points),
    }
    files |= {f"frontier.{kind}": data for kind, data in picture(tree, found, compared, points).items()}
    return write_all({tree.root / "sweep" / name: content for name, content in files.items()})


def main() -> None:
    parser = Parser()
    parser.add_argument("--results", required=True, type=Path, help="results/<scale> with a sweep")
    parser.add_argument("--choose", action="store_true", help="write sweep/choice.csv")
    parser.add_argument("--versus", metavar="METHOD", help="print the page of equal movement, and write nothing")
    parser.add_argument("--first", action="store_true", help="likewise, at equal movement in the first rollout")
    args = parser.parse_args()
    tree = open_tree(args.results)
    if args.choose:
        rows, path = choice(tree), tree.root / "sweep/choice.csv"
        write_text(path, to_csv(CHOICE, rows))
        for row in (row for row in rows if row["chosen"] == "yes"):
            print(f"{row['model']} {row['row']}: {row['values'] or 'nothing to choose'} (mean {row['mean']:.4f})")
        if seeds := ", ".join(map(str, rows[0]["test_seeds"])):
            print(f"{path}: type the same command again: it trains the chosen values on the fresh seeds {seeds}")
    elif args.versus is not None or args.first:
        movement = "movement_first" if args.first else "movement"
        found = selecting(tree, movement)
        if args.versus is not None and by_row(tree, found, args.versus)[1] is None:
            raise unknown("command line", "--versus", args.versus, dict.fromkeys(point.row for point in found))
        print(equal_movement(tree, matched(tree, found, args.versus), arms(tree, found), movement), end="")
    else:
        print("\n".join(map(str, write(tree))))


if __name__ == "__main__":
    errors.run(main)
