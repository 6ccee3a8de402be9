"""`python -m report.sweep --results results/mine`: what a sweep found. `--choose` writes each method's chosen value.

sweep/sweep.csv   a row for each model, point of the grid and method: score and area over the selection seeds, rank
                  among the methods there, probability of being best there, regret against the method's own best point
sweep/sweep.md    the same to read; sweep.svg, sweep.png: score and area against the swept value
sweep/choice.csv  a row for each point with the values that the choice was made from; the next round trains the chosen
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Any

from records import digests, errors
from records.errors import MissingInputError, Parser
from records.files import atomic, to_csv, write_text
from records.layout import Checkpoint, Run
from records.results_tree import Tree, open_tree
from report.tables.tidy import percent

FOLDER = "sweep"
SCORE = "avg_pooled"
MEASURES = {"score": "Avg. (pooled)", "area": "Area under reward"}
HEADER = (
    "model", "row", "title", "method", "values", "own", "seeds", "score", "score_low", "score_high", "area", "area_low",
    "area_high", "rank", "methods", "best", "best_how", "regret", "chosen", "edge", "scores_by_seed", "areas_by_seed",
)  # fmt: skip
CHOICE = (
    "model", "row", "method", "values", "by", "select_seeds", "mean", "by_seed", "chosen", "edge", "test_seeds",
    "question",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A method with one combination of the swept values, on the selection seeds."""

    model: str
    row: str  # the method as the configuration names it
    method: str  # with options and variant
    title: str  # of the row
    values: Mapping[str, Any]  # axis -> value, of the axes that the method has
    score: Mapping[int, float]  # by seed
    area: Mapping[int, float]

    def figures(self, by: str) -> Mapping[int, float]:
        return self.score if by == "score" else self.area

    def mean(self, by: str) -> float | None:
        values = self.figures(by).values()
        return math.fsum(values) / len(values) if values else None


def points(tree: Tree) -> list[Point]:
    """Every point of the tree's sweep, in its order. Raises where a seed is not scored yet."""
    from evals import learning_curves

    sweep = _sweep(tree)
    found = []
    for entry in sweep["points"]:
        score, area = {}, {}
        for seed in sweep["select_seeds"]:
            run = Run(entry["model"], entry["method"], seed)
            value = tree.scores.get((Checkpoint(run, max(entry["steps"])), SCORE))
            measured = learning_curves.measure_run(tree, run).values["area"]
            if value is None or value.value is None or measured is None:
                raise MissingInputError(f"{tree.layout.run(run)}: not trained and scored yet: a sweep chooses from all")
            score[seed], area[seed] = value.value, measured
        title = _title(entry["row"], tree)
        found.append(Point(entry["model"], entry["row"], entry["method"], title, entry["values"], score, area))
    return found


def chosen(found: Sequence[Point], by: str) -> dict[tuple[str, str], Point]:
    """(model, row) -> the point with the highest mean; of equal ones the first, as the configuration lists them."""
    best: dict[tuple[str, str], Point] = {}
    for point in found:
        place = point.model, point.row
        if place not in best or (point.mean(by) or 0.0) > (best[place].mean(by) or 0.0):
            best[place] = point
    return best


def table(tree: Tree) -> list[dict[str, Any]]:
    """The rows of sweep.csv. A method without a swept option stands at every point of that axis."""
    from evals.stats import compare

    sweep, found = _sweep(tree), points(tree)
    by, best = sweep["by"], chosen(found, sweep["by"])
    rows = []
    for model in dict.fromkeys(point.model for point in found):
        for combination in product(*sweep["axes"].values()):
            grid = dict(zip(sweep["axes"], combination, strict=True))
            here = [p for p in found if p.model == model and p.values.items() <= grid.items()]
            means = {point.row: point.mean(by) or 0.0 for point in here}
            chances, how = compare.chances_of_being_best({point.row: point.figures(by) for point in here})
            for point in here:
                top = best[model, point.row]
                score, area = compare.over_seeds(point.score), compare.over_seeds(point.area)
                rows.append(
                    {
                        "model": model,
                        "row": point.row,
                        "title": point.title,
                        "method": point.method,
                        "values": _words(grid),
                        "own": _yes(_is_own(grid, tree)),
                        "seeds": " ".join(map(str, sorted(point.score))),
                        "score": score.value,
                        "score_low": score.low,
                        "score_high": score.high,
                        "area": area.value,
                        "area_low": area.low,
                        "area_high": area.high,
                        "rank": 1 + sum(other > means[point.row] for other in means.values()),
                        "methods": len(here),
                        "best": chances.get(point.row),
                        "best_how": how,
                        "regret": (top.mean(by) or 0.0) - means[point.row],
                        "chosen": _yes(top is point),
                        "edge": _yes(_at_edge(point, sweep["axes"])),
                        "scores_by_seed": _by_seed(point.score),
                        "areas_by_seed": _by_seed(point.area),
                    }
                )
    return rows


