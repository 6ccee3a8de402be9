"""The formulas of one checkpoint, of differences and of families, against the textbook, scipy and brute force."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from core.errors import CorruptInputError, MissingInputError
from evals.stats import intervals
from evals.stats.compare import (
    EQUAL_SEEDS,
    NO_SEED,
    ONE_SEED,
    by_clean_model,
    chances_of_being_best,
    chosen_again,
    compare,
    compare_average,
    compare_seeds,
    detectable,
    holm,
    over_seeds,
    ranks,
    with_choice,
)
from evals.stats.estimate import Comparison, Estimate, Samples, estimate, generation_se, macro, maj_at_k, pooled
from evals.stats.sizes import Score, of_answers, samples_needed, score_errors, units_needed
from tests.evals.stats.fixtures import beta, samples


def test_a_score_has_wilsons_interval_with_students_factor_and_the_effective_number_of_answers() -> None:
    right = beta(30, 32, 0.4, seed=1)
    e = estimate(samples(right))
    assert (e.value, e.level, e.n) == (right.mean(), "problem", 30)
    assert e.se == pytest.approx(stats.sem(right.mean(1)), rel=1e-12)
    effective = e.value * (1 - e.value) / e.se**2
    # the ends of Wilson's interval are the p whose own standard error puts the score at the t quantile
    for end in (e.low, e.high):
        assert abs(e.value - end) / np.sqrt(end * (1 - end) / effective) == pytest.approx(stats.t.ppf(0.975, 29))
    # stored twice, each problem is still one draw
    twice = estimate(samples(np.vstack([right, right]), problems=tuple(f"q{i % 30}" for i in range(60))))
    assert (twice.value, twice.n) == (e.value, 30)
    assert (twice.se, twice.low, twice.high) == pytest.approx((e.se, e.low, e.high), rel=1e-9)


def test_all_or_nothing_problems_have_scipys_wilson_interval_and_one_problem_has_none() -> None:
    for right, n, k in ((40, 100, 1), (29, 30, 32), (30, 30, 1), (0, 5, 4), (499, 500, 1)):
        e = estimate(samples(np.arange(n)[:, None] < np.full((n, k), right)))
        expected = stats.binomtest(right, n).proportion_ci(method="wilson")
        assert (e.low, e.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    e = estimate(samples(np.array([[True, False]])))
    assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, "one problem: no interval")
    alike = estimate(samples(np.tile([True, False], (30, 1))))
    assert (alike.se, alike.high - alike.low > 0.2) == (None, True)


def test_averages_and_the_error_of_generation_by_hand() -> None:
    """3 of 4 greedy, and two problems x 4 samples with 2 of 8: pooled 5/12, macro 1/2; a benchmark that was not run is
    never silently zero."""
    a, b = samples(np.array([[1], [1], [1], [0]], bool)), samples(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert (pooled({"a": a, "b": b}).value, macro({"a": a, "b": b}).value) == (pytest.approx(5 / 12, abs=1e-15), 0.5)
    left_out, as_wrong = (pooled({"a": a}, [12], missing_as_wrong=wrong) for wrong in (False, True))
    assert (left_out.value, as_wrong.value) == (0.75, 3 / 16)
    assert ("left out" in left_out.how, "counted as wrong" in as_wrong.how) == (True, True)
    mean = macro({"a": a}, [12])
    assert (mean.value, mean.low, mean.se, "no macro" in mean.how) == (None, None, None, True)
    for right, se in (([[1, 0], [1, 1]], 0.25), ([[0, 0], [1, 1]], None), ([[1], [0]], None)):
        assert generation_se(samples(np.array(right, bool))) == se


def test_maj_at_k() -> None:
    cases: list[tuple[list[str | None], list[int], float]] = [
        (["4", "5", "5"], [1, 0, 0], 0.0),
        (["4", "5", "6"], [1, 0, 0], 1 / 3),  # a tie: the share of tied answers that is right
        (["4", "4", "5", "5", "6"], [0, 0, 1, 1, 0], 1 / 2),
        ([None, None, None, "4"], [0, 0, 0, 1], 1.0),  # no answer is no vote
        ([None, None], [0, 0], 0.0),
        (["4", "4", "5"], [1, 0, 0], 1 / 2),  # one answer judged in two ways: its share
    ]
    for answers, right, score in cases:
        assert maj_at_k([answers], [right]).tolist() == [score], answers


@pytest.mark.parametrize(
    "change", [{"se": 0.0}, {"se": math.nan}, {"low": 0.5, "high": 0.5}, {"low": None}, {"low": 0.6}, {"value": None}]
)
def test_an_estimate_refuses_what_means_nothing(change: dict[str, Any]) -> None:
    given = {"value": 0.5, "se": 0.1, "low": 0.3, "high": 0.7, "how": "t", "n": 30} | change
    with pytest.raises(ValueError, match="unknown is None"):
        Estimate(**given)
    with pytest.raises(ValueError, match="unknown is None"):
        Comparison(difference=given.pop("value"), **given)


def test_mover_adds_the_squares_of_what_lies_below_and_above_each_part() -> None:
    value, below, above, weight = (np.array(x) for x in ([0.2, 0.5], [0.03, 0.04], [0.05, 0.01], [0.25, 0.75]))
    total, (low, high) = intervals.combine(weight, value, value - below, value + above)
    expected = [np.sqrt(((weight * half) ** 2).sum()) for half in (below, above)]
    assert (total, total - low, high - total) == pytest.approx((0.425, *expected))


# Two checkpoints.


def twins(n: int, k: int, *, seed: int = 0, gap: float = 0.0) -> tuple[Samples, Samples]:
    """Two checkpoints whose chances on each problem differ by an sd of .05 and by `gap`."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.5, 1.0, n)
    other = (chance + rng.normal(0, 0.05, n) + gap).clip(0, 1)
    return samples(rng.random((n, k)) < other[:, None]), samples(rng.random((n, k)) < chance[:, None])


