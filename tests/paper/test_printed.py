"""The printed tables as data: they are those of the paper's text, and their audit follows from them."""

import re
from decimal import Decimal
from fractions import Fraction
from statistics import median

import pytest

from core.files import read_csv
from core.provenance import ROOT
from paper import printed
from paper.claims import AUDIT
from paper.printed import COLUMN, COPIES, HEADINGS, RESPONSES, Row, candidates, counts, measured

TEXT = ROOT.parent / "shared" / "paper" / "tepo.md"
PAPER = printed.read()


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("**", ""))


def text(row: Row, key: str) -> str:
    """The cell as printed."""
    return str("-" if row.cells[key] is None else row.cells[key])


def test_cells_and_labels_equal_the_text_of_the_paper() -> None:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    for table in "1234":
        rows = [row for row in PAPER.values() if row.id.startswith(f"T{table}.")]
        lines = [line.split("\t") for line in TEXT.read_text("utf-8").partition(f"Table {table}: ")[2].splitlines()]
        body = [line for line in lines if len(line) == 9 and line[-1] not in ("Avg.", "")][: len(rows)]
        assert body == [[row.label, *(text(row, key) for key in HEADINGS)] for row in rows]


def in_percent(k: int, n: int) -> list[str]:
    """k of n in percent with two decimals: truncated, and rounded (halves go up)."""
    return [f"{c // 100}.{c % 100:02d}" for c in (10000 * k // n, (20000 * k + n) // (2 * n))]


def test_candidates() -> None:
    assert candidates("1.19", 675) == (8,), "rounded up from 1.185"
    assert candidates("37.10", 272) == (), "between 100/272 = 36.76 and 101/272 = 37.13"
    for n in (272, 500, 675, 960, 2656):
        assert all(k in candidates(shown, n) for k in range(n + 1) for shown in in_percent(k, n))
    assert candidates("27.17", 28110) == tuple(k for k in range(28111) if "27.17" in in_percent(k, 28110))


# paper/audit.csv: its counts and averages are computed here again.


def copies(row: Row) -> list[int]:
    """How many of the ten repeated rows of OMNI-MATH, which are in the pool only, may be right."""
    low, high = right(row)
    totals = candidates(str(row.avg), RESPONSES)
    return [d for d in range(COPIES + 1) if any(low <= total - d <= high for total in totals)]


def right(row: Row) -> tuple[int, ...]:
    """Fewest and most right responses behind the row's columns."""
    return tuple(map(sum, zip(*(counts(row.cells[key], n) for key, n in COLUMN.items()), strict=True)))


def status(row: Row) -> str:
    if not copies(row):
        return "outside"
    first = {other.run: other for other in reversed(measured(PAPER)) if other.model == row.model}  # row of a run
    others = [other for run, other in first.items() if run != row.run and other.cells["omni_math"]]
    usual = [median(copies(other)) for other in others if copies(other)]
    far = len(usual) >= 3 and min(abs(d - median(usual)) for d in copies(row)) > 3
    return "unlikely" if far and row.cells["omni_math"] else "ok"


def test_the_audits_counts_and_averages_follow_from_the_printed_tables() -> None:
    wanted = {}
    for row in measured(PAPER):
        low, high = (Fraction(10000 * k, RESPONSES) for k in (right(row)[0], right(row)[1] + COPIES))
        ends = f"{Decimal(int(low)).scaleb(-2)}..{Decimal(int(high + Fraction(1, 2))).scaleb(-2)}"
        wanted[row.id, "Avg."] = (text(row, "avg"), ends, status(row))
        for key, n in COLUMN.items():
            shown = text(row, key)
            found = () if shown == "-" else candidates(shown, n)
            behind = " or ".join(f"{k}/{n}" for k in found) or "0" * (shown == "-")
            state = "not_run" if shown == "-" else "ok" if found else "undecodable"
            wanted[row.id, HEADINGS[key]] = (shown, behind, state)
    lines = [line for line in read_csv(AUDIT, "audit", ()) if line["check"] in ("count", "average")]
    assert {(x["row"], x["cell"]): (x["printed"], x["admissible"], x["status"]) for x in lines} == wanted
