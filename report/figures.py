"""`python -m report.figures --results results/quick --figure 2`: a figure of figures.yaml, its numbers and picture.

figures/<key>.csv            means and ranges, one row per point of a line
figures/<key>.json           scale, models, and omissions
figures/<key>.{svg,png,pdf}  the picture
"""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from core import errors
from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, MissingInputError, Parser, unknown
from core.files import json_text, read_yaml, to_csv, write_all
from core.layout import Run
from core.provenance import ROOT
from evals.learning_curves import read_curve
from evals.tree import Tree, open_tree
from report import draw, rows

FIGURES = ROOT / "report/figures.yaml"
HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band",
    "unit", "line",
)  # fmt: skip
AXIS = "step (one rollout)"  # the paper leaves open which step it means: reading R34
ROW, ACROSS = 2.3, 2  # inches: a row of panels; panels side by side
MOST = len(draw.STYLES)  # lines of a panel that stay readable


class Chart(Declared):
    title: str
    label: str  # of the axis, with the unit
    scale: float = 1.0  # factor: 100 turns a fraction into percent


class Quantity(Chart):
    columns: Tuple[str]  # of curve.csv, reduced to one value by `aggregate`
    aggregate: Literal["first", "mean", "sum"]  # as in `evals.learning_curves`


class FigureEntry(Declared):
    title: str
    panels: dict[str, str]  # id -> quantity


class Specification(Declared):
    model: str
    quantities: dict[str, Quantity]
    lines: dict[str, int]  # configured method name -> position of its look in `draw.STYLES`, the same in all pictures
    figures: dict[str, FigureEntry]
    charts: dict[str, Chart] = Field(default_factory=dict)  # of the page, by `series` of convergence_bands.csv

    @model_validator(mode="after")
    def _check(self) -> Self:
        for key, entry in self.figures.items():
            for name in (name for name in entry.panels.values() if name not in self.quantities):
                raise unknown(f"figures.{key}", "panels", name, self.quantities)
        if self.model not in rows.models():
            raise unknown("figures", "model", self.model, rows.models())
        looks = list(self.lines.values())
        if len({*looks}) < len(looks) or not {*looks} <= {*range(len(draw.STYLES))}:
            raise ConfigError(f"lines: {self.lines}; set a different number from 0 to {len(draw.STYLES) - 1} for each")
        return self


@cache
def specification(path: Path | str = FIGURES) -> Specification:
    """Read a specification file; raises ConfigError for unknown keys and names."""
    return validated(Specification, read_yaml(path, "specification"), str(path))


def key_of(name: str) -> str:
    """Return the key of figure `name` (`figure2`, or `2` for short); raises ConfigError for an unknown one."""
    declared = specification().figures
    if found := next((key for key in declared if key in (name, f"figure{name}")), None):
        return found
    raise unknown(str(FIGURES), "figures", name, declared)


def offered(tree: Tree) -> list[str]:
    """Return the figures that the plan of `tree` has runs for: all or none, since all show the same lines."""
    return [*specification().figures] if runs(tree) else []


def runs(tree: Tree) -> list[Run]:
    """Return the planned runs that the figures use, each once, in the matrix's order."""
    wanted = {run for of_line in planned(tree)[0].values() for run in of_line}
    return [run for run in tree.runs if run in wanted]


def model_of(tree: Tree) -> dict[str, Any]:
    """Return the figures' model as matrix.json has it; empty where the scale has none for it."""
    slot = specification().model
    return dict(tree.model_for(slot, rows.models()[slot]) or {})


def planned(tree: Tree) -> tuple[dict[str, list[Run]], list[str]]:
    """Return the planned runs of each line under the scale's own settings: lines declared, then the tree's own methods
    on the figures' model, which no table declares; and the names beyond MOST lines."""
    model = model_of(tree).get("key")
    names = list(dict.fromkeys([*specification().lines, *(rows.undeclared(tree, model) if model else ())]))
    found: dict[str, list[Run]] = {}
    for name in names[:MOST]:
        method = tree.method_for(name)
        found[name] = [run for run in tree.averaged if (run.model, run.method) == (model, method)]
    return found, names[MOST:]


# From runs to numbers.


class Line(NamedTuple):
    """A method in a panel. by_seed: values by rollout; ended: seeds that collapsed, and at which rollout."""

    panel: str
    name: str
    by_seed: Mapping[int, list[float | None]]
    ended: Mapping[int, int]
    rows: list[dict[str, Any]]  # of <key>.csv


