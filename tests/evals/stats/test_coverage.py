"""Nominal 95 % intervals cover 92 to 98 %, by simulation from fixed seeds.

The intervals are the functions of `evals.stats` that the estimates use. docs/notebook/intervals.md holds the tables of
the full simulation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.random import Generator
from scipy.interpolate import PchipInterpolator

from core.errors import CorruptInputError
from evals.stats import intervals, robust
from evals.stats.frontier import Frontier, common, compare, gap, of_arms
from evals.stats.intervals import Array, Bounds

REPEATS = 4000  # standard error of a coverage near 95 %: 0.35 points


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def coverage(bounds: Bounds, truth: float | Array) -> float:
    """Percent of the intervals that hold the truth."""
    return 100 * float(((bounds.low <= truth) & (truth <= bounds.high)).mean())


@pytest.mark.parametrize(
    ("low", "high"), [(0.2, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, 30.0), (30.0, 70.0), (70.0, 99.0)]
)
def test_every_level_is_covered(low: float, high: float) -> None:
    """True scores fill the level evenly, because at a single one the coverage of a few right answers jumps."""
    truth = np.linspace(low, high, REPEATS) / 100
    for k, spread, problems in ((1, 1.0, 10), (1, 1.0, 100), (32, 0.73, 30), (32, 3.0, 10), (32, 3.0, 100)):
        rng = np.random.default_rng([10, k, problems, int(100 * spread), int(10 * low)])
        chances = rng.beta(*(part[:, None] * spread for part in (truth, 1 - truth)), (REPEATS, problems))
        bounds = intervals.score_interval(rng.binomial(k, chances) / k, 1.0, problems * k)
        assert 92.6 <= coverage(bounds, truth) <= (97 if k == 1 else 98.5), (k, spread, problems)


# Robust aggregates: two methods with a gap, scored on seven benchmarks. A seed's effect is 80 % common to benchmarks.

ANSWERS, COMMON = 400, 0.7  # of a score; share of a seed's variance that both methods have in common


@pytest.mark.parametrize("seeds", [4, 8])
def test_intervals_over_whole_runs_are_covered_and_the_bootstrap_by_benchmark_is_not(seeds: int) -> None:
    rng = np.random.default_rng([8, seeds])

    def effect(repeats: int) -> Array:
        shape = (repeats, seeds)
        return np.sqrt(0.8) * rng.standard_normal((*shape, 1)) + np.sqrt(0.2) * rng.standard_normal((*shape, 7))

    def scores(repeats: int) -> tuple[Array, Array]:
        common, level_T = np.sqrt(COMMON) * effect(repeats), np.linspace(-0.5, 1.0, 7)
        logit = [level_T + gap + 0.4 * (common + np.sqrt(1 - COMMON) * effect(repeats)) for gap in (0.15, 0.0)]
        x, y = (rng.binomial(ANSWERS, sigmoid(side)) / ANSWERS for side in logit)
        return x, y

    x, y = scores(20_000)
    won, iqm = float(((x > y) + 0.5 * (x == y)).mean()), float(robust.interquartile_mean(x).mean())
    found: dict[str, list[Bounds]] = {"paired": [], "iqm": [], "bootstrap": []}
    for a, b in zip(*scores(400), strict=True):
        for name, estimate in (
            ("paired", robust.paired_improvement(a, b, range(seeds))),
            ("iqm", robust.interval(robust.interquartile_mean, a, range(seeds))),
        ):
            found[name].append(Bounds(np.asarray(estimate.low), np.asarray(estimate.high)))
        if len(found["bootstrap"]) < 100:
            found["bootstrap"].append(robust.bootstrap(robust.interquartile_mean, a))
    shares = {
        name: coverage(Bounds(*map(np.array, zip(*ends, strict=True))), won if name == "paired" else iqm)
        for name, ends in found.items()
    }
    assert 92 <= shares["paired"] <= 99.5
    assert 92 <= shares["iqm"] <= 98
    assert shares["bootstrap"] < 80, "each benchmark's runs drawn by themselves"


def test_seeds_of_one_clean_model_are_one_unit() -> None:
    rng = np.random.default_rng(9)
    x, y = rng.uniform(size=(2, 4, 7))
    twice = [np.repeat(side, 2, 0) for side in (x, y)]
    clusters = [0, 0, 1, 1, 2, 2, 3, 3]
    for once, doubled in (
        (robust.paired_improvement(x, y, range(4)), robust.paired_improvement(*twice, clusters)),
        (robust.interval(lambda s: s.mean((-2, -1)), x, range(4)),
         robust.interval(lambda s: s.mean((-2, -1)), twice[0], clusters)),
    ):  # fmt: skip
        assert (doubled.low, doubled.high) == pytest.approx((once.low, once.high), abs=1e-12)
        assert doubled.how.endswith("over 4 clean models, 8 seeds")
    with pytest.raises(CorruptInputError, match="3 clusters"):
        robust.paired_improvement(x, y, range(3))
    assert robust.paired_improvement(x[:1], y[:1], range(1)).low is None, "one seed"


SEEDS = 8


def line(log_movement: Sequence[float], level: float, slope: float, own: int, seed: int = 0) -> Frontier:
    """Figures on a straight line, plus seed effects that have mean 0."""
    x_R = np.array(log_movement)
    noise_S = np.random.default_rng(seed).normal(0, 0.01, SEEDS)
    y_RS = (level + slope * x_R)[:, None] + (noise_S - noise_S.mean())
    return Frontier(np.exp(np.broadcast_to(x_R[:, None], y_RS.shape)), y_RS, own)


def test_lines_differ_by_the_mean_over_the_range_between_their_own_step_sizes() -> None:
    """A constant apart: by it, whatever the step sizes; of other slopes: by the mean of the ends."""
    a, b = line([-6, -5, -3], 0.53, 0.05, 2), line([-6.5, -4, -2], 0.5, 0.05, 1, seed=1)
    found = compare(a, b, range(SEEDS))
    assert found.comparison.difference == pytest.approx(0.03, abs=1e-12)
    assert (found.low, found.high) == (pytest.approx(math.exp(-4)), pytest.approx(math.exp(-3)))
    a, b = line([-6, -5, -4, -3], 0.5, 0.05, 3), line([-6, -5, -4, -3], 0.5, 0.01, 0)
    assert gap(a, b) == pytest.approx(np.mean([(0.05 - 0.01) * x for x in (-6, -3)]))


def test_the_range_is_cut_to_where_both_reach() -> None:
    a, b = line([-5, -4.5, -4], 0, 0.1, 2), line([-9, -8, -4.6], 0, 0.1, 0)
    ends = common(a, b)
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
        held += found.low <= effect <= found.high
    assert 0.93 <= held / repeats <= 0.97
