"""Methods over training seeds. The unit is the seed: runs that differ in it only differ by more than chance answers.

One seed gives no method-level interval, however many responses it has; the functions say so instead of a number.
`over_seeds`, `compare_seeds`: these very problems, other seeds. `two_level`: other seeds and other problems.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evals.stats import intervals
from evals.stats.estimate import CONFIDENCE, Comparison, Estimate
from evals.stats.power import detectable
from evals.stats.responses import Samples, same_problems
from records.errors import CorruptInputError, MissingInputError

ONE_SEED = "one seed: no method-level interval"
NO_SEED = "no seed in common: not compared"
EQUAL_SEEDS = "seeds agree exactly: their spread is unknown"
_ROUNDING = 1e-12
"""Scores are ratios of counts; a spread below this is the rounding of equal ones."""


def over_seeds(
    score_by_seed: Mapping[int, float], *, confidence: float = CONFIDENCE, bounds: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """A method's score: mean over seeds, SE = sd/sqrt(S), Student-t with S - 1 degrees of freedom, cut to `bounds`.

    bounds: between which a figure that is not a score can lie (`math.inf` for no bound).
    """
    value_S = _values(score_by_seed)
    n, value = len(value_S), float(value_S.mean())
    if n < 2:
        return Estimate(value, None, None, None, "seed", ONE_SEED, n)
    mean = intervals.seed_mean(value_S)
    if mean.se < _ROUNDING:
        return Estimate(value, None, None, None, "seed", EQUAL_SEEDS, n)
    half = float(intervals.quantile(mean.df, confidence) * mean.se)
    low, high = max(bounds[0], value - half), min(bounds[1], value + half)
    return Estimate(value, float(mean.se), low, high, "seed", f"Student-t over {n} seeds", n)


def compare_seeds(
    a_by_seed: Mapping[int, float],
    b_by_seed: Mapping[int, float],
    *,
    confidence: float = CONFIDENCE,
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> Comparison:
    """Method a minus method b, paired by seed: equal seeds share initial weights, prompts and their order.

    Only seeds that both have are used; `n` says how many. bounds: as in `over_seeds`, of the difference.
    """
    common = sorted(set(a_by_seed) & set(b_by_seed))
    if not common:
        return Comparison(None, None, None, None, None, None, "seed", NO_SEED, 0)
    difference_S = _values({s: a_by_seed[s] for s in common}) - _values({s: b_by_seed[s] for s in common})
    n, difference = len(common), float(difference_S.mean())
    if n < 2:
        return Comparison(difference, None, None, None, None, None, "seed", ONE_SEED, n)
    mean = intervals.seed_mean(difference_S)
    if mean.se < _ROUNDING:
        return Comparison(difference, None, None, None, None, None, "seed", EQUAL_SEEDS, n)
    se, df = float(mean.se), float(mean.df)
    half = float(intervals.quantile(df, confidence)) * se
    low, high = max(bounds[0], difference - half), min(bounds[1], difference + half)
    p, power = float(intervals.p_value(difference, se, df)), detectable(se, df, alpha=1 - confidence)
    return Comparison(difference, se, low, high, p, power, "seed", f"paired t over {n} seeds", n)


def two_level(samples_by_seed: Mapping[int, Samples], *, confidence: float = CONFIDENCE) -> Estimate:
    """A method's score on one benchmark, for other seeds and other problems: all seeds answer the same problems.

    Variance by `intervals.two_way_mean`, interval by Wilson with the effective number of answers.
    """
    samples = [samples_by_seed[seed] for seed in sorted(samples_by_seed)]
    for other in samples[1:]:
        same_problems(samples[0], other)
    if not samples:
        raise MissingInputError("two_level: no seed given")
    if any(s.rows_per_problem.max() > 1 for s in samples):
        raise CorruptInputError("two_level: holds copies of a problem; use Samples.column('paper' or 'unique')")
    score_SP = np.stack([s.right_per_problem for s in samples])
    (n, problems), value = score_SP.shape, float(score_SP.mean())
    if n < 2:
        return Estimate(value, None, None, None, "seed and problem", ONE_SEED, n)
    if problems < 2:
        return Estimate(value, None, None, None, "seed and problem", "one problem: no interval", n)
    low, high, se = (float(x) for x in two_level_interval(score_SP, sum(s.responses for s in samples), confidence))
    how = f"Wilson-t over {n} seeds x {problems} problems"
    return Estimate(value, se or None, min(low, value), max(high, value), "seed and problem", how, n)


def two_level_interval(
    score_SP: intervals.Array, responses: int, confidence: float
) -> tuple[intervals.Array, intervals.Array, intervals.Array]:
    """(low, high, se) for (..., S, P) scores, vectorised: what `two_level` and its simulation call."""
    mean = intervals.two_way_mean(score_SP)
    low, high = intervals.score_interval(mean, score_SP.shape[-1], responses, confidence)
    return low, high, mean.se


def _values(score_by_seed: Mapping[int, float]) -> intervals.Array:
    if not score_by_seed:
        raise MissingInputError("seeds: no score given")
    value_S = np.array([score_by_seed[seed] for seed in sorted(score_by_seed)], float)
    if not np.isfinite(value_S).all():
        raise CorruptInputError(f"seeds: scores must be numbers, got {dict(score_by_seed)}")
    return value_S
