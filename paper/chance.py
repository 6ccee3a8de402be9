"""Chance in print: how far apart do equally good runs come out, and how often are their cells equal?

A problem is solved with its own probability p_i, Beta-distributed over problems with a + b = SPREAD (the AIME-like
profile of `docs/statistics.md`). Then mean p_i(1 - p_i) = p(1 - p) SPREAD/(1 + SPREAD), and the difference of two
scores over N responses has twice that variance over N. Greedy answers are treated as one draw: two trainings answer a
problem differently as often as two draws would. Training noise comes on top, so real pairs should lie further apart.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import combinations
from math import erf, prod, sqrt

from paper.arithmetic import Finding, count
from paper.printed import COLUMN, HEADINGS, Paper, Row, measured

# Two equally good checkpoints on the same problems, by chance of generation alone.

# At this a + b the sd over problems is .25, as for AIME-like sets (docs/notebook/intervals.md). A smaller value
# means problems that are always or never solved, and less noise.
SPREAD = 0.73


def sd(share: float, n: int) -> float:
    """Standard deviation of the difference of two scores, as a fraction. share: the common score, n: responses."""
    return sqrt(2 * share * (1 - share) * SPREAD / (1 + SPREAD) / n)


def within(counts: float, share: float, n: int) -> float:
    """Chance that two such checkpoints differ by at most `counts` right responses (normal, continuity-corrected)."""
    spread = n * sd(share, n)
    return 1.0 if spread == 0 else erf((counts + 0.5) / spread / sqrt(2))


def beyond(counts: float, share: float, n: int) -> float:
    """Chance that they differ by at least `counts`."""
    spread = n * sd(share, n)
    if counts <= 0:
        return 1.0
    return 0.0 if spread == 0 else 1 - erf((counts - 0.5) / spread / sqrt(2))


# Pairs of seeds: is their distance what generation alone would give, smaller or larger?

RARE = 0.05  # on each side; uncorrected, and the page says how many of the distances chance alone would list


def pairs(paper: Paper) -> list[tuple[Row, Row]]:
    """Distinct runs that differ in their seed only."""
    by_runs: dict[object, tuple[Row, Row]] = {}
    for a, b in combinations(measured(paper), 2):
        if a.run and b.run and a.run.seed != b.run.seed and a.run._replace(seed=None) == b.run._replace(seed=None):
            # The last pair of rows wins: a table of seeds comes after the one that prints a single seed.
            by_runs[frozenset((a.run, b.run))] = (a, b)
    return list(by_runs.values())


def seeds(paper: Paper) -> list[Finding]:
    """One line per benchmark and pair of runs."""
    findings = []
    for a, b in pairs(paper):
        ids = f"{a.id} {b.id}"
        for key, n in COLUMN.items():
            if not (a.cells[key] and b.cells[key]):
                continue
            # A cell that several counts print like enters with the middle of them.
            count_a, count_b = (sum(count(row.cells[key], n)[:2]) / 2 for row in (a, b))
            share, apart = (count_a + count_b) / 2 / n, abs(count_a - count_b)
            near, far = within(apart, share, n), beyond(apart, share, n)
            state = "close" if near < RARE else "far" if far < RARE else "ok"
            spread = 100 * sd(share, n)
            note = f"generation noise alone: sd {spread:.2f} points; chance so close {near:.2f}, so far {far:.2f}"
            points, usual = f"{100 * apart / n:.2f}", f"0..{1.96 * spread:.2f}"
            findings.append(Finding(b.table, ids, HEADINGS[key], "seeds", points, usual, state, note))
    return findings


# Rows of one run must repeat digit for digit; equal cells of different runs are listed beside the chance of a tie.

TOGETHER = 2  # columns that two different runs must share before the pair is listed: one tie is common by chance


def repeated(paper: Paper) -> list[Finding]:
    """Each cell of a row that prints an earlier row's run again."""
    first: dict[object, Row] = {}
    findings = []
    for row in measured(paper):
        earlier = first.setdefault(row.run, row)
        if earlier is row:
            continue
        for key, heading in HEADINGS.items():
            text, was = row.text(key), earlier.text(key)
            state = "ok" if text == was else "differs"
            findings.append(
                Finding(row.table, row.id, heading, "repeat", text, was, state, f"same run as {earlier.id}")
            )
    return findings


def ties(paper: Paper) -> list[Finding]:
    """Values that different runs of one model share in a column, with the chance for one pair and what to expect."""
    findings = []
    for model, rows in _by_model(paper).items():
        pairs = len(rows) * (len(rows) - 1) // 2
        for key, n in COLUMN.items():
            by_value: dict[str, list[Row]] = defaultdict(list)
            for row in rows:
                if row.cells[key]:
                    by_value[row.text(key)].append(row)
            equal_pairs = sum(len(same) * (len(same) - 1) // 2 for same in by_value.values())
            for value, same in by_value.items():
                if len(same) == 1:
                    continue
                chance = within(0, float(value) / 100, n)
                note = (
                    f"{model}: chance {100 * chance:.1f} % for one pair of equally good runs; "
                    f"{equal_pairs} of the column's {pairs} pairs are equal, "
                    f"{pairs * chance:.1f} expected if all were equally good"
                )
                ids = " ".join(row.id for row in same)
                findings.append(Finding(same[0].table, ids, HEADINGS[key], "tie", value, "", "listed", note))
    return findings


def together(paper: Paper) -> list[Finding]:
    """Pairs of different runs of one model that share two or more columns."""
    findings = []
    for model, rows in _by_model(paper).items():
        pairs, expected = [], 0.0
        for a, b in combinations(rows, 2):
            chances = {}
            for key, n in COLUMN.items():
                cell_a, cell_b = a.cells[key], b.cells[key]
                if cell_a and cell_b:
                    chances[key] = within(0, float(cell_a + cell_b) / 200, n)
            # "at most expected": runs of unequal quality tie less often than the equally good ones assumed here
            expected += at_least(TOGETHER, list(chances.values()))
            same = [key for key in chances if a.text(key) == b.text(key)]
            if len(same) >= TOGETHER:
                pairs.append((a, b, same, prod(chances[key] for key in same)))
        for a, b, same, chance in pairs:
            values = ", ".join(f"{HEADINGS[key]} {a.text(key)}" for key in same)
            note = (
                f"{model}: chance 1 in {1 / chance:,.0f} for these columns of one pair of equally good runs; "
                f"pairs sharing {TOGETHER} or more: {len(pairs)}, at most {expected:.1f} expected"
            )
            findings.append(Finding(a.table, f"{a.id} {b.id}", "", "tie_rows", values, "", "listed", note))
    return findings


def at_least(k: int, chances: list[float]) -> float:
    """Chance that at least k of independent events happen (Poisson-binomial, by recursion over the events)."""
    happened = [1.0, *[0.0] * len(chances)]
    for p in chances:
        happened = [here * (1 - p) + (happened[i - 1] * p if i else 0.0) for i, here in enumerate(happened)]
    return sum(happened[k:])


def _by_model(paper: Paper) -> dict[str, list[Row]]:
    """Distinct runs by model; a run that scored 0 everywhere says nothing about ties."""
    by_model: dict[str, list[Row]] = defaultdict(list)
    for row in measured(paper, distinct=True):
        if any(row.cells[key] for key in COLUMN):
            by_model[row.model].append(row)
    return by_model