def lines(key: str, tree: Tree) -> tuple[list[Line], list[str]]:
    """Return every finished line, panel by panel, and one sentence for each reason for an omission.

    Raises ConfigError where nothing of the figure is planned, MissingInputError where nothing is finished.
    """
    (wanted, beyond), spec = planned(tree), specification()
    records = {run: tree.record(run) for of_line in wanted.values() for run in of_line}
    if not records:
        have = ", ".join(f"{model['key']} for {model.get('stands_for') or model['key']}" for model in tree.models)
        raise ConfigError(
            f"{FIGURES}: figures.{key}: {tree.layout.matrix} plans nothing of it. It shows {', '.join(spec.lines)} "
            f"with {rows.models()[spec.model]}; planned are {', '.join(tree.methods) or 'no method'} with {have}"
        )
    curves = {run: read_curve(tree.layout.run(run) / "curve.csv") for run, record in records.items() if record}
    if not curves:
        raise MissingInputError(f"{tree.root / 'runs'}: no finished run of {key}; run snakemake")
    collapses = {run: (record or {}).get("collapsed_at") for run, record in records.items()}
    ended = {run: at for run, at in collapses.items() if at is not None}
    notes = {
        "Not trained here": [name for name, of_line in wanted.items() if not of_line],
        f"Not drawn, beyond {MOST} lines": beyond,
        "Not drawn, not finished": [run.path.as_posix() for run in records if run not in curves],
        "Collapsed, training stopped there": [f"{run.path.as_posix()} at rollout {at}" for run, at in ended.items()],
    }
    found = []
    for (panel, named), name in product(spec.figures[key].panels.items(), wanted):
        quantity, by_seed = spec.quantities[named], dict[int, list[float | None]]()
        of_line = [run for run in wanted[name] if run in curves]
        for run in of_line:
            values = curves[run].series(quantity.columns, quantity.aggregate)
            by_seed[run.seed] = [None if value is None else value * quantity.scale for value in values]
        if of_line:
            about = {"figure": key, "panel": panel, "quantity": named, "unit": quantity.label, "line": name}
            about |= {"model": of_line[0].model, "method": of_line[0].method}
            about["title"] = str(tree.methods[of_line[0].method]["title"])
            ends = {run.seed: ended[run] for run in of_line if run in ended}
            found.append(Line(panel, name, by_seed, ends, [about | point for point in points(by_seed)]))
    return found, [f"{reason}: {', '.join(what)}." for reason, what in notes.items() if what]


def points(by_seed: Mapping[int, list[float | None]]) -> Iterator[dict[str, Any]]:
    """Yield mean and range over seeds, a row per rollout.

    No mean where a seed has no value or has ended: it would cover other seeds than the point before.
    """
    for rollout, values in enumerate(zip_longest(*by_seed.values()), 1):
        known = [value for value in values if value is not None]
        row: dict[str, Any] = {"rollout": rollout, "seeds": len(known), "band": ""}
        row |= dict.fromkeys(("value", "low", "high"))
        if len(known) == len(values):
            row["value"] = fmean(known)
            if len(known) > 1:
                row |= {"low": min(known), "high": max(known), "band": "smallest to largest seed"}
        yield row


# From numbers to files.


def picture(key: str, found: list[Line], words: str) -> dict[str, bytes]:
    """Return the figure as `svg`, `png` and `pdf` bytes: means as lines, ranges over seeds as bands."""
    spec, panels = specification(), specification().figures[key].panels
    looks = draw.looks((line.name for line in found), spec.lines)

    def fill(grid: Any) -> None:
        from matplotlib.ticker import MaxNLocator

        for place, (axis, panel) in enumerate(zip(grid.ravel(), panels, strict=False)):
            quantity = spec.quantities[panels[panel]]
            for line in (line for line in found if line.panel == panel):
                _draw(axis, line, draw.style(looks[line.name]))
            axis.set_title(f"({'abcdefgh'[place]}) {quantity.title}", loc="left")
            axis.set_xlabel(AXIS)
            axis.set_ylabel(quantity.label)
            axis.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
            axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 4, 5, 10]))
            axis.grid(axis="y")
            axis.margins(x=0.02)
            if axis.dataLim.y0 >= 0:  # from 0 where no value is negative, with room for points at 0
                axis.set_ylim(-0.03 * axis.get_ylim()[1], axis.get_ylim()[1])
        for axis in grid.ravel()[len(panels) :]:
            axis.set_visible(False)

    styles = {line.rows[0]["title"]: draw.style(looks[line.name]) for line in found}
    return draw.picture(-(-len(panels) // ACROSS), ACROSS, ROW, styles, words, fill)


def _draw(axis: Any, line: Line, style: dict[str, Any]) -> None:
    """Draw mean and range. A collapsed run ends the mean: then draw each seed and mark where it ended."""
    if line.ended:
        for seed, values in line.by_seed.items():
            # As floats None is nan, where matplotlib leaves a gap in the line.
            axis.plot(range(1, len(values) + 1), np.array(values, float), **style | {"linewidth": 1.0})
            if seed in line.ended:
                axis.plot(len(values), values[-1], marker="x", markersize=6, color=style["color"], zorder=5)
    else:
        mean, low, high = np.array([[row[end] for end in ("value", "low", "high")] for row in line.rows], float).T
        x = [row["rollout"] for row in line.rows]
        axis.plot(x, mean, **style)
        axis.fill_between(x, low, high, color=style["color"], alpha=0.15, linewidth=0)


def write(key: str, tree: Tree) -> tuple[list[Path], list[str]]:
    """Write `figures/<key>.{csv,json,svg,png,pdf}`; return the paths, and what could not be drawn."""
    found, notes = lines(key, tree)
    model = str(model_of(tree)["title"])  # a drawn line implies a model
    least, most = (end(len(line.by_seed) for line in found) for end in (min, max))
    words = f"{least} to {most} seeds" if least < most else f"{most} seed{'s' if most > 1 else ''}"
    words = f"mean and range of {words}" if most > 1 else words
    words += "; ×: collapsed" if any(line.ended for line in found) else ""
    files: dict[str, str | bytes] = {
        "csv": to_csv(HEADER, (row for line in found for row in line.rows)),
        "json": json_text({"scale": tree.scale, "models": [model], "notes": notes}),
        **picture(key, found, f"{words}; {tree.scale} scale, {model}"),
    }
    return write_all({tree.layout.figures / f"{key}.{kind}": data for kind, data in files.items()}), notes


def main() -> None:
    parser = Parser(description="Draw a figure of report/figures.yaml from finished runs.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--figure", required=True, help="key in the specification: figure2 (or 2), entropy")
    args = parser.parse_args()
    paths, notes = write(key_of(args.figure), open_tree(args.results))
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in notes)]))


if __name__ == "__main__":
    errors.run(main)
