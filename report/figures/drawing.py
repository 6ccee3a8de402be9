"""What a figure shows: `report.figures.fill` makes it from curves, `report.figures.draw` draws it.

<key>.csv    means and bands, one row per point of a line
<key>.json   the words: titles of panels, scale, models, what is left out
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from core.files import to_csv, write_json, write_text
from report.figures.spec import ALONE, Block, Figure, LineSpec, Panel

HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band",
    "unit", "line",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One point of a line; the fields are columns of <key>.csv."""

    rollout: int
    value: float | None  # mean over all seeds of the line; None: one of them has no value here
    low: float | None  # smallest and largest seed; None for a single seed
    high: float | None
    seeds: int  # that have a value here


def points(seeds: Iterable[Sequence[float | None]]) -> tuple[Point, ...]:
    """Mean and range over seeds, each with a value by rollout.

    No mean where a seed has no value or has ended: it would be a mean over other seeds than the point before.
    """
    found = []
    for rollout, values in enumerate(zip_longest(*seeds), 1):
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            found.append(Point(rollout, None, None, None, len(known)))
            continue
        low, high = (min(known), max(known)) if len(known) > 1 else (None, None)
        found.append(Point(rollout, math.fsum(known) / len(known), low, high, len(known)))
    return tuple(found)


@dataclass(frozen=True)
class Line:
    """A method in a panel."""

    panel: Panel
    spec: LineSpec
    model: str
    method: str
    title: str
    points: tuple[Point, ...]
    by_seed: Mapping[int, tuple[float | None, ...]]  # what is drawn of each seed, by rollout
    ended: Mapping[int, int]  # seeds that collapsed, and at which rollout

    @property
    def alone(self) -> bool:
        """Whether the panel is named after this line."""
        return self.panel.alone is not None and self.spec.name == self.panel.alone.name

    @property
    def place(self) -> int:
        """Position in `report.figures.spec.STYLES`; ink for a line that its panel is named after."""
        return ALONE if self.alone or self.spec.style is None else self.spec.style


@dataclass(frozen=True)
class DrawnPanel:
    panel: Panel
    title: str
    setting: str  # title of the panel's variant; empty: the scale's own settings
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class DrawnBlock:
    block: Block
    cells: tuple[DrawnPanel | None, ...]  # row by row, `across` to a row; None: this scale has nothing to draw there
    across: int

    @property
    def panels(self) -> list[DrawnPanel]:
        return [cell for cell in self.cells if cell is not None]


@dataclass(frozen=True)
class Drawing:
    figure: Figure
    scale: str
    models: tuple[str, ...]  # titles of the scale's models that are drawn
    blocks: tuple[DrawnBlock, ...]
    notes: tuple[str, ...]  # what could not be drawn, and why

    @property
    def panels(self) -> list[DrawnPanel]:
        return [panel for block in self.blocks for panel in block.panels]

    @property
    def lines(self) -> list[Line]:
        return [line for panel in self.panels for line in panel.lines]


def arranged(figure: Figure, panels: Sequence[DrawnPanel]) -> tuple[DrawnBlock, ...]:
    """The panels in their blocks; a block without a panel is left out."""
    by_id = {drawn.panel.id: drawn for drawn in panels}
    blocks = []
    for block in figure.blocks:
        here = [by_id[panel.id] for panel in block.panels if panel.id in by_id]
        if here:
            blocks.append(_arranged(block, here))
    return tuple(blocks)


def _arranged(block: Block, panels: Sequence[DrawnPanel]) -> DrawnBlock:
    rows = dict.fromkeys(drawn.panel.row for drawn in panels)
    if not block.repeated or len(rows) == 1:
        return DrawnBlock(block, tuple(panels), min(block.across, len(panels)))
    # Several panels repeated for each model or line: a row for each panel, a column for each model or line. A column
    # keeps its place in every row, so that one looks down a model or a method.
    occurring = {drawn.panel.column for drawn in panels}
    columns = [name for name in dict.fromkeys(panel.column for panel in block.panels) if name in occurring]
    by_place = {(drawn.panel.row, drawn.panel.column): drawn for drawn in panels}
    return DrawnBlock(block, tuple(by_place.get((row, name)) for row in rows for name in columns), len(columns))


def write(drawing: Drawing, folder: Path) -> list[Path]:
    """Write the two files of a figure; returns their paths."""
    key = drawing.figure.key
    points, words = (folder / f"{key}{suffix}" for suffix in (".csv", ".json"))
    point_rows = (
        _names(drawing, line) | asdict(point) | {"band": "smallest to largest seed" if point.low is not None else ""}
        for line in drawing.lines
        for point in line.points
    )
    panels = [{"id": drawn.panel.id, "title": drawn.title, "setting": drawn.setting} for drawn in drawing.panels]
    write_text(points, to_csv(HEADER, point_rows))
    write_json(words, {"scale": drawing.scale, "models": drawing.models, "notes": drawing.notes, "panels": panels})
    return [points, words]


def _names(drawing: Drawing, line: Line) -> dict[str, object]:
    return {
        "figure": drawing.figure.key,
        "panel": line.panel.id,
        "quantity": line.panel.quantity.key,
        "model": line.model,
        "method": line.method,
        "title": line.title,
        "unit": line.panel.quantity.label,
        "line": line.spec.name,
    }


def number(text: str) -> float | None:
    """A float as Python wrote it, so every digit comes back; empty is None."""
    value = float(text) if text else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value