def test_p_is_the_paired_t_test_when_differences_are_ordinary_and_the_sign_test_when_few_differ() -> None:
    d = stats.norm.ppf((np.arange(64) + 0.5) / 64) * 0.2
    sides = [np.arange(100) < np.round(50 + sign * 100 * d / 2)[:, None] + more for sign, more in ((1, 3), (-1, 0))]
    expected = stats.ttest_rel(*(side.mean(1) for side in sides))
    c, interval = compare(*map(samples, sides)), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    # six of 400 problems flipped, all one way: exact McNemar p = .031; plain t would give .014
    right = np.arange(400)[:, None] >= 6
    flipped = compare(samples(np.ones((400, 1), bool)), samples(right))
    assert flipped.p == pytest.approx(stats.binomtest(6, 6).pvalue, abs=0.005)


def test_equal_answers_prove_no_equality() -> None:
    for n in (2, 30, 400):
        a, _ = twins(n, 4)
        c = compare(a, a)
        assert (c.difference, c.se, c.p, c.detectable) == (0.0, None, 1.0, None)
        assert (c.low, c.high) == pytest.approx((0.025 ** (1 / n) - 1, 1 - 0.025 ** (1 / n)))


def test_other_problems_and_other_benchmarks_cannot_be_compared() -> None:
    a, more = samples(beta(5, 1, 0.5, seed=0)), samples(beta(5, 2, 0.5, seed=0))
    for b, message in ((samples(beta(6, 1, 0.5, seed=0)), "p0005"), (samples(beta(5, 1, 0.5, seed=0), 1), "p0000")):
        with pytest.raises(CorruptInputError, match=message):
            compare(a, b)
    for parts, others, message in (({"x": a, "y": a}, {"x": a}, "y: 5 and 0"), ({"x": a}, {"x": more}, "x: 5 and 10")):
        with pytest.raises(CorruptInputError, match=message):
            compare_average(parts, others, pooled=True)


# Methods over seeds.


def test_scores_over_seeds_have_wilsons_interval_and_other_figures_the_t_interval() -> None:
    x = np.array([0.31, 0.35, 0.30])
    e = over_seeds(dict(enumerate(x)))
    effective = x.mean() * (1 - x.mean()) / stats.sem(x) ** 2
    for end in (e.low, e.high):
        assert abs(x.mean() - end) / np.sqrt(end * (1 - end) / effective) == pytest.approx(stats.t.ppf(0.975, 2))
    assert (e.value, e.se, e.level, e.n) == (pytest.approx(x.mean()), pytest.approx(stats.sem(x)), "seed", 3)
    e = over_seeds(dict(enumerate(10 * x)), bounds=(0.0, math.inf))
    low, high = stats.t.interval(0.95, 2, 10 * x.mean(), 10 * stats.sem(x))
    assert (e.value, e.se, e.low, e.high) == pytest.approx((10 * x.mean(), 10 * stats.sem(x), low, high), rel=1e-12)


def test_compare_seeds_is_the_paired_t_test_over_common_seeds() -> None:
    a, b = {1: 0.41, 2: 0.47, 3: 0.44, 9: 0.99}, {3: 0.41, 2: 0.42, 1: 0.39}
    expected = stats.ttest_rel([0.41, 0.47, 0.44], [0.39, 0.42, 0.41])
    c, interval = compare_seeds(a, b), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    assert (c.n, c.detectable > 4 * c.se) == (3, True)
    wide = compare_seeds({1: 0.9, 2: 0.1}, {1: 0.1, 2: 0.2})
    assert (wide.low, wide.high) == (-1, 1), "cut to what a difference can be"
    for n in (2, 3, 30):
        difference = detectable(1 / np.sqrt(n), n - 1)
        power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, difference * np.sqrt(n))
        assert power == pytest.approx(0.8, abs=1e-6)  # the root finder stops there


