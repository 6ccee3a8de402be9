"""Rows -> "Avg.": does the printed average follow from the row's own cells, and under which weighting?

The paper's average is pooled over all 8,844 responses. Ten of them, the two copies of five OMNI-MATH problems, are in
the pool and in no column: with S right responses in the columns, S to S + 10 are possible.
"""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from statistics import median

from evals.stats.decode import COLUMN, COPIES, POOL, candidates
from report.paper.counts import count
from report.paper.finding import Finding
from report.paper.printed import HEADINGS, Paper, Row, measured

RESPONSES = sum(POOL.values())
FAR = 3
"""Of the ten repeated rows: further than this from the median of the model's other rows is called unlikely."""

OTHERS = 3
"""Other rows of the model needed before any is called unlikely."""

WEIGHTINGS = {
    "pooled": dict(POOL),
    "macro (mean of the columns)": dict.fromkeys(COLUMN, 1),
    "each problem once": {**POOL, "aime24": 30, "aime25": 30, "amc": 83},
    "pooled, OMNI-MATH 4428": {**POOL, "omni_math": 4428},
    "pooled, OlympiadBench 674": {**POOL, "olympiadbench": 674},
}


def right(row: Row, *, without: str | None = None) -> tuple[int, int]:
    """S, [low, high]: right responses behind the row's columns, one of them left out if asked. The two differ where a
    cell has several counts or none (then its neighbours count)."""
    counts = [count(row.cells[key], n) for key, n in COLUMN.items() if key != without]
    return sum(c.low for c in counts), sum(c.high for c in counts)


def copies(row: Row) -> list[int]:
    """How many of the ten repeated rows may be right so that the printed average follows; [] if none."""
    low, high = right(row)
    totals = candidates(str(row.avg), RESPONSES)
    return [d for d in range(COPIES + 1) if any(low <= total - d <= high for total in totals)]


def implied(row: Row) -> tuple[Decimal, Decimal]:
    """The smallest and largest average that the row's cells allow, as they would print."""
    low, high = right(row)
    return truncated(Fraction(100 * low, RESPONSES)), rounded(Fraction(100 * (high + COPIES), RESPONSES))


def truncated(percent: Fraction) -> Decimal:
    return Decimal(int(100 * percent)).scaleb(-2)


def rounded(percent: Fraction) -> Decimal:
    return Decimal(int(100 * percent + Fraction(1, 2))).scaleb(-2)


def usual(paper: Paper, row: Row) -> list[float]:
    """Middle admissible number of right copies in the model's other runs (where OMNI-MATH is not 0)."""
    others = [r for r in measured(paper, distinct=True) if r.model == row.model and r.run != row.run]
    return [median(found) for r in others if r.cells["omni_math"] and (found := copies(r))]


def status(paper: Paper, row: Row) -> str:
    """ok, unlikely or outside."""
    found, others = copies(row), usual(paper, row)
    if not found:
        return "outside"
    if not row.cells["omni_math"] or len(others) < OTHERS:
        return "ok"
    return "unlikely" if min(abs(d - median(others)) for d in found) > FAR else "ok"


def check(paper: Paper) -> list[Finding]:
    """One line per measured row."""
    return [_row(paper, row) for row in measured(paper)]


def _row(paper: Paper, row: Row) -> Finding:
    low, high = right(row)
    found, others, macro = copies(row), usual(paper, row), weighted(row, WEIGHTINGS["macro (mean of the columns)"])
    inexact = [HEADINGS[key] for key, n in COLUMN.items() if not count(row.cells[key], n).candidates]
    said = status(paper, row)
    note = f"S = {low}" if low == high else f"S = {low} to {high}"
    if found:
        note += f"; of the ten repeated rows right: {' or '.join(map(str, found))}"
    else:
        needed = sorted({total - s for total in candidates(str(row.avg), RESPONSES) for s in (low, high)})
        note += f"; would need {' or '.join(map(str, needed))} of the ten repeated rows right"
    if said == "unlikely":
        note += f", median of the model's other rows {median(others):g}"
    if inexact:
        note += f"; not decodable: {', '.join(inexact)}"
    if missing := [HEADINGS[key] for key in COLUMN if row.cells[key] is None]:
        note += f"; counted as 0: {', '.join(missing)}"
    note += f"; macro mean {float(macro):.2f}"
    a, b = implied(row)
    return Finding(row.table, row.id, HEADINGS["avg"], "average", row.text("avg"), f"{a}..{b}", said, note)


def weighted(row: Row, weights: dict[str, int]) -> Fraction:
    """Weighted mean of the row's columns in percent, from counts where cells decode; "-" is 0."""
    shares = {key: Fraction(sum(count(row.cells[key], n)[:2]), 2 * n) for key, n in COLUMN.items()}
    return 100 * sum((weights[key] * shares[key] for key in COLUMN), Fraction(0)) / sum(weights.values())


def controls(paper: Paper) -> list[Finding]:
    """How many printed averages each weighting reproduces: to the printed digits, and within half the pool's slack."""
    rows = [row for row in measured(paper, distinct=True) if row.avg != 0]
    slack = 100 * Fraction(COPIES, RESPONSES) / 2
    found = []
    for name, weights in WEIGHTINGS.items():
        off = [weighted(row, weights) - Fraction(row.avg) for row in rows]
        near = sum(abs(x) <= slack + Fraction(1, 100) for x in off)
        typical = float(median(abs(x) for x in off))
        found.append(
            Finding(
                "", "", HEADINGS["avg"], "weighting", name, f"{near} of {len(rows)}", "listed",
                f"within {float(slack) + 0.01:.2f} points; median distance {typical:.3f} points",
            )
        )  # fmt: skip
    return found
