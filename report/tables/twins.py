"""The printed rows behind the declared ones: a row that has the id of a printed row must be that row.

Ids of the form `T3.7` belong to the paper; rows of our own have others.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from records.errors import ConfigError, unknown
from report.tables.row import Row, check_method

if TYPE_CHECKING:
    from report.paper.printed import Row as Printed

_ID = re.compile(r"T\d+\.\d+")
STEPS = {72: None, 132: "long"}
"""The paper's steps -> how a declared row names that checkpoint at any scale."""


def printed(id: str) -> Printed | None:
    """The paper's row with this id; None for a row of our own."""
    return _paper().get(id)


def value(id: str, slot: str) -> Decimal | None:
    """What the paper prints in this row and column, as a fraction with the printed digits; None where it prints
    nothing, and for the macro average."""
    from report.paper.printed import AVERAGE

    row = printed(id)
    percent = None if row is None else row.cells.get(AVERAGE if slot == "avg_pooled" else slot)
    return None if percent is None else percent.scaleb(-2)


def whole(id: str) -> bool:
    """Whether the printed row has a figure in every column: else its average counts the absent benchmarks as wrong."""
    row = printed(id)
    return row is not None and None not in row.cells.values()


def check(row: Row, model: str, where: str, at: str) -> None:
    """Raise when `row` has the id of a printed row but is another model, method, seed, step or combination of rows."""
    if not _ID.fullmatch(row.id):
        return
    paper = printed(row.id)
    if paper is None:
        raise unknown(where, f"{at}: row id (the form T1.2 is the paper's)", row.id, _paper())
    for what, ours, theirs in _compared(row, model, paper):
        if ours != theirs:
            raise ConfigError(f"{where}: {at}: row {row.id}: {what} {ours!r}, but the printed row is {theirs!r}")


def _compared(row: Row, model: str, paper: Printed) -> list[tuple[str, object, object]]:
    found: list[tuple[str, object, object]] = [("model", model, paper.model), ("kind", row.kind, paper.kind)]
    if row.kind != paper.kind or paper.run is None:
        return [*found, ("made of", row.of, paper.of)]
    found.append(("method", row.content[0], check_method(paper.run.method, "report/paper/tables/rows.csv", row.id)))
    if row.seeds is not None:  # where a row takes every seed there is, the printed one is one of them
        found.append(("seeds", row.seeds, (paper.run.seed,)))
    steps = None if paper.run.steps is None else STEPS[paper.run.steps]
    return [*found, ("step", row.step, steps)]


@cache
def _paper() -> dict[str, Printed]:
    from report.paper.printed import read

    return read()