@pytest.mark.parametrize(
    ("a", "b", "difference", "why"),
    [
        ({1: 0.5}, {1: 0.4}, 0.1, ONE_SEED),
        ({1: 0.5, 2: 0.6}, {2: 0.4, 3: 0.4}, 0.2, ONE_SEED),
        ({1: 0.5}, {2: 0.4}, None, NO_SEED),
        ({1: 0.5, 2: 0.6}, {1: 0.4, 2: 0.5}, 0.1, EQUAL_SEEDS),
    ],
)
def test_no_interval_and_why(a: dict[int, float], b: dict[int, float], difference: float | None, why: str) -> None:
    c = compare_seeds(a, b)
    assert c.difference == (None if difference is None else pytest.approx(difference))
    assert (c.se, c.low, c.high, c.p, c.detectable, c.how) == (None, None, None, None, None, why)
    if why in (ONE_SEED, EQUAL_SEEDS):
        e = over_seeds(dict.fromkeys(a.keys() & b.keys(), 0.5))
        assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, why)
    for wrong, error in (({}, MissingInputError), ({1: math.nan, 2: 0.5}, CorruptInputError)):
        with pytest.raises(error):
            over_seeds(wrong)


def test_the_mean_over_clean_models_by_hand() -> None:
    value, clusters = {1: 0.1, 2: 0.4, 5: 0.3, 3: 0.9, 7: 0.5}, {seed: seed % 4 for seed in range(9)}
    zero = dict.fromkeys(value, 0.0)
    assert by_clean_model(value, clusters) == {1: 0.2, 2: 0.4, 3: 0.7}
    e, c = over_seeds(value, clusters=clusters), compare_seeds(value, zero, clusters=clusters)
    assert (e.value, e.n, e.how) == (pytest.approx(1.3 / 3), 3, "Wilson-t over 3 clean models, 5 seeds")
    expected = stats.ttest_1samp([0.2, 0.4, 0.7], 0.0)
    assert (c.p, c.df, c.how) == (pytest.approx(expected.pvalue), 2, "paired t over 3 clean models, 5 seeds")
    assert (
        compare_seeds(value, zero, clusters=dict.fromkeys(value, 0)).how == "paired t over 5 seeds of one clean model"
    )
    chances, _ = chances_of_being_best({"a": value, "b": zero}, clusters)
    assert chances["a"] == pytest.approx(1 - c.p / 2, abs=0.01)


def test_a_choice_is_made_again_and_widens_an_interval() -> None:
    """By hand: of two seeds the second value is chosen where the first seed is drawn twice, a quarter of the time."""
    sides = [{1: 0.5, 2: 0.5}, {1: 0.6, 2: 0.3}]
    assert float(chosen_again(sides).mean()) == pytest.approx(0.25, abs=0.02)
    assert set(chosen_again([sides[0], sides[0]]).tolist()) == {0}, "of equal ones the first"
    c = compare_seeds({1: 0.5, 2: 0.6, 3: 0.8}, {1: 0.45, 2: 0.5, 3: 0.6})
    wide = with_choice(c, 0.04)
    assert wide.se == pytest.approx(math.hypot(c.se, 0.04))
    assert (wide.high - wide.low) / (c.high - c.low) == pytest.approx(wide.se / c.se)
    assert (wide.difference, wide.df, with_choice(c, 0.0)) == (c.difference, c.df, c)


def test_chances_and_places_follow_from_the_paired_differences() -> None:
    rng = np.random.default_rng(3)
    for seeds in (2, 3, 8):
        shared = rng.normal(0, 0.1, seeds)
        a, b = (dict(enumerate(0.5 + gain + shared + rng.normal(0, 0.01, seeds))) for gain in (0.01, 0.0))
        c = compare_seeds(a, b)
        chances, how = chances_of_being_best({"a": a, "b": b})
        # 3.4 standard errors of 20,000 draws
        assert chances["a"] == pytest.approx(1 - c.p / 2 if c.difference > 0 else c.p / 2, abs=0.012)
        assert (sum(chances.values()), f"{seeds} seeds in common" in how) == (pytest.approx(1), True)
    one, two, three = ({1: x, 2: x + 0.1, 3: x + 0.2} for x in (0.1, 0.5, 0.3))
    assert ranks({"a": one, "b": two, "c": three}) == {"a": (3, 3), "b": (1, 1), "c": (2, 2)}, "always apart"
    assert ranks({"a": one, "b": dict(one)}) == {"a": (1, 1), "b": (1, 1)}, "a tie has the better place"
    assert chances_of_being_best({"a": one, "b": dict(one)})[0] == {"a": 0.5, "b": 0.5}
    for fewer in ({"a": one}, {"a": one, "b": {1: 0.4, 4: 0.6}}):  # one method, one seed in common
        assert (chances_of_being_best(fewer)[0], ranks(fewer)) == ({}, {})
    assert ranks({"a": {1: 0.5, 2: 0.1}, "b": {1: 0.1, 2: 0.5}}) == {"a": (1, 2), "b": (1, 2)}


