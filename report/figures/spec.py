"""Read `figures.yaml`: what a figure consists of, validated before anything is computed.

Nothing here knows numbers: `report.figures.fill` fills the declarations from curves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.provenance import ROOT

if TYPE_CHECKING:
    from core.layout import Run
    from core.results_tree import Tree

DATA = ("report/figures.yaml", "report/tables.yaml")
FIGURES = ROOT / DATA[0]
TABLES = ROOT / DATA[1]  # names the paper's models, for figures too

LETTERS = "abcdefghijklmnopqrstuvwxyz"  # of panels: they go on from block to block

# How lines look. The colours are Okabe and Ito's (distinguishable with the common colour-vision deficiencies). Every
# line also has its own dash pattern, so that a grey print still tells them apart.

INK, SOFT, GRID, PAPER = "#1f2328", "#57606a", "#d8dee4", "#ffffff"

# Colour, dash pattern (on, off, ...; empty: solid), width in points; `style` in figures.yaml is a position here.
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
ALONE = len(STYLES) - 1  # the line that a panel is named after: ink


def looks() -> list[tuple[str, tuple[float, ...], float]]:
    """STYLES, then its colours with the other dash patterns: enough for any number of lines that one can still read."""
    coloured = STYLES[:ALONE]
    more = [
        (colour, coloured[(place + turn) % len(coloured)][1], width)
        for turn in range(1, len(coloured))
        for place, (colour, _, width) in enumerate(coloured)
    ]
    return [*STYLES, *more]


def preferred(method: str) -> int | None:
    """Position in STYLES of a method that a figure of several lines shows; None: any."""
    for name, entry in read_yaml(FIGURES, "specification")["lines"].items():
        if "style" in entry and method in (name, *entry.get("methods", ()), *entry.get("of_model", {}).values()):
            return int(entry["style"])
    return None


def css_colours() -> dict[str, str]:
    """Colour in our SVG files -> variable of the page's style sheet, which has light and dark values for it."""
    lines = {colour: f"--line-{place}" for place, (colour, _, _) in enumerate(STYLES)}
    return {**lines, INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}


# The file as it is written.


class Quantity(Declared):
    key: str  # its name in the file
    title: str
    columns: Tuple[str]  # of curve.csv, made one value by `aggregate`
    aggregate: Literal["first", "mean", "sum"]  # as `evals.learning_curves` has them
    label: str  # of the axis, with the unit
    scale: float = 1.0  # factor: 100 turns a fraction into percent
    log: bool = False  # a logarithmic axis


class LineSpec(Declared):
    name: str  # its name in the file
    style: int | None = None  # position in STYLES; None: the line only ever stands alone in its panel
    methods: Tuple[str] = ()  # the first that a model is trained with is drawn; none given: the line's own name
    of_model: dict[str, str] = Field(default_factory=dict)  # model slot -> the method of the same row with that model
    label: str | None = None  # None: the method's title

    def with_model(self, slot: str) -> tuple[str, ...]:
        """The methods that the line may stand for with a model."""
        return (self.of_model[slot],) if slot in self.of_model else self.methods or (self.name,)


class PanelEntry(Declared):
    quantity: str
    id: str | None = None
    title: str | None = None
    variant: str | None = None


class Each(Declared):
    model: Tuple[str] = ()
    line: Tuple[str] = ()


class BlockEntry(Declared):
    title: str | None = None
    model: str | None = None
    each: Each = Each()
    lines: Tuple[str]
    across: int
    panels: Tuple[PanelEntry]


class About(Declared):
    """What must be planned, any of it, for the figure to be offered. Empty: nothing in particular."""

    lines: Tuple[str] = ()
    variants: Tuple[str] = ()
    models: Tuple[str] = ()


class FigureEntry(Declared):
    title: str
    about: About = About()
    blocks: Tuple[BlockEntry]


class Specification(Declared):
    quantities: dict[str, Quantity]
    lines: dict[str, LineSpec]
    figures: dict[str, FigureEntry]


# The same with every name replaced by what it names.


@dataclass(frozen=True)
class Panel:
    id: str
    row: int  # `row` and `column`: position among panels that `each` repeats
    column: str
    title: str | None  # None for a repeated panel: it takes the model's or the line's title
    quantity: Quantity
    model: str
    lines: tuple[LineSpec, ...]
    variant: str | None
    alone: LineSpec | None = None  # the line of an `each: {line: ...}`


@dataclass(frozen=True)
class Block:
    """Panels under one legend."""

    title: str | None
    panels: tuple[Panel, ...]
    across: int
    repeated: bool  # for every model or line


@dataclass(frozen=True)
class Figure:
    key: str
    title: str
    blocks: tuple[Block, ...]
    about: About
    models: Mapping[str, str]  # slot -> the paper's model
    source: str

    @property
    def panels(self) -> list[Panel]:
        return [panel for block in self.blocks for panel in block.panels]


def figure(key: str, path: Path | str = FIGURES) -> Figure:
    """Figure `key` (`figure2`, or `2` for short) of a specification file.

    Raises `ConfigError` for unknown keys and names, for a panel id given twice, and for lines that look alike.
    """
    by_key = {one.key: one for one in figures(path)}
    return by_key.get(f"figure{key}") or _known(by_key, key, str(path), "figures")


