"""Two checkpoints, two methods over seeds, many tests at once, and looking after every seed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from core.errors import ConfigError, CorruptInputError, MissingInputError
from evals.stats import intervals
from evals.stats.compare import (
    EQUAL_SEEDS,
    NO_SEED,
    ONE_SEED,
    compare,
    compare_macro,
    compare_pooled,
    compare_seeds,
    detectable,
    holm,
    over_seeds,
    shared_spread,
)
from evals.stats.estimate import estimate
from evals.stats.responses import Samples
from evals.stats.sequential import decide, half_width, log_e
from tests.evals.stats.fixtures import beta


def samples(right: np.ndarray, start: int = 0) -> Samples:
    return Samples(tuple(f"p{i + start:04d}" for i in range(len(right))), np.asarray(right, bool))


def twins(n: int, k: int, *, seed: int = 0, gap: float = 0.0) -> tuple[Samples, Samples]:
    """Two checkpoints whose chances on each problem differ by an sd of .05 and by `gap`."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.5, 1.0, n)
    other = (chance + rng.normal(0, 0.05, n) + gap).clip(0, 1)
    return samples(rng.random((n, k)) < other[:, None]), samples(rng.random((n, k)) < chance[:, None])


def test_se_is_that_of_the_differences_and_far_below_the_unpaired_one() -> None:
    a, b = twins(30, 32)
    d = a.right.mean(1) - b.right.mean(1)
    c = compare(a, b)
    assert c.difference == pytest.approx(d.mean(), abs=1e-15)
    assert c.se == pytest.approx(d.std(ddof=1) / np.sqrt(30), rel=1e-12)
    one, two = estimate(a).se, estimate(b).se
    assert one is not None
    assert two is not None
    assert c.se is not None
    assert c.se < 0.4 * np.hypot(one, two)


def test_p_is_the_paired_t_test_when_differences_are_ordinary() -> None:
    d = stats.norm.ppf((np.arange(64) + 0.5) / 64) * 0.2
    right_a = np.arange(100) < np.round(50 + 100 * d / 2)[:, None] + 3
    right_b = np.arange(100) < np.round(50 - 100 * d / 2)[:, None]
    a, b = samples(right_a), samples(right_b)
    expected = stats.ttest_rel(right_a.mean(1), right_b.mean(1)).pvalue
    assert compare(a, b).p == pytest.approx(expected, rel=1e-9)


def test_few_differing_problems_agree_with_the_exact_sign_test() -> None:
    """Six of 400 problems flipped, all one way: exact McNemar p = .031; plain t would say .014."""
    right = np.ones((400, 1), bool)
    other = right.copy()
    other[:6] = False
    c = compare(samples(right), samples(other))
    assert c.p == pytest.approx(stats.binomtest(6, 6).pvalue, abs=0.005)


def test_equal_answers_prove_no_equality() -> None:
    for n in (2, 30, 400):
        a, _ = twins(n, 4)
        c = compare(a, a)
        assert (c.difference, c.se, c.p, c.detectable) == (0.0, None, 1.0, None)
        assert c.low is not None
        assert c.high == pytest.approx(1 - 0.025 ** (1 / n))
        assert c.low == -c.high


def test_interval_and_p_agree_about_significance() -> None:
    for gap, seed in itertools.product((0.0, 0.02, 0.2), range(10)):
        parts = {key: twins(n, k, seed=seed + n, gap=gap) for key, n, k in (("x", 30, 32), ("y", 200, 1))}
        a, b = ({key: pair[side] for key, pair in parts.items()} for side in (0, 1))
        for c in (compare(*parts["x"]), compare(*parts["y"]), compare_pooled(a, b), compare_macro(a, b)):
            assert c.low is not None
            assert c.high is not None
            assert c.p is not None
            assert (c.p < 0.05) == (c.low > 0 or c.high < 0), (gap, seed)


