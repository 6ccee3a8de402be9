"""`python -m report.sweep --results results/tuned`: results of a sweep. `--choose` writes each method's chosen value.
With `--versus METHOD` it prints methods at equal movement against a method other than the baseline, with `--first`
those at equal movement in the first rollout.

sweep/sweep.csv   a row for each model, point of the grid and method: score and area over the selection seeds, regret
                  against the method's best point, runs that failed; sweep.md is the readable version
sweep/frontier.csv, matched.csv, frontier.md, .svg, .png, .pdf   methods at equal movement (`report.frontier`)
sweep/choice.csv  a row for each point with the values behind the choice; the next round trains the chosen ones

Methods are compared on fresh seeds, which were not used for choosing, in the table of all runs.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from core import errors
from core.errors import CorruptInputError, Parser
from core.files import cells_of, read_csv, to_csv, write_all, write_text
from core.layout import Checkpoint, Run
from evals.scores import POOLED
from evals.tree import Tree, open_tree
from report import frontier
from report.frontier import Point, by_row, of_sweep, selecting, words, yes
from report.markdown import escape_markdown, markdown_table, percent, with_interval

SELECTION = (
    "model", "row", "title", "method", "values", "own", "seeds", "score", "score_low", "score_high", "area", "area_low",
    "area_high", "failed", "regret", "regret_low", "regret_high", "chosen", "edge", "selected", "versus", "fresh",
    "fresh_low", "fresh_high", "fresh_how", "choice_sd",
)  # fmt: skip
CHOICE = (
    "model", "row", "method", "values", "by", "select_seeds", "mean", "chosen", "edge", "test_seeds", "question",
)  # fmt: skip
FOLDER = "sweep"
MEASURES = {"score": "Avg. (pooled)", "area": "Area under reward"}


def chosen(found: Sequence[Point], by: str) -> dict[tuple[str, str], Point]:
    """Return (model, row) -> the point with the highest mean; of equal ones the first in the configuration's order."""
    places = dict.fromkeys((point.model, point.row) for point in found)
    return {place: max((p for p in found if (p.model, p.row) == place), key=lambda p: p.mean(by)) for place in places}


