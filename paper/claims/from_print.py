"""The printed tables as a source: differences of cells, and how far chance alone would put them apart.

Two estimates of chance, and the wider interval counts:
- generation alone (`sd`, from the counts behind the cells; normal law). Training adds to it.
- Table 4's three pairs of seeds: the mean of their squared distances over what generation alone predicts is a column's
  factor, carried over to all rows and models; Student-t with 3 degrees of freedom.
Mean rows (Table 4) are means of so many runs. A benchmark printed as "-" adds nothing, as in the paper's average.
"""

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property, partial
from itertools import combinations

from evals.stats import intervals
from evals.stats.compare import detectable
from paper.audit import RESPONSES, count, implied, status
from paper.claims.contrast import SCORE, Contrast, Gap, Rows, Source, listed, ratio_of_sds
from paper.claims.entries import POINTS
from paper.printed import AVERAGE, COLUMN, HEADINGS, MODELS, POOL, SPREAD, Paper, Row, measured

PROBLEMS = {"aime24": 30, "aime25": 30, "amc": 83}  # benchmarks whose responses are 32 samples of fewer problems
NORMAL = 1e6  # degrees of freedom at which Student's t is the normal law


def sd(share: float, n: int) -> float:
    """Standard deviation of the difference of two scores by generation alone, as a fraction.

    share: the common score; n: responses. Mean p_i(1 - p_i) is p(1 - p) SPREAD/(1 + SPREAD), and the difference has
    twice that variance over n. Greedy answers count as one draw: two trainings answer a problem differently as often as
    two draws would.
    """
    return math.sqrt(2 * share * (1 - share) * SPREAD / (1 + SPREAD) / n)


