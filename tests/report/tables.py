"""A table of an invented tree as the renderings see it, without a file in between."""

from __future__ import annotations

from functools import cache

from core.results_tree import Tree
from report.tables import fill
from report.tables.spec import declaration
from report.tables.tidy import Cell, Table, view


@cache
def filled(tree: Tree, key: str) -> Table:
    declared = declaration(tree, key)
    return view(declared, tree, fill.fill(declared, tree))


def cell(table: Table, row: str, column: str) -> Cell:
    return next(c for c in table.cells if (c.row, c.column) == (row, column))
