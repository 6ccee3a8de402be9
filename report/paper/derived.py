"""Rows made of other rows: Delta rows against every row of their block, and means over seeds."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

from report.paper.averages import rounded, truncated
from report.paper.finding import Finding
from report.paper.misprint import one_slip
from report.paper.printed import HEADINGS, Paper, Row, block

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
