"""Problems and samples that decide a difference: its squared standard error by source, and what reduces which part.

A checkpoint solves problem i with chance p_i. The difference of two scores over n problems has the variance of
p_i - q_i between problems, which only more problems reduce, and on each side the mean of p_i(1 - p_i) over k samples.
A score without its problems' answers leaves both unknown: they lie between bounds that follow from the scores.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from evals.stats.compare import ALPHA, POWER, detectable


class Error(NamedTuple):
    """Squared standard error of a difference of two scores."""

    total: float
    floor: float | None  # what any number of samples leaves; None: unknown, as with one sample a problem


class Parts(NamedTuple):
    """Variance of a problem's share of right samples."""

    between: float  # of p_i over problems
    sampled: float  # mean of p_i(1 - p_i) / k


class Score(NamedTuple):
    value: float  # in [0, 1]
    problems: int
    samples: float  # of each problem; their harmonic mean
    parts: Parts | None = None  # None: unknown


def units_needed(sd: float, effect: float, tests: int = 1) -> int | None:
    """Fewest units (problems, or pairs of seeds) of this sd at which `effect` is detectable; None: no number is.

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
    """How many times the samples of each problem make `effect` detectable on the same problems; infinity: no number
    does; None: unknown."""
    if error.floor is None:
        return None
    left = (effect / detectable(1.0, df)) ** 2 - error.floor
    return max(0.0, error.total - error.floor) / left if left > 0 else math.inf


def measured_parts(share_P: ArrayLike, samples_P: ArrayLike) -> Parts | None:
    """Unbiased parts, from the right share and the number of samples of P problems; None without two of each."""
    y, k = np.asarray(share_P, float), np.asarray(samples_P, float)
    if k.min() < 2 or len(y) < 2:
        return None
    sampled = float((y * (1 - y) / (k - 1)).mean())
    return Parts(max(0.0, float(y.var(ddof=1)) - sampled), sampled)


def beta_parts(score: Score, spread: float) -> Parts:
    """Parts of difficulties that are Beta-distributed with a + b = `spread`: small is all-or-nothing."""
    whole = score.value * (1 - score.value) / (1 + spread)
    return Parts(whole, whole * spread / score.samples)


def score_errors(a: Score, b: Score, spread: float, correlation: float) -> tuple[Error, Error, Error]:
    """Least possible, assumed and most possible squared SE of a - b; unknown parts are assumed to be `beta_parts`.

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
    # Not every correlation is possible: the sum is brought to the bound that it passes.
    total = min(max(floor + sampled, least), most)
    return Error(least, 0.0), Error(total, min(floor, total)), Error(most, most)
