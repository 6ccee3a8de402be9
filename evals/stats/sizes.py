"""Two scores over problems: their difference, its detectable size, and the problems or samples needed to decide it.

A checkpoint solves problem i with chance p_i. The difference of two scores over n problems has the variance of
p_i - q_i between problems, which only more problems reduce, and on each side the mean of p_i(1 - p_i) over k samples.
A score without its problems' answers leaves both unknown: they lie between bounds that follow from the scores.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from core.errors import CorruptInputError
from evals.stats import intervals
from evals.stats.compare import (
    ALPHA,
    POWER,
    by_clean_model,
    combined,
    compare_seeds,
    detectable,
    of_problems,
    spread_of,
)
from evals.stats.estimate import Comparison


class Error(NamedTuple):
    """Squared standard error of a difference of two scores."""

    total: float
    floor: float | None  # remains with any number of samples; None: unknown, as with one sample a problem


class Parts(NamedTuple):
    """Variance of a problem's share of right samples."""

    between: float  # of p_i over problems
    sampled: float  # mean of p_i(1 - p_i) / k


Rows = Mapping[str, tuple[float, int, int]]  # by problem: share right, samples of a row, rows (copies)


class Score(NamedTuple):
    """One side on one benchmark."""

    value: float  # in [0, 1]
    problems: int
    samples: float  # of each problem; their harmonic mean
    parts: Parts | None = None  # None: unknown
    rows: Rows | None = None  # None: unavailable, as for a printed score


class Case(NamedTuple):
    """A comparison under one variance; fields that need a t test are None without one."""

    comparison: Comparison
    floor: float | None  # `Error.floor`
    problems: int | None  # that find the observed difference in 80 % of repetitions; of two sets, in the smaller
    samples: float | None  # times those of a problem that find it on the same problems; infinity: none do
    any_samples: float | None  # the smallest detectable difference with any number of samples


def of_answers(rows: Rows) -> Score:
    """Return the score of problems with their answers."""
    share, samples, weight = zip(*rows.values(), strict=True)
    value = sum(w * y for w, y in zip(weight, share, strict=True)) / sum(weight)
    mean = len(rows) / sum(1 / k for k in samples)
    return Score(value, len(rows), mean, measured_parts(share, samples), rows)


def compare_scores(
    a: Score, b: Score, spread: float, correlation: float
) -> tuple[tuple[Score, Score], tuple[Case, ...]]:
    """Compare a - b on the problems that count: one case where both have their problems' answers, else the
    smallest possible, the assumed and the largest possible variance (`score_errors`). Also return both scores.

    Raises CorruptInputError for answers to other problems.
    """
    rows_a, rows_b = a.rows, b.rows
    if rows_a is None or rows_b is None:
        n = min(a.problems, b.problems)
        gap, cases = a.value - b.value, []
        for total, floor in score_errors(a, b, spread, correlation):
            mean = intervals.Mean(*map(np.asarray, (gap, math.sqrt(total), n - 1)))
            cases.append(_case(of_problems(mean, n, gap, "printed scores"), floor))
        return (a, b), tuple(cases)
    ids = sorted(rows_a.keys() & rows_b.keys())
    if not ids:
        raise CorruptInputError(
            f"no problem in common: the first are {next(iter(rows_a))!r} and {next(iter(rows_b))!r}"
        )
    own_a, own_b = ({i: rows[i] for i in ids} for rows in (rows_a, rows_b))
    (share_a, _, copies), (share_b, _, copies_b) = (np.array(list(own.values()), float).T for own in (own_a, own_b))
    if (copies != copies_b).any():
        raise CorruptInputError(f"{ids[int((copies != copies_b).argmax())]!r} has copies on one side only")
    gap_P = np.where(np.abs(share_a - share_b) < 1e-12, 0.0, share_a - share_b)
    mean, n = intervals.clustered_mean(gap_P * copies, copies), len(ids)
    x, y = of_answers(own_a), of_answers(own_b)
    sampled = [score.parts.sampled / n for score in (x, y) if score.parts]
    floor = max(0.0, float(np.nan_to_num(mean.se)) ** 2 - sum(sampled)) if len(sampled) == 2 else None
    return (x, y), (_case(of_problems(mean, n, float(mean.value), f"paired t over {n} problems"), floor),)


def together(weights: Mapping[str, float], found: Mapping[str, Sequence[Case]]) -> tuple[Case, ...]:
    """Return the cases of several benchmarks, weighted."""
    cases = []
    for which in range(max(map(len, found.values()))):
        parts = {key: each[which % len(each)] for key, each in found.items()}
        comparison = combined(weights, {key: case.comparison for key, case in parts.items()}, "all responses")
        floors = {}
        for key, (c, floor, *_) in parts.items():
            # Where no two problems differ, the bound replaces both parts of the variance.
            floors[key] = floor if c.se or c.low is None else spread_of(c) ** 2
        known = [weights[key] ** 2 * floor for key, floor in floors.items() if floor is not None]
        cases.append(_case(comparison, sum(known) if len(known) == len(floors) else None))
    return tuple(cases)


