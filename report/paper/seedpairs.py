"""Two seeds of one method: is their distance what generation noise alone would give, smaller or larger?"""

from __future__ import annotations

from itertools import combinations

from evals.stats.decode import COLUMN
from report.paper import noise
from report.paper.counts import count
from report.paper.finding import Finding
from report.paper.printed import HEADINGS, Paper, Row, measured

RARE = 0.05


def pairs(paper: Paper) -> list[tuple[Row, Row]]:
    """Distinct runs that differ in their seed only."""
    found = {
        frozenset((a.run, b.run)): (a, b)
        for a, b in combinations(measured(paper), 2)
        if a.run and b.run and a.run.seed != b.run.seed and a.run._replace(seed=None) == b.run._replace(seed=None)
    }  # the last wins: a table of seeds comes after the one that prints a single seed
    return list(found.values())


def check(paper: Paper) -> list[Finding]:
    """One line per benchmark and pair of runs."""
    return [_pair(a, b, key, n) for a, b in pairs(paper) for key, n in COLUMN.items() if a.cells[key] and b.cells[key]]


def _pair(a: Row, b: Row, key: str, n: int) -> Finding:
    one, two = (sum(count(row.cells[key], n)[:2]) / 2 for row in (a, b))
    share, apart = (one + two) / 2 / n, abs(one - two)
    near, far = noise.within(apart, share, n), noise.beyond(apart, share, n)
    said = "close" if near < RARE else "far" if far < RARE else "ok"
    spread = 100 * noise.sd(share, n)
    note = f"generation noise alone: sd {spread:.2f} points; chance so close {near:.2f}, so far {far:.2f}"
    points = f"{100 * apart / n:.2f}"
    return Finding(b.table, f"{a.id} {b.id}", HEADINGS[key], "seeds", points, f"0..{1.96 * spread:.2f}", said, note)
