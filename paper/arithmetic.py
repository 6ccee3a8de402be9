"""Rows -> "Avg.": does the printed average follow from the row's own cells, and under which weighting?

The paper's average is pooled over all 8,844 responses. Ten of them, the two copies of five OMNI-MATH problems, are in
the pool and in no column: with S right responses in the columns, S to S + 10 are possible.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor
from statistics import median
from string import digits
from typing import NamedTuple

from paper.finding import Finding
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
    hundredths,
    measured,
    printed,
)

# Cells -> counts: which k of N stands behind a printed percentage, and whether these N are the right ones.


RIVALS = {
    "amc": {"40 problems x 32": 1280, "45 problems x 32": 1440},
    "omni_math": {"all rows of the rule subset": 2821, "all of Omni-MATH": 4428},
    "olympiadbench": {"OE_TO_maths_en_COMP": 674},
}
"""Other sizes under which a benchmark of this name is found."""


class Count(NamedTuple):
    """Right responses behind one cell. candidates: () when no count prints like this; then low and high are the counts
    just below and above. A cell "-" counts 0 (the paper's average does, docs of `evals.stats.estimate`)."""

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


# Numbers one slip away from a printed one. A hypothesis about how a digit may have changed, not a correction.


def one_slip(text: str) -> list[str]:
    """Decimals with two places, 0-100, that become `text` by one digit changed, dropped or added, or two neighbours
    swapped; without `text` itself.

    >>> [x for x in one_slip("5.68") if x in ("0.68", "5.86", "6.58")]
    ['0.68', '5.86', '6.58']
    """
    whole, part = text.split(".")
    plain = whole + part
    made = {plain[:i] + d + plain[i + 1 :] for i in range(len(plain)) for d in digits}
    made |= {plain[:i] + plain[i + 1] + plain[i] + plain[i + 2 :] for i in range(len(plain) - 1)}
    made |= {plain[:i] + d + plain[i:] for i in range(len(whole) + 1) for d in digits}
    made |= {plain[:i] + plain[i + 1 :] for i in range(len(whole)) if len(whole) > 1}
    texts = {f"{int(m[:-2])}.{m[-2:]}" for m in made}
    return sorted(t for t in texts if t != text and int(t.replace(".", "")) <= 10000)


# Rows made of other rows: Delta rows against every row of their block, and means over seeds.


CENT = Fraction(1, 100)


def deltas(paper: Paper) -> list[Finding]:
    """Each cell of a Delta row against the row its label names and against every other row of the block."""
    return [_delta(paper, row, key) for row in paper.values() if row.kind == "delta" for key in HEADINGS]


def _delta(paper: Paper, row: Row, key: str) -> Finding:
    ours, named = (paper[id] for id in row.of)
    where = (row.table, row.id, HEADINGS[key], "delta", row.text(key))
    said, top, bottom = row.cells[key], ours.cells[key], named.cells[key]
    if said is None or top is None or bottom is None:
        return Finding(*where, "", "not_run")
    fits = [
        f"{other.id} ({other.label})"
        for other in block(paper, ours)
        if other is not ours and other.cells[key] is not None and top - (other.cells[key] or 0) == said
    ]
    if said == top - bottom:
        return Finding(*where, str(top - bottom), "ok", f"{ours.id} - {named.id}")
    if fits:
        note = f"{ours.id} - {named.id} is {top - bottom}; the printed value is {ours.id} minus {' or '.join(fits)}"
        return Finding(*where, str(top - bottom), "other_baseline", note)
    hint = _slip(said, top - bottom)
    return Finding(*where, str(top - bottom), "no_baseline", f"{ours.id} minus no row of the block gives {said}{hint}")


def means(paper: Paper) -> list[Finding]:
    """Each cell of a mean row: the mean of the printed seeds, within .01 (seeds are themselves printed rounded)."""
    return [_mean(paper, row, key) for row in paper.values() if row.kind == "mean" for key in HEADINGS]


def _mean(paper: Paper, row: Row, key: str) -> Finding:
    where = (row.table, row.id, HEADINGS[key], "mean", row.text(key))
    said, parts = row.cells[key], [paper[id].cells[key] for id in row.of]
    if said is None or None in parts:
        return Finding(*where, "", "not_run")
    exact = sum((Fraction(part) for part in parts if part is not None), Fraction(0)) / len(parts)
    admissible = f"{float(exact):g}"
    if abs(Fraction(said) - exact) <= CENT:
        return Finding(*where, admissible, "ok", f"mean of {', '.join(row.of)}")
    hint = _slip(said, rounded(exact)) or _slip(said, truncated(exact))
    return Finding(*where, admissible, "outside", f"mean of {', '.join(row.of)}{hint}")


def _slip(said: Decimal, implied: Decimal) -> str:
    """A half sentence when the two differ by one slip of the pen."""
    return (
        f"; one slip away from {implied}" if said >= 0 and implied >= 0 and str(implied) in one_slip(str(said)) else ""
    )


# Single-cell hypotheses: which one value, changed alone, would make a row's average follow from its cells?
#
# Arithmetic only. Several cells of a row can usually be changed so; nothing here says which one was, and no printed
# number is ever edited.


SLIP, NO_SLIP = "one slip away: ", "none"


def repairs_check(paper: Paper) -> list[Finding]:
    """For each distinct row whose average is outside or unlikely, a line per cell and one for the average itself; for
    other rows a line per cell that no count can give."""
    found = []
    for row in measured(paper, distinct=True):
        said = status(paper, row)
        if said == "ok":
            broken = [key for key, n in COLUMN.items() if not count(row.cells[key], n).candidates]
            found += [_cell_repairs(row, key, range(COPIES + 1)) for key in broken]
            continue
        allowed = range(COPIES + 1)
        if said == "unlikely":
            middle = median(usual(paper, row))
            allowed = range(max(0, ceil(middle - FAR)), min(COPIES, floor(middle + FAR)) + 1)
        found += [_cell_repairs(row, key, allowed) for key in COLUMN if row.cells[key] is not None]
        found.append(_average(row, allowed))
    return found


def fitting(row: Row, key: str, allowed: range) -> list[int]:
    """Counts k of the column with which the average follows, d in `allowed` of the repeated rows being right."""
    low, high = right(row, without=key)
    sums = {total - d for total in candidates(str(row.avg), RESPONSES) for d in allowed}
    return sorted({k for s in sums for k in range(max(0, s - high), min(COLUMN[key], s - low) + 1)})


def _cell_repairs(row: Row, key: str, allowed: range) -> Finding:
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