def _case(c: Comparison, floor: float | None) -> Case:
    if c.se is None or c.df is None or c.difference is None:
        return Case(c, floor, None, None, None)
    samples = samples_needed(Error(c.se**2, floor), c.difference, c.df) if c.difference else None
    any_samples = None if floor is None else detectable(math.sqrt(floor), c.df)
    return Case(c, floor, units_needed(c.se * math.sqrt(c.n), c.difference), samples, any_samples)


def units_needed(sd: float, effect: float, tests: int = 1) -> int | None:
    """Return the fewest units (problems, or pairs of seeds) of this sd that make `effect` detectable; None: impossible.

    Student's quantiles exceed the normal ones, so the search begins at the number by the normal law.

    >>> [units_needed(0.03, 0.05, tests) for tests in (1, 6, 22)]
    [6, 8, 10]
    """
    if effect == 0:
        return None
    n = max(2, math.ceil(((ndtri(1 - ALPHA / 2 / tests) + ndtri(POWER)) * sd / effect) ** 2))
    while n < 10_000 and detectable(sd / math.sqrt(n), n - 1, tests) > abs(effect):
        n += 1
    return n


def samples_needed(error: Error, effect: float, df: float) -> float | None:
    """Return the factor on the samples of each problem that makes `effect` detectable on the same problems; infinity:
    no number does; None: unknown."""
    if error.floor is None:
        return None
    left = (effect / detectable(1.0, df)) ** 2 - error.floor
    return max(0.0, error.total - error.floor) / left if left > 0 else math.inf


def measured_parts(share_P: ArrayLike, samples_P: ArrayLike) -> Parts | None:
    """Return unbiased parts, from the right share and the number of samples of P problems; None without two of each."""
    y, k = np.asarray(share_P, float), np.asarray(samples_P, float)
    if k.min() < 2 or len(y) < 2:
        return None
    sampled = float((y * (1 - y) / (k - 1)).mean())
    return Parts(max(0.0, float(y.var(ddof=1)) - sampled), sampled)


def beta_parts(score: Score, spread: float) -> Parts:
    """Return parts of difficulties that are Beta-distributed with a + b = `spread`: small is all-or-nothing."""
    whole = score.value * (1 - score.value) / (1 + spread)
    return Parts(whole, whole * spread / score.samples)


def score_errors(a: Score, b: Score, spread: float, correlation: float) -> tuple[Error, Error, Error]:
    """Return least, assumed and greatest possible squared SE of a - b; unknown parts are assumed to be `beta_parts`.

    Equal numbers of problems are taken as the same problems; `correlation` is then that of p_i and q_i, and else 0.
    The bounds hold for all p_i, q_i in [0, 1] with means p, q. On the same problems
    f = (p_i - q_i)^2 + p_i(1 - p_i)/k + q_i(1 - q_i)/k is concave along equal gaps, so that with a gap g it is least
    where one of the two is 0 or 1: g^2 + g(1 - g)/k, which is convex; by Jensen's inequality the least variance is
    g(1 - g)/k at g = |p - q|. The most is at k = 1, where f = p_i + q_i - 2 p_i q_i, with problems that one always and
    the other never solves: min(p + q, 2 - p - q) - g^2. Otherwise each side has p(1 - p)/k (all problems alike) to
    p(1 - p) (all or nothing).
    """
    gap = abs(a.value - b.value)
    parts = [side.parts or beta_parts(side, spread) for side in (a, b)]
    sampled = sum(part.sampled / side.problems for part, side in zip(parts, (a, b), strict=True))
    if a.problems == b.problems:
        both = 2 * correlation * math.sqrt(parts[0].between * parts[1].between)
        floor = max(0.0, parts[0].between + parts[1].between - both) / a.problems
        least = gap * (1 - gap) / max(a.samples, b.samples) / a.problems
        most = (min(a.value + b.value, 2 - a.value - b.value) - gap**2) / a.problems
    else:
        floor = sum(part.between / side.problems for part, side in zip(parts, (a, b), strict=True))
        least, most = (
            sum(side.value * (1 - side.value) / side.problems / k for side, k in ((a, k_a), (b, k_b)))
            for k_a, k_b in ((a.samples, b.samples), (1, 1))
        )
    # Not every correlation is possible: the sum is clipped to the bound that it exceeds.
    total = min(max(floor + sampled, least), most)
    return Error(least, 0.0), Error(total, min(floor, total)), Error(most, most)


def contrast(
    values: Mapping[int, tuple[float, float]], clusters: Mapping[int, object] | None, top: float = 1.0
) -> dict[str, Any]:
    """Return a - b paired by seed (`compare_seeds`) as columns, with the means of both sides over clean models and the
    number of clean models that the difference needs. values: both sides by seed, between -top and top."""
    a, b = ({place: both[side] for place, both in values.items()} for side in (0, 1))
    c = compare_seeds(a, b, bounds=(-top, top), clusters=clusters)
    row = {name: getattr(c, name) for name in ("difference", "low", "high", "p", "detectable", "how")}
    row |= {"units": c.n, "needed": None if c.se is None else units_needed(c.se * math.sqrt(c.n), c.difference or 0.0)}
    means = (fmean(by_clean_model(side, clusters).values()) for side in (a, b))
    return row | dict(zip(("mean_a", "mean_b"), means, strict=True))