def choice(tree: Tree) -> list[dict[str, Any]]:
    """The rows of choice.csv."""
    sweep, found = _sweep(tree), points(tree)
    best = chosen(found, sweep["by"])
    return [
        {
            "model": point.model,
            "row": point.row,
            "method": point.method,
            "values": _words(point.values),
            "by": sweep["by"],
            "select_seeds": " ".join(map(str, sweep["select_seeds"])),
            "mean": point.mean(sweep["by"]),
            "by_seed": _by_seed(point.figures(sweep["by"])),
            "chosen": _yes(best[point.model, point.row] is point),
            "edge": _yes(_at_edge(point, sweep["axes"])),
            "test_seeds": " ".join(map(str, sweep["test_seeds"])),
            "question": sweep["question"],
        }
        for point in found
    ]


def markdown(tree: Tree, rows: Sequence[Mapping[str, Any]]) -> str:
    sweep = _sweep(tree)
    what = " and ".join(sweep["axes"])
    seeds = ", ".join(map(str, sweep["select_seeds"]))
    lines = [f"# Sweep of {what}", ""]
    heads = ["Value", "Method", *MEASURES.values(), "Rank", "P(best), %", "Regret", "Chosen"]
    for model in tree.models:
        own = [row for row in rows if row["model"] == model["key"]]
        if not own:
            continue
        lines += [f"## {model['title']}", "", f"| {' | '.join(heads)} |", "|---|---|" + "---:|" * 5 + "---|"]
        for row in own:
            mark = "" if row["chosen"] == "no" else "yes, at the end of the values" if row["edge"] == "yes" else "yes"
            cells = [row["values"] + (" (scale's own)" if row["own"] == "yes" else ""), row["title"]]
            cells += [percent(row["score"]), percent(row["area"]), f"{row['rank']} of {row['methods']}"]
            cells += [percent(row["best"]) or "–", percent(row["regret"]), mark]
            lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
        lines.append("")
    lines += [
        f"Means over the selection seeds {seeds}, in percent. Rank and P(best): among the methods at the same value, "
        f"by {MEASURES[sweep['by']]}. Regret: how far the method's mean is below that at its chosen value, so in "
        "the rows of the scale's own value what a comparison at that single value costs it. These means chose the "
        "values and are therefore too high; a comparison is that on fresh seeds, in the table of all runs.",
        "",
    ]
    return "\n".join(lines)


def draw(tree: Tree, rows: Sequence[Mapping[str, Any]]) -> dict[str, bytes]:
    """Score and area against the first axis, a line for each method (and value of further axes), band: its seeds."""
    import matplotlib
    from matplotlib.figure import Figure

    from report.figures.draw import SETTINGS, WIDTH
    from report.figures.spec import ALONE, GRID, PAPER, STYLES

    matplotlib.use("agg")
    sweep = _sweep(tree)
    axis, values = next(iter(sweep["axes"].items()))
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = {value: float(value) if numbers else float(n) for n, value in enumerate(values)}
    models = [model for model in tree.models if any(row["model"] == model["key"] for row in rows)]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, 2.4 * len(models) + 0.4), layout="constrained")
        axes = figure.subplots(len(models), 2, squeeze=False)
        for line, model in enumerate(models):
            lines: dict[str, list[Mapping[str, Any]]] = {}
            for row in (row for row in rows if row["model"] == model["key"]):
                rest = row["values"].partition(" ")[2]
                lines.setdefault(row["title"] + (f", {rest}" if rest else ""), []).append(row)
            for column, (key, title) in enumerate(MEASURES.items()):
                panel = axes[line][column]
                for number, (name, own) in enumerate(lines.items()):
                    colour, dashes, width = STYLES[number % ALONE]
                    x = [places[value] for value in values]
                    seeds = [_seed_values(row[f"{key}s_by_seed"]) for row in own]
                    style: Any = {"color": colour, "linewidth": width, "marker": "o", "markersize": 3, "label": name}
                    panel.plot(x, [100 * row[key] for row in own], **(style | ({"dashes": dashes} if dashes else {})))
                    low, high = [100 * min(s) for s in seeds], [100 * max(s) for s in seeds]
                    panel.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
                if numbers and is_geometric([float(v) for v in values]):
                    panel.set_xscale("log")
                    panel.minorticks_off()
                panel.set_xticks(list(places.values()), [f"{v:g}" if numbers else str(v) for v in values])
                panel.set_xlabel(axis.removeprefix("training.").replace("_", " "))
                panel.set_ylabel("percent")
                panel.set_title(f"({'abcdefghijklmnop'[2 * line + column]}) {title}, {model['title']}", loc="left")
                panel.grid(axis="y", color=GRID, linewidth=0.6)
                for side in ("top", "right"):
                    panel.spines[side].set_visible(False)
        handles, labels = axes[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, handlelength=3.2)
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
    return {"svg": svg.getvalue(), "png": png.getvalue()}