def test_averages_of_differences_are_differences_of_averages() -> None:
    x, y = twins(30, 32, seed=4), twins(200, 1, seed=5)
    a, b = {"x": x[0], "y": y[0]}, {"x": x[1], "y": y[1]}
    pooled = (x[0].correct + y[0].correct - x[1].correct - y[1].correct) / 1160
    assert compare_pooled(a, b).difference == pytest.approx(pooled, abs=1e-15)
    macro = (x[0].score + y[0].score - x[1].score - y[1].score) / 2
    assert compare_macro(a, b).difference == pytest.approx(macro, abs=1e-15)


def test_other_problems_cannot_be_compared() -> None:
    a = samples(beta(5, 1, 0.5, seed=0))
    for b, message in ((samples(beta(6, 1, 0.5, seed=0)), "p0005"), (samples(beta(5, 1, 0.5, seed=0), 1), "p0000")):
        with pytest.raises(CorruptInputError, match=message):
            compare(a, b)


def test_other_benchmarks_cannot_be_compared() -> None:
    a, b = twins(5, 1)
    with pytest.raises(CorruptInputError, match="y"):
        compare_pooled({"x": a, "y": a}, {"x": b})
    with pytest.raises(CorruptInputError, match="the pools differ"):
        compare_pooled({"x": a}, {"x": samples(beta(5, 2, 0.5, seed=0))})


def test_a_row_alone_has_wilsons_interval_with_students_factor() -> None:
    x = np.array([0.31, 0.35, 0.30])
    e = over_seeds(dict(enumerate(x)))
    effective = x.mean() * (1 - x.mean()) / stats.sem(x) ** 2
    # the ends of Wilson's interval are the p whose own standard error puts the mean at the t quantile
    for end in (e.low, e.high):
        assert end is not None
        assert abs(x.mean() - end) / np.sqrt(end * (1 - end) / effective) == pytest.approx(stats.t.ppf(0.975, 2))
    assert (e.value, e.se) == pytest.approx((x.mean(), stats.sem(x)), rel=1e-12)
    assert (e.level, e.n) == ("seed", 3)


def test_a_figure_that_is_no_share_has_the_t_interval() -> None:
    x = [3.1, 3.5, 3.0]
    e = over_seeds(dict(enumerate(x)), bounds=(0.0, float("inf")))
    low, high = stats.t.interval(0.95, 2, np.mean(x), stats.sem(x))
    assert (e.value, e.se, e.low, e.high) == pytest.approx((np.mean(x), stats.sem(x), low, high), rel=1e-12)


def test_a_row_among_others_has_a_moderated_variance() -> None:
    """By hand: w from three rows of two seeds, then (2 expected + 1 own) / 3 with 1 + 2 degrees of freedom."""
    rows = {"a": {1: 0.5, 2: 0.6}, "b": {1: 0.3, 2: 0.34}, "c": {1: 0.7, 2: 0.8}}
    shared = shared_spread(rows, answers=400)
    assert shared is not None
    mean = np.array([0.55, 0.32, 0.75])
    share = (mean * 800 + 1) / 802
    pq = share * (1 - share)
    own = np.array([0.1, 0.04, 0.1]) ** 2 / 2
    w = np.median((own - pq / 400) / pq**1.5) / stats.chi2.median(1)
    assert float(shared.score) == pytest.approx(w, rel=1e-12)
    variance = (2 * (w * pq[0] ** 1.5 + pq[0] / 400) + own[0]) / 3
    e = over_seeds(rows["a"], answers=400, shared=shared)
    assert e.se == pytest.approx(np.sqrt(variance / 2), rel=1e-12)
    assert e.how.endswith("3 degrees of freedom")


