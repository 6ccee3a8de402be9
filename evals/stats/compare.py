"""Comparisons: two checkpoints on the same problems, two methods over their training seeds, and families of these.

Two checkpoints are paired by problem: both answered the same ones, so the problems' difficulty cancels and the
interval is three to eight times narrower than that of either score. It holds for these two checkpoints and other
problems of this kind. Two methods are paired by seed, because another seed would give two other checkpoints.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import nctdtrinc, stdtrit

from core.errors import CorruptInputError, MissingInputError
from core.layout import Checkpoint
from evals.scores import MACRO, POOLED
from evals.stats import ALPHA, intervals
from evals.stats.estimate import Comparison, Estimate, Samples, read_graded
from evals.tree import Tree

POWER = 0.8  # conventional
SUMMED = 1e-9  # scores.csv and a paired comparison sum the same shares in another order
SHARE, DIFFERENCE = (0.0, 1.0), (-1.0, 1.0)  # bounds of a score, and of the difference of two


def detectable(se: float | None, df: float | None, tests: int = 1) -> float | None:
    """Return the smallest true difference that a two-sided t test with this SE and df finds in 80 % of repetitions;
    None without a t test.

    Solves P(T > t_crit) = POWER for T noncentral t; the chance of significance in the wrong direction is neglected.
    tests: size of the family that Holm's rule corrects. The level is that of its first step, ALPHA / tests: what is
    found there stands whatever the other tests give. Where those are significant, a smaller difference would suffice.
    """
    if se is None or df is None:
        return None
    return float(se * nctdtrinc(df, 1.0 - POWER, stdtrit(df, 1.0 - ALPHA / 2.0 / tests)))


def t_test(
    value: float,
    se: float,
    df: float,
    *,
    bounds: tuple[float, float] = DIFFERENCE,
    level: Literal["problem", "seed"],
    how: str,
    n: int,
) -> Comparison:
    """Return a difference with Student's t: the interval value +- t SE, cut to `bounds`, p, and the detectable size."""
    half = float(intervals.quantile(df)) * se
    found = {"low": max(bounds[0], value - half), "high": min(bounds[1], value + half)}
    found["p"] = float(intervals.p_value(value, se, df))
    return Comparison(difference=value, se=se, **found, detectable=detectable(se, df), level=level, how=how, n=n, df=df)


# Two checkpoints. The unit is the problem.


def compare(a: Samples, b: Samples) -> Comparison:
    """Compare a - b on the same problems; the two may have different k (samples per problem).

    d_i = y_i - y'_i over P problems; SE = sd(d)/sqrt(P), `of_problems`. Raises CorruptInputError for other problems.
    """
    if a.items != b.items:
        extra = sorted(set(a.items) ^ set(b.items))
        raise CorruptInputError(
            f"a paired comparison needs the same problems: {len(a.items)} and {len(b.items)} items, "
            f"{len(extra)} on one side only, first {extra[0]!r}"
        )
    if not np.array_equal(a.problem_of_row, b.problem_of_row):
        raise CorruptInputError("a paired comparison needs the same problems: copies are grouped differently")
    return of_gaps(a.right_per_problem - b.right_per_problem, a.rows_per_problem, a.score - b.score)


def of_gaps(gap_P: ArrayLike, rows_P: ArrayLike, difference: float | None = None) -> Comparison:
    """Return the paired t test of problems' gaps, each the sum over a problem's rows. difference: None: their mean."""
    gap_P = np.where(np.abs(gap_P) < ROUNDING, 0.0, gap_P)
    n, (value, se, df) = len(gap_P), map(float, intervals.clustered_mean(gap_P, rows_P))
    return of_problems(value if difference is None else difference, se, df, n, f"paired t over {n} problems")


def of_problems(difference: float, se: float, df: float, n: int, how: str) -> Comparison:
    """Return the t test of a mean difference over n problems, with df that shrink when few problems differ.

    SE 0 (all differ equally, usually by 0): se is None, the interval bounds the effect of unseen problems, and p is 1,
    or the sign test's 2^(1-P) when the common difference is not 0.
    """
    if n < 2:
        return Comparison(difference=difference, level="problem", how="one problem: no interval", n=n)
    if se > 0:
        return t_test(difference, se, df, level="problem", how=how, n=n)
    # A share h of unseen problems could still differ (Clopper and Pearson 1934 for 0 of n), each by at most 1.
    h = 1.0 - ((1.0 - intervals.CONFIDENCE) / 2.0) ** (1.0 / n)
    ends = {"low": max(-1.0, (1 - h) * difference - h), "high": min(1.0, (1 - h) * difference + h)}
    p = 1.0 if difference == 0 else 2.0 ** (1 - n)
    how = f"all {n} problems differ alike: bound by Clopper-Pearson"
    return Comparison(difference=difference, **ends, p=p, level="problem", how=how, n=n)


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
    return t_test(value, se, df, level="problem", how=f"{how}; paired t over {len(parts)} strata, {n} problems", n=n)


