"""Comparisons: two checkpoints on the same problems, two methods over their training seeds, and families of these.

Two checkpoints are paired by problem: both answered the same ones, so the problems' difficulty cancels and the
interval is three to eight times narrower than that of either score. It holds for these two checkpoints and other
problems of this kind. Two methods are paired by seed, because another seed would give two other checkpoints.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import nctdtrinc, stdtrit

from core.errors import ConfigError, CorruptInputError, MissingInputError
from evals.stats import intervals
from evals.stats.estimate import Comparison, Estimate, Level, Samples, same_problems

POWER, ALPHA = 0.8, 0.05  # conventional; ALPHA belongs to the 95 % of `intervals.CONFIDENCE`
SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)  # bounds of a score, and of the difference of two


def detectable(se: float, df: float, tests: int = 1) -> float:
    """Return the smallest true difference that a two-sided t test with this SE and df finds in 80 % of repetitions.

    Solves P(T > t_crit) = POWER for T noncentral t; the chance of significance in the wrong direction is neglected.
    tests: size of the family that Holm's rule corrects. The level is that of its first step, ALPHA / tests: whatever is
    found there is found whatever the other tests give. Where those are significant, a smaller difference would suffice.
    """
    return float(se * nctdtrinc(df, 1.0 - POWER, stdtrit(df, 1.0 - ALPHA / 2.0 / tests)))


def t_test(
    value: float, se: float, df: float, *, bounds: tuple[float, float], level: Level, how: str, n: int
) -> Comparison:
    """Return a difference with Student's t: the interval value +- t SE, cut to `bounds`, p, and the detectable size."""
    half = float(intervals.quantile(df)) * se
    ends = max(bounds[0], value - half), min(bounds[1], value + half)
    p = float(intervals.p_value(value, se, df))
    found = {"low": ends[0], "high": ends[1], "p": p, "detectable": detectable(se, df)}
    return Comparison(difference=value, se=se, **found, level=level, how=how, n=n, df=df)


def detectable_in_family(comparison: Comparison, tests: int) -> float | None:
    """Return `detectable` for one of `tests` comparisons that Holm's rule corrects together; None without a t test."""
    if comparison.se is None or comparison.df is None:
        return None
    return detectable(comparison.se, comparison.df, tests)


# Two checkpoints. The unit is the problem.


def compare(a: Samples, b: Samples) -> Comparison:
    """Compare a - b on the same problems; the two may have different k (samples per problem).

    d_i = y_i - y'_i over P problems; SE = sd(d)/sqrt(P); interval and p by Student's t with df that shrink when few
    problems differ. All d_i equal (usually: all 0): se is None, the interval bounds the effect of unseen problems, and
    p is 1, or the sign test's 2^(1-P) when the common difference is not 0.
    """
    same_problems(a, b)
    gap_P = a.right_per_problem - b.right_per_problem
    gap_P[np.abs(gap_P) < 1e-12] = 0.0  # the same shares, summed in another order
    n = len(a.rows_per_problem)
    mean = intervals.clustered_mean(gap_P, a.rows_per_problem)
    return of_problems(mean, n, a.score - b.score, f"paired t over {n} problems")


def of_problems(mean: intervals.Mean, n: int, difference: float, how: str) -> Comparison:
    """Return the t test of a mean difference over n problems; without spread as in `compare`.

    difference: `mean.value` computed from counts, which may lie a rounding error outside the interval.
    """
    if n < 2:
        return Comparison(difference=difference, level="problem", how="one problem: no interval", n=n)
    low, high = intervals.difference_interval(mean, n)
    ends = {"low": min(float(low), difference), "high": max(float(high), difference)}
    se, df = float(mean.se), float(mean.df)
    if se == 0:
        # The spread is unknown, so no t test: without a difference, each problem's sign would be a coin flip.
        p = 1.0 if difference == 0 else 2.0 ** (1 - n)
        how = f"all {n} problems differ alike: bound by Clopper-Pearson"
        return Comparison(difference=difference, **ends, p=p, level="problem", how=how, n=n)
    found = ends | {"p": float(intervals.p_value(mean.value, se, df)), "detectable": detectable(se, df)}
    return Comparison(difference=difference, se=se, **found, level="problem", how=how, n=n, df=df)