def test_the_spread_of_differences_is_the_median_over_pairs_of_rows() -> None:
    x_RS = np.random.default_rng(1).random((4, 5))
    level = (x_RS.mean(1) * (1 - x_RS.mean(1))) ** intervals.LEVEL
    own = [
        (x_RS[i] - x_RS[j]).var(ddof=1) / (level[i] + level[j]) * 4 / stats.chi2.median(4)
        for i in range(4)
        for j in range(i)
    ]
    shared = intervals.spread(x_RS, np.inf)
    assert float(shared.difference) == pytest.approx(np.median(own), rel=1e-12)
    assert (shared.score_df, shared.difference_df) == (16, 12)


def test_seeds_that_agree_exactly_have_the_interval_of_their_answers() -> None:
    for value in (0.0, 0.5, 1.0):
        e = over_seeds({1: value, 2: value}, answers=400)
        c = compare_seeds({1: value, 2: value}, {1: value, 2: value}, answers=400)
        assert None not in (e.low, e.high, e.se, c.low, c.high, c.p)
        assert e.low < e.high  # type: ignore[operator]
        assert c.low < 0 < c.high  # type: ignore[operator]
        noise = np.sqrt(2 * (value * 800 + 1) / 802 * (1 - (value * 800 + 1) / 802) / 400 / 2)
        assert c.se == pytest.approx(noise, rel=1e-12)


def test_intervals_of_seeds_are_never_empty_whole_or_at_odds_with_their_p() -> None:
    """Any scores on 2 to 8 seeds beside any others: no interval from end to end, and it excludes 0 where p < 5 %."""
    rng = np.random.default_rng(2)
    excluded = 0
    for _ in range(400):
        seeds, rows, answers = rng.integers(2, 9), rng.integers(4, 8), int(rng.choice([30, 400, 4700]))
        chance = np.clip(rng.random((rows, 1)) + rng.normal(0, rng.choice([0, 0.02, 0.1]), (rows, seeds)), 0, 1)
        x_RS = rng.binomial(answers, chance) / answers
        by_seed = {str(row): dict(enumerate(map(float, x_S))) for row, x_S in enumerate(x_RS)}
        a, b = by_seed["0"], by_seed["1"]
        shared = shared_spread(by_seed, answers=answers)
        e, c = over_seeds(a, answers=answers, shared=shared), compare_seeds(a, b, answers=answers, shared=shared)
        assert e.low is not None
        assert e.high is not None
        assert 0 <= e.low <= e.value <= e.high <= 1  # type: ignore[operator]
        assert e.high - e.low < 1
        assert c.low is not None
        assert c.high is not None
        assert c.p is not None
        assert (c.p < 0.05) == (not c.low <= 0 <= c.high)
        excluded += c.p < 0.05
    assert 40 < excluded < 360, "both kinds occur"


def test_compare_seeds_is_the_paired_t_test_over_common_seeds() -> None:
    a, b = {1: 0.41, 2: 0.47, 3: 0.44, 9: 0.99}, {3: 0.41, 2: 0.42, 1: 0.39}
    expected = stats.ttest_rel([0.41, 0.47, 0.44], [0.39, 0.42, 0.41])
    c = compare_seeds(a, b)
    assert (c.p, c.n) == (pytest.approx(expected.pvalue, rel=1e-9), 3)
    assert c.detectable is not None
    assert c.se is not None
    assert c.detectable > 4 * c.se


def test_no_interval_and_why() -> None:
    cases: list[tuple[dict[int, float], dict[int, float], float | None, str]] = [
        ({1: 0.5}, {1: 0.4}, 0.1, ONE_SEED),
        ({1: 0.5, 2: 0.6}, {2: 0.4, 3: 0.4}, 0.2, ONE_SEED),
        ({1: 0.5}, {2: 0.4}, None, NO_SEED),
        ({1: 0.5, 2: 0.6}, {1: 0.4, 2: 0.5}, 0.1, EQUAL_SEEDS),
    ]
    for a, b, difference, why in cases:
        c = compare_seeds(a, b)
        assert c.difference == (None if difference is None else pytest.approx(difference))
        assert (c.se, c.low, c.high, c.p, c.detectable, c.how) == (None, None, None, None, None, why)
    for by_seed, why in (({1: 0.5}, ONE_SEED), ({1: 0.5, 2: 0.5}, EQUAL_SEEDS)):
        e = over_seeds(by_seed)
        assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, why)
    nothing: list[dict[int, float]] = [{}, {1: float("nan"), 2: 0.5}]
    for by_seed in nothing:
        with pytest.raises((MissingInputError, CorruptInputError)):
            over_seeds(by_seed)


