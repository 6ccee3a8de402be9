"""The formulas: standard errors and intervals on arrays, vectorised over every leading axis.

Axes: P problem, S seed, B benchmark. Everything else in this package wraps these functions; the simulations of
`tests/evals/stats/test_coverage.py` call the very same ones, so what is simulated is what is printed.
Differences from the textbook interval (mean +- t SE): a difference's degrees of freedom shrink when few problems carry
the variance, and a score's interval is Wilson's with the effective number of answers, because +-t SE covers 91 % where
it says 95 %.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaincinv, stdtr, stdtrit

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


def score_interval(total_P: ArrayLike, weight_P: ArrayLike, responses: int) -> Bounds:
    """Interval of a score in [0, 1] whose problems were drawn; arguments as in `clustered_mean`, at least two problems.

    Wilson's, with Student's factor and as many independent answers as would have this SE, p(1-p)/SE^2, at most
    `responses`. Each end lies between those of two samples that hold right or wrong problems only: the problems that
    were always right, and those that were ever right. There the variance follows from the share, so that its factor is
    1.96, with (sum w)^2 / sum w^2 problems of weight w (Kish). An all-or-nothing sample equals both and has their
    interval. Without them one error more would narrow the interval near 0 and 1, where SE is hardly known.
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


# Training seeds. S seeds, R rows (methods) of one model and benchmark.
#
# The scores of a row's seeds vary by more than chance answers. The variance over seeds of a score p is taken as
# w (p(1-p))^1.5 + p(1-p)/m: w is the spread between seeds, and p(1-p)/m is what m right-or-wrong answers a seed add.
# The exponent is 1 in Williams' model II of extra-binomial variation (beta-binomial) and 2 in his model III (normal on
# the logit), Applied Statistics 31, 1982. 1.5 stands between: with 1 the intervals of scores below 5 % and above 95 %
# are too wide, with 2 too narrow (docs/notebook/intervals.md).
LEVEL = 1.5
# What all rows together say about w weighs as much as so many more seeds of each row: prior degrees of freedom of the
# moderated t (G. K. Smyth, Statistical Applications in Genetics and Molecular Biology 3, 2004). Fixed, and not
# estimated as there: from a handful of rows the estimate is often infinite, which takes a row with seeds far apart for
# one like the others. Larger values make narrower intervals that cover too little where rows differ in spread.
PRIOR = 2.0


class Spread(NamedTuple):
    """The spread w between seeds that a model's rows of one benchmark share, and its degrees of freedom."""

    score: Array  # of the rows' scores
    score_df: float
    difference: Array  # of paired differences between rows: without what a seed does to all of them
    difference_df: float


def chance(value: ArrayLike, answers: ArrayLike) -> Array:
    """p(1-p) of a share seen in so many answers, with one answer of each kind added (Laplace): never 0."""
    p, n = np.asarray(value, float), np.asarray(answers, float)
    with np.errstate(invalid="ignore"):
        p = np.where(np.isinf(n), p, (p * n + 1.0) / (n + 2.0))
    return p * (1.0 - p)


def seed_variance(value_S: ArrayLike) -> Mean:
    """Mean over seeds (last axis; nan: no such seed), variance between them in the place of `se`, df = seeds - 1.

    One seed gives variance 0 and df 0.
    """
    value_S = np.asarray(value_S, float)
    there_S = ~np.isnan(value_S)
    n = there_S.sum(-1).astype(float)
    mean = np.where(there_S, value_S, 0.0).sum(-1) / np.maximum(n, 1.0)
    squares = np.where(there_S, (value_S - mean[..., None]) ** 2, 0.0).sum(-1)
    return Mean(mean, squares / np.maximum(n - 1.0, 1.0), np.maximum(n - 1.0, 0.0))


