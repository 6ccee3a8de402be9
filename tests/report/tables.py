"""A table of an invented tree as the renderings see it, without a file in between."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from core.results_tree import Tree
from report.tables import fill
from report.tables.spec import declaration
from report.tables.tidy import Cell, Table, view


@cache
def filled(tree: Tree, key: str) -> Table:
    declared = declaration(tree, key)
    return view(declared, tree, fill.fill(declared, tree))


def changed(table: Table, change: Callable[[Cell], Mapping[str, Any]]) -> Table:
    """The table with cells that say something else."""
    rows = [
        replace(row, cells={slot: one.model_copy(update=change(one)) for slot, one in row.cells.items()})
        for row in table.rows
    ]
    return replace(table, rows=tuple(rows))


def cell(table: Table, row: str, column: str) -> Cell:
    return next(c for c in table.cells if (c.row, c.column) == (row, column))