def is_geometric(values: Sequence[float]) -> bool:
    """Whether positive values lie more evenly on a logarithmic axis than on a linear one.

    >>> is_geometric([5e-5, 1e-4, 2e-4]), is_geometric([0.1, 0.2, 0.3])
    (True, False)
    """
    ordered = sorted(values)
    if len(ordered) < 3 or ordered[0] <= 0:
        return len(ordered) == 2 and ordered[0] > 0 and ordered[1] / ordered[0] >= 5

    def unevenness(places: Sequence[float]) -> float:
        steps = [b - a for a, b in pairwise(places)]
        return max(steps) / min(steps)

    return unevenness([math.log(value) for value in ordered]) < unevenness(ordered)


def write(tree: Tree) -> list[Path]:
    """Write sweep.csv, .md, .svg, .png and their hashes; returns the paths."""
    folder, rows = tree.root / FOLDER, table(tree)
    write_text(folder / "sweep.csv", to_csv(HEADER, rows))
    write_text(folder / "sweep.md", markdown(tree, rows))
    paths = [folder / "sweep.csv", folder / "sweep.md"]
    for kind, data in draw(tree, rows).items():
        paths.append(folder / f"sweep.{kind}")
        with atomic(paths[-1]) as temporary:
            temporary.write_bytes(data)
    digests.write_list(tree.layout.sums(f"{FOLDER}/sweep"), paths)
    return paths


def _sweep(tree: Tree) -> Mapping[str, Any]:
    sweep = tree.matrix.get("sweep")
    if not sweep:
        raise MissingInputError(
            f"{tree.layout.matrix}: sweep: this tree has none (--config sweep.training.learning_rate=...)"
        )
    return dict(sweep)


def _title(row: str, tree: Tree) -> str:
    from methods import catalog

    return catalog.parse(row).title


def _words(values: Mapping[str, Any]) -> str:
    return " ".join(
        f"{axis}={value:g}" if isinstance(value, float) else f"{axis}={value}" for axis, value in values.items()
    )


def _is_own(grid: Mapping[str, Any], tree: Tree) -> bool:
    """Whether all swept training settings are the scale's own here."""
    training = tree.matrix["training"]
    swept = {axis.removeprefix("training."): v for axis, v in grid.items() if axis.startswith("training.")}
    return bool(swept) and all(training.get(key) == value for key, value in swept.items())


def _at_edge(point: Point, axes: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a better value may lie beyond those tried: smallest or largest of three numbers or more."""
    for axis, value in point.values.items():
        tried = axes[axis]
        if len(tried) > 2 and all(isinstance(v, int | float) for v in tried) and value in (min(tried), max(tried)):
            return True
    return False


def _by_seed(values: Mapping[int, float]) -> str:
    return " ".join(f"{seed}:{values[seed]!r}" for seed in sorted(values))


def _seed_values(text: str) -> list[float]:
    return [float(pair.partition(":")[2]) for pair in text.split()]


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def main() -> None:
    parser = Parser(description="Table and plot of a sweep, or the choice of each method's value.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--choose", action="store_true", help="write sweep/choice.csv")
    args = parser.parse_args()
    tree = open_tree(args.results)
    if not args.choose:
        for path in write(tree):
            print(path)
        return
    rows = choice(tree)
    path = tree.root / FOLDER / "choice.csv"
    write_text(path, to_csv(CHOICE, rows))
    for row in rows:
        if row["chosen"] == "yes":
            print(f"{row['model']} {row['row']}: {row['values'] or 'nothing to choose'} (mean {row['mean']:.4f})")
    seeds = rows[0]["test_seeds"].replace(" ", ", ")
    if seeds:
        print(f"{path}: type the same command again: it trains the chosen values on the fresh seeds {seeds}")


if __name__ == "__main__":
    errors.run(main)
