"""The formulas of one checkpoint, of differences and of families, against the textbook, scipy and brute force."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from core.errors import CorruptInputError, MissingInputError
from evals.stats import compare, estimate, intervals, sizes
from evals.stats.estimate import Estimate
from tests.evals.stats.fixtures import beta, samples


def assert_wilson(e: Estimate, effective: float, df: int) -> None:
    """The ends of Wilson's interval are the p whose own standard error puts the score at the t quantile."""
    for end in (e.low, e.high):
        assert abs(e.value - end) / np.sqrt(end * (1 - end) / effective) == pytest.approx(stats.t.ppf(0.975, df))


def test_a_score_has_wilsons_interval_with_students_factor_and_the_effective_number_of_answers() -> None:
    right = beta(30, 32, 0.4, seed=1)
    e = estimate.estimate(samples(right))
    assert (e.value, e.level, e.n) == (right.mean(), "problem", 30)
    assert e.se == pytest.approx(stats.sem(right.mean(1)), rel=1e-12)
    assert_wilson(e, e.value * (1 - e.value) / e.se**2, 29)
    # stored twice, each problem is still one draw
    twice = estimate.estimate(samples(np.vstack([right, right]), problems=tuple(f"q{i % 30}" for i in range(60))))
    assert (twice.value, twice.n) == (e.value, 30)
    assert (twice.se, twice.low, twice.high) == pytest.approx((e.se, e.low, e.high), rel=1e-9)


def test_all_or_nothing_problems_have_scipys_wilson_interval_and_one_problem_has_none() -> None:
    for right, n, k in ((40, 100, 1), (29, 30, 32), (30, 30, 1), (0, 5, 4), (499, 500, 1)):
        e = estimate.estimate(samples(np.arange(n)[:, None] < np.full((n, k), right)))
        expected = stats.binomtest(right, n).proportion_ci(method="wilson")
        assert (e.low, e.high) == pytest.approx((expected.low, expected.high), rel=1e-12)
    e = estimate.estimate(samples(np.array([[True, False]])))
    assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, "one problem: no interval")
    alike = estimate.estimate(samples(np.tile([True, False], (30, 1))))
    assert (alike.se, alike.high - alike.low > 0.2) == (None, True)


