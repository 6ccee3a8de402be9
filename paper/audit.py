"""`python -m paper.audit`: write `paper/audit.csv`, what follows from the printed numbers and what does not.

Do printed numbers follow from each other: cells from counts, averages from cells? Reads the tables as printed
(`tables/`), and no results. Counts behind cells and averages are computed. All else (differences, means, chance, the
paper's sentences) is constant and read from audit.csv itself: `paper/audit.py` of commit 40d696d computed it, and the
page docs/notebook/audit.md.

Counts: a printed percentage of n responses is some k of n, truncated or rounded. Averages: the paper's "Avg." is
pooled over all 8,844 responses. Ten of these, the two copies of five OMNI-MATH problems, are in the pool and in no
column: with S right responses in the columns, S to S + 10 are possible in the pool.
"""

from collections.abc import Iterable
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import NamedTuple

from core import errors
from core.errors import Parser
from core.files import read_csv, to_csv, write_text
from core.provenance import ROOT
from paper.printed import COLUMN, COPIES, HEADINGS, POOL, Paper, Row, candidates, measured, printed, read

KEPT = ROOT / "paper" / "audit.csv"
RESPONSES = sum(POOL.values())


class Finding(NamedTuple):
    """One row of audit.csv. docs/notebook/audit.md says what each status means."""

    table: str
    row: str  # ids of the printed rows, a blank between several
    cell: str  # column heading; empty for a whole row
    check: str  # kind of check
    printed: str
    admissible: str  # what the other printed numbers allow
    status: str
    note: str = ""


# Cells -> counts: which k of n stands behind a printed percentage, and is n the right one?


class Count(NamedTuple):
    """Right responses behind one cell. A cell "-" counts 0, as it does in the paper's average."""

    low: int
    high: int
    candidates: tuple[int, ...]  # () when no count prints like this: low and high are then the counts around it


def count(value: Decimal | None, n: int) -> Count:
    """The count behind a printed percentage of n responses."""
    if value is None:
        return Count(0, 0, (0,))
    counts = candidates(str(value), n)
    if counts:
        return Count(min(counts), max(counts), counts)
    down = int(100 * value) * n // 10000
    return Count(down, min(down + 1, n), ())


def cells(paper: Paper) -> list[Finding]:
    """One line per printed cell of an evaluation."""
    return [_cell(row, key, n) for row in measured(paper) for key, n in COLUMN.items()]


def _cell(row: Row, key: str, n: int) -> Finding:
    value = row.cells[key]
    where = (row.table, row.id, HEADINGS[key], "count", row.text(key))
    if value is None:
        return Finding(*where, "0", "not_run", f"enters the average as 0 of {n}")
    low, high, counts = count(value, n)
    if not counts:
        near = " and ".join(f"{k}/{n} = {' or '.join(dict.fromkeys(printed(k, n)))}" for k in (low, high))
        return Finding(*where, "", "undecodable", f"no count of {n} prints so; its neighbours are {near}")
    both = [zip(("truncated", "rounded"), printed(k, n), strict=True) for k in counts]
    ways = {way for texts in both for way, text in texts if text == str(value)}
    how = ways.pop() if len(ways) == 1 else "truncated or rounded"
    return Finding(*where, " or ".join(f"{k}/{n}" for k in counts), "ok", how)


# Cells -> "Avg.": does the printed average follow from the row's own cells, and under which weighting?

# Both are judgements, not tests: ten rows are too few for a distribution, and the page states both numbers.
FAR = 3  # a number of right copies further than this from the median of the model's other rows is called unlikely
OTHERS = 3  # so many other rows of the model are needed before any is called unlikely


def right(row: Row) -> tuple[int, int]:
    """S, [low, high]: right responses behind the row's columns. The two differ where a cell has several counts or none
    (then the counts around it)."""
    counts = [count(row.cells[key], n) for key, n in COLUMN.items()]
    return sum(c.low for c in counts), sum(c.high for c in counts)


