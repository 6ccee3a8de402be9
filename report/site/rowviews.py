"""A view per row of a table: the checkpoints behind its numbers, one line each. And tables whose numbers lead there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from records.layout import BASE
from report import captions, page
from report.results import Tree
from report.site import places, runviews
from report.tables.filled import Cell, FilledBlock, FilledRow, FilledTable, percent
from report.tables.shown import levels, shown


def address(row: FilledRow, filled: FilledTable) -> str:
    """Where a click on the row's numbers leads: the run if there is exactly one, else the view of the row."""
    if len(row.checkpoints) == 1 and row.checkpoints[0].run.method != BASE:
        return places.run(row.checkpoints[0].run)
    return places.row(filled.table.key, row.row.id)


def views(tables: Sequence[FilledTable], tree: Tree) -> list[dict[str, Any]]:
    """One per row that has checkpoints and is not a single run."""
    return [
        _view(row, block, filled, tree)
        for filled in tables
        for block in filled.blocks
        for row in block.rows
        if row.checkpoints and address(row, filled) == places.row(filled.table.key, row.row.id)
    ]


def table(filled: FilledTable, tree: Tree) -> dict[str, Any]:
    """`page.table` with an address for each row and, for each cell, its value and the words behind it."""
    found = page.table(filled, tree)
    labels = {row.row.id: row.label for row in filled.rows}
    found["caption"] = captions.paragraphs(f"table{filled.table.key}")
    for shown_block, block in zip(found["blocks"], filled.blocks, strict=True):
        shown_block["absent"] = [row.label for row in block.rows if not row.ran]
        for line, row in zip(shown_block["rows"], block.rows, strict=True):
            line["href"] = address(row, filled)
            for cell, column in zip(line["cells"], filled.columns, strict=True):
                measured = row.cells[column.slot]
                cell["value"] = "" if measured.value is None else f"{measured.value:.6f}"
                cell["behind"] = _behind(measured, labels)
    return found


def reading(tables: Sequence[FilledTable]) -> list[str]:
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
        gain = cell.versus.comparison
        bounds = "" if gain.low is None else f" [{percent(gain.low)}, {percent(gain.high)}]"
        p = (
            ""
            if cell.versus.p_holm is None
            else f"; p {cell.versus.p_holm:.2g}, corrected for {cell.versus.tests} tests"
        )
        against = labels.get(cell.versus.baseline, cell.versus.baseline)
        lines.append(f"{percent(gain.difference)}{bounds} against {against} ({gain.level} level: {gain.how}){p}")
    if cell.printed is not None and not cell.comparable:
        lines.append(f"The paper prints {percent(cell.printed)}, for another model or other problems: not comparable.")
    return lines


def _view(row: FilledRow, block: FilledBlock, filled: FilledTable, tree: Tree) -> dict[str, Any]:
    cells = [shown(row.cells[column.slot], block, row) for column in filled.columns]
    return {
        "id": places.row(filled.table.key, row.row.id),
        "label": row.label,
        "table": filled.table.key,
        "model": block.model["title"],
        "kind": row.row.kind,
        "columns": [column.heading for column in filled.columns],
        "cells": cells,
        "lines": [
            {
                "title": places.title(checkpoint, tree),
                "href": None if checkpoint.run.method == BASE else places.run(checkpoint.run),
                "scores": runviews.scores(checkpoint, tree, [column.benchmark or "" for column in filled.columns]),
            }
            for checkpoint in row.checkpoints
        ],
    }
