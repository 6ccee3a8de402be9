"""A view per row of a table: the checkpoints behind its numbers, one line each. And tables whose numbers lead there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from records.layout import BASE
from records.results_tree import Tree
from report import captions
from report.site import links, runs
from report.tables import render, spec
from report.tables.render import levels, shown
from report.tables.tidy import Cell, Row, Table, percent, read_table


def read(tree: Tree) -> list[Table]:
    """Every table that the scale has, as `report.table` filled it."""
    return [read_table(tree, key) for key in spec.keys_for(tree.methods)]


def address(row: Row, filled: Table) -> str:
    """Where a click on the row's numbers leads: the run if there is exactly one, else the view of the row."""
    if len(row.checkpoints) == 1 and row.checkpoints[0].run.method != BASE:
        return links.run(row.checkpoints[0].run)
    return links.row(filled.key, row.id)


def row_pages(tables: Sequence[Table], tree: Tree) -> list[dict[str, Any]]:
    """One per row that has checkpoints and is not a single run."""
    return [
        _view(row, filled, tree)
        for filled in tables
        for row in filled.rows
        if row.checkpoints and address(row, filled) == links.row(filled.key, row.id)
    ]


def view(filled: Table, tree: Tree) -> dict[str, Any]:
    """`page.table` with an address for each row and, for each cell, its value and the words behind it."""
    tidy = tree.layout.tables / f"table{filled.key}.tidy.csv"
    found = render.context(filled, tidy.relative_to(tree.root).as_posix(), "")
    labels = {row.id: row.label for row in filled.rows}
    found["caption"] = captions.paragraphs(f"table{filled.key}")
    for shown_block, rows in zip(found["blocks"], filled.blocks, strict=True):
        shown_block["absent"] = [row.label for row in rows if not row.ran]
        for line, row in zip(shown_block["rows"], rows, strict=True):
            line["href"] = address(row, filled)
            for cell, column in zip(line["cells"], filled.columns, strict=True):
                measured = row.cells[column.slot]
                cell["value"] = "" if measured.value is None else f"{measured.value:.6f}"
                cell["behind"] = _behind(measured, labels)
    return found


def how_to_read(tables: Sequence[Table]) -> list[str]:
    """What holds for all tables: marks, intervals, words for missing numbers."""
    return [*captions.paragraphs("tables"), *dict.fromkeys(line for filled in tables for line in levels(filled))]


def _behind(cell: Cell, labels: Mapping[str, str]) -> list[str]:
    """What one reads while pointing at a number. labels: of the table's rows."""
    if cell.value is None:
        return []
    seeds = f"Seed{'s' if len(cell.seeds) > 1 else ''} {', '.join(map(str, cell.seeds))}" if cell.seeds else "Untrained"
    problems = f", {cell.n} problems" if cell.level == "problem" and cell.n is not None else ""
    lines = [seeds + problems, f"{cell.level.capitalize()} level: {cell.how}"]
    if cell.versus is not None:
        bounds = "" if cell.versus_low is None else f" [{percent(cell.versus_low)}, {percent(cell.versus_high)}]"
        p = cell.versus_p_holm
        corrected = "" if p is None else f"; p {p:.2g}, corrected for {cell.versus_tests} tests"
        against = labels.get(cell.baseline or "", cell.baseline)
        how = f"({cell.versus_level} level: {cell.versus_how})"
        lines.append(f"{percent(cell.versus)}{bounds} against {against} {how}{corrected}")
    if cell.printed is not None and not cell.comparable:
        lines.append(f"The paper prints {percent(cell.printed)}, for another model or other problems: not comparable.")
    return lines


def _view(row: Row, filled: Table, tree: Tree) -> dict[str, Any]:
    cells = [shown(row.cells[column.slot], filled) for column in filled.columns]
    return {
        "id": links.row(filled.key, row.id),
        "label": row.label,
        "table": filled.key,
        "model": row.model_title,
        "kind": row.kind,
        "columns": [column.heading for column in filled.columns],
        "cells": cells,
        "lines": [
            {
                "title": links.title(checkpoint, tree),
                "href": None if checkpoint.run.method == BASE else links.run(checkpoint.run),
                "scores": runs.scores(checkpoint, tree, [column.benchmark or "" for column in filled.columns]),
            }
            for checkpoint in row.checkpoints
        ],
    }


# The first view: Table 1's averages as dots with their intervals, one picture per model.


COLUMN = "avg_pooled"
MARGIN = 0.04  # of the plotted range, left and right


def glance(filled: Table) -> list[dict[str, Any]]:
    """One entry per block of the table that has a measured average."""
    return [entry for rows in filled.blocks if (entry := _block(rows, filled))]


def _block(block: list[Row], filled: Table) -> dict[str, Any] | None:
    rows = [row for row in block if row.kind != "delta" and row.cells[COLUMN].value is not None]
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
    stands_for = rows[0].stands_for
    stands = f", standing for {stands_for}" if stands_for else ""
    return {
        "title": f"{rows[0].model_title}{stands}",
        "note": _note(stands_for),
        "printed": stands_for or "the paper",
        "low": f"{100 * low:.0f} %",
        "high": f"{100 * high:.0f} %",
        "rows": [_row(row, filled, low, high) for row in rows],
    }


def _note(stands_for: str | None) -> str:
    text = "Avg. (pooled) of Table 1 with its 95 % interval. Marks compare with the hollow dot; ≈: inside noise."
    if stands_for:
        text += f" In grey what the paper prints for {stands_for} on its own benchmarks: not comparable."
    return text


def _row(row: Row, filled: Table, low: float, high: float) -> dict[str, Any]:
    cell = row.cells[COLUMN]
    text = shown(cell, filled)

    def place(value: float) -> float:
        return round(100 * (value - low) / (high - low), 2)

    whisker = None
    if cell.low is not None and cell.high is not None:
        whisker = (place(cell.low), round(place(cell.high) - place(cell.low), 2))
    return {
        "label": row.label,
        "href": address(row, filled),
        "text": text["text"].replace("−", "-"),
        "mark": text["mark"],
        "interval": text["interval"],
        "printed": percent(cell.printed),
        "reference": row.id == row.block.baseline,
        "dot": place(cell.value or 0.0),
        "whisker": whisker,
    }