def copies(row: Row) -> list[int]:
    """How many of the ten repeated rows may be right so that the printed average follows; [] if none."""
    low, high = right(row)
    totals = candidates(str(row.avg), RESPONSES)
    return [d for d in range(COPIES + 1) if any(low <= total - d <= high for total in totals)]


def implied(row: Row) -> tuple[Decimal, Decimal]:
    """The smallest and largest average that the row's cells allow, as they would print."""
    low, high = right(row)
    smallest, largest = Fraction(10000 * low, RESPONSES), Fraction(10000 * (high + COPIES), RESPONSES)
    # Printing may truncate or round: the widest interval truncates its lower end and rounds its upper one.
    return Decimal(int(smallest)).scaleb(-2), Decimal(int(largest + Fraction(1, 2))).scaleb(-2)


def usual(paper: Paper, row: Row) -> list[float]:
    """Middle admissible number of right copies in the model's other runs (where OMNI-MATH is not 0)."""
    others = [other for other in measured(paper, distinct=True) if other.model == row.model and other.run != row.run]
    return [median(numbers) for other in others if other.cells["omni_math"] and (numbers := copies(other))]


def status(paper: Paper, row: Row) -> str:
    """ok, unlikely or outside."""
    numbers, others = copies(row), usual(paper, row)
    if not numbers:
        return "outside"
    if not row.cells["omni_math"] or len(others) < OTHERS:
        return "ok"
    return "unlikely" if min(abs(number - median(others)) for number in numbers) > FAR else "ok"


def averages(paper: Paper) -> list[Finding]:
    """One line per measured row."""
    return [_average(paper, row) for row in measured(paper)]


def _average(paper: Paper, row: Row) -> Finding:
    low, high = right(row)
    notes = [f"S = {low}" if low == high else f"S = {low} to {high}"]
    numbers = copies(row)
    if numbers:
        notes.append(f"of the ten repeated rows right: {' or '.join(map(str, numbers))}")
    else:
        needed = sorted({total - s for total in candidates(str(row.avg), RESPONSES) for s in (low, high)})
        notes.append(f"would need {' or '.join(map(str, needed))} of the ten repeated rows right")
    state = status(paper, row)
    if state == "unlikely":
        notes[-1] += f", median of the model's other rows {median(usual(paper, row)):g}"
    inexact = [HEADINGS[key] for key, n in COLUMN.items() if not count(row.cells[key], n).candidates]
    if inexact:
        notes.append(f"not decodable: {', '.join(inexact)}")
    missing = [HEADINGS[key] for key in COLUMN if row.cells[key] is None]
    if missing:
        notes.append(f"counted as 0: {', '.join(missing)}")
    # Fractions, because a sum of floats could fall on the other side of a rounding boundary.
    shares = [Fraction(sum(count(row.cells[key], n)[:2]), 2 * n) for key, n in COLUMN.items()]
    notes.append(f"macro mean {float(100 * sum(shares, Fraction(0)) / len(shares)):.2f}")
    allowed = "..".join(map(str, implied(row)))
    return Finding(row.table, row.id, HEADINGS["avg"], "average", row.text("avg"), allowed, state, "; ".join(notes))


# The file.


def audit(paper: Paper) -> list[Finding]:
    """All findings, check by check: those of cells and averages computed, the others as they are kept."""
    found: dict[str, list[Finding]] = {}
    for row in read_csv(KEPT, "audit of the printed tables", Finding._fields):
        found.setdefault(row["check"], []).append(Finding(**row))
    found |= {"count": cells(paper), "average": averages(paper)}
    return [finding for findings in found.values() for finding in findings]


def as_csv(findings: Iterable[Finding]) -> str:
    return to_csv(Finding._fields, (finding._asdict() for finding in findings))


def main() -> None:
    Parser(description="Audit the arithmetic of the paper's printed tables.").parse_args()
    findings = audit(read())
    write_text(KEPT, as_csv(findings))
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{KEPT}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
