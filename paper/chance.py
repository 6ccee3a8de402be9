"""Estimate how far apart chance alone would put printed averages.

There are two estimates, and the wider interval is used:
- generation alone (`sd`, from the counts behind the cells; normal distribution). Training adds to it.
- Table 4's three pairs of seeds: the mean of their squared distances, divided by what generation alone predicts, is a
  factor applied to all rows and models; Student-t with 3 degrees of freedom.
Mean rows (Table 4) are means of that many runs. A benchmark printed as "-" adds nothing, as in the paper's average.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import combinations

from evals.stats import intervals
from evals.stats.compare import t_test
from evals.stats.estimate import Comparison
from paper import printed
from paper.audit import RESPONSES, count, implied, status
from paper.printed import COLUMN, POOL, SPREAD, Row, measured

NORMAL = 1e6  # degrees of freedom at which Student's t is the normal distribution


def sd(share: float, n: int) -> float:
    """Return the standard deviation of the difference of two scores by generation alone, as a fraction.

    share: the common score; n: responses. Mean p_i(1 - p_i) is p(1 - p) SPREAD/(1 + SPREAD), and the difference has
    twice that variance over n. Greedy answers count as one draw: two trainings differ on a problem as often as
    two draws would.
    """
    return math.sqrt(2 * share * (1 - share) * SPREAD / (1 + SPREAD) / n)


def difference(pairs: Sequence[tuple[str, str]], null: float, follow_cells: bool = False) -> Comparison:
    """Compare the mean over pairs of printed rows of a's average minus b's with `null` (fractions).

    follow_cells: replace an average that does not follow from its row's cells by the middle of what they imply.
    """

    def variance(a: str, b: str) -> float:
        """Return the variance from generation alone; smaller for means of several runs."""
        runs = (1 / len(parts(a)) + 1 / len(parts(b))) / 2
        return runs * _generation(a, b) ** 2

    value = math.fsum(average(a, follow_cells) - average(b, follow_cells) for a, b in pairs) / len(pairs)
    se = math.sqrt(math.fsum(variance(a, b) for a, b in pairs)) / len(pairs)
    n = min(len(parts(row)) for pair in pairs for row in pair)
    pairs_of_seeds, factor = _seeds(follow_cells)
    # By chance, three pairs of seeds can be closer together than generation alone allows; then generation decides.
    laws = ((se, NORMAL, "generation noise"), (se * math.sqrt(factor), pairs_of_seeds, "Table 4's pairs of seeds"))
    spread, df, law = max(laws, key=lambda law: law[0] * float(intervals.quantile(law[1])))
    return t_test(value - null, spread, df, bounds=(-math.inf, math.inf), level="seed", how=law, n=n)


def average(id: str, follow_cells: bool) -> float:
    """Return the printed average as a fraction; for a mean row with replaced parts, the mean of these."""
    rows = [printed.read()[part] for part in parts(id)]
    if not follow_cells:
        return float(printed.read()[id].avg) / 100
    return math.fsum(sum(implied(row)) / 200 if row.id in outside() else row.avg / 100 for row in rows) / len(rows)


@cache
def outside() -> frozenset[str]:
    """Return the ids of the rows whose printed average does not follow from their cells."""
    paper = printed.read()
    return frozenset(row.id for row in measured(paper) if status(paper, row) == "outside")


def parts(id: str) -> tuple[str, ...]:
    """Return the rows that a mean row averages, or the row alone."""
    return printed.read()[id].of or (id,)


@cache
def _seeds(follow_cells: bool) -> tuple[int, float]:
    """Count the pairs of runs that differ in their seed only; return their variance over that of generation alone.

    A ratio, not a variance: it applies to rows with other scores, whose generation noise differs.
    """
    pairs: dict[object, tuple[Row, Row]] = {}
    for a, b in combinations(measured(printed.read()), 2):
        if a.run and b.run and a.run.seed != b.run.seed and a.run._replace(seed=None) == b.run._replace(seed=None):
            # The last pair of rows wins: a table of seeds comes after the one that prints a single seed.
            pairs[frozenset((a.run, b.run))] = (a, b)
    ratios = [
        ((average(a.id, follow_cells) - average(b.id, follow_cells)) / _generation(a.id, b.id)) ** 2
        for a, b in pairs.values()
    ]
    return len(ratios), math.fsum(ratios) / len(ratios)


def _generation(a: str, b: str) -> float:
    """Return the sd of the difference of two single runs' averages by generation alone, as a fraction."""
    return math.hypot(*(POOL[key] / RESPONSES * sd(_share(a, b, key), n) for key, n in COLUMN.items()))


def _share(a: str, b: str, column: str) -> float:
    """Return the share that the two rows have right: the mean of their counts over the responses."""
    ids = [*parts(a), *parts(b)]
    counts = [count(printed.read()[id].cells[column], COLUMN[column]) for id in ids]
    return float(Fraction(sum(c.low + c.high for c in counts), 2 * COLUMN[column] * len(ids)))
