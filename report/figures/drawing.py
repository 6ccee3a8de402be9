"""What a figure shows: `report.figure` makes it from curves, `report.figures.draw` draws it.

<key>.csv    means and bands, one row per point of a line
<key>.json   the words: scale, models, what is left out
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path

from core.files import to_csv, write_json, write_text
from report.figures.spec import Figure, Quantity

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

    name: str  # in figures.yaml
    style: int  # position in `report.figures.spec.STYLES`
    model: str
    method: str
    title: str
    points: tuple[Point, ...]
    by_seed: Mapping[int, tuple[float | None, ...]]  # what is drawn of each seed, by rollout
    ended: Mapping[int, int]  # seeds that collapsed, and at which rollout


@dataclass(frozen=True)
class Panel:
    id: str
    key: str  # of the quantity
    quantity: Quantity
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Drawing:
    figure: Figure
    scale: str
    model: str  # title
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]  # what could not be drawn, and why


def write(drawing: Drawing, folder: Path) -> list[Path]:
    """Write the two files of a figure; returns their paths."""
    key = drawing.figure.key
    csv, words = (folder / f"{key}{suffix}" for suffix in (".csv", ".json"))
    rows = (
        {"figure": key, "panel": panel.id, "quantity": panel.key, "unit": panel.quantity.label}
        | {"model": line.model, "method": line.method, "title": line.title, "line": line.name}
        | asdict(point)
        | {"band": "smallest to largest seed" if point.low is not None else ""}
        for panel in drawing.panels
        for line in panel.lines
        for point in line.points
    )
    write_text(csv, to_csv(HEADER, rows))
    write_json(words, {"scale": drawing.scale, "models": [drawing.model], "notes": drawing.notes})
    return [csv, words]


def number(text: str) -> float | None:
    """A float as Python wrote it, so every digit comes back; empty is None."""
    value = float(text) if text else None
    if value is not None and not math.isfinite(value):
        raise ValueError(f"{text} is no number")
    return value