def figures(path: Path | str = FIGURES) -> list[Figure]:
    """Every figure of a specification file, in its order."""
    where, models, content = str(path), read_yaml(TABLES)["models"], read_yaml(path, "specification")
    for part, key in (("quantities", "key"), ("lines", "name")):
        if isinstance(content.get(part), dict):
            named = content[part].items()
            if given := next((name for name, body in named if isinstance(body, dict) and key in body), None):
                raise ConfigError(f"{where}: {part}.{given}.{key}: unknown key")
            content[part] = {name: body | {key: name} if isinstance(body, dict) else body for name, body in named}
    declared = validated(Specification, content, where)
    for name, line in declared.lines.items():
        if line.style is not None and line.style not in range(len(STYLES)):
            raise unknown(where, f"lines.{name}.style", str(line.style), map(str, range(len(STYLES))))
        for slot in line.of_model:
            _known(models, slot, where, f"lines.{name}.of_model")
    names = _Names(where, declared.quantities, declared.lines, models)
    return [_figure(key, entry, names) for key, entry in declared.figures.items()]


@dataclass(frozen=True)
class _Names:
    """What the figures of a file refer to."""

    where: str
    quantities: Mapping[str, Quantity]
    lines: Mapping[str, LineSpec]
    models: Mapping[str, str]


def _figure(key: str, entry: FigureEntry, names: _Names) -> Figure:
    where, at = names.where, f"figures.{key}"
    for name in entry.about.lines:
        _known(names.lines, name, where, f"{at}.about.lines")
    for name in entry.about.models:
        _known(names.models, name, where, f"{at}.about.models")
    blocks = tuple(_block(block, names, f"{at}.blocks.{n}") for n, block in enumerate(entry.blocks))
    counts = Counter(panel.id for block in blocks for panel in block.panels)
    if twice := [name for name, count in counts.items() if count > 1]:
        raise ConfigError(f"{where}: {at}: panel {twice[0]} is given twice")
    return Figure(key, entry.title, blocks, entry.about, names.models, where)


def _block(entry: BlockEntry, names: _Names, at: str) -> Block:
    where, each = names.where, entry.each
    if bool(each.model) == (entry.model is not None) or (each.model and each.line):
        raise ConfigError(
            f"{where}: {at}: needs one model, or `each` over models; and `each` over models or over lines"
        )
    lines = tuple(_known(names.lines, name, where, f"{at}.lines") for name in entry.lines)
    styles = Counter(line.style for line in lines)
    alike = next((line for line in lines if line.style is None or styles[line.style] > 1), None)
    if alike is not None:
        raise ConfigError(f"{where}: {at}.lines: {alike.name} has no style, or the style of another line here")
    models = each.model or (entry.model or "",)
    for model in models:
        _known(names.models, model, where, f"{at}.model")
    alone = [_known(names.lines, name, where, f"{at}.each.line") for name in each.line]
    repeated = bool(each.model or each.line)
    panels = []
    for row, panel in enumerate(entry.panels):
        quantity = _known(names.quantities, panel.quantity, where, f"{at}.panels.{row}.quantity")
        for model, line in product(models, alone or [None]):
            name, column = panel.id or quantity.key, line.name if line else model
            panels.append(
                Panel(
                    id=f"{name}.{column}" if repeated else name,
                    row=row,
                    column=column,
                    title=None if repeated else panel.title or quantity.title,
                    quantity=quantity,
                    model=model,
                    lines=(*lines, line) if line else lines,
                    variant=panel.variant,
                    alone=line,
                )
            )
    return Block(entry.title, tuple(panels), entry.across, repeated)


def _known(entries: Mapping[str, Any], name: str, where: str, at: str) -> Any:
    if name not in entries:
        raise unknown(where, at, name, entries)
    return entries[name]


# Which runs of a plan a figure is made of.


def offered(tree: Tree) -> list[Figure]:
    """The figures that the plan of `tree` has something for, as `about` says."""
    return [one for one in figures() if runs(one, tree) and _about(one, tree)]


def runs(figure: Figure, tree: Tree) -> list[Run]:
    """The planned runs that a figure is made of, each once, in the matrix's order."""
    wanted: set[Run] = set()
    for panel in figure.panels:
        if panel.alone is None or planned(figure, panel, panel.alone, tree):
            wanted.update(run for line in panel.lines for run in planned(figure, panel, line, tree))
    return [run for run in tree.runs if run in wanted]


def planned(figure: Figure, panel: Panel, line: LineSpec, tree: Tree) -> list[Run]:
    """Runs of the first of the line's methods that the panel's model is trained with under the panel's settings."""
    model = tree.model_for(panel.model, figure.models[panel.model])
    for name in line.with_model(panel.model) if model else ():
        method = tree.method_for(under(name, panel.variant))
        hits = [run for run in tree.averaged if model and (run.model, run.method) == (model["key"], method)]
        if hits:
            return hits
    return []


def under(method: str, variant: str | None) -> str:
    """`tepo@hot`: a method under the settings of a variant."""
    return f"{method}@{variant}" if variant else method


def _about(figure: Figure, tree: Tree) -> bool:
    about = figure.about
    return (
        about == About()
        or any(tree.model_for(slot, figure.models[slot]) for slot in about.models)
        or any(run.variant in about.variants for run in tree.runs)
        or any(
            line.name in about.lines and planned(figure, panel, line, tree)
            for panel in figure.panels
            for line in panel.lines
        )
    )
