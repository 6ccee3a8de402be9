"""Do printed numbers follow from each other: cells from counts, averages from cells, differences and means from rows?

Counts: a printed percentage of n responses is some k of n, truncated or rounded. Averages: the paper's "Avg." is
pooled over all 8,844 responses. Ten of these, the two copies of five OMNI-MATH problems, are in the pool and in no
column: with S right responses in the columns, S to S + 10 are possible in the pool.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from fractions import Fraction
from statistics import median
from typing import NamedTuple

from core.errors import ConfigError
from core.files import to_csv
from paper.printed import (
    AVERAGE,
    COLUMN,
    COPIES,
    HEADINGS,
    POOL,
    Paper,
    Row,
    block,
    candidates,
    measured,
    printed,
)

RESPONSES = sum(POOL.values())

# One line of the audit, and what its statuses mean.

STATUS = {
    "ok": "follows from the other printed numbers",
    "not_run": "printed as -",
    "undecodable": "no count over this denominator prints like this, truncated or rounded",
    "outside": "does not follow from the row's (or rows') own cells",
    "unlikely": "possible, but only if the ten repeated OMNI-MATH rows went unlike in the model's other rows",
    "other_baseline": "not the difference to the named row, but to another one",
    "no_baseline": "not the difference to any row of the block",
    "differs": "another value follows from the printed tables, from the same sentence or from the source it names",
    "approximate": "the sentence says about; the exact value stands beside it",
    "close": "two seeds nearer to each other than generation noise alone makes likely (5 %)",
    "far": "two seeds further apart than generation noise alone makes likely (5 %)",
    "listed": "an observation without a verdict",
}
CLEAN = ("ok", "not_run", "listed", "approximate")  # statuses that are no defect


@dataclass(frozen=True)
class Finding:
    """One row of audit.csv."""

    table: str
    row: str  # ids of the printed rows, a blank between several
    cell: str  # column heading; empty for a whole row
    check: str  # kind of check
    printed: str
    admissible: str  # what the other printed numbers allow
    status: str  # a key of STATUS
    note: str = ""

    def __post_init__(self) -> None:
        if self.status not in STATUS:
            raise ConfigError(f"audit: status {self.status!r} is not one of {', '.join(STATUS)}")


def as_csv(findings: Iterable[Finding]) -> str:
    names = [field.name for field in fields(Finding)]
    return to_csv(names, ({name: getattr(finding, name) for name in names} for finding in findings))


# Cells -> counts: which k of n stands behind a printed percentage, and is n the right one?

# Other sizes under which a benchmark of this name is found, as controls of the sizes assumed.
# If one of them explained a column as well, the counts behind its cells would be in doubt.
RIVALS = {
    "amc": {"40 problems x 32": 1280, "45 problems x 32": 1440},
    "omni_math": {"all rows of the rule subset": 2821, "all of Omni-MATH": 4428},
    "olympiadbench": {"OE_TO_maths_en_COMP": 674},
}


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
    ways = set()
    for k in counts:
        truncated_text, rounded_text = printed(k, n)
        ways |= {"truncated"} if truncated_text == str(value) else set()
        ways |= {"rounded"} if rounded_text == str(value) else set()
    how = ways.pop() if len(ways) == 1 else "truncated or rounded"
    return Finding(*where, " or ".join(f"{k}/{n}" for k in counts), "ok", how)


def denominators(paper: Paper) -> list[Finding]:
    """Control: of the distinct printed values of a column, how many n explains, beside other n and beside chance."""
    findings = []
    rows = measured(paper, distinct=True)
    for key, n in COLUMN.items():
        # 0.00 is a count over every n and says nothing about it
        values = sorted({str(row.cells[key]) for row in rows if row.cells[key] is not None and row.cells[key] != 0})
        for name, size in {"as counted": n, **RIVALS.get(key, {})}.items():
            hits = sum(bool(candidates(value, size)) for value in values)
            by_chance = len({text for k in range(size + 1) for text in printed(k, size)}) / 10001
            note = f"{name}; {100 * by_chance:.0f} % of all two-decimal values are decodable over it"
            decoded = f"{hits} of {len(values)}"
            findings.append(Finding("", "", HEADINGS[key], "denominator", str(size), decoded, "listed", note))
    return findings


# Cells -> "Avg.": does the printed average follow from the row's own cells, and under which weighting?

# Both are judgements, not tests: ten rows are too few for a distribution, and the page states both numbers.
FAR = 3  # a number of right copies further than this from the median of the model's other rows is called unlikely
OTHERS = 3  # so many other rows of the model are needed before any is called unlikely

WEIGHTINGS = {
    "pooled": dict(POOL),
    "macro (mean of the columns)": dict.fromkeys(COLUMN, 1),
    "each problem once": {**POOL, "aime24": 30, "aime25": 30, "amc": 83},
    "pooled, OMNI-MATH 4428": {**POOL, "omni_math": 4428},
    "pooled, OlympiadBench 674": {**POOL, "olympiadbench": 674},
}


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
    notes.append(f"macro mean {float(weighted(row, WEIGHTINGS['macro (mean of the columns)'])):.2f}")
    smallest, largest = implied(row)
    allowed = f"{smallest}..{largest}"
    return Finding(row.table, row.id, HEADINGS["avg"], "average", row.text("avg"), allowed, state, "; ".join(notes))


def weighted(row: Row, weights: dict[str, int]) -> Fraction:
    """Weighted mean of the row's columns in percent, from counts where cells decode; "-" is 0."""
    # Fractions, because a sum of floats could fall on the other side of a rounding boundary.
    shares = {key: Fraction(sum(count(row.cells[key], n)[:2]), 2 * n) for key, n in COLUMN.items()}
    return 100 * sum((weights[key] * shares[key] for key in COLUMN), Fraction(0)) / sum(weights.values())