def spread_of(c: Comparison) -> float:
    """Return the SE; without one, because all problems differ equally, half the bound's width over 1.96: unseen
    problems could still differ, as if the bound were a 95 % interval of the normal distribution."""
    if c.se is not None or c.low is None or c.high is None:
        return c.se or math.nan
    return (c.high - c.low) / 2 / float(intervals.quantile(np.inf))


def combined(weights: Mapping[str, float], parts: Mapping[str, Comparison], how: str) -> Comparison:
    """Return the weighted sum of benchmarks' differences; SE and df by Welch-Satterthwaite of `spread_of`."""
    value = math.fsum(weights[key] * (c.difference or 0.0) for key, c in parts.items())
    n = sum(c.n for c in parts.values())
    for key, c in parts.items():
        if c.low is None:
            return Comparison(difference=value, level="problem", how=f"{how}; no interval: {key}: {c.n} problem", n=n)
    dfs = [c.n - 1.0 if c.df is None else c.df for c in parts.values()]
    se, df = (float(x) for x in intervals.welch([weights[key] * spread_of(c) for key, c in parts.items()], dfs))
    how = f"{how}; paired t over {len(parts)} strata, {n} problems"
    return t_test(value, se, df, bounds=DIFFERENCE, level="problem", how=how, n=n)


