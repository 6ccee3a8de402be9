"""Read `figures.yaml`: what a figure consists of, checked before anything is computed.

Nothing here knows results: `report.figures.fill` fills the declarations with numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evals.learning_curves import AGGREGATES
from records.errors import ConfigError, unknown
from records.yaml_files import need, only, read_yaml
from report.tables.spec import TABLES

# How lines look. Colours are Okabe and Ito's (distinguishable with the common colour-vision deficiencies); every line
# also has its own dash pattern, so that a grey print still tells them apart.


INK, SOFT, GRID, PAPER = "#1f2328", "#57606a", "#d8dee4", "#ffffff"

# Colour, dash pattern (on, off, ...; empty: solid), width in points; figures.yaml names them by place.
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


def css_colours() -> dict[str, str]:
    """Colour in our SVG files -> variable of the page's style sheet, which has light and dark values for it."""
    lines = {colour: f"--line-{place}" for place, (colour, _, _) in enumerate(STYLES)}
    return {**lines, INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}


FIGURES = Path(__file__).resolve().parents[1] / "figures.yaml"
ABOUT = ("lines", "variants", "models")
EACH = ("model", "line")


@dataclass(frozen=True)
class Quantity:
    """A figure by rollout: columns of curve.csv, made one by `aggregate`, times `scale`; `log`: its axis."""

    key: str
    title: str
    columns: tuple[str, ...]
    aggregate: str
    label: str
    scale: float
    log: bool


@dataclass(frozen=True)
class LineSpec:
    """What a line shows: the first of `methods` that a model is trained with. style: None for a line that only ever
    stands alone in its panel; label: None is the method's title."""

    name: str
    methods: tuple[str, ...]
    style: int | None
    label: str | None


@dataclass(frozen=True)
class Panel:
    """`row` and `column`: its place among panels that `each` repeats, where `title` is None: it is the model's or the
    line's. alone: the line of an `each: {line: ...}`."""

    id: str
    row: int
    column: str
    title: str | None
    quantity: Quantity
    model: str
    lines: tuple[LineSpec, ...]
    variant: str | None
    alone: LineSpec | None = None


@dataclass(frozen=True)
class Block:
    """Panels under one legend; `repeated`: for every model or line."""

    title: str | None
    panels: tuple[Panel, ...]
    across: int
    bands: bool
    repeated: bool


@dataclass(frozen=True)
class Figure:
    """about: what must be planned, any of it, for the figure to be offered; empty: nothing in particular."""

    key: str
    title: str
    blocks: tuple[Block, ...]
    about: Mapping[str, tuple[str, ...]]
    models: Mapping[str, str]  # slot -> the paper's model
    source: str

    @property
    def panels(self) -> list[Panel]:
        return [panel for block in self.blocks for panel in block.panels]


@dataclass(frozen=True)
class _File:
    """The parts that figures refer to."""

    where: str
    quantities: Mapping[str, Quantity]
    lines: Mapping[str, LineSpec]
    models: Mapping[str, str]

    def line(self, name: str, at: str) -> LineSpec:
        return _known(self.lines, name, self.where, at)


def figure(key: str, path: Path | str = FIGURES) -> Figure:
    """Figure `key` (`figure2`, or `2` for short) of a specification file.

    Raises `ConfigError` for unknown keys and names, for a panel id given twice, and for lines that look alike.
    """
    figures, file = _read(path)
    key = key if key in figures else f"figure{key}" if f"figure{key}" in figures else key
    return _figure(key, _known(figures, key, file.where, "figures"), file)


def figures(path: Path | str = FIGURES) -> list[Figure]:
    """Every figure of a specification file, in its order."""
    declared, file = _read(path)
    return [_figure(str(key), body, file) for key, body in declared.items()]


def _read(path: Path | str) -> tuple[Mapping[str, Any], _File]:
    where = str(path)
    content = read_yaml(path, "specification")
    only(content, where, "", ("quantities", "lines", "figures"))
    file = _File(
        where,
        {name: _quantity(name, value, where) for name, value in need(content, "quantities", where).items()},
        {str(name): _line(str(name), value, where) for name, value in need(content, "lines", where).items()},
        read_yaml(TABLES)["models"],
    )
    return need(content, "figures", where), file


