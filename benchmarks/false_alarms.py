"""How often chance alone makes a claim: the false-alarm rate of the whole procedure, by simulation.

    python -m benchmarks.false_alarms        prints the tables of docs/statistics.md (about two minutes)

All methods are equal. Seeds move the logit of a method's score on each benchmark, partly in common over methods (the
base model and the prompts of a seed) and over benchmarks (a run that learns more is better on all). Scores go through
the functions that tables, sweeps and claims use. A family errs if one of its verdicts or marks is a difference.
`alone` is the share without any correction: what one gets who looks for the best p.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from benchmarks.seed_coverage import sigmoid
from evals.stats import intervals, sequential
from evals.stats.compare import ALPHA, compare_seeds, holm, shared_spread
from evals.stats.intervals import Array
from paper.claims.contrast import over_runs
from paper.claims.ledger import direction, verdicts_of_family
from paper.claims.tests import Outcome

REPEATS = 2000
ANSWERS = 400
MODEL = "model"
BY_SEED = 0.4  # standard deviation of a seed's effect on the logit: 10 points at 50 %
COMMON, BENCHMARKS = 0.7, 0.8  # shares of its variance that all methods, and all columns, have in common


class Rate(NamedTuple):
    """Families with a false alarm, of `repeats` simulated ones."""

    what: str
    setting: str
    alarms: float  # percent
    alone: float  # percent, without correction
    repeats: int

    @property
    def error(self) -> float:
        """Monte Carlo standard error of `alarms`, in percent points; at least that of one alarm."""
        share = max(self.alarms / 100, 1 / self.repeats)
        return 100 * math.sqrt(share * (1 - share) / self.repeats)


def drawn(rng: Generator, methods: int, columns: int, seeds: int, level: float, spreads: Array) -> Array:
    """(methods, columns, seeds) scores of equal methods. spreads: (methods,) sd of the logit between seeds."""
    effect = np.zeros((methods, columns, seeds))
    for share, of_methods in ((COMMON, 1), (1 - COMMON, methods)):
        for part, of_columns in ((BENCHMARKS, 1), (1 - BENCHMARKS, columns)):
            effect = effect + math.sqrt(share * part) * rng.standard_normal((of_methods, of_columns, seeds))
    logit = math.log(level / (1 - level)) + spreads[:, None, None] * effect
    return rng.binomial(ANSWERS, sigmoid(logit)) / ANSWERS


def unequal(rng: Generator, methods: int) -> Array:
    """Spreads that differ between methods as the rows of `benchmarks.seed_coverage` do."""
    return np.minimum(BY_SEED * np.sqrt(3 / rng.chisquare(3, methods)), 2.0)


def equal(rng: Generator, methods: int) -> Array:
    return np.full(methods, BY_SEED)


def table(methods: int, columns: int, seeds: int, level: float, spreads: Callable[[Generator, int], Array]) -> Rate:
    """Marks of a table's column against its first row, Holm over the rows: how often a column has an arrow without `?`.

    The rate is that of one column, the family that Holm's rule corrects; all columns of the table are counted.
    """
    rng = np.random.default_rng([1, methods, seeds, round(100 * level), spreads is equal])
    alarms = alone = tables = 0
    while tables * columns < REPEATS:
        tables += 1
        score = drawn(rng, methods, columns, seeds, level, spreads(rng, methods))
        for column in range(columns):
            rows = {(MODEL, str(row)): _by_seed(score[row, column]) for row in range(methods)}
            shared = shared_spread(rows, answers=ANSWERS)
            first, *others = rows.values()
            p = [compare_seeds(other, first, answers=ANSWERS, shared=shared).p for other in others]
            alarms += any(q is not None and q < ALPHA for q in holm(p))
            alone += any(q is not None and q < ALPHA for q in p)
    count = tables * columns
    kind = "equal" if spreads is equal else "unequal"
    setting = f"{methods} rows, {seeds} seeds, {100 * level:g} %, {kind} spreads"
    return Rate("marks of a column", setting, 100 * alarms / count, 100 * alone / count, count)


def tuned(methods: int = 6, rates: int = 5, select: int = 4, test: int = 8, fresh: bool = True) -> Rate:
    """Each method at the best of its rates on the selection seeds, compared on fresh seeds, Holm over the methods.

    fresh: false compares on the selection seeds themselves, which `workflow.sweep` refuses. The baseline is tuned too.
    """
    rng = np.random.default_rng([2, fresh])
    alarms = alone = 0
    for _ in range(REPEATS):
        spreads = unequal(rng, methods * rates)
        chosen = drawn(rng, methods * rates, 1, select, 0.6, spreads)[:, 0].reshape(methods, rates, select)
        again = drawn(rng, methods * rates, 1, test, 0.6, spreads)[:, 0].reshape(methods, rates, test)
        best = chosen.mean(-1).argmax(-1)
        if fresh:
            score = again[np.arange(methods), best]
        else:  # one method searched for its best rate against a baseline at a fixed one
            score = np.concatenate([chosen[:1, 0], chosen[np.arange(1, methods), best[1:]]])
        rows = {(MODEL, str(row)): _by_seed(score[row]) for row in range(methods)}
        shared = shared_spread(rows, answers=ANSWERS)
        first, *others = rows.values()
        p = [compare_seeds(other, first, answers=ANSWERS, shared=shared).p for other in others]
        alarms += any(q is not None and q < ALPHA for q in holm(p))
        alone += any(q is not None and q < ALPHA for q in p)
    seeds = f"chosen on {select} seeds, compared on {f'{test} others' if fresh else 'the same'}"
    setting = f"{methods} methods, {seeds}"
    return Rate("best of 5 rates", setting, 100 * alarms / REPEATS, 100 * alone / REPEATS, REPEATS)


def claims(family: int = 6, seeds: int = 8) -> Rate:
    """Verdicts of a family of claims, each about another method against one baseline: supported or contradicted."""
    rng = np.random.default_rng([3])
    alarms = alone = 0
    for _ in range(REPEATS):
        score = drawn(rng, family + 1, 1, seeds, 0.6, unequal(rng, family + 1))[:, 0]
        contrasts = [
            over_runs(
                "difference",
                {MODEL: _by_seed(score[claim] - score[0])},
                null=0.0,
                unit="points",
                bounds=(-1.0, 1.0),
                runs=(),
            )
            for claim in range(1, family + 1)
        ]
        directions = [direction(Outcome((contrast,))) for contrast in contrasts]
        alarms += any(verdict in ("supported", "contradicted") for verdict, _ in verdicts_of_family(directions))
        alone += any(contrast.p is not None and contrast.p < ALPHA for contrast in contrasts)
    setting = f"{family} claims, {seeds} seeds"
    return Rate("verdicts of a family", setting, 100 * alarms / REPEATS, 100 * alone / REPEATS, REPEATS)


def optional_stopping(methods: int = 4, first: int = 4, batch: int = 4, budget: int = 20) -> Rate:
    """`decide`: every method against the baseline until it is decided. alone: a t test at each look instead."""
    rng = np.random.default_rng([4])
    alarms = alone = 0
    for _ in range(REPEATS):
        score = drawn(rng, methods + 1, 1, budget, 0.6, unequal(rng, methods + 1))[:, 0]
        difference_MS = score[1:] - score[0]
        looks = range(first, budget + 1, batch)
        verdicts = [sequential.decide(difference_S, alpha=ALPHA / methods).verdict for difference_S in difference_MS]
        alarms += any(verdict != "undecided" for verdict in verdicts)
        mean, variance, df = intervals.seed_variance(
            np.stack([np.where(np.arange(budget) < look, difference_MS, np.nan) for look in looks])
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            p = intervals.p_value(mean, np.sqrt(variance / (df + 1)), df)
        alone += bool((p < ALPHA / methods).any())
    setting = f"{methods} methods, looks from {first} to {budget} seeds"
    return Rate("decide, optional stopping", setting, 100 * alarms / REPEATS, 100 * alone / REPEATS, REPEATS)


def stops() -> list[tuple[float, float, float, float]]:
    """(effect in standard deviations, share decided within 20 seeds, mean seeds used, power of a t test at 20)."""
    rng, budget, repeats = np.random.default_rng([5]), 20, REPEATS
    rows = []
    for effect in (0.0, 0.5, 1.0, 1.5, 2.6):
        value_S = effect + rng.standard_normal((repeats, budget))
        decisions = [sequential.decide(value, alpha=ALPHA) for value in value_S]
        decided = [d for d in decisions if d.verdict != "undecided"]
        mean, variance, df = intervals.seed_variance(value_S)
        fixed = intervals.p_value(mean, np.sqrt(variance / budget), df) < ALPHA
        share = 100 * len(decided) / repeats
        rows.append((effect, share, float(np.mean([d.seeds for d in decisions])), 100 * float(fixed.mean())))
    return rows


def rates() -> list[Rate]:
    """All families, in the order of the page."""
    found = [table(rows, 7, seeds, 0.6, unequal) for rows in (7, 22) for seeds in (2, 4, 8)]
    found += [table(22, 7, seeds, level, equal) for seeds, level in ((2, 0.6), (8, 0.6), (2, 0.97), (8, 0.97))]
    return [*found, tuned(), tuned(fresh=False), claims(), optional_stopping()]


def _by_seed(value_S: Sequence[float] | Array) -> dict[int, float]:
    return dict(enumerate(map(float, value_S)))


def markdown(found: Sequence[Rate]) -> str:
    lines = ["| family | setting | false alarms | without correction |", "|---|---|---|---|"]
    lines += [f"| {r.what} | {r.setting} | {r.alarms:.1f} ± {r.error:.1f} % | {r.alone:.0f} % |" for r in found]
    return "\n".join(lines)


def main() -> None:
    print(markdown(rates()))
    print("\n| effect, sd | decided within 20 seeds | seeds used, mean | t test at 20 seeds |\n|---|---|---|---|")
    for effect, share, seeds, fixed in stops():
        print(f"| {effect:g} | {share:.1f} % | {seeds:.1f} | {fixed:.0f} % |")


if __name__ == "__main__":
    main()
