"""Single-cell hypotheses: which one value, changed alone, would make a row's average follow from its cells?

Arithmetic only. Several cells of a row can usually be changed so; nothing here says which one was, and no printed
number is ever edited.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from statistics import median

from evals.stats.decode import COLUMN, COPIES, candidates, printed
from report.paper.averages import FAR, RESPONSES, copies, right, rounded, status, truncated, usual
from report.paper.counts import count
from report.paper.finding import Finding
from report.paper.misprint import one_slip
from report.paper.printed import AVERAGE, HEADINGS, Paper, Row, measured

SLIP, NO_SLIP = "one slip away: ", "none"


def check(paper: Paper) -> list[Finding]:
    """For each distinct row whose average is outside or unlikely, a line per cell and one for the average itself; for
    other rows a line per cell that no count can give."""
    found = []
    for row in measured(paper, distinct=True):
        said = status(paper, row)
        if said == "ok":
            broken = [key for key, n in COLUMN.items() if not count(row.cells[key], n).candidates]
            found += [_cell(row, key, range(COPIES + 1)) for key in broken]
            continue
        allowed = range(COPIES + 1)
        if said == "unlikely":
            middle = median(usual(paper, row))
            allowed = range(max(0, ceil(middle - FAR)), min(COPIES, floor(middle + FAR)) + 1)
        found += [_cell(row, key, allowed) for key in COLUMN if row.cells[key] is not None]
        found.append(_average(row, allowed))
    return found


def fitting(row: Row, key: str, allowed: range) -> list[int]:
    """Counts k of the column with which the average follows, d in `allowed` of the repeated rows being right."""
    low, high = right(row, without=key)
    sums = {total - d for total in candidates(str(row.avg), RESPONSES) for d in allowed}
    return sorted({k for s in sums for k in range(max(0, s - high), min(COLUMN[key], s - low) + 1)})


def _cell(row: Row, key: str, allowed: range) -> Finding:
    n, counts = COLUMN[key], fitting(row, key, allowed)
    where = (row.table, row.id, HEADINGS[key], "repair", row.text(key))
    if not counts:
        return Finding(*where, "", "listed", "no share from 0 to 100 % of this column makes the average follow")
    near = []
    for text in one_slip(row.text(key)):
        if row.cells[key] is not None and set(candidates(text, n)) & set(counts):
            mended = replace(row, cells={**row.cells, key: Decimal(text)})
            near.append(f"{text} (right copies: {_or(d for d in copies(mended) if d in allowed)})")
    interval = f"{printed(counts[0], n)[0]}..{printed(counts[-1], n)[1]}"
    return Finding(*where, interval, "listed", _note(near, f"{len(counts)} counts of {n} lie there; "))


def _average(row: Row, allowed: range) -> Finding:
    low, high = right(row)
    first = truncated(Fraction(100 * (low + allowed[0]), RESPONSES))
    last = rounded(Fraction(100 * (high + allowed[-1]), RESPONSES))
    near = []
    for text in one_slip(row.text(AVERAGE)):
        mended = replace(row, cells={**row.cells, AVERAGE: Decimal(text)})
        if found := [d for d in copies(mended) if d in allowed]:
            near.append(f"{text} (right copies: {_or(found)})")
    where = (row.table, row.id, HEADINGS[AVERAGE], "repair", row.text(AVERAGE))
    return Finding(*where, f"{first}..{last}", "listed", _note(near, ""))


def _note(near: list[str], before: str) -> str:
    return f"{before}{SLIP}{', '.join(near) or NO_SLIP}"


def _or(numbers: Iterable[int]) -> str:
    return " or ".join(map(str, numbers))
