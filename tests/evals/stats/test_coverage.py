"""Nominal 95 % intervals cover 92 to 98 %, by simulation from fixed seeds; methods at equal movement.

The intervals are the functions of `evals.stats` that the estimates use. docs/notebook/intervals.md holds the tables of
the full simulation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.random import Generator
from scipy.special import expit

from evals.stats import intervals
from evals.stats.frontier import Frontier, compare, gap
from evals.stats.intervals import Array, Bounds

REPEATS = 4000  # standard error of a coverage near 95 %: 0.35 points


class Case(NamedTuple):
    """A benchmark; `spread` is a + b of the Beta distribution of its problems' difficulty."""

    problems: int
    k: int  # samples per problem
    mean: float  # true score
    spread: float = 1.0


def coverage(bounds: Bounds, truth: float | Array) -> float:
    """Percent of the intervals that hold the truth."""
    return 100 * float(((bounds.low <= truth) & (truth <= bounds.high)).mean())


def answers(rng: Generator, case: Case, repeats: int = REPEATS, mean: Array | None = None) -> Array:
    """(repeats, problems) shares of right samples; mean: a true score for each repeat."""
    share = case.mean if mean is None else mean[:, None]
    chance = rng.beta(share * case.spread, (1 - share) * case.spread, (repeats, case.problems))
    return rng.binomial(case.k, chance) / case.k


def score(y: Array, case: Case) -> Bounds:
    return intervals.score_interval(y, 1.0, case.problems * case.k)


@pytest.mark.parametrize(("low", "high"), [(0.2, 1.0), (1.0, 10.0), (10.0, 98.0)])
def test_every_level_is_covered(low: float, high: float) -> None:
    """True scores fill the level evenly, because at a single one the coverage of a few right answers jumps."""
    truth = np.linspace(low, high, REPEATS) / 100
    for k, spread, problems in ((1, 1.0, 10), (1, 1.0, 100), (32, 0.73, 30), (32, 3.0, 10), (32, 3.0, 100)):
        case = Case(problems, k, 0.0, spread)
        y = answers(np.random.default_rng([10, k, problems, int(100 * spread), int(10 * low)]), case, mean=truth)
        assert 92.6 <= coverage(score(y, case), truth) <= (97 if k == 1 else 98.5), case


@pytest.mark.parametrize("case", [Case(30, 32, 0.12, 0.73), Case(83, 32, 0.43), Case(400, 1, 0.98)])
def test_a_paired_difference_is_covered(case: Case) -> None:
    """Training moved each problem's logit by a standard deviation of 0.5, and nothing on average."""
    rng = np.random.default_rng([5, case.problems, case.k])
    chance = rng.beta(case.mean * case.spread, (1 - case.mean) * case.spread, (REPEATS, case.problems))
    logit = np.log(chance.clip(1e-12, 1 - 1e-12) / (1 - chance).clip(1e-12))
    sides = [rng.binomial(case.k, expit(logit + rng.normal(0, 0.5, logit.shape))) / case.k for _ in range(2)]
    bounds = intervals.student(intervals.clustered_mean(sides[0] - sides[1], 1.0))
    assert 92.6 <= coverage(bounds, 0.0) <= 98.5


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_scores_and_differences_of_few_seeds_are_covered(seeds: int) -> None:
    """A seed moves the scores of two methods, 70 % of the variance in common; scores are shares of 400 answers."""
    for place, (sd, level) in enumerate((sd, level) for sd in (0.01, 0.04) for level in (0.1, 0.5, 0.9)):
        rng = np.random.default_rng([1, seeds, place])
        moved_RS = np.sqrt(0.7) * rng.standard_normal((REPEATS, 1, seeds))
        moved_RS = moved_RS + np.sqrt(0.3) * rng.standard_normal((REPEATS, 2, seeds))
        value_RS = rng.binomial(400, (level + sd * moved_RS).clip(0, 1)) / 400
        score_R, difference_R = map(intervals.seed_mean, (value_RS[:, 0], value_RS[:, 0] - value_RS[:, 1]))
        assert 93 <= coverage(intervals.seed_score(score_R), level) <= 99.9
        assert 93 <= coverage(intervals.student(difference_R), 0.0) <= 97


# Methods at equal movement.

SEEDS = range(8)


def line(log_movement: Sequence[float], level: float, slope: float, own: int, seed: int = 0) -> Frontier:
    """Figures on a straight line, plus seed effects that have mean 0."""
    x_R = np.array(log_movement)[:, None]
    noise_S = np.random.default_rng(seed).normal(0, 0.01, len(SEEDS))
    return Frontier(x_R + np.zeros(len(SEEDS)), level + slope * x_R + noise_S - noise_S.mean(), own, SEEDS)


def test_equal_lines_a_constant_apart_differ_by_it_whatever_the_step_sizes() -> None:
    a, b = line([-6, -5, -3], 0.53, 0.05, 2), line([-6.5, -4, -2], 0.5, 0.05, 1, seed=1)
    c, low, high = compare(a, b)
    assert c.difference == pytest.approx(0.03, abs=1e-12)
    assert (low, high) == (pytest.approx(math.exp(-4)), pytest.approx(math.exp(-3)))
    # the range is cut to where both reach
    far, beyond = line([-5, -4.5, -4], 0, 0.1, 2), line([-9, -8, -4.6], 0, 0.1, 0)
    assert gap(far, beyond)[1:] == (pytest.approx(-5), pytest.approx(-4.6))
    found = compare(line([-2.5, -2, -1], 0, 0.1, 0), a)
    assert (found[0].difference, found[0].how, found[1]) == (None, "no movement in common", None)


def test_seeds_that_share_a_clean_model_are_one_cluster() -> None:
    a, b = line([-6, -5, -3], 0.5, 0.05, 1, seed=2), line([-6, -5, -3], 0.5, 0.05, 1, seed=3)
    (alone, *_), (pairs, *_) = compare(a, b), compare(a, b, {s: s % 4 for s in SEEDS})
    assert (alone.df, pairs.df, alone.difference) == (7, 3, pairs.difference)
    # a mean over equal step sizes: the jackknife is then the paired t test of the seeds
    assert alone.se == pytest.approx((a.figure - b.figure)[1].std(ddof=1) / math.sqrt(8))
    assert "over 4 clean models, 8 seeds" in pairs.how