def selection(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """Return the rows of sweep.csv. A method without a swept option is listed at every point of that axis."""
    from evals.stats import compare

    sweep, rows = of_sweep(tree), []
    by, best = sweep["by"], chosen(found, sweep["by"])
    for model in dict.fromkeys(point.model for point in found):
        own, clusters = [point for point in found if point.model == model], tree.clean_models(model)
        again = _chosen_again(tree, own)
        for combination in product(*sweep["axes"].values()):
            grid = dict(zip(sweep["axes"], combination, strict=True))
            for point in (point for point in own if point.values.items() <= grid.items()):
                top = best[model, point.row]
                row = dict.fromkeys(SELECTION) | point.columns(tree, [key for key in MEASURES if point.figures(key)])
                row |= {"values": words(grid), "own": yes(bool(point.values) and point.is_own)}
                row |= {"regret": top.mean(by) - point.mean(by), "chosen": yes(top is point)}
                c = compare.compare_seeds(top.figures(by), point.figures(by), clusters=clusters)
                row |= {"regret_low": c.low, "regret_high": c.high}
                row["regret_seeds"] = () if top is point else _gains(top.figures(by), point.figures(by))
                rows.append(row | {"edge": _at_edge(point, sweep["axes"])} | again[point.method])
    return rows


def _chosen_again(tree: Tree, found: Sequence[Point]) -> dict[str, dict[str, Any]]:
    """Return, by method of each point of one model, the share of resamples of the selection seeds that choose it
    (`selected`); at the chosen one also the difference to the baseline, each at its own value, over the available fresh
    seeds. Its standard error includes `choice_sd`: the standard deviation over resamples of the difference of both
    means, over all selection seeds, at the values that these resamples choose."""
    import numpy as np

    from evals.stats import compare

    by, clusters = of_sweep(tree)["by"], tree.clean_models(found[0].model)
    groups, base = by_row(tree, found)
    cells: dict[str, dict[str, Any]] = {}
    means = {}
    for row, points in groups.items():
        drawn = compare.chosen_again([point.figures(by) for point in points], clusters)
        means[row] = np.array([point.mean(by) for point in points])[drawn]
        cells |= {point.method: {"selected": float((drawn == k).mean())} for k, point in enumerate(points)}
    best = {row: point for (_, row), point in chosen(found, by).items()}
    for row, point in best.items():
        if base is not None and row != base:
            sd = float(np.std(means[row] - means[base]))
            sides = [_fresh(tree, side, by) for side in (point, best[base])]
            c = compare.with_choice(compare.compare_seeds(*sides, clusters=clusters), sd)
            cells[point.method] |= {"versus": base, "choice_sd": sd, "fresh": c.difference, "fresh_how": c.how}
            cells[point.method] |= {"fresh_low": c.low, "fresh_high": c.high, "fresh_seeds": _gains(*sides)}
    return cells


def _gains(one: Mapping[int, float], other: Mapping[int, float]) -> tuple[float, ...]:
    """Return one minus other by common seed."""
    return tuple(value - other[seed] for seed, value in sorted(one.items()) if seed in other)


def _fresh(tree: Tree, point: Point, by: str) -> dict[int, float]:
    """Return a chosen point's measure by fresh seed, without seeds that are not available yet."""
    from evals.learning_curves import figure

    values = {}
    for run in (Run(point.model, point.method, seed) for seed in of_sweep(tree)["test_seeds"]):
        if run in tree.runs and tree.record(run):
            last = Checkpoint(run, max(tree.runs[run]["steps"]))
            values[run.seed] = figure(tree, last, POOLED if by == "score" else by)
    return {seed: value for seed, value in values.items() if value is not None}


def choice(tree: Tree) -> list[dict[str, Any]]:
    """Return the rows of choice.csv."""
    sweep, found = of_sweep(tree), selecting(tree)
    by, best = sweep["by"], chosen(found, sweep["by"])
    common = {name: sweep[name] for name in ("by", "question")}
    common |= {name: tuple(sweep[name]) for name in ("select_seeds", "test_seeds")}
    return [
        point.columns(tree, [])
        | {"mean": point.mean(by), "edge": _at_edge(point, sweep["axes"])}
        | {"chosen": yes(best[point.model, point.row] is point), **common}
        for point in found
    ]


def check_choice(tree: Tree, found: Sequence[Point]) -> None:
    """Raise CorruptInputError where choice.csv has another value than this sweep's runs now choose: the selection runs
    were retrained, and the fresh runs are at the value that was best before."""
    path, sweep = tree.root / FOLDER / "choice.csv", of_sweep(tree)
    best = chosen(found, sweep["by"])
    rows = read_csv(path, "the choice of a sweep", CHOICE) if path.is_file() else []
    for row in (row for row in rows if row["question"] == sweep["question"] and row["chosen"] == "yes"):
        with cells_of(path):
            point = best[row["model"], row["row"]]
        if point.method != row["method"]:
            raise CorruptInputError(
                f"{path}: {row['model']} {row['row']}: {row['method']} was chosen, the runs now choose {point.method}; "
                "delete it and type the command again"
            )


def _at_edge(point: Point, axes: Mapping[str, Sequence[Any]]) -> str:
    """Return "yes" where a better value may lie outside those tried: at either end of three numbers or more."""
    numeric = {axis: tried for axis, tried in axes.items() if all(isinstance(v, int | float) for v in tried)}
    ends = {axis: (min(tried), max(tried)) for axis, tried in numeric.items() if len(tried) > 2}
    return yes(any(value in ends.get(axis, ()) for axis, value in point.values.items()))


def markdown(tree: Tree, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return sweep.md: a table for each model, and how to read it."""
    sweep = of_sweep(tree)
    axes = " and ".join(axis.removeprefix("training.").replace("_", " ") for axis in sweep["axes"])
    keys = [key for key in MEASURES if key != "score" or any(row["score"] is not None for row in rows)]
    heads = ["Value", "Method", *(MEASURES[key] for key in keys), "Regret", "Failed"]
    lines = [f"# Sweep of {axes}", ""]
    for model in tree.models:
        own = [row for row in rows if row["model"] == model["key"]]
        at_own = {row["row"]: row for row in own if row.get("fresh") is not None}
        lines += [f"## {escape_markdown(model['title'])}", ""] if own else []
        if at_own:  # the result first: the means that chose the values are too high
            versus = next(iter(at_own.values()))["versus"]
            lines += ["### Each method at its own value, fresh seeds", "", f"Minus {versus}, in points.", ""]
            cells = [(row["title"], with_interval(row, "fresh"), percent(row["choice_sd"])) for row in at_own.values()]
            lines += [*markdown_table(("Method", "Difference", "SD of the choice"), cells), ""]
            lines += ["### What chose the values", ""]
        if own:
            cells_of_own = [_cells(row, keys) for row in own]
            lines += [*markdown_table([*heads, "Chosen again, %", "Chosen"], cells_of_own), ""]
    seeds = ", ".join(map(str, sweep["select_seeds"]))
    note = (
        f"Means over the selection seeds {seeds}, in percent, with 95 % intervals; of two seeds (a / b). Regret: how "
        f"far the method's mean ({MEASURES[sweep['by']]}) is below that at its chosen value, paired by seed. These "
        "means chose the values and are therefore too high; the comparison on fresh seeds is in the table of all "
        "runs. A run fails that ends (last three rollouts) with no more reward than it began with (first three), or "
        "collapses: where one fails, the mean says little and is not shown. Chosen again: how often the value would "
        "be chosen from resampled selection seeds. The interval at chosen values holds this: the standard deviation "
        "of the difference of both selection means over the values chosen again is added to its standard error."
    )
    return "\n".join([*lines, note, ""])


def _cells(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    # `training.learning_rate=0.0002 beta=1` -> `0.0002, 1`; a method without the axes has `–`
    value = ", ".join(pair.partition("=")[2] for pair in row["values"].split()) or "–"
    fail = f"{row['failed']} of {len(row['seeds'])}"
    mark = "" if row["chosen"] == "no" else "yes, at the end of the values" if row["edge"] == "yes" else "yes"
    cells = [value + (" (scale's own)" if row["own"] == "yes" else ""), row["title"]]
    cells += [f"{fail} fail" if row["failed"] else with_interval(row, key) for key in keys]
    return [*cells, with_interval(row, "regret"), fail, f"{100 * row['selected']:.0f}", mark]


def write(tree: Tree) -> list[Path]:
    """Write all files but choice.csv; return their paths. Raises MissingInputError where a run is not finished."""
    found = selecting(tree)
    check_choice(tree, found)
    rows = selection(tree, found)
    files = {"sweep.csv": to_csv(SELECTION, rows), "sweep.md": markdown(tree, rows), **frontier.files(tree, found)}
    return write_all({tree.root / FOLDER / name: content for name, content in files.items()})


def main() -> None:
    parser = Parser()
    parser.add_argument("--results", required=True, type=Path, help="results/<scale> with a sweep")
    parser.add_argument("--choose", action="store_true", help="write sweep/choice.csv")
    parser.add_argument("--versus", metavar="METHOD", help="print the page of equal movement, and write nothing")
    parser.add_argument("--first", action="store_true", help="likewise, at equal movement in the first rollout")
    args = parser.parse_args()
    tree = open_tree(args.results)
    if args.choose:
        rows, path = choice(tree), tree.root / FOLDER / "choice.csv"
        write_text(path, to_csv(CHOICE, rows))
        for row in (row for row in rows if row["chosen"] == "yes"):
            print(f"{row['model']} {row['row']}: {row['values'] or 'nothing to choose'} (mean {row['mean']:.4f})")
        if seeds := ", ".join(map(str, rows[0]["test_seeds"])):
            print(f"{path}: type the same command again: it trains the chosen values on the fresh seeds {seeds}")
    elif args.versus is not None or args.first:
        print(frontier.page(tree, args.versus, "movement_first" if args.first else "movement"), end="")
    else:
        print("\n".join(map(str, write(tree))))


if __name__ == "__main__":
    errors.run(main)
