"""The first view: Table 1's averages as dots with their intervals, one picture per model."""

from __future__ import annotations

from typing import Any

from report.site import rowviews
from report.tables.filled import FilledBlock, FilledRow, FilledTable, percent
from report.tables.shown import shown

COLUMN = "avg_pooled"
MARGIN = 0.04  # of the plotted range, left and right


def glance(filled: FilledTable) -> list[dict[str, Any]]:
    """One entry per block of the table that has a measured average."""
    return [entry for block in filled.blocks if (entry := _block(block, filled))]


def _block(block: FilledBlock, filled: FilledTable) -> dict[str, Any] | None:
    rows = [row for row in block.rows if row.row.kind != "delta" and row.cells[COLUMN].value is not None]
    if not rows:
        return None
    ends = [
        end
        for row in rows
        for end in (row.cells[COLUMN].low, row.cells[COLUMN].value, row.cells[COLUMN].high)
        if end is not None
    ]
    low, high = min(ends), max(ends)
    room = MARGIN * (high - low) or MARGIN
    low, high = max(0.0, low - room), min(1.0, high + room)
    stands = f", standing for {block.stands_for}" if block.stands_for else ""
    return {
        "title": f"{block.model['title']}{stands}",
        "note": _note(block),
        "printed": block.stands_for or "the paper",
        "low": f"{100 * low:.0f} %",
        "high": f"{100 * high:.0f} %",
        "rows": [_row(row, block, filled, low, high) for row in rows],
    }


def _note(block: FilledBlock) -> str:
    text = "Avg. (pooled) of Table 1 with its 95 % interval. Marks compare with the hollow dot; ≈: inside noise."
    if block.stands_for:
        text += f" In grey what the paper prints for {block.stands_for} on its own benchmarks: not comparable."
    return text


def _row(row: FilledRow, block: FilledBlock, filled: FilledTable, low: float, high: float) -> dict[str, Any]:
    cell = row.cells[COLUMN]
    text = shown(cell, block, row)

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    whisker = None
    if cell.low is not None and cell.high is not None:
        whisker = (place(cell.low), round(place(cell.high) - place(cell.low), 2))
    return {
        "label": row.label,
        "href": rowviews.address(row, filled),
        "text": text.number,
        "mark": text.mark,
        "interval": text.interval.replace(" to ", "–"),
        "printed": percent(cell.printed),
        "reference": row.row.id == block.baseline,
        "dot": place(cell.value or 0.0),
        "whisker": whisker,
    }
