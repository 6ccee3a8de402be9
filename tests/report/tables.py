"""A table of an invented tree as the renderings see it, without a file in between."""

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

from core.layout import Checkpoint
from evals.tree import Tree
from report import view
from report.rows import declaration
from report.tables import Cell, fill


@cache
def filling(tree: Tree, key: str) -> list[Cell]:
    return fill(declaration(tree, key), tree)


@cache
def filled(tree: Tree, key: str) -> dict[str, Any]:
    return view.view(filling(tree, key), declaration(tree, key), tree)


def changed(tree: Tree, key: str, changes: Mapping[str, Mapping[str, Any]], among: list[Cell] | None = None) -> Any:
    """The table with only these rows, of which cells say something else. changes: by the id of the row."""
    found = filling(tree, key) if among is None else among
    cells = [cell | dict(changes[cell["row"]]) for cell in found if cell["row"] in changes]
    return view.view(cells, declaration(tree, key), tree)


def rows(table: Mapping[str, Any]) -> dict[str, SimpleNamespace]:
    return {row["id"]: SimpleNamespace(**row) for block in table["blocks"] for row in block["rows"]}


def cells(table: Mapping[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(**cell) for row in rows(table).values() for cell in row.cells.values()]


def cell(table: Mapping[str, Any], row: str, column: str) -> SimpleNamespace:
    return SimpleNamespace(**rows(table)[row].cells[column])


def behind(table: Mapping[str, Any]) -> dict[str, list[Checkpoint]]:
    """The checkpoints behind each row."""
    return {
        id: list(dict.fromkeys(run for cell in row.cells.values() for run in cell["runs"]))
        for id, row in rows(table).items()
    }
