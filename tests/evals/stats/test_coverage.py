"""Nominal 95 % intervals cover 92 to 98 %, by simulation from fixed seeds.

The intervals are the functions of `evals.stats` that the estimates use. docs/notebook/intervals.md holds the tables of
the full simulation.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pytest
from numpy.random import Generator
from scipy.interpolate import PchipInterpolator

from core.errors import CorruptInputError
from evals.stats import intervals
from evals.stats.frontier import Frontier, compare, gap, of_arms
from evals.stats.intervals import Array, Bounds

REPEATS = 4000  # standard error of a coverage near 95 %: 0.35 points


class Case(NamedTuple):
    """A benchmark; `spread` is a + b of the Beta distribution of its problems' difficulty."""

    problems: int
    k: int  # samples per problem
    mean: float  # true score
    spread: float = 1.0


AIME = Case(30, 32, 0.12, 0.73)
SCORES = (
    AIME, *(AIME._replace(mean=mean) for mean in (0.06, 0.24, 0.45, 0.9)), AIME._replace(spread=3.0),
    Case(83, 32, 0.43, 0.73), Case(20, 8, 0.3), Case(272, 1, 0.35), Case(400, 1, 0.98), Case(500, 1, 0.77),
)  # fmt: skip
PAPER_LIKE = (
    Case(30, 32, 0.12), Case(30, 32, 0.07), Case(83, 32, 0.43), Case(500, 1, 0.77), Case(2821, 1, 0.27),
    Case(675, 1, 0.4), Case(272, 1, 0.35),
)  # fmt: skip


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def coverage(bounds: Bounds, truth: float | Array) -> float:
    """Percent of the intervals that hold the truth."""
    return 100 * float(((bounds.low <= truth) & (truth <= bounds.high)).mean())


def answers(rng: Generator, case: Case, repeats: int = REPEATS) -> Array:
    """(repeats, problems) shares of right samples."""
    chance = rng.beta(case.mean * case.spread, (1 - case.mean) * case.spread, (repeats, case.problems))
    return rng.binomial(case.k, chance) / case.k


def score(y: Array, case: Case) -> Bounds:
    return intervals.score_interval(y, 1.0, case.problems * case.k)


def test_a_checkpoints_score_is_covered() -> None:
    found = {case: coverage(score(answers(np.random.default_rng([1, n]), case), case), case.mean)
             for n, case in enumerate(SCORES)}  # fmt: skip
    assert {case: share for case, share in found.items() if not 92.6 <= share <= 98} == {}


@pytest.mark.parametrize(("low", "high"), [(0.2, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, 30.0), (30.0, 70.0)])
def test_every_level_is_covered(low: float, high: float) -> None:
    """True scores fill the level evenly, because at a single one the coverage of a few right answers jumps."""
    truth = np.linspace(low, high, REPEATS) / 100
    for k, spread, problems in ((1, 1.0, 10), (1, 1.0, 100), (32, 0.73, 30), (32, 3.0, 10), (32, 3.0, 100)):
        rng = np.random.default_rng([10, k, problems, int(100 * spread), int(10 * low)])
        chances = rng.beta(*(part[:, None] * spread for part in (truth, 1 - truth)), (REPEATS, problems))
        bounds = score(rng.binomial(k, chances) / k, Case(problems, k, 0.0))
        assert 92.6 <= coverage(bounds, truth) <= (97 if k == 1 else 98.5), (k, spread, problems)


@pytest.mark.parametrize("case", [AIME, PAPER_LIKE[2], Case(400, 1, 0.98), Case(500, 1, 0.77)])
def test_a_paired_difference_is_covered(case: Case) -> None:
    """Training moved each problem's logit by a standard deviation of 0.5, and nothing on average."""
    rng = np.random.default_rng([5, case.problems, case.k])
    chance = rng.beta(case.mean * case.spread, (1 - case.mean) * case.spread, (REPEATS, case.problems))
    logit = np.log(chance.clip(1e-12, 1 - 1e-12) / (1 - chance).clip(1e-12))
    sides = [rng.binomial(case.k, sigmoid(logit + rng.normal(0, 0.5, logit.shape))) / case.k for _ in range(2)]
    bounds = intervals.difference_interval(intervals.clustered_mean(sides[0] - sides[1], 1.0), case.problems)
    assert 92.6 <= coverage(bounds, 0.0) <= 98.5


