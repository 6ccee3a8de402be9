"""A table of an invented tree as the renderings see it, without a file in between."""

from collections.abc import Mapping
from functools import cache
from types import SimpleNamespace
from typing import Any

import pandas as pd

from evals.tree import Tree
from report import view
from report.rows import declaration
from report.tables import fill


@cache
def frame(tree: Tree, key: str) -> pd.DataFrame:
    return fill(declaration(tree, key), tree)


@cache
def filled(tree: Tree, key: str) -> dict[str, Any]:
    return view.view(frame(tree, key), declaration(tree, key), tree)


def changed(tree: Tree, key: str, changes: Mapping[str, Mapping[str, Any]], among: pd.DataFrame | None = None) -> Any:
    """The table with only these rows, of which cells say something else. changes: by the id of the row."""
    found = frame(tree, key) if among is None else among
    cells = [cell | dict(changes[cell["row"]]) for cell in found.to_dict("records") if cell["row"] in changes]
    return view.view(view.frame(cells), declaration(tree, key), tree)


def rows(table: Mapping[str, Any]) -> dict[str, SimpleNamespace]:
    return {row["id"]: SimpleNamespace(**row) for block in table["blocks"] for row in block["rows"]}


def cells(table: Mapping[str, Any]) -> list[SimpleNamespace]:
    return [SimpleNamespace(**cell) for cell in table["cells"]]


def cell(table: Mapping[str, Any], row: str, column: str) -> SimpleNamespace:
    return next(c for c in cells(table) if (c.row, c.column) == (row, column))
