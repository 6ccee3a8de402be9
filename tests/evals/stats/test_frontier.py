"""Figures at equal movement: exact cases, refusals, and coverage by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.random import Generator
from scipy.interpolate import PchipInterpolator

from core.errors import CorruptInputError
from evals.stats.frontier import Frontier, common, compare, gap, of_arms
from evals.stats.intervals import Array

SEEDS = 8


def line(log_movement: Sequence[float], level: float, slope: float, own: int, seed: int = 0) -> Frontier:
    """Figures on a straight line, plus seed effects that have mean 0."""
    x_R = np.array(log_movement)
    noise_S = np.random.default_rng(seed).normal(0, 0.01, SEEDS)
    y_RS = (level + slope * x_R)[:, None] + (noise_S - noise_S.mean())
    return Frontier(np.exp(np.broadcast_to(x_R[:, None], y_RS.shape)), y_RS, own)


def test_equal_lines_a_constant_apart_differ_by_it_whatever_the_step_sizes() -> None:
    a, b = line([-6, -5, -3], 0.53, 0.05, 2), line([-6.5, -4, -2], 0.5, 0.05, 1, seed=1)
    found = compare(a, b, range(SEEDS))
    assert found.comparison.difference == pytest.approx(0.03, abs=1e-12)
    assert (found.low, found.high) == (pytest.approx(math.exp(-4)), pytest.approx(math.exp(-3)))
    # at their own step sizes they differ by 0.03 and one unit of slope
    assert a.points()[1][2] - b.points()[1][1] == pytest.approx(0.08)


def test_lines_of_other_slopes_differ_by_the_mean_over_the_range() -> None:
    a, b = line([-6, -5, -4, -3], 0.5, 0.05, 3), line([-6, -5, -4, -3], 0.5, 0.01, 0)
    assert gap(a, b) == pytest.approx(np.mean([(0.05 - 0.01) * x for x in (-6, -3)]))


def test_the_range_is_cut_to_where_both_reach() -> None:
    a, b = line([-5, -4.5, -4], 0, 0.1, 2), line([-9, -8, -4.6], 0, 0.1, 0)
    ends = common(a, b)
    assert ends is not None
    assert ends == (pytest.approx(-5), pytest.approx(-4.6))
    nowhere = compare(line([-3, -2, -1], 0, 0.1, 0), b, range(SEEDS))
    assert nowhere.low is None
    assert nowhere.comparison.difference is None
    assert nowhere.comparison.how == "no movement in common"


def test_seeds_that_share_a_clean_model_are_one_cluster() -> None:
    a, b = line([-6, -5, -3], 0.5, 0.05, 1, seed=2), line([-6, -5, -3], 0.5, 0.05, 1, seed=3)
    alone, pairs = compare(a, b, range(SEEDS)).comparison, compare(a, b, [s % 4 for s in range(SEEDS)]).comparison
    assert (alone.df, pairs.df) == (SEEDS - 1, 3)
    assert alone.difference == pairs.difference
    # a mean over equal step sizes: the jackknife is then the paired t test of the seeds
    difference_S = (a.figure - b.figure)[1]
    assert alone.se == pytest.approx(difference_S.std(ddof=1) / math.sqrt(SEEDS))
    assert "over 4 clean models, 8 seeds" in pairs.how
    assert compare(a, b, [s % 2 for s in range(SEEDS)]).comparison.low is None


def test_what_gives_no_interval() -> None:
    three, two = line([-6, -5, -3], 0.5, 0.05, 1), line([-6, -5], 0.5, 0.05, 1, seed=1)
    assert "at least 3" in compare(three, two, range(SEEDS)).comparison.how
    assert "agree exactly" in compare(three, three, range(SEEDS)).comparison.how


def test_refused_arms() -> None:
    movement, figure = [{1: 0.1, 2: 0.2}, {1: 0.3, 2: 0.4}], [{1: 0.5, 2: 0.5}, {1: 0.6, 2: 0.6}]
    assert of_arms(movement, figure, 1).movement.tolist() == [[0.1, 0.2], [0.3, 0.4]]
    with pytest.raises(CorruptInputError, match="same seeds"):
        of_arms([*movement[:1], {1: 0.3, 3: 0.4}], figure, 0)
    for wrong in (0.0, -0.1, math.nan):
        with pytest.raises(CorruptInputError, match="above 0"):
            of_arms([{1: wrong, 2: 0.2}, movement[1]], figure, 0)


# Area against the log movement as GRPO/DAPO's sweep had it in the kept tree `tuned`: rising, then flat, then falling.
TRUTH = PchipInterpolator([-7.5, -6.6, -5.7, -4.6, -3.4, -2.2, 0.7], [0.25, 0.34, 0.43, 0.52, 0.56, 0.57, 0.52])


def drawn(rng: Generator, x_R: Array, own: int, effect: float, shared_S: Array, movement_S: Array) -> Frontier:
    """A method whose frontier is `TRUTH` + effect, with seeds that differ in area and movement."""
    shape = len(x_R), SEEDS
    k_RS = x_R[:, None] + movement_S + rng.normal(0, 0.2, shape)
    mine_S = rng.normal(0, 0.012, SEEDS)  # a method's own part of a seed
    y_RS = TRUTH(np.clip(k_RS - movement_S / 2, -7.5, 0.7)) + effect + shared_S + mine_S + rng.normal(0, 0.02, shape)
    return Frontier(np.exp(k_RS), y_RS, own)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("a", "b", "effect", "clean"),
    [
        (([-6.3, -4.95, -3.2, -1.0], 2), ([-6.58, -5.7, -4.6, -3.4, -2.2], 2), 0.03, SEEDS),
        (([-6.3, -4.95, -3.2, -1.0], 2), ([-6.58, -5.7, -4.6, -3.4, -2.2], 2), 0.0, 4),
        (([-5.1, -4.0, -2.8], 1), ([-6.58, -5.7, -4.6, -3.4, -2.2], 2), 0.0, SEEDS),  # one method at other step sizes
        (([-6.1, -4.5, -2.9], 1), ([-6.9, -5.3, -3.7, -2.1], 2), 0.0, 4),
    ],
)
def test_intervals_cover(a: tuple[list[float], int], b: tuple[list[float], int], effect: float, clean: int) -> None:
    """95 % intervals hold the truth in 93 to 97 % of draws, also where pairs of seeds share a clean model."""
    rng, repeats, held = np.random.default_rng([clean, round(1000 * effect)]), 600, 0
    for _ in range(repeats):
        clusters = [seed % clean for seed in range(SEEDS)]
        shared_S = rng.normal(0, 0.03, SEEDS) + rng.normal(0, 0.03, clean)[clusters]
        movement_S = rng.normal(0, 0.3, SEEDS)
        sides = [
            drawn(rng, np.array(x), own, shift, shared_S, movement_S) for (x, own), shift in ((a, effect), (b, 0.0))
        ]
        found = compare(*sides, clusters).comparison
        assert found.low is not None
        assert found.high is not None
        held += found.low <= effect <= found.high
    assert 0.93 <= held / repeats <= 0.97