@pytest.mark.parametrize("zero", [False, True], ids=["the paper's sizes", "both AIME near 0"])
def test_averages_of_seven_benchmarks_are_covered(zero: bool) -> None:
    cases = [case._replace(mean=0.004) if zero and place < 2 else case for place, case in enumerate(PAPER_LIKE)]
    y = [answers(np.random.default_rng([6, place]), case, 1000) for place, case in enumerate(cases)]
    bounds = [score(x, case) for x, case in zip(y, cases, strict=True)]
    value, low, high = (np.stack(x, -1) for x in ([x.mean(-1) for x in y], *zip(*bounds, strict=True)))
    for weight in ([case.problems * case.k for case in cases], [1] * len(cases)):  # pooled, macro
        w = np.array(weight) / sum(weight)
        truth = float(w @ [case.mean for case in cases])
        assert 92 <= coverage(intervals.combine(w, value, low, high)[1], truth) <= 98


# Over training seeds: a seed moves the logits of two rows, 70 % of the variance in common. The standard deviation
# differs between rows like a Smyth prior with 3 degrees of freedom; scores are shares of 400 answers.

ROWS, ANSWERS, COMMON, PRIOR = 2, 400, 0.7, 3
NODE, WEIGHT = np.polynomial.hermite_e.hermegauss(40)  # expectations over a normal seed, without simulation noise


def drawn_rows(rng: Generator, seeds: int, spread: float, level: float, repeats: int) -> tuple[Array, Array]:
    """(repeats, R, S) scores and (repeats, R) true means; row 0 is at `level`, the others between 10 and 95 %."""
    level_R = rng.uniform(0.1, 0.95, (repeats, ROWS))
    level_R[:, 0] = level
    logit_R = np.log(level_R / (1 - level_R))
    sd_R = np.minimum(spread * np.sqrt(PRIOR / rng.chisquare(PRIOR, (repeats, ROWS))), 3.0)
    common, own = rng.standard_normal((repeats, 1, seeds)), rng.standard_normal((repeats, ROWS, seeds))
    moved = np.sqrt(COMMON) * common + np.sqrt(1 - COMMON) * own
    value = rng.binomial(ANSWERS, sigmoid(logit_R[..., None] + sd_R[..., None] * moved)) / ANSWERS
    truth = sum(w * sigmoid(logit_R + x * sd_R) for x, w in zip(NODE, WEIGHT / WEIGHT.sum(), strict=True))
    return value, np.asarray(truth)


@pytest.mark.parametrize("seeds", [2, 4, 8])
def test_scores_and_differences_of_few_seeds_are_covered(seeds: int) -> None:
    scores, differences = [], []
    for place, (spread, level) in enumerate((s, x) for s in (0.25, 0.8) for x in (0.02, 0.1, 0.5, 0.95)):
        value_RS, truth_R = drawn_rows(np.random.default_rng([1, seeds, place]), seeds, spread, level, 1000)
        scores.append(coverage(intervals.seed_score(value_RS[:, 0])[1], truth_R[:, 0]))
        difference_S = value_RS[:, 0] - value_RS[:, 1]
        differences.append(coverage(intervals.seed_mean(difference_S)[1], truth_R[:, 0] - truth_R[:, 1]))
    assert min(scores) > 88
    assert 93 <= sum(scores) / len(scores) <= 99.9
    assert min(differences) > 90
    assert 92 <= sum(differences) / len(differences) <= 97


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


def test_the_range_is_cut_to_where_both_reach() -> None:
    a, b = line([-5, -4.5, -4], 0, 0.1, 2), line([-9, -8, -4.6], 0, 0.1, 0)
    assert gap(a, b)[1:] == (pytest.approx(-5), pytest.approx(-4.6))
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