class Prints(Source):
    """The printed tables.

    follow_cells: in place of a printed average that does not follow from its row's cells, take the middle of what they
    imply; `replaced` then names the rows where that happened.
    """

    def __init__(self, paper: Paper, *, follow_cells: bool = False):
        self.paper = paper
        self.follow_cells = follow_cells
        self.replaced: dict[str, str] = {}

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        """Cell minus cell (fractions); several rows: the mean over models."""
        if measure != SCORE or times != 1:
            raise Gap(f"{measure.replace('_', ' ')} is not printed as numbers")

        def variance(a: str, b: str) -> float:
            """By generation alone; shrunk for means of several runs."""
            runs = (1 / len(self._parts(a)) + 1 / len(self._parts(b))) / 2
            return runs * self._generation(a, b, column) ** 2

        pairs = list(zip(listed(left), listed(right), strict=True))
        gains = [self.cell(a, column) - self.cell(b, column) for a, b in pairs]
        value = math.fsum(gains) / len(pairs)
        se = math.sqrt(math.fsum(variance(a, b) for a, b in pairs)) / len(pairs)
        what = f"{' '.join(listed(left))} − {' '.join(listed(right))}, {HEADINGS[column]}"
        return self._wider(what, value, null, se, column, [id for pair in pairs for id in pair])

    def spread(self, steadier: Rows, than: Rows, column: str, measure: str = SCORE) -> Contrast:
        """sd of a single run over printed seeds; F distribution."""
        if measure != SCORE:
            raise Gap(f"{measure.replace('_', ' ')} is not printed as numbers")
        a, b = listed(steadier), listed(than)
        scores_a, scores_b = ([[self.cell(part, column) for part in self._parts(id)] for id in ids] for ids in (a, b))
        what = f"sd over seeds of {' '.join(a)} over that of {' '.join(b)}, {HEADINGS[column]}"
        return ratio_of_sds(what, scores_a, scores_b, runs=[*a, *b])

    def bases(self, runs: Sequence[str]) -> str:
        return f"{', '.join(dict.fromkeys(MODELS[self.paper[id].model] for id in runs))} (pretrained)"

    def collapsed(self, row: str, by: int, below: float) -> Contrast:
        """The printed average of the collapsed run, with Clopper-Pearson's bound for as many answers as problems."""
        # The unit is the problem: 32 wrong samples of one hard problem are one piece of evidence.
        problems = sum(PROBLEMS.get(key, n) for key, n in COLUMN.items())
        value = self.cell(row, AVERAGE)
        if value != 0:
            raise Gap(f"{row} prints {self.paper[row].text(AVERAGE)}: no collapse to 0")
        return Contrast(
            what=f"{row}, {HEADINGS[AVERAGE]}",
            value=0.0,
            null=below,
            low=0.0,
            high=1 - 0.025 ** (1 / problems),
            p=min(1.0, 2 * (1 - below) ** problems),
            unit=POINTS,
            level="problem",
            how=f"0 right; Clopper-Pearson over {problems} problems; the step is in the row's label only",
            n=problems,
            runs=(row,),
        )

    def cell(self, id: str, column: str) -> float:
        """The printed value as a fraction; of a mean row whose parts are replaced, the mean of these."""
        row = self.paper[id]
        if column == AVERAGE and self.follow_cells:
            return math.fsum(self._average(self.paper[part]) for part in self._parts(id)) / len(self._parts(id))
        value = row.cells[column]
        if value is None:
            raise Gap(f"{id} prints - under {HEADINGS[column]}")
        return float(value) / 100

    @cached_property
    def seed_pairs(self) -> list[tuple[Row, Row]]:
        """Distinct runs that differ in their seed only."""
        by_runs: dict[object, tuple[Row, Row]] = {}
        for a, b in combinations(measured(self.paper), 2):
            if a.run and b.run and a.run.seed != b.run.seed and a.run._replace(seed=None) == b.run._replace(seed=None):
                # The last pair of rows wins: a table of seeds comes after the one that prints a single seed.
                by_runs[frozenset((a.run, b.run))] = (a, b)
        return list(by_runs.values())

    def factor(self, column: str) -> float:
        """Variance between the seeds of Table 4 over that of generation alone."""
        # A ratio, not a variance: it carries over to rows with other scores, whose generation noise is another one.
        ratios = [
            ((self.cell(a.id, column) - self.cell(b.id, column)) / self._generation(a.id, b.id, column)) ** 2
            for a, b in self.seed_pairs
        ]
        return math.fsum(ratios) / len(ratios)

    @cached_property
    def outside(self) -> frozenset[str]:
        """Ids of the rows whose printed average does not follow from their cells."""
        return frozenset(row.id for row in measured(self.paper) if status(self.paper, row) == "outside")

    def _average(self, row: Row) -> float:
        if row.id not in self.outside:
            return float(row.avg) / 100
        low, high = implied(row)
        self.replaced[row.id] = f"{row.id} prints {row.avg}, its cells imply {low} to {high}"
        return float(low + high) / 200

    def _parts(self, id: str) -> tuple[str, ...]:
        return self.paper[id].of or (id,)

    def _generation(self, a: str, b: str, column: str) -> float:
        """sd of the difference of two single runs by generation alone, as a fraction."""
        if column != AVERAGE:
            return sd(self._share(a, b, column), COLUMN[column])
        parts = [POOL[key] / RESPONSES * sd(self._share(a, b, key), n) for key, n in COLUMN.items()]
        return math.sqrt(math.fsum(part**2 for part in parts))

    def _share(self, a: str, b: str, column: str) -> float:
        """What the two rows get right in common: the mean of their counts over the responses."""
        n = COLUMN[column]
        ids = [*self._parts(a), *self._parts(b)]
        counts = [count(self.paper[id].cells[column], n) for id in ids]
        return float(Fraction(sum(c.low + c.high for c in counts), 2 * n * len(ids)))

    def _wider(self, what: str, value: float, null: float, se: float, column: str, ids: Sequence[str]) -> Contrast:
        """se: by generation alone. Interval, p and power of whichever estimate of chance is the more cautious."""
        pairs, factor = len(self.seed_pairs), self.factor(column)
        n = min(len(self._parts(id)) for id in ids)
        runs = tuple(dict.fromkeys(part for id in ids for part in self._parts(id)))
        if se == 0:
            return Contrast(what, value, null, None, None, None, POINTS, "seed", "no spread", n, runs)
        # Three seed pairs can lie closer together than generation alone allows, by chance; then generation decides.
        laws = ((se, NORMAL, "generation noise of the counts"), (se * math.sqrt(factor), pairs, "Table 4's seed pairs"))
        spread, df, name = max(laws, key=lambda law: law[0] * float(intervals.quantile(law[1])))
        half = float(intervals.quantile(df)) * spread
        return Contrast(
            what=what,
            value=value,
            null=null,
            low=value - half,
            high=value + half,
            p=float(intervals.p_value(value - null, spread, df)),
            unit=POINTS,
            level="seed",
            how=f"{name}: sd {100 * spread:.2f} points (variance x {factor:.2f} of generation alone in {pairs} pairs)",
            n=n,
            runs=runs,
            detectable=partial(detectable, spread, df),
        )
