"""Method level: intervals over seeds, the spread that rows share, and what has no interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from core.errors import CorruptInputError, MissingInputError
from evals.stats import intervals
from evals.stats.compare import EQUAL_SEEDS, NO_SEED, ONE_SEED, compare_seeds, over_seeds, shared_spread


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


def test_a_row_that_collapsed_does_not_widen_the_others() -> None:
    rows = {str(n): {1: 0.5 + 0.01 * n, 2: 0.52 + 0.01 * n} for n in range(6)}
    before, after = shared_spread(rows), shared_spread(rows | {"bad": {1: 0.9, 2: 0.05}})
    assert before is not None
    assert after is not None
    assert float(after.score) == pytest.approx(float(before.score), rel=0.01)


def test_rows_without_a_common_seed_share_no_spread_of_differences() -> None:
    alone = shared_spread({"a": {1: 0.5, 2: 0.6}, "b": {1: 0.3, 2: 0.34}})
    more = shared_spread({"a": {1: 0.5, 2: 0.6}, "b": {1: 0.3, 2: 0.34}, "c": {3: 0.2, 4: 0.9}})
    assert alone is not None
    assert more is not None
    assert float(more.difference) == pytest.approx(float(alone.difference), rel=1e-12)
    assert float(more.score) != float(alone.score)


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
