"""What a figure shows, as values and as files: `report.figures.fill` writes them, pictures and the page read them.

<key>.csv         means and bands, one row per point of a line
<key>.seeds.csv   the same for each seed alone, as far as its run goes
<key>.json        the words: titles of panels, scale, models, what is left out
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path

from core.declared import Declared, Tuple, validated
from core.errors import CorruptInputError, written_by
from core.files import cells_of, read_csv, read_json, to_csv, write_json, write_text
from report.figures.spec import ALONE, Block, Figure, LineSpec, Panel

HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band",
    "unit", "line",
)  # fmt: skip
SEED_HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "seed", "rollout", "value", "unit", "line",
    "collapsed_at",
)  # fmt: skip


class PanelWords(Declared):
    id: str
    title: str
    setting: str


class Words(Declared):
    """<key>.json"""

    scale: str
    models: Tuple[str]
    notes: Tuple[str]
    panels: Tuple[PanelWords]


@dataclass(frozen=True)
class Point:
    """One point of a line; the fields are columns of <key>.csv."""

    rollout: int
    value: float | None  # mean over all seeds of the line; None: one of them has no value here
    low: float | None  # smallest and largest seed; None for a single seed
    high: float | None
    seeds: int  # that have a value here


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
    """Write the three files of a figure; returns their paths."""
    points, seeds, words = _paths(drawing.figure.key, folder)
    write_text(
        points,
        to_csv(
            HEADER,
            (
                _names(drawing, line)
                | asdict(point)
                | {"band": "smallest to largest seed" if point.low is not None else ""}
                for line in drawing.lines
                for point in line.points
            ),
        ),
    )
    write_text(
        seeds,
        to_csv(
            SEED_HEADER,
            (
                _names(drawing, line)
                | {"seed": seed, "rollout": rollout, "value": value, "collapsed_at": line.ended.get(seed)}
                for line in drawing.lines
                for seed, values in line.by_seed.items()
                for rollout, value in enumerate(values, 1)
            ),
        ),
    )
    panels = [{"id": drawn.panel.id, "title": drawn.title, "setting": drawn.setting} for drawn in drawing.panels]
    write_json(
        words,
        {"scale": drawing.scale, "models": list(drawing.models), "notes": list(drawing.notes), "panels": panels},
    )
    return [points, seeds, words]


def read(figure: Figure, folder: Path) -> Drawing:
    """The drawing that `write` stored in `folder`.

    Raises `MissingInputError` or `CorruptInputError` with the file and the command that writes it.
    """
    points_file, seeds_file, words_file = _paths(figure.key, folder)
    with written_by(f"python -m report.figure --results {folder.parent} --figure {figure.key}"):
        words = read_json(words_file, "the words of the figure")
        validated(Words, words, str(words_file), error=CorruptInputError)
        point_rows = read_csv(points_file, "the numbers of the figure", HEADER)
        seed_rows = read_csv(seeds_file, "the numbers of each seed", SEED_HEADER)
        points = {key: list(rows) for key, rows in groupby(point_rows, key=_line_of)}
        seeds = {key: list(rows) for key, rows in groupby(seed_rows, key=_line_of)}
        for path, lines in ((points_file, points), (seeds_file, seeds)):
            lost = {panel["id"] for panel in words["panels"]} - {panel for panel, _ in lines}
            if lost:
                raise CorruptInputError(f"{path}: panel {min(lost)} has no rows")
        if points.keys() != seeds.keys():
            raise CorruptInputError(f"{seeds_file}: has other lines than {points_file.name}")
        declared = {panel.id: panel for panel in figure.panels}
        panels = []
        for entry in words["panels"]:
            if entry["id"] not in declared:
                raise CorruptInputError(f"{words_file}: panel {entry['id']} is not in {figure.source}")
            panel = declared[entry["id"]]
            with cells_of(points_file, seeds_file):
                drawn = tuple(_line(panel, points[key], seeds[key]) for key in points if key[0] == panel.id)
            panels.append(DrawnPanel(panel, entry["title"], entry["setting"], drawn))
    return Drawing(figure, words["scale"], tuple(words["models"]), arranged(figure, panels), tuple(words["notes"]))


def _paths(key: str, folder: Path) -> tuple[Path, Path, Path]:
    return folder / f"{key}.csv", folder / f"{key}.seeds.csv", folder / f"{key}.json"


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


def _line_of(row: Mapping[str, str]) -> tuple[str, str]:
    return row["panel"], row["line"]


def _line(panel: Panel, points: Sequence[Mapping[str, str]], seeds: Sequence[Mapping[str, str]]) -> Line:
    first = points[0]
    by_seed: dict[int, list[float | None]] = {}
    ended: dict[int, int] = {}
    for row in seeds:
        seed = int(row["seed"])
        by_seed.setdefault(seed, []).append(number(row["value"]))
        if row["collapsed_at"]:
            ended[seed] = int(row["collapsed_at"])
    return Line(
        panel=panel,
        spec={line.name: line for line in panel.lines}[first["line"]],
        model=first["model"],
        method=first["method"],
        title=first["title"],
        points=tuple(
            Point(
                int(row["rollout"]),
                number(row["value"]),
                number(row["low"]),
                number(row["high"]),
                int(row["seeds"]),
            )
            for row in points
        ),
        by_seed={seed: tuple(values) for seed, values in by_seed.items()},
        ended=ended,
    )


def number(text: str) -> float | None:
    """A float as Python wrote it, so every digit comes back; empty is None."""
    value = float(text) if text else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value
