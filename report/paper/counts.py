"""Cells -> counts: which k of N stands behind a printed percentage, and whether these N are the right ones."""

from __future__ import annotations

from decimal import Decimal
from typing import NamedTuple

from evals.stats.decode import COLUMN, candidates, hundredths, printed
from report.paper.finding import Finding
from report.paper.printed import HEADINGS, Paper, Row, measured

RIVALS = {
    "amc": {"40 problems x 32": 1280, "45 problems x 32": 1440},
    "omni_math": {"all rows of the rule subset": 2821, "all of Omni-MATH": 4428},
    "olympiadbench": {"OE_TO_maths_en_COMP": 674},
}
"""Other sizes under which a benchmark of this name is found."""


class Count(NamedTuple):
    """Right responses behind one cell. candidates: () when no count prints like this; then low and high are the counts
    just below and above. A cell "-" counts 0 (the paper's average does, docs of `evals.stats.averages`)."""

    low: int
    high: int
    candidates: tuple[int, ...]


def count(value: Decimal | None, n: int) -> Count:
    """The count behind a printed percentage of n responses."""
    if value is None:
        return Count(0, 0, (0,))
    found = candidates(str(value), n)
    if found:
        return Count(min(found), max(found), found)
    down = hundredths(str(value)) * n // 10000
    return Count(down, min(down + 1, n), ())


def cells(paper: Paper) -> list[Finding]:
    """One line per printed cell of an evaluation."""
    return [_cell(row, key, n) for row in measured(paper) for key, n in COLUMN.items()]


def _cell(row: Row, key: str, n: int) -> Finding:
    value = row.cells[key]
    where = (row.table, row.id, HEADINGS[key], "count", row.text(key))
    if value is None:
        return Finding(*where, "0", "not_run", f"enters the average as 0 of {n}")
    low, high, found = count(value, n)
    if not found:
        near = " and ".join(f"{k}/{n} = {' or '.join(dict.fromkeys(printed(k, n)))}" for k in (low, high))
        return Finding(*where, "", "undecodable", f"no count of {n} prints so; its neighbours are {near}")
    ways = {("truncated", "rounded")[i] for k in found for i in (0, 1) if printed(k, n)[i] == str(value)}
    how = "truncated or rounded" if len(ways) != 1 else ways.pop()
    return Finding(*where, " or ".join(f"{k}/{n}" for k in found), "ok", how)


def denominators(paper: Paper) -> list[Finding]:
    """Control: of the distinct printed values of a column, how many N explains, beside other N and beside chance."""
    found = []
    rows = measured(paper, distinct=True)
    for key, n in COLUMN.items():
        values = sorted({str(row.cells[key]) for row in rows if row.cells[key] is not None and row.cells[key] != 0})
        for name, size in {"as counted": n, **RIVALS.get(key, {})}.items():
            hits = sum(bool(candidates(value, size)) for value in values)
            chance = len({text for k in range(size + 1) for text in printed(k, size)}) / 10001
            found.append(
                Finding(
                    "", "", HEADINGS[key], "denominator", str(size), f"{hits} of {len(values)}", "listed",
                    f"{name}; {100 * chance:.0f} % of all two-decimal values are decodable over it",
                )
            )  # fmt: skip
    return found