def compare_pooled(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> Comparison:
    """Compare the pooled averages, each benchmark weighted by its responses; pass `pool` rows."""
    total = sum(samples.responses for samples in a.values())
    return _over_benchmarks(a, b, {key: samples.responses / total for key, samples in a.items()}, "pooled by responses")


def compare_macro(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> Comparison:
    """Compare the macro averages; pass `column` rows."""
    return _over_benchmarks(a, b, {key: 1 / len(a) for key in a}, f"mean of {len(a)} benchmarks")


def _over_benchmarks(
    a: Mapping[str, Samples], b: Mapping[str, Samples], weights: Mapping[str, float], how: str
) -> Comparison:
    if set(a) != set(b) or not a:
        only = ", ".join(sorted(set(a) ^ set(b))) or "none given"
        raise CorruptInputError(f"averages of different benchmarks cannot be compared: {only}")
    for key in a:
        if a[key].responses != b[key].responses:
            raise CorruptInputError(f"{key}: {a[key].responses} and {b[key].responses} responses: the pools differ")
    return combined(weights, {key: compare(a[key], b[key]) for key in a}, how)


# Two methods. The unit is the clean model that seeds continue, or the training seed where each has one: runs that
# differ in it differ by more than random answers. One unit gives no method-level interval, however many responses it
# has: `how` then contains the reason instead of a number.

ONE_SEED = "one seed: no method-level interval"
NO_SEED = "no seed in common: not compared"
EQUAL_SEEDS = "seeds agree exactly: their spread is unknown"
ROUNDING = 1e-12  # scores are ratios of counts: a smaller spread is the rounding of equal ones

Clusters = Mapping[int, object]  # by seed: the clean model that it continues (`evals.tree.Tree.clean_models`)


def first_of(seeds: Iterable[int], clusters: Clusters | None) -> dict[int, int]:
    """Return by seed the first one that continues the same clean model; None: each seed starts from another one.

    If all seeds continue one clean model they stay separate: the result then holds for that one, as with a hub model.
    """
    first: dict[object, int] = {}
    found = {seed: first.setdefault(seed if clusters is None else clusters[seed], seed) for seed in sorted(seeds)}
    return found if len(first) > 1 else {seed: seed for seed in found}


def by_clean_model(by_seed: Mapping[int, float], clusters: Clusters | None) -> dict[int, float]:
    """Return means over the seeds that continue one clean model, by the first of these seeds.

    Seeds of one clean model are correlated, so only the means are independent repetitions.
    """
    groups: dict[int, list[float]] = {}
    for seed, first in first_of(by_seed, clusters).items():
        groups.setdefault(first, []).append(by_seed[seed])
    return {first: math.fsum(values) / len(values) for first, values in groups.items()}


def units(by_seed: Mapping[int, object], clusters: Clusters | None) -> str:
    """Describe the independent units among seeds.

    >>> units({1: 0.5, 2: 0.4, 5: 0.6}, {1: 1, 2: 2, 5: 1})
    '2 clean models, 3 seeds'
    """
    n, seeds = len({*first_of(by_seed, clusters).values()}), len(by_seed)
    if n < seeds:
        return counted(n, seeds)
    alone = clusters is not None and seeds > 1 and len({clusters[seed] for seed in by_seed}) == 1
    return f"{seeds} seeds" + " of one clean model" * alone


def counted(n: int, seeds: int) -> str:
    """Describe n independent units among this number of seeds."""
    return f"{seeds} seeds" if n == seeds else f"{n} clean models, {seeds} seeds"


def over_seeds(
    score_by_seed: Mapping[int, float], *, bounds: tuple[float, float] = SHARE, clusters: Clusters | None = None
) -> Estimate:
    """Return a method's mean over clean models; its interval is Wilson's with Student's t (`intervals.seed_score`).

    n: clean models, or seeds (`by_clean_model`). bounds: the smallest and largest possible value (`math.inf` for no
    bound); a figure with other bounds than 0 and 1 has mean +- t SE, cut to them.
    """
    value_S = _values(score_by_seed, clusters)
    n, value = len(value_S), float(value_S.mean())
    if n < 2:
        return Estimate(value=value, how=ONE_SEED, n=n)
    mean, (low, high) = intervals.seed_score(value_S) if bounds == SHARE else intervals.seed_mean(value_S)
    if mean.se < ROUNDING:
        return Estimate(value=value, how=EQUAL_SEEDS, n=n)
    # `value` may lie a rounding error outside
    bottom, top = max(bounds[0], min(float(low), value)), min(bounds[1], max(float(high), value))
    how = f"{'Wilson-t' if bounds == SHARE else 'Student-t'} over {units(score_by_seed, clusters)}"
    return Estimate(value=value, se=float(mean.se), low=bottom, high=top, how=how, n=n)


def compare_seeds(
    a_by_seed: Mapping[int, float],
    b_by_seed: Mapping[int, float],
    *,
    bounds: tuple[float, float] = DIFFERENCE,
    clusters: Clusters | None = None,
) -> Comparison:
    """Compare method a minus method b, paired by seed: equal seeds share initial weights, prompts and their order.

    Mean +- t SE over clean models, each the mean over its seeds (`by_clean_model`). The only rule for a difference of
    methods: tables, claims, sweeps and commands all call it. Only seeds that both have are used; n: clean models, or
    seeds. bounds: as in `over_seeds`, those of the difference.
    """
    common = sorted(set(a_by_seed) & set(b_by_seed))
    if not common:
        return Comparison(how=NO_SEED, n=0)
    difference_by_seed = {seed: a_by_seed[seed] - b_by_seed[seed] for seed in common}
    value_S = _values(difference_by_seed, clusters)
    n, difference = len(value_S), float(value_S.mean())
    if n < 2:
        return Comparison(difference=difference, how=ONE_SEED, n=n)
    mean, _ = intervals.seed_mean(value_S)
    if mean.se < ROUNDING:
        return Comparison(difference=difference, how=EQUAL_SEEDS, n=n)
    how = f"paired t over {units(difference_by_seed, clusters)}"
    return t_test(difference, float(mean.se), float(mean.df), bounds=bounds, level="seed", how=how, n=n)


CHOICES = 4_000  # resamples of a choice: the Monte Carlo error of a share is then at most 0.008
DRAWS = 20_000  # the Monte Carlo error of a probability is then at most 0.0035


def chances_of_being_best(
    by_name: Mapping[str, Mapping[int, float]], clusters: Clusters | None = None
) -> tuple[dict[str, float], str]:
    """Return each method's probability that its mean over clean models is the highest, and how that was computed.

    The means' joint distribution is that of the paired t test: observed means plus a Student-t multiple (S - 1 degrees
    of freedom, one for all methods) of a random combination of the deviations of S clean models (`by_clean_model`), so
    that effects common to the seeds cancel. For two methods the probability is 1 - p/2, p that of `compare_seeds`.
    Resampling the seeds themselves would be overconfident with few: two have three resamples. Tied methods share.

    Only seeds that all methods have count. Zero or one methods, or fewer than two common seeds: no probabilities.
    """
    drawn_DM = _means_drawn(by_name, clusters)
    if drawn_DM is None:
        return {}, "fewer than two methods, or than two seeds in common"
    best_DM = drawn_DM >= drawn_DM.max(1, keepdims=True) - ROUNDING
    share_M = (best_DM / best_DM.sum(1, keepdims=True)).mean(0)
    seeds = units(dict.fromkeys(set.intersection(*map(set, by_name.values()))), clusters)
    how = f"highest of {len(by_name)} means over {seeds} in common, in {DRAWS:,} draws of their paired t distribution"
    return dict(zip(by_name, map(float, share_M), strict=True)), how


def ranks(
    by_name: Mapping[str, Mapping[int, float]], clusters: Clusters | None = None
) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of each method's rank (1: the highest mean) in the draws of `chances_of_being_best`.
    Tied methods get the better rank. Empty where there are no probabilities.
    """
    drawn_DM = _means_drawn(by_name, clusters)
    if drawn_DM is None:
        return {}
    place_DM = 1 + (drawn_DM[:, None, :] > drawn_DM[:, :, None] + ROUNDING).sum(2)
    tail = (1 - intervals.CONFIDENCE) / 2
    low_M, high_M = np.quantile(place_DM, (tail, 1 - tail), axis=0)
    return {name: (float(low_M[m]), float(high_M[m])) for m, name in enumerate(by_name)}


def _common(by_name: Mapping[Any, Mapping[int, float]], clusters: Clusters | None) -> list[list[float]]:
    """Return by method its values for the clean models of the seeds that all methods have."""
    seeds = set.intersection(*map(set, by_name.values())) if by_name else set()
    return [
        list(by_clean_model({seed: by_seed[seed] for seed in seeds}, clusters).values()) for by_seed in by_name.values()
    ]


def _means_drawn(by_name: Mapping[str, Mapping[int, float]], clusters: Clusters | None) -> intervals.Array | None:
    """Return (D, M): the methods' means, drawn from their joint paired t distribution. D: draws, M: methods, S: units.

    None for fewer than two methods or units.
    """
    values = _common(by_name, clusters)
    if len(values) < 2 or len(values[0]) < 2:
        return None
    value_MS = np.array(values, float)
    mean_M = value_MS.mean(1)
    deviation_MS = value_MS - mean_M[:, None]
    n = value_MS.shape[1]
    generator = np.random.default_rng(0)  # fixed: equal scores give equal probabilities
    normal_DS = generator.standard_normal((DRAWS, n))
    scale_D = np.sqrt((n - 1) / generator.chisquare(n - 1, DRAWS))
    # cov of deviation @ normal is the sum of squares: over S (S - 1) it is the squared standard error of the mean
    drawn_DM: intervals.Array = mean_M + scale_D[:, None] * (normal_DS @ deviation_MS.T) / math.sqrt(n * (n - 1))
    return drawn_DM


def chosen_again(by_value: Sequence[Mapping[int, float]], clusters: Clusters | None = None) -> intervals.Array:
    """Return (D,) which value has the highest mean in bootstrap resamples of the units that all have; of equal ones
    the first. Values on the same seeds get the same resamples, so that methods may be compared draw by draw."""
    value_VS = np.array(_common(dict(enumerate(by_value)), clusters))
    generator, n = np.random.default_rng(0), value_VS.shape[1]
    drawn_DS = generator.integers(0, n, (CHOICES, n))
    return np.asarray(value_VS[:, drawn_DS].mean(2).argmax(0))


def with_choice(comparison: Comparison, sd: float) -> Comparison:
    """Add the standard deviation due to the choice of values to the comparison's standard error; df stay."""
    if comparison.difference is None or comparison.se is None or comparison.df is None or sd == 0:
        return comparison
    how, se = f"{comparison.how}, and the choice of values", math.hypot(comparison.se, sd)
    return t_test(comparison.difference, se, comparison.df, bounds=DIFFERENCE, level="seed", how=how, n=comparison.n)


def _values(by_seed: Mapping[int, float], clusters: Clusters | None) -> intervals.Array:
    """Return means over the seeds of each clean model, in order."""
    if not by_seed:
        raise MissingInputError("seeds: no score given")
    means = by_clean_model(by_seed, clusters)
    value_S = np.array([means[first] for first in sorted(means)], float)
    if not np.isfinite(value_S).all():
        raise CorruptInputError(f"seeds: scores must be numbers, got {dict(by_seed)}")
    return value_S


VERDICTS = {"above": ("supported", "contradicted"), "below": ("contradicted", "supported"), None: ("ahead", "behind")}


def judge(comparison: Comparison, margin: float = 0.0, side: str | None = None, p: float | None = None) -> str:
    """Return the verdict on a difference `a - b`, by its 95 % interval.

    side: where a claim places the difference, `above` or `below` 0: `supported` or `contradicted`; None, for methods:
    `ahead` or `behind`. margin: `equal within the margin` where the interval lies inside +-margin, which is stricter
    than two one-sided tests at 5 %. p: corrected for other tests (`holm`); None: the comparison's own. Otherwise
    `undecided`, or `not tested` where there is no difference.

    >>> judge(compare_seeds({1: 0.5, 2: 0.6, 3: 0.8}, {1: 0.1, 2: 0.2, 3: 0.3}), side="below")
    'contradicted'
    """
    low, high = comparison.low, comparison.high
    # Before the test: a significant difference that is too small to matter supports nothing.
    if margin > 0 and low is not None and high is not None and -margin <= low and high <= margin:
        return "equal within the margin"
    if comparison.difference is None:
        return "not tested"
    p = comparison.p if p is None else p
    if low is None or high is None or low <= 0 <= high or p is None or p >= ALPHA:
        return "undecided"
    return VERDICTS[side][0 if low > 0 else 1]


# Many comparisons.


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Return adjusted p values in the given order (S. Holm, Scandinavian Journal of Statistics 1979).

    In ascending order, the i-th of m is multiplied by m - i + 1, never falls below an earlier one and stops at 1. None
    stays None and does not count towards m, because that comparison was not tested.

    >>> holm([0.01, 0.04, 0.03, None])
    [0.03, 0.06, 0.06, None]
    """
    tested = sorted((value, place) for place, value in enumerate(p) if value is not None)
    adjusted: list[float | None] = [None] * len(p)
    worst = 0.0
    for rank, (value, place) in enumerate(tested):
        if math.isnan(value) or not 0 <= value <= 1:
            raise ConfigError(f"holm: p[{place}] = {value} is not a probability; None stands for untested")
        worst = max(worst, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = worst
    return adjusted