def spread(value_RS: ArrayLike, answers: float) -> Spread:
    """The shared spread of the rows (..., R, S) of one benchmark; nan where a row lacks a seed. answers: m per seed.

    Each row has its own estimate of w, (variance - p(1-p)/m) / (p(1-p))^1.5, over the median that the chance of so few
    seeds gives it; w is the median over rows, at least 0. Not the mean: it is that of the few rows with a collapsed
    seed. For differences the same over all pairs of rows with seeds in common, both sides' chance added up.
    """
    value_RS = np.asarray(value_RS, float)
    rows = value_RS.shape[-2]
    mean_R, variance_R, df_R = seed_variance(value_RS)
    chance_R = chance(mean_R, (df_R + 1.0) * answers)
    level_R = chance_R**LEVEL
    own = [_own_spread(variance_R - chance_R / answers, level_R, df_R)]
    of_pairs, pairs = [], 0.0
    for row in range(rows - 1):
        mine, others = slice(row, row + 1), slice(row + 1, None)
        _, variance_P, df_P = seed_variance(value_RS[..., mine, :] - value_RS[..., others, :])
        excess_P = variance_P - (chance_R[..., mine] + chance_R[..., others]) / answers
        of_pairs.append(_own_spread(excess_P, level_R[..., mine] + level_R[..., others], df_P))
        pairs += float(df_P.reshape(-1, df_P.shape[-1]).sum(-1).max(initial=0.0))
    score_df = float(df_R.reshape(-1, rows).sum(-1).max(initial=0.0))
    # R(R-1)/2 pairs of S seeds have (R-1)(S-1) degrees of freedom together
    return Spread(_median(own), score_df, _median(of_pairs), 2.0 * pairs / rows)


def _own_spread(excess: Array, level: Array, df: Array) -> Array:
    """excess / level over the median of a chi-square over its df; nan where that is unknown."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((df > 0) & (level > 0), excess / level * df / (2.0 * gammaincinv(df / 2.0, 0.5)), np.nan)


def _median(parts: list[Array]) -> Array:
    """Over the last axis of all parts without nan, at least 0; 0 where nothing is known."""
    values = np.concatenate(parts, -1) if parts else np.full((1,), np.nan)
    values = np.where(np.isnan(values).all(-1, keepdims=True), 0.0, values)
    return np.maximum(np.nanmedian(values, -1), 0.0)


def moderated(variance: ArrayLike, df: ArrayLike, expected: ArrayLike, shared_df: float) -> tuple[Array, Array]:
    """A row's variance drawn towards the one that the shared spread expects, and its degrees of freedom.

    (PRIOR expected + df variance) / (PRIOR + df), with PRIOR + df degrees of freedom, but no more than all rows have
    together: alone, a row keeps its own.
    """
    variance, df = np.asarray(variance, float), np.asarray(df, float)
    total = PRIOR + df
    return (PRIOR * np.asarray(expected, float) + df * variance) / total, np.minimum(total, np.maximum(shared_df, df))


def seed_score(value_S: ArrayLike, answers: float, shared: Spread | None) -> tuple[Mean, Bounds]:
    """A method's mean score over seeds in [0, 1] and its interval: Wilson's, with the effective number of answers.

    answers: right-or-wrong answers behind one seed's score; `math.inf` for a figure that is no share of answers.
    The variance is the row's own, moderated by the shared spread if there is one, and at least p(1-p)/answers.
    """
    mean, variance, df = seed_variance(value_S)
    seeds = df + 1.0
    p = chance(mean, seeds * answers)
    if shared is not None:
        variance, df = moderated(variance, df, shared.score * p**LEVEL + p / answers, shared.score_df)
    variance = np.maximum(variance, p / answers)
    with np.errstate(divide="ignore", invalid="ignore"):
        effective = np.minimum(seeds * p / variance, seeds * answers)
    return Mean(mean, np.sqrt(variance / seeds), df), wilson(mean, effective, quantile(df))


def seed_difference(a_S: ArrayLike, b_S: ArrayLike, answers: float, shared: Spread | None) -> Mean:
    """Mean paired difference over seeds with SE and df; arguments as in `seed_score`, with nan where no pair is."""
    a_S, b_S = np.broadcast_arrays(np.asarray(a_S, float), np.asarray(b_S, float))
    mean, variance, df = seed_variance(a_S - b_S)
    seeds = df + 1.0
    paired_S = ~np.isnan(a_S - b_S)
    chances = [chance(seed_variance(np.where(paired_S, side, np.nan)).value, seeds * answers) for side in (a_S, b_S)]
    noise = (chances[0] + chances[1]) / answers
    if shared is not None:
        level = chances[0] ** LEVEL + chances[1] ** LEVEL
        variance, df = moderated(variance, df, shared.difference * level + noise, shared.difference_df)
    return Mean(mean, np.sqrt(np.maximum(variance, noise) / seeds), df)
