"""A table of an invented tree as the renderings see it, without a file in between."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from core import digests
from core.results_tree import Tree
from report.tables import fill, render
from report.tables.tidy import Cell, Table, declaration, read_table, view


@cache
def filled(tree: Tree, key: str) -> Table:
    declared = declaration(tree, key)
    return view(declared, tree, fill.fill(declared, tree))


def cell(table: Table, row: str, column: str) -> Cell:
    return next(c for c in table.cells if (c.row, c.column) == (row, column))


def write(tree: Tree, key: str) -> None:
    """What `report.table` writes."""
    paths = [fill.write(declaration(tree, key), tree)]
    paths += render.write(read_table(tree, key), tree.layout)
    digests.write_list(tree.layout.sums(f"tables/table{key}"), map(Path, paths))