def compare_average(a: Mapping[str, Samples], b: Mapping[str, Samples], *, pooled: bool) -> Comparison:
    """Compare the averages of benchmarks: pooled, weighted by responses (pass `pool` rows), or macro (`column` rows).

    Raises CorruptInputError for other benchmarks on one side, or other numbers of responses.
    """
    for key in a.keys() | b.keys():
        counts = [side[key].responses if key in side else 0 for side in (a, b)]
        if counts[0] != counts[1]:
            raise CorruptInputError(f"{key}: {counts[0]} and {counts[1]} responses: the averages differ in more")
    if not a:
        raise CorruptInputError("two averages without a benchmark in common cannot be compared")
    total = sum(samples.responses for samples in a.values())
    weights = {key: samples.responses / total if pooled else 1 / len(a) for key, samples in a.items()}
    how = "pooled by responses" if pooled else f"mean of {len(a)} benchmarks"
    return combined(weights, {key: compare(a[key], b[key]) for key in a}, how)


def paired(tree: Tree, a: Checkpoint, b: Checkpoint) -> dict[str, Comparison] | None:
    """Return a - b, paired by problem, for every benchmark of a tree and both averages; None without stored grades.

    Benchmarks without a score of either model have no entry; there is then no macro average, and the pooled one covers
    the benchmarks that both have.
    """
    if not all((tree.layout.grades(checkpoint) / "grades.json").exists() for checkpoint in (a, b)):
        return None
    keys = [str(entry["key"]) for entry in tree.benchmarks]
    both = [key for key in keys if None not in (tree.scores[a, key].value, tree.scores[b, key].value)]
    sides = [read_graded(tree.layout, side, both) for side in (a, b)]
    columns, pools = ([{key: cell[place] for key, cell in side.items()} for side in sides] for place in (0, 1))
    comparisons = {key: compare(columns[0][key], columns[1][key]) for key in both}
    comparisons[POOLED] = compare_average(*pools, pooled=True)
    # A mean over fewer benchmarks would be a different average under the same name.
    if len(both) == len(keys):
        comparisons[MACRO] = compare_average(*columns, pooled=False)
    return comparisons


def difference_of_scores(tree: Tree, benchmark: str, a: Checkpoint, b: Checkpoint) -> Comparison | None:
    """Return a - b on one benchmark or average, paired by problem; None where either score is unknown.

    Without grades the difference has no interval. Raises CorruptInputError when scores.csv and the grades
    disagree.
    """
    score_a, score_b = tree.scores[a, benchmark], tree.scores[b, benchmark]
    if score_a.value is None or score_b.value is None:
        return None
    difference = score_a.value - score_b.value
    comparisons = tree.once(paired, a, b)  # a table requests the same pair once per column
    if comparisons is None:
        how = "no grades beside the scores: no paired interval"
        return Comparison(difference=difference, level="problem", how=how, n=int(score_a.items or 0))
    comparison: Comparison = comparisons[benchmark]
    if comparison.difference is None or abs(comparison.difference - difference) > SUMMED:
        raise CorruptInputError(
            f"{tree.layout.scores}: {benchmark}: {a.path.as_posix()} minus {b.path.as_posix()} is {difference}, "
            f"their grades give {comparison.difference}: score again"
        )
    return comparison


# Two methods. The unit is the clean model that seeds continue, or the training seed where each has one: runs that
# differ in it differ by more than random answers. One unit gives no method-level interval, however many responses it
# has: `how` then contains the reason instead of a number.

ONE_SEED = "one seed: no method-level interval"
NO_SEED = "no seed in common: not compared"
EQUAL_SEEDS = "seeds agree exactly: their spread is unknown"
ROUNDING = 1e-12  # scores are ratios of counts: a smaller spread is the rounding of equal ones

Clusters = Mapping[int, object] | None  # by seed: the clean model that it continues (`evals.tree.Tree.clean_models`)


def by_first(seeds: Iterable[int], clusters: Clusters) -> dict[int, list[int]]:
    """Return the seeds that continue one clean model by the first of them, in order; None: each has a different one.

    If all seeds continue one clean model they stay separate: the result then holds for that one, as with a hub model.
    """
    seeds, groups = sorted(seeds), dict[object, list[int]]()
    for seed in seeds:
        groups.setdefault(seed if clusters is None else clusters[seed], []).append(seed)
    return {group[0]: group for group in groups.values()} if len(groups) > 1 else {seed: [seed] for seed in seeds}


def by_clean_model(by_seed: Mapping[int, float], clusters: Clusters) -> dict[int, float]:
    """Return means over the seeds that continue one clean model, by the first of these seeds, in order.

    Seeds of one clean model are correlated, so only the means are independent repetitions.
    """
    groups = by_first(by_seed, clusters).items()
    return {first: math.fsum(by_seed[seed] for seed in group) / len(group) for first, group in groups}


