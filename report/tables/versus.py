"""Each row against its block's baseline, and what of the difference may be chance.

The comparisons are those of `evals.stats`; here is only decided which are made, and which form one family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from report import estimates
from report.results import Tree
from report.tables.filled import Cell, FilledRow, Versus
from report.tables.spec import Block

Rows = Mapping[str, FilledRow]
"""Filled rows of a table by id; a row that was left out is not in it."""


def compare(blocks: Sequence[Block], rows: Rows, tree: Tree) -> dict[str, FilledRow]:
    """The rows with `versus` in their cells.

    Every trained row and every mean is compared with the baseline of its block, a difference row is its own
    comparison. Holm's correction runs over the distinct comparisons of a column: a row that repeats another's run is
    no second test. A base model has no training seed, so it is not compared.
    """
    home = {row.id: block.baseline for block in blocks for row in block.rows}
    compared = {
        id: replace(row, cells={slot: _versus(cell, row, home[id], rows, tree) for slot, cell in row.cells.items()})
        for id, row in rows.items()
    }
    slots = dict.fromkeys(slot for row in compared.values() for slot in row.cells)
    return _adjusted(compared, {slot: _corrected(slot, compared) for slot in slots})


def _versus(cell: Cell, row: FilledRow, baseline: str | None, rows: Rows, tree: Tree) -> Cell:
    if cell.versus is not None or cell.value is None or row.row.kind == "base" or baseline is None:
        return cell
    other = rows[baseline].cells[cell.column] if baseline in rows else None
    if other is None or other.value is None:
        return cell
    gain = estimates.difference(tree, cell.benchmark or "", cell.checkpoints, other.checkpoints)
    return cell if gain is None else replace(cell, versus=Versus(baseline, gain))


def _corrected(slot: str, rows: Rows) -> dict[str, tuple[float | None, int]]:
    """Row id -> (corrected p, number of tests) for the comparisons of one column."""
    from evals.stats.holm import holm

    tested = {id: cell for id, row in rows.items() if (cell := row.cells[slot]).versus is not None}
    family = {_what(cell, rows): cell for cell in tested.values()}
    p_of = dict(zip(family, holm([c.versus.comparison.p for c in family.values() if c.versus]), strict=True))
    tests = sum(p is not None for p in p_of.values())
    return {id: (p_of[_what(cell, rows)], tests) for id, cell in tested.items()}


def _what(cell: Cell, rows: Rows) -> tuple[object, object]:
    """What is compared with what: the checkpoints of both sides."""
    assert cell.versus is not None
    own = rows[cell.row].row
    left = rows[own.delta[0]].cells[cell.column] if own.delta else cell
    return left.checkpoints, rows[cell.versus.baseline].cells[cell.column].checkpoints


def _adjusted(rows: Rows, found: Mapping[str, Mapping[str, tuple[float | None, int]]]) -> dict[str, FilledRow]:
    def cell(old: Cell) -> Cell:
        if old.versus is None:
            return old
        p, tests = found[old.column][old.row]
        return replace(old, versus=replace(old.versus, p_holm=p, tests=tests))

    return {id: replace(row, cells={slot: cell(old) for slot, old in row.cells.items()}) for id, row in rows.items()}
