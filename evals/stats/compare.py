"""Comparisons: two checkpoints on the same problems, two methods over their training seeds, many of them at once.

Two checkpoints are paired by problem: both answered the same ones, so the problems' own difficulty drops out and the
interval is three to eight times narrower than that of either score. That is about these two checkpoints and other
problems of this kind. Two methods are paired by seed, because another seed would give two other checkpoints.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from core.errors import ConfigError, CorruptInputError, MissingInputError
from evals.stats import intervals
from evals.stats.estimate import Comparison, Estimate
from evals.stats.responses import Samples, same_problems

POWER, ALPHA = 0.8, 0.05  # conventional; ALPHA belongs to the 95 % of `intervals.CONFIDENCE`


def detectable(se: float, df: float, tests: int = 1) -> float:
    """The smallest true difference that a two-sided t test with this SE and df finds in 80 % of repetitions.

    Solves P(T > t_crit) = POWER for T noncentral t; the chance of significance in the wrong direction is neglected.
    tests: size of the family that Holm's rule corrects. The level is that of its first step, ALPHA / tests: what is
    found there is found whatever the other tests say. Where they are significant, less would have been enough.
    """
    return float(se * nctdtrinc(df, 1.0 - POWER, stdtrit(df, 1.0 - ALPHA / 2.0 / tests)))


def detectable_in_family(comparison: Comparison, tests: int) -> float | None:
    """`detectable` of a comparison that Holm's rule corrects with others, `tests` together; None without a t test."""
    if comparison.se is None or comparison.df is None:
        return None
    return detectable(comparison.se, comparison.df, tests)


# Two checkpoints. The unit is the problem.


def compare(a: Samples, b: Samples) -> Comparison:
    """a - b on the same problems; the two may have different k (samples per problem).

    d_i = y_i - y'_i over P problems; SE = sd(d)/sqrt(P); interval and p by Student's t with df that shrink when few
    problems differ. All d_i equal (usually: all 0): se is None, the interval bounds what unseen problems could do, and
    p is 1, or the sign test's 2^(1-P) when the common difference is not 0.
    """
    mean, n = _mean(a, b)
    return of_problems(mean, n, a.score - b.score, f"paired t over {n} problems")


def of_problems(mean: intervals.Mean, n: int, difference: float, how: str) -> Comparison:
    """The t test of a mean difference over n problems; without spread as `compare` describes.

    difference: `mean.value` as taken from counts, which may lie a rounding error outside the interval.
    """
    if n < 2:
        return Comparison(difference, None, None, None, None, None, "problem", "one problem: no interval", n)
    low, high = intervals.difference_interval(mean, n)
    bounds = min(float(low), difference), max(float(high), difference)
    se, df = float(mean.se), float(mean.df)
    if se == 0:
        # The spread was not seen, so no t test: under no difference, each problem's sign would be a coin's.
        p = 1.0 if difference == 0 else 2.0 ** (1 - n)
        how = f"all {n} problems differ alike: bound by Clopper-Pearson"
        return Comparison(difference, None, *bounds, p, None, "problem", how, n)
    p, power = float(intervals.p_value(mean.value, se, df)), detectable(se, df)
    return Comparison(difference, se, *bounds, p, power, "problem", how, n, df)


