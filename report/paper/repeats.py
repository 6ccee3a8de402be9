"""Rows of one run must repeat digit for digit; equal cells of different runs are listed beside the chance of a tie."""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from math import prod

from evals.stats.decode import COLUMN
from report.paper import noise
from report.paper.finding import Finding
from report.paper.printed import HEADINGS, Paper, Row, measured

TOGETHER = 2
"""Columns that two different runs must share before the pair is listed."""


def repeated(paper: Paper) -> list[Finding]:
    """Each cell of a row that prints an earlier row's run again."""
    first: dict[object, Row] = {}
    found = []
    for row in measured(paper):
        earlier = first.setdefault(row.run, row)
        if earlier is row:
            continue
        for key, heading in HEADINGS.items():
            same = row.text(key) == earlier.text(key)
            found.append(
                Finding(
                    row.table, row.id, heading, "repeat", row.text(key), earlier.text(key),
                    "ok" if same else "differs", f"same run as {earlier.id}",
                )
            )  # fmt: skip
    return found


def ties(paper: Paper) -> list[Finding]:
    """Values that different runs of one model share in a column, with the chance for one pair and what to expect."""
    found = []
    for model, rows in _by_model(paper).items():
        pairs = len(rows) * (len(rows) - 1) // 2
        for key, n in COLUMN.items():
            shared: dict[str, list[Row]] = defaultdict(list)
            for row in rows:
                if row.cells[key]:
                    shared[row.text(key)].append(row)
            seen = sum(len(same) * (len(same) - 1) // 2 for same in shared.values())
            for value, same in shared.items():
                if len(same) > 1:
                    chance = noise.tie(float(value) / 100, n)
                    note = (
                        f"{model}: chance {100 * chance:.1f} % for one pair of equally good runs; "
                        f"{seen} of the column's {pairs} pairs are equal, "
                        f"{pairs * chance:.1f} expected if all were equally good"
                    )
                    ids = " ".join(row.id for row in same)
                    found.append(Finding(same[0].table, ids, HEADINGS[key], "tie", value, "", "listed", note))
    return found


def together(paper: Paper) -> list[Finding]:
    """Pairs of different runs of one model that share two or more columns."""
    found = []
    for model, rows in _by_model(paper).items():
        lines, expected = [], 0.0
        for a, b in combinations(rows, 2):
            chances = {
                key: noise.tie(_share(a, b, key), n) for key, n in COLUMN.items() if a.cells[key] and b.cells[key]
            }
            expected += at_least(TOGETHER, list(chances.values()))
            same = [key for key in chances if a.text(key) == b.text(key)]
            if len(same) >= TOGETHER:
                lines.append((a, b, same, prod(chances[key] for key in same)))
        for a, b, same, chance in lines:
            values = ", ".join(f"{HEADINGS[key]} {a.text(key)}" for key in same)
            note = (
                f"{model}: chance 1 in {1 / chance:,.0f} for these columns of one pair of equally good runs; "
                f"pairs sharing {TOGETHER} or more: {len(lines)}, at most {expected:.1f} expected"
            )
            found.append(Finding(a.table, f"{a.id} {b.id}", "", "tie_rows", values, "", "listed", note))
    return found


def at_least(k: int, chances: list[float]) -> float:
    """Chance that at least k of independent events happen (Poisson-binomial, by recursion over the events)."""
    happened = [1.0, *[0.0] * len(chances)]
    for p in chances:
        happened = [here * (1 - p) + (happened[i - 1] * p if i else 0.0) for i, here in enumerate(happened)]
    return sum(happened[k:])


def _share(a: Row, b: Row, key: str) -> float:
    return float((a.cells[key] or 0) + (b.cells[key] or 0)) / 200


def _by_model(paper: Paper) -> dict[str, list[Row]]:
    """Distinct runs by model; a run that scored 0 everywhere says nothing about ties."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in measured(paper, distinct=True):
        if any(row.cells[key] for key in COLUMN):
            found[row.model].append(row)
    return found