def controls(paper: Paper) -> list[Finding]:
    """How many printed averages each weighting reproduces: to the printed digits, and within half the pool's slack."""
    rows = [row for row in measured(paper, distinct=True) if row.avg != 0]
    # Between 0 and COPIES right copies are possible: half that range is the distance allowed around a weighting.
    slack = 100 * Fraction(COPIES, RESPONSES) / 2
    findings = []
    for name, weights in WEIGHTINGS.items():
        distances = [abs(weighted(row, weights) - Fraction(row.avg)) for row in rows]
        near = sum(distance <= slack + Fraction(1, 100) for distance in distances)
        note = f"within {float(slack) + 0.01:.2f} points; median distance {float(median(distances)):.3f} points"
        reproduced = f"{near} of {len(rows)}"
        findings.append(Finding("", "", HEADINGS[AVERAGE], "weighting", name, reproduced, "listed", note))
    return findings


# Rows made of other rows: Delta rows against every row of their block, and means over seeds.


def deltas(paper: Paper) -> list[Finding]:
    """Each cell of a Delta row against the row its label names and against every other row of the block."""
    return [_delta(paper, row, key) for row in paper.values() if row.kind == "delta" for key in HEADINGS]


def _delta(paper: Paper, row: Row, key: str) -> Finding:
    ours, named = (paper[id] for id in row.of)
    where = (row.table, row.id, HEADINGS[key], "delta", row.text(key))
    value, top, bottom = row.cells[key], ours.cells[key], named.cells[key]
    if value is None or top is None or bottom is None:
        return Finding(*where, "", "not_run")
    difference = top - bottom
    if value == difference:
        return Finding(*where, str(difference), "ok", f"{ours.id} - {named.id}")
    fits = []
    for other in block(paper, ours):
        cell = other.cells[key]
        if other is not ours and cell is not None and top - cell == value:
            fits.append(f"{other.id} ({other.label})")
    if fits:
        note = f"{ours.id} - {named.id} is {difference}; the printed value is {ours.id} minus {' or '.join(fits)}"
        return Finding(*where, str(difference), "other_baseline", note)
    note = f"{ours.id} minus no row of the block gives {value}"
    if one_slip_apart(str(value), str(difference)):
        note += f"; one slip away from {difference}"
    return Finding(*where, str(difference), "no_baseline", note)


def one_slip_apart(a: str, b: str) -> bool:
    """Whether two numbers differ in one digit, or by two neighbouring digits that are swapped.

    >>> one_slip_apart("5.68", "0.68"), one_slip_apart("5.68", "5.86"), one_slip_apart("5.68", "5.77")
    (True, True, False)
    """
    if len(a) != len(b):
        return False
    places = [place for place in range(len(a)) if a[place] != b[place]]
    if len(places) == 2:
        first, second = places
        return second == first + 1 and a[first] == b[second] and a[second] == b[first]
    return len(places) == 1


def means(paper: Paper) -> list[Finding]:
    """Each cell of a mean row: the mean of the printed seeds, within .01 (seeds are themselves printed rounded)."""
    findings = []
    for row in paper.values():
        if row.kind != "mean":
            continue
        for key, heading in HEADINGS.items():
            where = (row.table, row.id, heading, "mean", row.text(key))
            value, parts = row.cells[key], [paper[id].cells[key] for id in row.of]
            if value is None or None in parts:
                findings.append(Finding(*where, "", "not_run"))
                continue
            exact = sum((Fraction(part) for part in parts if part is not None), Fraction(0)) / len(parts)
            state = "ok" if abs(Fraction(value) - exact) <= Fraction(1, 100) else "outside"
            findings.append(Finding(*where, f"{float(exact):g}", state, f"mean of {', '.join(row.of)}"))
    return findings
