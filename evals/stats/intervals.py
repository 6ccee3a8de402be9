"""The formulas: standard errors and intervals on arrays, vectorised over every leading axis.

Axes: P problem, S seed, B benchmark. Everything else in this package wraps these functions; the simulations of
`benchmarks.interval_coverage` call the very same ones, so what is simulated is what is printed.
Differences from the textbook interval (mean +- t SE): degrees of freedom shrink when few problems carry the variance,
and a score's interval is Wilson's with the effective number of answers, because +-t SE covers 91 % where it says 95 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

Array = NDArray[np.float64]
CONFIDENCE = 0.95  # of every interval of this project


class Mean(NamedTuple):
    """A mean over problems: value, standard error, degrees of freedom of that error. Arrays of the leading shape."""

    value: Array
    se: Array
    df: Array


class Bounds(NamedTuple):
    low: Array
    high: Array


def clustered_mean(total_P: ArrayLike, weight_P: ArrayLike) -> Mean:
    """sum(total) / sum(weight), with problems (last axis) as the unit of sampling.

    total_P: (..., P) sum of a problem's rows; weight_P: (P,) or (..., P) number of those rows (1 unless a problem is
    copied). e_i = total_i - value weight_i; SE^2 = P/(P-1) sum(e_i^2) / sum(weight)^2: sd(y)/sqrt(P) at
    equal weights.
    df = 2 / (2/(P-1) + g/P), g the excess kurtosis of e, at least 0: Satterthwaite's approximation with
    Var(s^2) = s^4 (2/(P-1) + g/P). Ordinary data keep P - 1; when three problems of 400 differ, about 6 are left.
    P = 1 gives SE and df nan.
    """
    total_P, weight_P = np.broadcast_arrays(np.asarray(total_P, float), np.asarray(weight_P, float))
    n = total_P.shape[-1]
    rows = weight_P.sum(-1)
    value = total_P.sum(-1) / rows
    error_P = total_P - value[..., None] * weight_P
    square = (error_P**2).mean(-1)
    # rounding leaves 1e-34 where all problems agree; a real spread is at least (1/responses)^2 of a problem
    square = np.where(square < 1e-20, 0.0, square)
    if n < 2:
        nothing = np.full_like(value, np.nan)
        return Mean(value, nothing, nothing)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.where(square > 0, (error_P**4).mean(-1) / square**2 - 3.0, 0.0)
    se = np.sqrt(square * n * n / (n - 1.0)) / rows
    df = 2.0 / (2.0 / (n - 1.0) + np.maximum(excess, 0.0) / n)
    return Mean(value, se, df)


def quantile(df: ArrayLike) -> Array:
    """The two-sided Student-t factor: 1.96 for many degrees of freedom, 12.7 for one."""
    return stdtrit(df, 0.5 + CONFIDENCE / 2.0)


def p_value(value: ArrayLike, se: ArrayLike, df: ArrayLike) -> Array:
    """Two-sided p of `value` against 0 by Student-t; SE must be positive."""
    return 2.0 * stdtr(df, -np.abs(np.asarray(value, float) / np.asarray(se, float)))


def wilson(value: ArrayLike, effective: ArrayLike, factor: ArrayLike) -> Bounds:
    """Wilson's score interval for a share observed in `effective` independent answers (E. B. Wilson, JASA 1927)."""
    p, n, t = (np.asarray(x, float) for x in (value, effective, factor))
    centre = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t * np.sqrt(p * (1 - p) / n + t * t / (4 * n * n)) / (1 + t * t / n)
    return Bounds(np.clip(np.minimum(centre - half, p), 0, 1), np.clip(np.maximum(centre + half, p), 0, 1))


def effective_answers(mean: Mean, problems: int, responses: int) -> Array:
    """How many independent right-or-wrong answers would have this SE: p(1-p)/SE^2, at most `responses`.

    All right or all wrong: the number of problems, for then the spread between problems has not been seen
    (Korn and Graubard, Survey Methodology 1998, use the same effective size in another interval).
    """
    p = mean.value
    with np.errstate(invalid="ignore", divide="ignore"):
        size = np.where(mean.se > 0, p * (1 - p) / mean.se**2, np.inf)
    return np.where((p <= 0) | (p >= 1), float(problems), np.minimum(size, float(responses)))


def score_interval(mean: Mean, problems: int, responses: int) -> Bounds:
    """Interval of a score in [0, 1] whose problems were drawn: Wilson with effective answers and Student's factor."""
    return wilson(mean.value, effective_answers(mean, problems, responses), quantile(mean.df))


def difference_interval(mean: Mean, problems: int) -> Bounds:
    """Interval of a paired difference in [-1, 1]: mean +- t SE.

    When all problems agree (SE 0): what could still differ is the share h = 1 - (alpha/2)^(1/P) of unseen problems
    (Clopper and Pearson 1934 for 0 of P), each by at most 1.
    """
    with np.errstate(invalid="ignore"):
        half = quantile(mean.df) * mean.se
    h = 1.0 - ((1.0 - CONFIDENCE) / 2.0) ** (1.0 / problems)
    low = np.where(mean.se > 0, mean.value - half, (1 - h) * mean.value - h)
    high = np.where(mean.se > 0, mean.value + half, (1 - h) * mean.value + h)
    return Bounds(np.clip(low, -1, 1), np.clip(high, -1, 1))


def combine(weight_B: ArrayLike, value_B: ArrayLike, low_B: ArrayLike, high_B: ArrayLike) -> tuple[Array, Bounds]:
    """A weighted sum of independent parts (last axis B) and its interval from theirs.

    MOVER: value - sqrt(sum w^2 (value_b - low_b)^2), likewise above (Zou and Donner, Statistics in Medicine 2008). With
    symmetric parts this is the stratified interval; with lopsided or degenerate ones it stays honest.
    """
    w, v, low, high = (np.asarray(x, float) for x in (weight_B, value_B, low_B, high_B))
    value = (w * v).sum(-1)
    below = np.sqrt(((w * (v - low)) ** 2).sum(-1))
    above = np.sqrt(((w * (high - v)) ** 2).sum(-1))
    return value, Bounds(value - below, value + above)


def welch(part_B: ArrayLike, df_B: ArrayLike) -> tuple[Array, Array]:
    """SE and degrees of freedom of a sum of independent parts with standard errors `part_B` (Welch-Satterthwaite)."""
    square_B = np.asarray(part_B, float) ** 2
    total = square_B.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        df = total**2 / (square_B**2 / np.asarray(df_B, float)).sum(-1)
    return np.sqrt(total), df


def seed_mean(value_S: ArrayLike) -> Mean:
    """Mean over seeds, SE = sd/sqrt(S), df = S - 1; nan for one seed."""
    value_S = np.asarray(value_S, float)
    n = value_S.shape[-1]
    value = value_S.mean(-1)
    if n < 2:
        nothing = np.full_like(value, np.nan)
        return Mean(value, nothing, nothing)
    se = value_S.std(-1, ddof=1) / np.sqrt(n)
    return Mean(value, se, np.full_like(se, n - 1.0))