def _figure(key: str, body: Mapping[str, Any], file: _File) -> Figure:
    where, at = file.where, f"figures.{key}"
    only(body, where, at, ("title", "about", "blocks"))
    blocks = tuple(_block(block, file, f"{at}.blocks.{n}") for n, block in enumerate(need(body, "blocks", where, at)))
    ids = [panel.id for block in blocks for panel in block.panels]
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where}: {at}: panel {twice} is given twice")
    return Figure(key, str(need(body, "title", where, at)), blocks, _about(body, file, at), file.models, where)


def _quantity(name: str, body: Mapping[str, Any], where: str) -> Quantity:
    at = f"quantities.{name}"
    only(body, where, at, ("title", "columns", "aggregate", "label", "scale", "log"))
    aggregate = need(body, "aggregate", where, at)
    _known(AGGREGATES, aggregate, where, f"{at}.aggregate")
    return Quantity(
        key=name,
        title=str(need(body, "title", where, at)),
        columns=tuple(need(body, "columns", where, at)),
        aggregate=aggregate,
        label=str(need(body, "label", where, at)),
        scale=float(body.get("scale", 1.0)),
        log=bool(body.get("log", False)),
    )


def _line(name: str, body: Mapping[str, Any], where: str) -> LineSpec:
    only(body, where, f"lines.{name}", ("style", "methods", "label"))
    if body.get("style", 0) not in range(len(STYLES)):
        raise unknown(where, f"lines.{name}.style", str(body["style"]), map(str, range(len(STYLES))))
    return LineSpec(name, tuple(map(str, body.get("methods", [name]))), body.get("style"), body.get("label"))


def _block(body: Mapping[str, Any], file: _File, at: str) -> Block:
    where = file.where
    only(body, where, at, ("title", "model", "lines", "across", "bands", "each", "panels"))
    each = body.get("each", {})
    only(each, where, f"{at}.each", EACH)
    if len(each) > 1 or ("model" in each) == ("model" in body):
        raise ConfigError(
            f"{where}: {at}: needs one model, or `each` over models; and `each` over models or over lines"
        )
    lines = tuple(file.line(name, f"{at}.lines") for name in need(body, "lines", where, at))
    styles = [line.style for line in lines]
    same = next((line for line in lines if line.style is None or styles.count(line.style) > 1), None)
    if same is not None:
        raise ConfigError(f"{where}: {at}.lines: {same.name} has no style, or the style of another line here")
    models = each.get("model") or [body["model"]]
    for model in models:
        _known(file.models, model, where, f"{at}.model")
    alone: list[LineSpec | None] = [file.line(name, f"{at}.each.line") for name in each.get("line", [])]
    panels = tuple(
        _panel(entry, file, f"{at}.panels.{row}", row, model, lines, line, repeated="model" in each or line is not None)
        for row, entry in enumerate(need(body, "panels", where, at))
        for model in models
        for line in alone or [None]
    )
    across, bands = int(need(body, "across", where, at)), bool(need(body, "bands", where, at))
    return Block(body.get("title"), panels, across, bands, bool(each))


def _panel(
    body: Mapping[str, Any], file: _File, at: str, row: int, model: str, lines: tuple[LineSpec, ...],
    alone: LineSpec | None, *, repeated: bool,
) -> Panel:  # fmt: skip
    only(body, file.where, at, ("id", "title", "quantity", "variant"))
    quantity = _known(file.quantities, need(body, "quantity", file.where, at), file.where, f"{at}.quantity")
    name, column = str(body.get("id", quantity.key)), alone.name if alone else model
    return Panel(
        id=f"{name}.{column}" if repeated else name,
        row=row,
        column=column,
        title=None if repeated else str(body.get("title", quantity.title)),
        quantity=quantity,
        model=model,
        lines=(*lines, alone) if alone else lines,
        variant=body.get("variant"),
        alone=alone,
    )


def _about(body: Mapping[str, Any], file: _File, at: str) -> dict[str, tuple[str, ...]]:
    about = body.get("about", {})
    only(about, file.where, f"{at}.about", ABOUT)
    for kind, known in (("lines", file.lines), ("models", file.models)):
        for name in about.get(kind, []):
            _known(known, name, file.where, f"{at}.about.{kind}")
    return {kind: tuple(names) for kind, names in about.items()}


def _known(entries: Mapping[str, Any], name: str, where: str, at: str) -> Any:
    if name not in entries:
        raise unknown(where, at, name, entries)
    return entries[name]
