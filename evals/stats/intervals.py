"""The formulas: standard errors and intervals on arrays, vectorised over every leading axis.

Axes: P problem, S seed, B benchmark. The simulations in `tests/evals/stats/test_coverage.py` call these functions, so
that the simulated intervals are the printed ones. Differences from the textbook interval (mean +- t SE): a difference's
degrees of freedom shrink when few problems carry the variance, and a score's interval is Wilson's with the effective
number of answers, because +-t SE covers 91 % where it should cover 95 %.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtr, stdtrit

Array = NDArray[np.float64]
CONFIDENCE = 0.95  # of every interval of this project


class Mean(NamedTuple):
    """A mean: value, standard error, degrees of freedom of that error. Arrays of the leading shape."""

    value: Array
    se: Array
    df: Array


class Bounds(NamedTuple):
    low: Array
    high: Array


def clustered_mean(total_P: ArrayLike, weight_P: ArrayLike) -> Mean:
    """Return sum(total) / sum(weight), with problems (last axis) as the unit of sampling; SE and df nan at P = 1.

    total_P: (..., P) sum of a problem's rows; weight_P: (P,) or (..., P) number of those rows (1 unless a problem is
    copied). e_i = total_i - value weight_i; SE^2 = P/(P-1) sum(e_i^2) / sum(weight)^2: sd(y)/sqrt(P) at equal weights.
    df = 2 / (2/(P-1) + g/P), g the excess kurtosis of e, at least 0: Satterthwaite's approximation with
    Var(s^2) = s^4 (2/(P-1) + g/P). Ordinary data keep P - 1; when three problems of 400 differ, about 6 are left.
    """
    total_P, weight_P = np.broadcast_arrays(np.asarray(total_P, float), np.asarray(weight_P, float))
    n, rows = total_P.shape[-1], weight_P.sum(-1)
    value = total_P.sum(-1) / rows
    if n < 2:
        return Mean(value, np.full_like(value, np.nan), np.full_like(value, np.nan))
    error_P = total_P - value[..., None] * weight_P
    square = (error_P**2).mean(-1)
    # rounding leaves 1e-34 where all problems agree; real variance is at least (1/responses)^2 of a problem
    square = np.where(square < 1e-20, 0.0, square)
    with np.errstate(invalid="ignore", divide="ignore"):
        excess = np.where(square > 0, (error_P**4).mean(-1) / square**2 - 3.0, 0.0)
    se = np.sqrt(square * n * n / (n - 1.0)) / rows
    return Mean(value, se, 2.0 / (2.0 / (n - 1.0) + np.maximum(excess, 0.0) / n))


def quantile(df: ArrayLike) -> Array:
    """Return the two-sided Student-t factor: 1.96 for many degrees of freedom, 12.7 for one."""
    return stdtrit(df, 0.5 + CONFIDENCE / 2.0)


def p_value(value: ArrayLike, se: ArrayLike, df: ArrayLike) -> Array:
    """Return two-sided p of `value` against 0 by Student-t; SE must be positive."""
    return 2.0 * stdtr(df, -np.abs(np.asarray(value, float) / np.asarray(se, float)))


def student(mean: Mean) -> Bounds:
    """Return mean +- t SE."""
    with np.errstate(invalid="ignore"):
        half = quantile(mean.df) * mean.se
    return Bounds(mean.value - half, mean.value + half)


def wilson(value: ArrayLike, effective: ArrayLike, factor: ArrayLike) -> Bounds:
    """Return Wilson's interval for a share observed in `effective` independent answers (E. B. Wilson, JASA 1927)."""
    p, n, t = (np.asarray(x, float) for x in (value, effective, factor))
    centre = (p + t * t / (2 * n)) / (1 + t * t / n)
    half = t * np.sqrt(p * (1 - p) / n + t * t / (4 * n * n)) / (1 + t * t / n)
    return Bounds(np.clip(np.minimum(centre - half, p), 0, 1), np.clip(np.maximum(centre + half, p), 0, 1))


def score_interval(total_P: ArrayLike, weight_P: ArrayLike, responses: int) -> Bounds:
    """Return the interval of a score in [0, 1] over sampled problems (at least two); arguments as in `clustered_mean`.

    Wilson's, with Student's factor and as many independent answers as would have this SE, p(1-p)/SE^2, at most
    `responses`. Each end lies between those of two samples that hold right or wrong problems only: the problems always
    right, and those ever right. There the variance follows from the share, so that its factor is
    1.96, with (sum w)^2 / sum w^2 problems of weight w (Kish). An all-or-nothing sample equals both and has their
    interval. Without them one more error would narrow the interval near 0 and 1, where SE is poorly known.
    """
    total_P, weight_P = np.broadcast_arrays(np.asarray(total_P, float), np.asarray(weight_P, float))
    mean, rows = clustered_mean(total_P, weight_P), weight_P.sum(-1)
    p = mean.value
    with np.errstate(invalid="ignore", divide="ignore"):
        answers = np.minimum(np.where(mean.se > 0, p * (1 - p) / mean.se**2, np.inf), float(responses))
    middle = wilson(p, answers, quantile(total_P.shape[-1] - 1.0))
    always, ever = (
        wilson((weight_P * which_P).sum(-1) / rows, rows**2 / (weight_P**2).sum(-1), quantile(np.inf))
        for which_P in (total_P >= weight_P, total_P > 0)
    )
    return Bounds(np.clip(middle.low, always.low, ever.low), np.clip(middle.high, always.high, ever.high))


def combine(weight_B: ArrayLike, value_B: ArrayLike, low_B: ArrayLike, high_B: ArrayLike) -> tuple[Array, Bounds]:
    """Return a weighted sum of independent parts (last axis B) and its interval from theirs.

    MOVER: value - sqrt(sum w^2 (value_b - low_b)^2), likewise above (Zou and Donner, Statistics in Medicine 2008). With
    symmetric parts this is the stratified interval; with asymmetric or degenerate ones it stays valid.
    """
    w, v, low, high = (np.asarray(x, float) for x in (weight_B, value_B, low_B, high_B))
    value, below, above = (w * v).sum(-1), *(np.sqrt(((w * part) ** 2).sum(-1)) for part in (v - low, high - v))
    return value, Bounds(value - below, value + above)


def welch(part_B: ArrayLike, df_B: ArrayLike) -> tuple[Array, Array]:
    """Return SE and df of a sum of independent parts with standard errors `part_B` (Welch-Satterthwaite)."""
    square_B = np.asarray(part_B, float) ** 2
    total = square_B.sum(-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        df = total**2 / (square_B**2 / np.asarray(df_B, float)).sum(-1)
    return np.sqrt(total), df


# Training seeds. S seeds, or clean models with the mean over their seeds.


def seed_mean(value_S: ArrayLike) -> Mean:
    """Return the mean over seeds (last axis), with S - 1 degrees of freedom; SE and df 0 at S = 1."""
    value_S = np.asarray(value_S, float)
    n, value = value_S.shape[-1], value_S.mean(-1)
    se = np.sqrt(((value_S - value[..., None]) ** 2).sum(-1) / max(n - 1, 1) / n)
    return Mean(value, se, np.full_like(value, n - 1.0))


def seed_score(mean: Mean) -> Bounds:
    """Return the interval of a mean score over seeds in [0, 1]: Wilson's with Student's t, p(1-p)/SE^2 answers."""
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = mean.value * (1.0 - mean.value) / mean.se**2
    return wilson(mean.value, effective, quantile(mean.df))