def test_detectable_difference_is_found_in_80_percent() -> None:
    for n in (2, 3, 5, 30):
        difference = detectable(1 / np.sqrt(n), n - 1)
        draws = np.random.default_rng(n).normal(difference, 1, (20000, n))
        p = stats.ttest_1samp(draws, 0, axis=1).pvalue
        assert np.mean((p < 0.05) & (draws.mean(1) > 0)) == pytest.approx(0.8, abs=0.009)  # three standard errors
        power = stats.nct.sf(stats.t.ppf(0.975, n - 1), n - 1, difference * np.sqrt(n))
        assert power == pytest.approx(0.8, abs=1e-6)  # the root finder stops there


def test_holm() -> None:
    cases: list[tuple[list[float | None], list[float | None]]] = [
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.01, None, 0.04], [0.02, None, 0.04]),  # the untested one does not count
        ([0.5, 0.9], [1.0, 1.0]),
        ([0.02, 0.02, 0.02], [0.06, 0.06, 0.06]),
        ([None], [None]),
        ([], []),
    ]
    for raw, adjusted in cases:
        assert [None if p is None else round(p, 12) for p in holm(raw)] == adjusted
    for p in (-0.1, 1.5, float("nan")):
        with pytest.raises(ConfigError, match=r"p\[1\]"):
            holm([0.5, p])


def test_looking_after_every_seed_errs_in_at_most_5_percent() -> None:
    value_RS = np.random.default_rng(0).standard_normal((4000, 20))
    crossed = np.zeros(4000, bool)
    student = np.zeros(4000, bool)
    for n in range(2, 21):
        seen = value_RS[:, :n]
        crossed |= np.abs(seen.mean(1)) > half_width(seen, 0.05)
        student |= np.abs(seen.mean(1)) > 2.09 * seen.std(1, ddof=1) / np.sqrt(n)
    assert crossed.mean() < 0.05
    assert student.mean() > 0.15, "a t interval at 20 seeds, looked at on the way"


def test_the_interval_holds_the_means_that_the_e_value_does_not_reject() -> None:
    value_S = np.random.default_rng(1).standard_normal(8) + 0.3
    half = float(half_width(value_S, 0.05))
    for end in (value_S.mean() - half, value_S.mean() + half):
        assert float(log_e(value_S, end)) == pytest.approx(math.log(20), rel=1e-9)
    assert float(log_e(value_S, float(value_S.mean()))) < 0


def test_two_seeds_decide_nothing() -> None:
    assert math.isinf(float(half_width([0.1, 0.1001], 0.05)))
    assert decide([0.1, 0.1001], alpha=0.05).verdict == "undecided"


@pytest.mark.parametrize(("shift", "verdict"), [(0.5, "higher"), (-0.5, "lower"), (0.0, "equal")])
def test_the_first_verdict_stays(shift: float, verdict: str) -> None:
    value = list(shift + 0.01 * np.random.default_rng(2).standard_normal(20))
    found = decide(value, alpha=0.05, margin=0.05)
    assert found.verdict == verdict
    assert found.seeds < 20
    assert decide([*value[: found.seeds], *(-9.0 for _ in range(5))], alpha=0.05, margin=0.05) == found
    assert found.low is not None
    assert found.high is not None
    assert (found.low > 0, found.high < 0) == (verdict == "higher", verdict == "lower")


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError, match="alpha = 1"):
        decide([0.1, 0.2, 0.3], alpha=1.0)
