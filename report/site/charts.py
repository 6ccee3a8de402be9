"""What the page's interactive figures draw: the numbers of the printed ones, line by line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from report.figures.fill import Drawing, DrawnPanel, Line
from report.figures.spec import STYLES, css_colours

DIGITS = 5
DASH = 3  # pixels on the screen per unit of the printed pattern


def data(drawing: Drawing) -> dict[str, Any]:
    """Panels and, for each, its lines with their seeds by rollout; where there are several, also mean and range.

    Lines that stand for the same thing in several panels share title and look; `alone` marks one that its panel is
    named after.
    """
    return {
        "panels": [_panel(drawn, block.block.bands) for block in drawing.blocks for drawn in block.panels],
        "notes": list(drawing.notes),
    }


def _panel(drawn: DrawnPanel, bands: bool) -> dict[str, Any]:
    quantity = drawn.panel.quantity
    return {
        "id": drawn.panel.id,
        "title": ", ".join(filter(None, (drawn.title, drawn.setting))),
        "label": quantity.label,
        "quantity": quantity.key,
        "log": quantity.log,
        "bands": bands,
        "lines": [_line(line, line.spec is drawn.panel.alone) for line in drawn.lines],
    }


def _line(line: Line, alone: bool) -> dict[str, Any]:
    colour, dashes, width = STYLES[line.place]
    several = {
        "mean": _rounded(point.value for point in line.points),
        "low": _rounded(point.low for point in line.points),
        "high": _rounded(point.high for point in line.points),
    }
    return {
        "title": line.title,
        "alone": alone,
        "colour": css_colours()[colour],
        "dashes": [DASH * dash for dash in dashes],
        "width": width,
        "seeds": {str(seed): _rounded(values) for seed, values in line.by_seed.items()},
        "ended": {str(seed): rollout for seed, rollout in line.ended.items()},
        **(several if len(line.by_seed) > 1 else {}),
    }


def _rounded(values: Iterable[float | None]) -> list[float | None]:
    return [None if value is None else float(f"{value:.{DIGITS}g}") for value in values]
