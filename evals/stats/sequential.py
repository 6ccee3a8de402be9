"""Looking after every seed: intervals of a paired difference that hold at all numbers of seeds at once.

A t interval holds at a number of seeds fixed in advance. Who looks, adds seeds while nothing is decided and stops when
something is, errs more often (docs/notebook/intervals.md). These intervals are wider and hold whenever one
stops, because they come from an e-process: a factor that has mean at most 1 under no difference however long one
watches it, so that it ever reaches 1/alpha with probability at most alpha (Ville 1939).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from core.errors import ConfigError
from evals.stats.compare import Clusters, by_clean_model
from evals.stats.intervals import Array, seed_variance

# The size of an effect, in standard deviations of a paired difference, is expected normal with sd 1/sqrt(PRIOR): 2.
# Large effects are what this project decides between; a smaller PRIOR decides these earlier and small ones later.
PRIOR = 0.25

Verdict = Literal["higher", "lower", "equal", "undecided"]


def log_e(value_S: ArrayLike, null: float = 0.0) -> Array:
    """Logarithm of the e-value of S normal differences (last axis) against mean `null` and unknown variance.

    sqrt(r) ((1 + t^2/v) / (1 + r t^2/v))^(S/2), r = PRIOR / (S + PRIOR), v = S - 1: the t statistic's likelihood
    ratio, mixed over normal effects of variance 1/PRIOR (T. L. Lai, Annals of Statistics 1976; Wang and Ramdas,
    "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance", 2023). nan where all
    differences are equal.
    """
    mean, variance, df = seed_variance(value_S)
    n = df + 1.0
    r = PRIOR / (n + PRIOR)
    with np.errstate(invalid="ignore", divide="ignore"):
        square = n * (mean - null) ** 2 / variance / df  # t^2/v
        return 0.5 * np.log(r) + n / 2 * (np.log1p(square) - np.log1p(r * square))


def half_width(value_S: ArrayLike, alpha: float) -> Array:
    """Half the width of the interval, around the mean, of all means that `log_e` does not reject at level alpha.

    Infinite while no mean can be rejected: the e-value cannot exceed r^(-(S-1)/2), with few seeds below 1/alpha.
    nan where all differences are equal.
    """
    _, variance, df = seed_variance(value_S)
    n = df + 1.0
    r = PRIOR / (n + PRIOR)
    # solve (1 + x) / (1 + r x) = k for x = t^2/v; there is no solution where k r >= 1
    k = (alpha * np.sqrt(r)) ** (-2.0 / n)
    with np.errstate(invalid="ignore", divide="ignore"):
        x = np.where(k * r < 1, (k - 1) / (1 - k * r), np.inf)
        return np.where(variance > 0, np.sqrt(x * df * variance / n), np.nan)


@dataclass(frozen=True)
class Decision:
    """What differences between two methods say so far."""

    verdict: Verdict
    seeds: int  # looked at up to the verdict; all where it is undecided
    clean_models: int  # that these seeds continue; the seeds where each has a start of its own
    difference: float | None  # their mean
    low: float | None  # interval that holds at any number of seeds, at level 1 - alpha; None: no bound yet
    high: float | None
    e: float | None  # the e-value against no difference


def decide(
    difference_by_seed: Mapping[int, float],
    *,
    alpha: float,
    margin: float | None = None,
    clusters: Clusters | None = None,
) -> Decision:
    """The first verdict in the order of the seeds: later ones cannot take it back.

    higher, lower: the interval excludes 0. equal: it lies within +-margin. Looking after every seed costs no more error
    than looking at the end. alpha: the level of this comparison, 0.05/m of m comparisons (Bonferroni). clusters: which
    clean model each seed continues. Each look is at the means of the clean models so far, so that further seeds of the
    same ones narrow the interval only down to what clean models differ by (tests/evals/stats/test_estimates.py).
    """
    if not 0 < alpha < 1:
        raise ConfigError(f"decide: alpha = {alpha} is no level between 0 and 1")
    seeds, found = sorted(difference_by_seed), Decision("undecided", 0, 0, None, None, None, None)
    for n in range(1, len(seeds) + 1):
        value_C = list(by_clean_model({s: difference_by_seed[s] for s in seeds[:n]}, clusters).values())
        mean = float(np.mean(value_C))
        found = replace(found, seeds=n, clean_models=len(value_C), difference=mean)
        first = clusters is not None and len({clusters[s] for s in seeds[:n]}) == 1 < len({*clusters.values()})
        if len(value_C) < 2 or first:  # the first of several clean models, which is not the question
            continue
        half, e = float(half_width(value_C, alpha)), float(log_e(value_C))
        if not math.isfinite(half):
            continue
        low, high = mean - half, mean + half
        verdict: Verdict = "higher" if low > 0 else "lower" if high < 0 else "undecided"
        if verdict == "undecided" and margin is not None and -margin < low and high < margin:
            verdict = "equal"
        found = Decision(verdict, n, len(value_C), mean, low, high, math.exp(min(e, 700.0)))
        if verdict != "undecided":
            return found
    return found
