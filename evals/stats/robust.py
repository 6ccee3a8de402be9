"""Aggregates of runs x benchmarks: interquartile mean, probability of improvement, performance profile.

The first three functions equal those of `rliable` (Agarwal et al., Deep Reinforcement Learning at the Edge of the
Statistical Precipice, NeurIPS 2021). Its stratified bootstrap resamples the runs of each benchmark by itself. Here one
run is scored on all benchmarks, so `interval` and `paired_improvement` leave out or count whole runs.

Axes: R runs (seeds), T tasks (benchmarks); (..., R, T) with any leading shape.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from core.errors import CorruptInputError
from evals.stats import intervals
from evals.stats.compare import EQUAL_SEEDS, ONE_SEED, ROUNDING, counted
from evals.stats.estimate import Estimate
from evals.stats.intervals import Array, Bounds

REPEATS = 2000  # of the bootstrap; rliable's default for profiles


def interquartile_mean(score_RT: ArrayLike) -> Array:
    """Mean of the middle half of all R T scores: a quarter of them, rounded down, is cut at each end."""
    score_RT = np.asarray(score_RT, float)
    sorted_N = np.sort(score_RT.reshape(*score_RT.shape[:-2], -1))
    cut = sorted_N.shape[-1] // 4
    return np.asarray(sorted_N[..., cut : sorted_N.shape[-1] - cut].mean(-1))


def improvement(x_RT: ArrayLike, y_QT: ArrayLike) -> Array:
    """P(X > Y) + P(X = Y)/2 of a run of each method, drawn independently; mean over tasks (Mann and Whitney's U)."""
    x, y = np.asarray(x_RT, float)[..., :, None, :], np.asarray(y_QT, float)[..., None, :, :]
    return np.asarray(_wins(x, y).mean((-3, -2, -1)))


def profile(score_RT: ArrayLike, tau_K: ArrayLike) -> Array:
    """(..., K) share of the R T scores above each threshold."""
    score_RT = np.asarray(score_RT, float)
    return np.asarray((score_RT[..., None] > np.asarray(tau_K, float)).mean((-3, -2)))


def bootstrap(statistic: Callable[..., Array], *score_RT: ArrayLike) -> Bounds:
    """95 % percentile interval of `statistic(*score_RT)` by rliable's stratified bootstrap, from a fixed seed.

    Too narrow where the tasks of a run vary together, and for few runs (docs/notebook/intervals.md).
    """
    rng, tail = np.random.default_rng(0), (1 - intervals.CONFIDENCE) / 2
    sides = [np.asarray(side, float) for side in score_RT]
    value_B = []
    for _ in range(REPEATS // 100):  # at once: all pairs of runs in every resample may not fit in memory
        index = [rng.integers(len(side), size=(100, *side.shape)) for side in sides]
        drawn = [np.take_along_axis(side[None], index_BRT, 1) for side, index_BRT in zip(sides, index, strict=True)]
        value_B.append(statistic(*drawn))
    return Bounds(*np.quantile(np.concatenate(value_B), (tail, 1 - tail), axis=0))


def interval(statistic: Callable[..., Array], score_RT: ArrayLike, clusters: Sequence[object]) -> Estimate:
    """`statistic` of scores in [0, 1] with Student's t and the jackknife's SE over whole runs.

    clusters: (R,) what a run shares with others, its clean model or itself; one cluster at a time is left out.
    """
    score_RT = np.asarray(score_RT, float)
    value, groups = float(statistic(score_RT)), list(dict.fromkeys(clusters))
    g = len(groups)
    if g < 2:
        return Estimate(value, None, None, None, "seed", ONE_SEED, g)
    kept_GR = np.array([[cluster != group for cluster in clusters] for group in groups])
    left_G = np.array([float(statistic(score_RT[kept_R])) for kept_R in kept_GR])
    se = (g - 1) * float(left_G.std(ddof=1)) / math.sqrt(g)
    if se < ROUNDING:
        return Estimate(value, None, None, None, "seed", EQUAL_SEEDS, g)
    half = float(intervals.quantile(g - 1)) * se
    low, high = max(0.0, value - half), min(1.0, value + half)
    return Estimate(value, se, low, high, "seed", f"jackknife over {counted(g, len(clusters))}", g)


def paired_improvement(x_RT: ArrayLike, y_RT: ArrayLike, clusters: Sequence[object]) -> Estimate:
    """Share of runs x tasks in which X beats Y of the same seed, ties counted half, with its interval over clusters.

    The interval is that of a score whose problems are the clusters (`intervals.score_interval`): right in every task
    and seed of a cluster, in some, or in none. Raises CorruptInputError for sides of other shapes.
    """
    x_RT, y_RT = np.asarray(x_RT, float), np.asarray(y_RT, float)
    if x_RT.shape != y_RT.shape or len(clusters) != len(x_RT):
        raise CorruptInputError(f"improvement: scores of {x_RT.shape} and {y_RT.shape}, {len(clusters)} clusters")
    won_R = _wins(x_RT, y_RT).mean(-1)
    groups = list(dict.fromkeys(clusters))
    member_GR = np.array([[cluster == group for cluster in clusters] for group in groups], float)
    total_G, weight_G = member_GR @ won_R, member_GR.sum(-1)
    value, g = float(won_R.mean()), len(groups)
    if g < 2:
        return Estimate(value, None, None, None, "seed", ONE_SEED, g)
    low, high = intervals.score_interval(total_G, weight_G, x_RT.size)
    ends = min(float(low), value), max(float(high), value)  # `value` may lie a rounding error outside
    return Estimate(value, None, *ends, "seed", f"Wilson-t over {counted(g, len(clusters))}", g)


def _wins(x: Array, y: Array) -> Array:
    return (x > y) + 0.5 * (x == y)
