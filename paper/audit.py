"""`python -m paper.audit`: write `paper/audit.csv`, which lists what follows from the printed numbers.

Counts behind cells, and averages from cells, are computed from the tables as printed. Everything else (differences,
means, chance, the paper's sentences) is constant and read from audit.csv: `paper/audit.py` of commit 40d696d computed
it, and the page docs/notebook/audit.md, which explains each status.

A printed percentage of n responses is some k of n, truncated or rounded. The paper's "Avg." is pooled over all 8,844
responses. Ten of these, the two copies of five OMNI-MATH problems, are in the pool but in no column: with S right
responses in the columns, S to S + 10 are possible in the pool.
"""

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
COLUMNS = ("table", "row", "cell", "check", "printed", "admissible", "status", "note")
RESPONSES = sum(POOL.values())
# Both are judgements, not tests: ten rows are too few for a distribution, and the page lists both numbers.
FAR = 3  # a number of right copies further than this from the median of the model's other rows is called unlikely
OTHERS = 3  # minimum number of the model's other rows before any is called unlikely


class Count(NamedTuple):
    """Right responses behind one cell. A cell "-" counts 0, as it does in the paper's average."""

    low: int
    high: int
    candidates: tuple[int, ...]  # () when no count prints like this: low and high are then the counts around it


def count(value: Decimal | None, n: int) -> Count:
    """Return the count behind a printed percentage of n responses."""
    if value is None:
        return Count(0, 0, (0,))
    if counts := candidates(str(value), n):
        return Count(min(counts), max(counts), counts)
    down = int(100 * value) * n // 10000
    return Count(down, min(down + 1, n), ())


def right(row: Row) -> tuple[int, int]:
    """Return S, [low, high]: right responses behind the row's columns; they differ where a cell has several counts."""
    counts = [count(row.cells[key], n) for key, n in COLUMN.items()]
    return sum(c.low for c in counts), sum(c.high for c in counts)


def copies(row: Row) -> list[int]:
    """Return how many of the ten repeated rows may be right for the printed average to follow; [] if none."""
    low, high = right(row)
    totals = candidates(str(row.avg), RESPONSES)
    return [d for d in range(COPIES + 1) if any(low <= total - d <= high for total in totals)]


def implied(row: Row) -> tuple[Decimal, Decimal]:
    """Return the smallest and largest average that the row's cells allow, as they would print."""
    low, high = right(row)
    smallest, largest = Fraction(10000 * low, RESPONSES), Fraction(10000 * (high + COPIES), RESPONSES)
    # Printing may truncate or round: the widest interval truncates its lower end and rounds its upper end.
    return Decimal(int(smallest)).scaleb(-2), Decimal(int(largest + Fraction(1, 2))).scaleb(-2)


def usual(paper: Paper, row: Row) -> list[float]:
    """Return the middle number of right copies in each of the model's other runs (where OMNI-MATH is not 0)."""
    others = [other for other in measured(paper, distinct=True) if other.model == row.model and other.run != row.run]
    return [median(numbers) for other in others if other.cells["omni_math"] and (numbers := copies(other))]


def status(paper: Paper, row: Row) -> str:
    """Return `ok`, `unlikely` or `outside`: whether the average follows from the row's cells."""
    numbers, others = copies(row), usual(paper, row)
    if not numbers:
        return "outside"
    if not row.cells["omni_math"] or len(others) < OTHERS:
        return "ok"
    return "unlikely" if min(abs(number - median(others)) for number in numbers) > FAR else "ok"


def _cell(row: Row, key: str, n: int) -> tuple[str, ...]:
    """Return a line of audit.csv: the k of n behind a printed percentage."""
    value = row.cells[key]
    where = (row.table, row.id, HEADINGS[key], "count", row.text(key))
    if value is None:
        return *where, "0", "not_run", f"enters the average as 0 of {n}"
    low, high, counts = count(value, n)
    if not counts:
        near = " and ".join(f"{k}/{n} = {' or '.join(dict.fromkeys(printed(k, n)))}" for k in (low, high))
        return *where, "", "undecodable", f"no count of {n} prints so; its neighbours are {near}"
    both = [zip(("truncated", "rounded"), printed(k, n), strict=True) for k in counts]
    ways = {way for texts in both for way, text in texts if text == str(value)}
    how = ways.pop() if len(ways) == 1 else "truncated or rounded"
    return *where, " or ".join(f"{k}/{n}" for k in counts), "ok", how


def _average(paper: Paper, row: Row) -> tuple[str, ...]:
    """Return a line of audit.csv: whether the printed average follows from the row's cells."""
    low, high = right(row)
    notes = [f"S = {low}" if low == high else f"S = {low} to {high}"]
    state = status(paper, row)
    if numbers := copies(row):
        notes.append(f"of the ten repeated rows right: {' or '.join(map(str, numbers))}")
    else:
        needed = sorted({total - s for total in candidates(str(row.avg), RESPONSES) for s in (low, high)})
        notes.append(f"would need {' or '.join(map(str, needed))} of the ten repeated rows right")
    if state == "unlikely":
        notes[-1] += f", median of the model's other rows {median(usual(paper, row)):g}"
    if inexact := [HEADINGS[key] for key, n in COLUMN.items() if not count(row.cells[key], n).candidates]:
        notes.append(f"not decodable: {', '.join(inexact)}")
    if missing := [HEADINGS[key] for key in COLUMN if row.cells[key] is None]:
        notes.append(f"counted as 0: {', '.join(missing)}")
    # Fractions, because a sum of floats could fall on the other side of a rounding boundary.
    shares = [Fraction(sum(count(row.cells[key], n)[:2]), 2 * n) for key, n in COLUMN.items()]
    notes.append(f"macro mean {float(100 * sum(shares, Fraction(0)) / len(shares)):.2f}")
    allowed = "..".join(map(str, implied(row)))
    return row.table, row.id, HEADINGS["avg"], "average", row.text("avg"), allowed, state, "; ".join(notes)


def audit(paper: Paper) -> list[dict[str, str]]:
    """Return all lines, grouped by check: counts and averages are computed, the others copied."""
    found: dict[str, list[dict[str, str]]] = {}
    for row in read_csv(KEPT, "audit of the printed tables", COLUMNS):
        found.setdefault(row["check"], []).append(row)
    counts = [_cell(row, key, n) for row in measured(paper) for key, n in COLUMN.items()]
    averages = [_average(paper, row) for row in measured(paper)]
    for check, lines in (("count", counts), ("average", averages)):
        found[check] = [dict(zip(COLUMNS, line, strict=True)) for line in lines]
    return [line for lines in found.values() for line in lines]


def main() -> None:
    Parser(description="Audit the arithmetic of the paper's printed tables.").parse_args()
    lines = audit(read())
    write_text(KEPT, to_csv(COLUMNS, lines))
    defects = sum(line["status"] not in ("ok", "not_run", "listed") for line in lines)
    print(f"{KEPT}  {len(lines)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