def units(seeds: Iterable[int], clusters: Clusters) -> str:
    """Describe the independent units among seeds.

    >>> units([1, 2, 5], {1: 1, 2: 2, 5: 1})
    '2 clean models, 3 seeds'
    """
    seeds = list(seeds)
    n = len(by_first(seeds, clusters))
    if n < len(seeds):
        return f"{n} clean models, {len(seeds)} seeds"
    alone = clusters is not None and n > 1 and len({clusters[seed] for seed in seeds}) == 1
    return f"{n} seeds" + " of one clean model" * alone


def over_seeds(
    by_seed: Mapping[int, float], *, bounds: tuple[float, float] = SHARE, clusters: Clusters = None
) -> Estimate:
    """Return a method's mean over clean models; its interval is Wilson's with Student's t (`intervals.seed_score`).

    n: clean models, or seeds (`by_clean_model`). bounds: the smallest and largest possible value (`math.inf` for no
    bound); a figure with other bounds than 0 and 1 has mean +- t SE, cut to them.
    """
    if not by_seed:
        raise MissingInputError("seeds: no score given")
    mean, n, why = _mean_over(by_seed, clusters)
    value = float(mean.value)
    if why:
        return Estimate(value=value, how=why, n=n)
    low, high = intervals.seed_score(mean) if bounds == SHARE else intervals.student(mean)
    # `value` may lie a rounding error outside
    bottom, top = max(bounds[0], min(float(low), value)), min(bounds[1], max(float(high), value))
    how = f"{'Wilson-t' if bounds == SHARE else 'Student-t'} over {units(by_seed, clusters)}"
    return Estimate(value=value, se=float(mean.se), low=bottom, high=top, how=how, n=n)


def compare_seeds(
    a_by_seed: Mapping[int, float],
    b_by_seed: Mapping[int, float],
    *,
    bounds: tuple[float, float] = DIFFERENCE,
    clusters: Clusters = None,
) -> Comparison:
    """Compare method a minus method b, paired by seed: equal seeds share initial weights, prompts and their order.

    Mean +- t SE over clean models, each the mean over its seeds (`by_clean_model`). The only rule for a difference of
    methods: tables, claims, sweeps and commands all call it. Only seeds that both have are used; n: clean models, or
    seeds. bounds: as in `over_seeds`, those of the difference.
    """
    gaps = {seed: a_by_seed[seed] - b_by_seed[seed] for seed in sorted(a_by_seed.keys() & b_by_seed.keys())}
    if not gaps:
        return Comparison(how=NO_SEED, n=0)
    mean, n, why = _mean_over(gaps, clusters)
    if why:
        return Comparison(difference=float(mean.value), how=why, n=n)
    how = f"paired t over {units(gaps, clusters)}"
    return t_test(*map(float, mean), bounds=bounds, level="seed", how=how, n=n)


def _mean_over(by_seed: Mapping[int, float], clusters: Clusters) -> tuple[intervals.Mean, int, str]:
    """Return the mean over clean models or seeds, their number, and why it has no interval ("" where it has one)."""
    value_S = np.array(list(by_clean_model(by_seed, clusters).values()), float)
    if not np.isfinite(value_S).all():
        raise CorruptInputError(f"seeds: scores must be numbers, got {dict(by_seed)}")
    mean, n = intervals.seed_mean(value_S), len(value_S)
    return mean, n, ONE_SEED if n < 2 else EQUAL_SEEDS if mean.se < ROUNDING else ""


# One method at several values.

CHOICES = 4_000  # resamples of a choice: the Monte Carlo error of a share is then at most 0.008


def chosen_again(by_value: Sequence[Mapping[int, float]], clusters: Clusters = None) -> intervals.Array:
    """Return (D,) which value has the highest mean in bootstrap resamples of the units that all have; of equal ones
    the first. Values on the same seeds get the same resamples, so that methods may be compared draw by draw."""
    seeds = set.intersection(*map(set, by_value))
    means = [list(by_clean_model({seed: of[seed] for seed in seeds}, clusters).values()) for of in by_value]
    value_VS = np.array(means, float)
    n = value_VS.shape[1]
    drawn_DS = np.random.default_rng(0).integers(0, n, (CHOICES, n))
    return np.asarray(value_VS[:, drawn_DS].mean(2).argmax(0))


def with_choice(comparison: Comparison, sd: float) -> Comparison:
    """Add the standard deviation due to the choice of values to the comparison's standard error; df stay."""
    if comparison.difference is None or comparison.se is None or comparison.df is None or sd == 0:
        return comparison
    how, se = f"{comparison.how}, and the choice of values", math.hypot(comparison.se, sd)
    return t_test(comparison.difference, se, comparison.df, level="seed", how=how, n=comparison.n)


# A family of tests.


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
        worst = max(worst, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = worst
    return adjusted
