"""Read `figures.yaml`: what a figure consists of, validated before anything is computed.

Nothing here knows numbers: `report.figure` fills the declarations from curves, `report.draw` draws them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from core.declared import Declared, Tuple, validated
from core.errors import unknown
from core.files import read_yaml
from core.layout import Run
from core.provenance import ROOT
from core.results_tree import Tree

DATA = ("report/figures.yaml", "report/tables.yaml")
FIGURES = ROOT / DATA[0]
TABLES = ROOT / DATA[1]  # names the paper's models, for figures too

# How lines look. The colours are Okabe and Ito's (distinguishable with the common colour-vision deficiencies). Every
# line also has its own dash pattern, so that a grey print still tells them apart.

INK, SOFT, GRID, PAPER = "#1f2328", "#57606a", "#d8dee4", "#ffffff"

# Colour, dash pattern (on, off, ...; empty: solid), width in points; a line of figures.yaml is a position here.
STYLES: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("#0072b2", (), 1.5),
    ("#d55e00", (), 2.2),
    ("#009e73", (5, 1.6), 1.5),
    ("#cc79a7", (1.2, 1.4), 2.0),
    ("#e69f00", (6, 1.5, 1.2, 1.5), 1.5),
    ("#56b4e9", (3, 1.2), 1.5),
    ("#7f7f7f", (8, 2, 1.2, 2, 1.2, 2), 1.5),
    (INK, (), 1.8),
)


def looks() -> list[tuple[str, tuple[float, ...], float]]:
    """STYLES, then its colours with the other dash patterns: enough for any number of lines that one can still read."""
    coloured = STYLES[:-1]
    more = [
        (colour, coloured[(place + turn) % len(coloured)][1], width)
        for turn in range(1, len(coloured))
        for place, (colour, _, width) in enumerate(coloured)
    ]
    return list(dict.fromkeys([*STYLES, *more]))  # two patterns are solid: turned, one colour has that look already


def given() -> dict[str, int]:
    """Method, as the configuration names it -> its look in figures.yaml, which no other method has in any picture."""
    return {name: place for one in figures() for name, place in one.lines.items()}


def css_colours() -> dict[str, str]:
    """Colour in our SVG files -> variable of the page's style sheet, which has light and dark values for it."""
    lines = {colour: f"--line-{place}" for place, (colour, _, _) in enumerate(STYLES)}
    return {**lines, INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}


class Quantity(Declared):
    title: str
    columns: Tuple[str]  # of curve.csv, made one value by `aggregate`
    aggregate: Literal["first", "mean", "sum"]  # as `evals.learning_curves` has them
    label: str  # of the axis, with the unit
    scale: float = 1.0  # factor: 100 turns a fraction into percent


class FigureEntry(Declared):
    title: str
    panels: dict[str, str]  # id -> quantity


class Specification(Declared):
    model: str
    quantities: dict[str, Quantity]
    lines: dict[str, int]
    figures: dict[str, FigureEntry]


@dataclass(frozen=True)
class Figure:
    """A figure with everything that its declaration refers to."""

    key: str
    title: str
    panels: Mapping[str, str]  # id -> key of the quantity
    quantities: Mapping[str, Quantity]
    lines: Mapping[str, int]  # method as the configuration names it -> position in STYLES
    model: str  # slot
    paper: str  # the paper's model of that slot
    source: str


def figure(key: str, path: Path | str = FIGURES) -> Figure:
    """Figure `key` (`figure2`, or `2` for short) of a specification file; ConfigError as in `figures`, or unknown."""
    by_key = {one.key: one for one in figures(path)}
    return by_key.get(f"figure{key}") or _known(by_key, key, str(path), "figures")


def figures(path: Path | str = FIGURES) -> list[Figure]:
    """Every figure of a specification file, in its order.

    Raises ConfigError for unknown keys and names, and for lines that look alike.
    """
    where, models = str(path), read_yaml(TABLES)["models"]
    file = validated(Specification, read_yaml(path, "specification"), where)
    paper = _known(models, file.model, where, "model")
    free = {str(place): place for place in range(len(STYLES))}
    for name, style in file.lines.items():
        _known(free, str(style), where, f"lines.{name}: style that no other line has")
        del free[str(style)]
    for key, entry in file.figures.items():
        for id, quantity in entry.panels.items():
            _known(file.quantities, quantity, where, f"figures.{key}.panels.{id}")
    return [
        Figure(key, entry.title, entry.panels, file.quantities, file.lines, file.model, paper, where)
        for key, entry in file.figures.items()
    ]


def _known(entries: Mapping[str, Any], name: str, where: str, at: str) -> Any:
    if name not in entries:
        raise unknown(where, at, name, entries)
    return entries[name]


def offered(tree: Tree) -> list[Figure]:
    """The figures that the plan of `tree` has something for."""
    return [one for one in figures() if runs(one, tree)]


def runs(figure: Figure, tree: Tree) -> list[Run]:
    """The planned runs that a figure is made of, each once, in the matrix's order."""
    wanted = {run for line in figure.lines for run in planned(figure, line, tree)}
    return [run for run in tree.runs if run in wanted]


def planned(figure: Figure, line: str, tree: Tree) -> list[Run]:
    """The planned runs of a line: of its method on the figure's model under the scale's own settings."""
    model, method = tree.model_for(figure.model, figure.paper), tree.method_for(line)
    return [run for run in tree.averaged if model and (run.model, run.method) == (model["key"], method)]
