"""Nominal 95 % intervals cover 92 to 98 %, by simulation from fixed seeds.

The intervals are the functions of `evals.stats` that the estimates use. docs/notebook/intervals.md holds the tables of
the full simulation.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from numpy.random import Generator

from core.errors import CorruptInputError
from evals.stats import intervals, robust
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


def about(mean: intervals.Mean) -> Bounds:
    half = intervals.quantile(mean.df) * mean.se
    return Bounds(mean.value - half, mean.value + half)


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


def test_the_binomial_interval_of_960_samples_covers_35_percent() -> None:
    """What is often printed instead: samples of one problem are no independent answers."""
    y = answers(np.random.default_rng([1, 0]), AIME)
    mean = y.mean(-1)
    half = 1.96 * np.sqrt(mean * (1 - mean) / (AIME.problems * AIME.k))
    assert coverage(Bounds(mean - half, mean + half), AIME.mean) == pytest.approx(35, abs=1.5)


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


# Robust aggregates: two methods with a gap, scored on seven benchmarks. A seed's effect is 80 % common to benchmarks.


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
            assert estimate.low is not None
            assert estimate.high is not None
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