def test_holm() -> None:
    cases: list[tuple[list[float | None], list[float | None]]] = [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.01, None, 0.04], [0.02, None, 0.04]),  # the untested one does not count
        ([0.5, 0.9], [1.0, 1.0]),
        ([None], [None]),
        ([], []),
    ]
    for raw, adjusted in cases:
        assert [None if p is None else round(p, 12) for p in holm(raw)] == adjusted


# Printed scores, and what would decide.

SPREAD = 0.73


@pytest.mark.parametrize(("sd", "effect"), [(0.03, 0.05), (0.011, -0.01), (0.28, 0.2), (0.3, 0.02)])
def test_the_units_needed_have_the_power_and_one_less_has_not(sd: float, effect: float) -> None:
    n = units_needed(sd, effect)
    for units, enough in ((n, True), (n - 1, False)):
        critical = stats.t.ppf(0.975, units - 1)
        assert (stats.nct.sf(critical, units - 1, abs(effect) / sd * math.sqrt(units)) >= 0.8) == enough
    assert units_needed(sd, 0.0) is None


def variance(p: np.ndarray, q: np.ndarray, w: np.ndarray, k: int, m: int) -> float:
    """Of y - z over problems drawn with weights w from chances (p, q), k and m samples of each."""
    gap = (w * (p - q)).sum()
    return float((w * ((p - q) ** 2 + p * (1 - p) / k + q * (1 - q) / m)).sum() - gap**2)


def test_no_problems_lie_outside_the_bounds_and_some_reach_them() -> None:
    rng = np.random.default_rng(11)
    for _ in range(500):
        k, m = (int(x) for x in rng.choice([1, 4, 32], 2))
        p, q = rng.beta(*rng.uniform(0.02, 2, 2), 6), rng.beta(*rng.uniform(0.02, 2, 2), 6)
        w = rng.dirichlet(np.full(6, 0.5))
        a, b = Score(float(w @ p), 30, k), Score(float(w @ q), 30, m)
        least, assumed, most = (30 * total for total, _ in score_errors(a, b, SPREAD, float(rng.uniform(-1, 1))))
        assert least - 1e-12 <= variance(p, q, w, k, m) <= most + 1e-12
        assert least <= assumed <= most
    gap, p = 0.1, 0.4
    (least, _), _, (most, _) = score_errors(Score(p, 30, 32), Score(p - gap, 30, 32), SPREAD, 0.9)
    ends = np.array([gap, 1.0]), np.array([0.0, 1 - gap]), np.array([(1 - p) / (1 - gap), (p - gap) / (1 - gap)])
    assert 30 * least == pytest.approx(variance(*ends, 32, 32))
    opposite = np.array([1.0, 0, 0]), np.array([0.0, 1, 0]), np.array([p, p - gap, 1 - 2 * p + gap])
    assert 30 * most == pytest.approx(variance(*opposite, 32, 32))


def test_the_parts_of_a_score_are_unbiased_and_the_samples_needed_have_the_power() -> None:
    rng, n, k = np.random.default_rng(13), 60, 8
    p_RP = rng.beta(1.0, 1.5, (600, n))
    rows = pd.DataFrame({"samples": k, "copies": 1}, index=range(n))
    parts = np.array([of_answers(rows.assign(share=y_P)).parts(1.0) for y_P in rng.binomial(k, p_RP) / k])
    assert parts.mean(0) == pytest.approx([p_RP.var(), (p_RP * (1 - p_RP)).mean() / k], rel=0.03)
    greedy = of_answers(rows.assign(share=[0.0, 1.0] * 30, samples=1))
    assert (greedy.is_measured, greedy.parts(1e9)[0]) == (False, pytest.approx(0.0, abs=1e-9)), "all problems alike"
    total, floor, effect = 0.003, 0.001, 0.12
    times = samples_needed(total, floor, effect, n - 1)
    assert detectable(math.sqrt(floor + (total - floor) / times), n - 1) == pytest.approx(effect)
    assert samples_needed(0.02, 0.01, 0.1, n - 1) == math.inf
    assert samples_needed(0.02, None, 0.1, n - 1) is None