def compare_pooled(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> Comparison:
    """Difference of the pooled averages, each benchmark weighted by its responses; give `pool` rows."""
    _same_benchmarks(a, b)
    total = sum(samples.responses for samples in a.values())
    return _combined(a, b, {key: samples.responses / total for key, samples in a.items()}, "pooled by responses")


def compare_macro(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> Comparison:
    """Difference of the macro averages; give `column` rows."""
    _same_benchmarks(a, b)
    return _combined(a, b, {key: 1 / len(a) for key in a}, f"mean of {len(a)} benchmarks")


def _mean(a: Samples, b: Samples) -> tuple[intervals.Mean, int]:
    same_problems(a, b)
    difference_P = a.right_per_problem - b.right_per_problem
    difference_P[np.abs(difference_P) < 1e-12] = 0.0  # the same shares, summed in another order
    return intervals.clustered_mean(difference_P, a.rows_per_problem), len(a.rows_per_problem)


def _same_benchmarks(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> None:
    if set(a) != set(b) or not a:
        only = ", ".join(sorted(set(a) ^ set(b))) or "none given"
        raise CorruptInputError(f"averages of different benchmarks cannot be compared: {only}")
    for key in a:
        if a[key].responses != b[key].responses:
            raise CorruptInputError(f"{key}: {a[key].responses} and {b[key].responses} responses: the pools differ")


def _combined(a: Mapping[str, Samples], b: Mapping[str, Samples], weights: Mapping[str, float], how: str) -> Comparison:
    """Weighted sum of the benchmarks' differences; SE and df by Welch-Satterthwaite.

    A benchmark without spread has no SE of its own, but unseen problems could still differ: its bound enters as if it
    were a 95 % interval by the normal law, that is, with half its width over 1.96.
    """
    value = math.fsum(weights[key] * (a[key].score - b[key].score) for key in a)
    parts, dfs, n = [], [], 0
    for key in a:
        mean, problems = _mean(a[key], b[key])
        n += problems
        if problems < 2:
            how = f"{how}; no interval: {key}: one problem"
            return Comparison(value, None, None, None, None, None, "problem", how, n)
        bound = intervals.difference_interval(mean, problems)
        spread = float(mean.se) or float(bound.high - bound.low) / 2 / float(intervals.quantile(np.inf))
        parts.append(weights[key] * spread)
        dfs.append(float(mean.df))
    se, df = (float(x) for x in intervals.welch(parts, dfs))
    half = float(intervals.quantile(df)) * se
    bounds = max(-1.0, value - half), min(1.0, value + half)
    p, power = float(intervals.p_value(value, se, df)), detectable(se, df)
    how = f"{how}; paired t over {len(parts)} strata, {n} problems"
    return Comparison(value, se, *bounds, p, power, "problem", how, n, df)


# Two methods. The unit is the training seed: runs that differ in it only differ by more than chance answers. One seed
# gives no method-level interval, however many responses it has; the functions say so instead of giving a number.

ONE_SEED = "one seed: no method-level interval"
NO_SEED = "no seed in common: not compared"
EQUAL_SEEDS = "seeds agree exactly: their spread is unknown"
ROUNDING = 1e-12  # scores are ratios of counts: a smaller spread is the rounding of equal ones
SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)  # bounds of a score, and of the difference of two


def shared_spread(rows: Mapping[str, Mapping[int, float]], *, answers: float = math.inf) -> intervals.Spread | None:
    """The spread between seeds of a model's rows of one benchmark, for `over_seeds` and `compare_seeds`; None without
    rows.

    rows: scores by method and seed.
    """
    seeds = dict.fromkeys(seed for by_seed in rows.values() for seed in by_seed)
    if not seeds:
        return None
    value_RS = np.array([[by_seed.get(seed, np.nan) for seed in seeds] for by_seed in rows.values()])
    return intervals.spread(value_RS, answers)


def over_seeds(
    score_by_seed: Mapping[int, float],
    *,
    bounds: tuple[float, float] = SHARE,
    answers: float = math.inf,
    shared: intervals.Spread | None = None,
) -> Estimate:
    """A method's score: mean over S seeds; its interval is Wilson's with Student's t (`intervals.seed_score`).

    answers: right-or-wrong answers behind each seed's score. shared: what the model's other rows say about the
    spread between seeds. bounds: the smallest and largest possible value (`math.inf` for no bound); a figure with other
    bounds than 0 and 1 has mean +- t SE, cut to them.
    """
    value_S = _values(score_by_seed)
    n, value = len(value_S), float(value_S.mean())
    if n < 2:
        return Estimate(value, None, None, None, "seed", ONE_SEED, n)
    if bounds == SHARE:
        mean, (low, high) = intervals.seed_score(value_S, answers, shared)
        se, df = float(mean.se), float(mean.df)
    else:
        _, variance, degrees = intervals.seed_variance(value_S)
        se, df = math.sqrt(float(variance) / n), float(degrees)
        half = float(intervals.quantile(df)) * se
        low, high = np.asarray(value - half), np.asarray(value + half)
    if se < ROUNDING:
        return Estimate(value, None, None, None, "seed", EQUAL_SEEDS, n)
    # `value` may lie a rounding error outside
    ends = max(bounds[0], min(float(low), value)), min(bounds[1], max(float(high), value))
    return Estimate(value, se, *ends, "seed", _how("Wilson-t" if bounds == SHARE else "Student-t", n, df), n)


def compare_seeds(
    a_by_seed: Mapping[int, float],
    b_by_seed: Mapping[int, float],
    *,
    bounds: tuple[float, float] = DIFFERENCE,
    answers: float = math.inf,
    shared: intervals.Spread | None = None,
) -> Comparison:
    """Method a minus method b, paired by seed: equal seeds share initial weights, prompts and their order.

    Mean +- t SE (`intervals.seed_difference`). Only seeds that both have are used; `n` says how many. bounds, answers,
    shared: as in `over_seeds`; bounds are those of the difference, and other ones than -1 and 1 share no spread.
    """
    common = sorted(set(a_by_seed) & set(b_by_seed))
    if not common:
        return Comparison(None, None, None, None, None, None, "seed", NO_SEED, 0)
    a_S, b_S = _values({s: a_by_seed[s] for s in common}), _values({s: b_by_seed[s] for s in common})
    n, difference = len(common), float((a_S - b_S).mean())
    if n < 2:
        return Comparison(difference, None, None, None, None, None, "seed", ONE_SEED, n)
    if bounds == DIFFERENCE and (shared is not None or answers < math.inf):
        mean = intervals.seed_difference(a_S, b_S, answers, shared)
        se, df = float(mean.se), float(mean.df)
    else:
        _, variance, degrees = intervals.seed_variance(a_S - b_S)
        se, df = math.sqrt(float(variance) / n), float(degrees)
    if se < ROUNDING:
        return Comparison(difference, None, None, None, None, None, "seed", EQUAL_SEEDS, n)
    half = float(intervals.quantile(df)) * se
    low, high = max(bounds[0], difference - half), min(bounds[1], difference + half)
    p, power = float(intervals.p_value(difference, se, df)), detectable(se, df)
    return Comparison(difference, se, low, high, p, power, "seed", _how("paired t", n, df), n, df)


def _how(interval: str, seeds: int, df: float) -> str:
    own = "" if df == seeds - 1 else f", spread shared with other rows: {df:g} degrees of freedom"
    return f"{interval} over {seeds} seeds{own}"


DRAWS = 20_000  # the Monte Carlo error of a probability is then at most .0035


def chances_of_being_best(by_name: Mapping[str, Mapping[int, float]]) -> tuple[dict[str, float], str]:
    """Probability of each of several methods that its mean over training seeds is the highest, and how it was made.

    The means' joint distribution is that of the paired t test: observed means plus a Student-t multiple (S - 1 degrees
    of freedom, one for all methods) of a random combination of the S seeds' deviations, so that what seeds have in
    common cancels. Of two methods the probability is 1 - p/2, p that of `compare_seeds`. A resampling of the seeds
    themselves would be too sure of few seeds: two have three resamples. Methods that tie share.

    Only seeds that all methods have count. No method, a single one, or fewer than two common seeds: no probabilities.
    """
    common = _common(by_name)
    if len(by_name) < 2 or len(common) < 2:
        return {}, "fewer than two methods, or than two seeds in common"
    drawn_DM = _means_drawn(by_name, common)
    best_DM = drawn_DM >= drawn_DM.max(1, keepdims=True) - ROUNDING
    share_M = (best_DM / best_DM.sum(1, keepdims=True)).mean(0)
    n = len(common)
    how = f"highest of {len(by_name)} means over {n} common seeds, in {DRAWS:,} draws of their paired t distribution"
    return dict(zip(by_name, map(float, share_M), strict=True)), how


def ranks(by_name: Mapping[str, Mapping[int, float]]) -> dict[str, tuple[float, float]]:
    """95 % interval of each method's place (1: the highest mean) in the draws of `chances_of_being_best`; methods that
    tie have the better place. Empty where that gives no probabilities.
    """
    common = _common(by_name)
    if len(by_name) < 2 or len(common) < 2:
        return {}
    drawn_DM = _means_drawn(by_name, common)
    place_DM = 1 + (drawn_DM[:, None, :] > drawn_DM[:, :, None] + ROUNDING).sum(2)
    tail = (1 - intervals.CONFIDENCE) / 2
    low_M, high_M = np.quantile(place_DM, (tail, 1 - tail), axis=0)
    return {name: (float(low_M[m]), float(high_M[m])) for m, name in enumerate(by_name)}


def _common(by_name: Mapping[str, Mapping[int, float]]) -> list[int]:
    return sorted(set.intersection(*map(set, by_name.values()))) if by_name else []


def _means_drawn(by_name: Mapping[str, Mapping[int, float]], common: Sequence[int]) -> intervals.Array:
    """(D, M): the methods' means, drawn from their joint paired t distribution. D: draws, M: methods, S: seeds."""
    value_MS = np.array([[seeds[seed] for seed in common] for seeds in by_name.values()], float)
    mean_M = value_MS.mean(1)
    deviation_MS = value_MS - mean_M[:, None]
    n = len(common)
    generator = np.random.default_rng(0)  # fixed: equal scores give equal probabilities
    normal_DS = generator.standard_normal((DRAWS, n))
    scale_D = np.sqrt((n - 1) / generator.chisquare(n - 1, DRAWS))
    # cov of deviation @ normal is the sum of squares: over S (S - 1) it is the squared standard error of the mean
    drawn_DM: intervals.Array = mean_M + scale_D[:, None] * (normal_DS @ deviation_MS.T) / math.sqrt(n * (n - 1))
    return drawn_DM


def _values(score_by_seed: Mapping[int, float]) -> intervals.Array:
    if not score_by_seed:
        raise MissingInputError("seeds: no score given")
    value_S = np.array([score_by_seed[seed] for seed in sorted(score_by_seed)], float)
    if not np.isfinite(value_S).all():
        raise CorruptInputError(f"seeds: scores must be numbers, got {dict(score_by_seed)}")
    return value_S


# Many comparisons.


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values in the given order (S. Holm, Scandinavian Journal of Statistics 1979).

    Sorted upwards, the i-th of m is multiplied by m - i + 1, never falls below an earlier one and stops at 1. None
    stays None and does not count into m: a comparison that could not be tested tested nothing.

    >>> holm([0.01, 0.04, 0.03, None])
    [0.03, 0.06, 0.06, None]
    """
    tested = sorted((value, place) for place, value in enumerate(p) if value is not None)
    adjusted: list[float | None] = [None] * len(p)
    worst = 0.0
    for rank, (value, place) in enumerate(tested):
        if math.isnan(value) or not 0 <= value <= 1:
            raise ConfigError(f"holm: p[{place}] = {value} is no probability; None stands for untested")
        worst = max(worst, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = worst
    return adjusted