def test_averages_and_the_error_of_generation_by_hand() -> None:
    """3 of 4 greedy, and two problems x 4 samples with 2 of 8: pooled 5/12, macro 1/2; a benchmark that was not run is
    never silently zero."""
    a, b = samples(np.array([[1], [1], [1], [0]], bool)), samples(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert (estimate.pooled({"a": a, "b": b}).value, estimate.macro({"a": a, "b": b}).value) == (
        pytest.approx(5 / 12, abs=1e-15),
        0.5,
    )
    left_out, as_wrong = (estimate.pooled({"a": a}, [12], missing_as_wrong=wrong) for wrong in (False, True))
    assert (left_out.value, as_wrong.value) == (0.75, 3 / 16)
    assert ("left out" in left_out.how, "counted as wrong" in as_wrong.how) == (True, True)
    mean = estimate.macro({"a": a}, [12])
    assert (mean.value, mean.low, mean.se, "no macro" in mean.how) == (None, None, None, True)
    for right, se in (([[1, 0], [1, 1]], 0.25), ([[0, 0], [1, 1]], None), ([[1], [0]], None)):
        assert estimate.generation_se(samples(np.array(right, bool))) == se
    # without an SE of its own, a quarter of the interval
    whole, other = estimate.estimate(samples(np.ones((4, 1), bool))), estimate.estimate(b)
    together = estimate.macro({"a": samples(np.ones((4, 1), bool)), "b": b})
    assert together.se == pytest.approx(math.hypot((whole.high - whole.low) / 4, other.se) / 2)
    # MOVER: the squares of what lies below and above each part add up
    value, below, above, weight = (np.array(x) for x in ([0.2, 0.5], [0.03, 0.04], [0.05, 0.01], [0.25, 0.75]))
    total, (low, high) = intervals.combine(weight, value, value - below, value + above)
    expected = [np.sqrt(((weight * half) ** 2).sum()) for half in (below, above)]
    assert (total, total - low, high - total) == pytest.approx((0.425, *expected))


def test_maj_at_k() -> None:
    """Of what the docstring does not show: no answer is no vote, and one answer judged in two ways counts its share."""
    answers = [[None, None, "4"], [None] * 3, ["4", "4", "5"], ["4", "5", "6"]]
    right = [[0, 0, 1], [0, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert estimate.maj_at_k(answers, right).tolist() == [1, 0, 1 / 2, 1 / 3]


# Two checkpoints.


def test_p_is_the_paired_t_test_when_differences_are_ordinary_and_the_sign_test_when_few_differ() -> None:
    d = stats.norm.ppf((np.arange(64) + 0.5) / 64) * 0.2
    sides = [np.arange(100) < np.round(50 + sign * 100 * d / 2)[:, None] + more for sign, more in ((1, 3), (-1, 0))]
    expected = stats.ttest_rel(*(side.mean(1) for side in sides))
    c, interval = compare.compare(*map(samples, sides)), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    # six of 400 problems flipped, all one way: exact McNemar p = .031; plain t would give .014
    right = np.arange(400)[:, None] >= 6
    flipped = compare.compare(samples(np.ones((400, 1), bool)), samples(right))
    assert flipped.p == pytest.approx(stats.binomtest(6, 6).pvalue, abs=0.005)


def test_equal_answers_prove_no_equality_and_other_problems_cannot_be_compared() -> None:
    for n in (2, 30, 400):
        a = samples(beta(n, 4, 0.3, seed=0))
        c = compare.compare(a, a)
        assert (c.difference, c.se, c.p, c.detectable) == (0.0, None, 1.0, None)
        assert (c.low, c.high) == pytest.approx((0.025 ** (1 / n) - 1, 1 - 0.025 ** (1 / n)))
    a, more = samples(beta(5, 1, 0.5, seed=0)), samples(beta(5, 2, 0.5, seed=0))
    grouped = samples(beta(5, 1, 0.5, seed=0), problems=tuple("aabcd"))
    for b, message in ((samples(a.right, 1), "p0000"), (grouped, "copies are grouped differently")):
        with pytest.raises(CorruptInputError, match=message):
            compare.compare(a, b)
    for parts, others, message in (({"x": a, "y": a}, {"x": a}, "y: 5 and 0"), ({"x": a}, {"x": more}, "x: 5 and 10")):
        with pytest.raises(CorruptInputError, match=message):
            compare.compare_average(parts, others, pooled=True)


# Methods over seeds.


def test_scores_over_seeds_have_wilsons_interval_and_other_figures_the_t_interval() -> None:
    x = np.array([0.31, 0.35, 0.30])
    e = compare.over_seeds(dict(enumerate(x)))
    assert_wilson(e, x.mean() * (1 - x.mean()) / stats.sem(x) ** 2, 2)
    assert (e.value, e.se, e.level, e.n) == (pytest.approx(x.mean()), pytest.approx(stats.sem(x)), "seed", 3)
    e = compare.over_seeds(dict(enumerate(10 * x)), bounds=(0.0, math.inf))
    low, high = stats.t.interval(0.95, 2, 10 * x.mean(), 10 * stats.sem(x))
    assert (e.value, e.se, e.low, e.high) == pytest.approx((10 * x.mean(), 10 * stats.sem(x), low, high), rel=1e-12)


def test_compare_seeds_is_the_paired_t_test_over_common_seeds() -> None:
    a, b = {1: 0.41, 2: 0.47, 3: 0.44, 9: 0.99}, {3: 0.41, 2: 0.42, 1: 0.39}
    expected = stats.ttest_rel([0.41, 0.47, 0.44], [0.39, 0.42, 0.41])
    c, interval = compare.compare_seeds(a, b), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    assert c.n == 3
    for n in (2, 3, 30):
        difference = compare.detectable(1 / np.sqrt(n), n - 1)
        power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, difference * np.sqrt(n))
        assert power == pytest.approx(0.8, abs=1e-6)  # the root finder stops there


def test_no_interval_and_why() -> None:
    for a, b, difference, why in (
        ({1: 0.5, 2: 0.6}, {2: 0.4, 3: 0.4}, 0.2, compare.ONE_SEED),
        ({1: 0.5}, {2: 0.4}, None, compare.NO_SEED),
        ({1: 0.5, 2: 0.6}, {1: 0.4, 2: 0.5}, 0.1, compare.EQUAL_SEEDS),
    ):
        c = compare.compare_seeds(a, b)
        assert c.difference == (None if difference is None else pytest.approx(difference))
        assert (c.se, c.low, c.high, c.p, c.detectable, c.how) == (None, None, None, None, None, why)
    for wrong, error in (({}, MissingInputError), ({1: math.nan, 2: 0.5}, CorruptInputError)):
        with pytest.raises(error):
            compare.over_seeds(wrong)


def test_the_mean_over_clean_models_by_hand() -> None:
    value, clusters = {1: 0.1, 2: 0.4, 5: 0.3, 3: 0.9, 7: 0.5}, {seed: seed % 4 for seed in range(9)}
    zero = dict.fromkeys(value, 0.0)
    assert compare.by_clean_model(value, clusters) == {1: 0.2, 2: 0.4, 3: 0.7}
    e, c = compare.over_seeds(value, clusters=clusters), compare.compare_seeds(value, zero, clusters=clusters)
    assert (e.value, e.n, e.how) == (pytest.approx(1.3 / 3), 3, "Wilson-t over 3 clean models, 5 seeds")
    expected = stats.ttest_1samp([0.2, 0.4, 0.7], 0.0)
    assert (c.p, c.df, c.how) == (pytest.approx(expected.pvalue), 2, "paired t over 3 clean models, 5 seeds")
    one = compare.compare_seeds(value, zero, clusters=dict.fromkeys(value, 0))
    assert one.how == "paired t over 5 seeds of one clean model"


def test_a_choice_is_made_again_and_widens_an_interval() -> None:
    """By hand: of two seeds the second value is chosen where the first seed is drawn twice, a quarter of the time."""
    sides = [{1: 0.5, 2: 0.5}, {1: 0.6, 2: 0.3}]
    assert float(compare.chosen_again(sides).mean()) == pytest.approx(0.25, abs=0.02)
    assert set(compare.chosen_again([sides[0], sides[0]]).tolist()) == {0}, "of equal ones the first"
    c = compare.compare_seeds({1: 0.5, 2: 0.6, 3: 0.8}, {1: 0.45, 2: 0.5, 3: 0.6})
    wide = compare.with_choice(c, 0.04)
    assert wide.se == pytest.approx(math.hypot(c.se, 0.04))
    assert (wide.high - wide.low) / (c.high - c.low) == pytest.approx(wide.se / c.se)
    assert (wide.difference, wide.df, compare.with_choice(c, 0.0)) == (c.difference, c.df, c)


def test_holm() -> None:
    assert compare.holm([0.01, None, 0.9]) == [0.02, None, 0.9], "the untested one does not count"
    assert (compare.holm([0.5, 0.9]), compare.holm([None])) == ([1.0, 1.0], [None])


# Printed scores, and what would decide.


def test_the_units_needed_have_the_power_and_one_less_has_not() -> None:
    n = sizes.units_needed(0.28, 0.2)
    for units, enough in ((n, True), (n - 1, False)):
        critical = stats.t.ppf(0.975, units - 1)
        assert (stats.nct.sf(critical, units - 1, 0.2 / 0.28 * math.sqrt(units)) >= 0.8) == enough


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
        a, b = sizes.Score(float(w @ p), 30, k), sizes.Score(float(w @ q), 30, m)
        least, assumed, most = (30 * total for total in sizes.score_errors(a, b, 0.73, float(rng.uniform(-1, 1))))
        assert least - 1e-12 <= variance(p, q, w, k, m) <= most + 1e-12
        assert least <= assumed <= most
    gap, p = 0.1, 0.4
    least, _, most = sizes.score_errors(sizes.Score(p, 30, 32), sizes.Score(p - gap, 30, 32), 0.73, 0.9)
    ends = np.array([gap, 1.0]), np.array([0.0, 1 - gap]), np.array([(1 - p) / (1 - gap), (p - gap) / (1 - gap)])
    assert 30 * least == pytest.approx(variance(*ends, 32, 32))
    opposite = np.array([1.0, 0, 0]), np.array([0.0, 1, 0]), np.array([p, p - gap, 1 - 2 * p + gap])
    assert 30 * most == pytest.approx(variance(*opposite, 32, 32))


def test_the_parts_of_a_score_are_unbiased() -> None:
    rng, n, k = np.random.default_rng(13), 60, 8
    p_RP = rng.beta(1.0, 1.5, (600, n))
    rows = pd.DataFrame({"samples": k, "copies": 1}, index=range(n))
    parts = np.array([sizes.of_answers(rows.assign(share=y_P)).parts(1.0) for y_P in rng.binomial(k, p_RP) / k])
    assert parts.mean(0) == pytest.approx([p_RP.var(), (p_RP * (1 - p_RP)).mean() / k], rel=0.03)
    greedy = sizes.of_answers(rows.assign(share=[0.0, 1.0] * 30, samples=1))
    assert greedy.parts(1e9)[0] == pytest.approx(0.0, abs=1e-9), "all problems alike"
