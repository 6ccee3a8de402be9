"""Method level: Student-t over seeds, and what has no interval."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evals.stats.compare import EQUAL_SEEDS, NO_SEED, ONE_SEED, compare_seeds, over_seeds
from records.errors import CorruptInputError, MissingInputError


def test_over_seeds_is_the_t_interval() -> None:
    x = [0.31, 0.35, 0.30]
    e = over_seeds({1: 0.31, 2: 0.35, 3: 0.30})
    low, high = stats.t.interval(0.95, 2, np.mean(x), stats.sem(x))
    assert (e.value, e.se, e.low, e.high) == pytest.approx((np.mean(x), stats.sem(x), low, high), rel=1e-12)
    assert (e.level, e.n) == ("seed", 3)


def test_two_seeds_have_a_factor_of_12_7() -> None:
    e = over_seeds({1: 0.50, 2: 0.51})
    assert e.low is not None
    assert e.high is not None
    assert (e.high - e.low) / 2 == pytest.approx(12.706 * 0.005, rel=1e-4)


def test_compare_seeds_is_the_paired_t_test_over_common_seeds() -> None:
    a, b = {1: 0.41, 2: 0.47, 3: 0.44, 9: 0.99}, {3: 0.41, 2: 0.42, 1: 0.39}
    expected = stats.ttest_rel([0.41, 0.47, 0.44], [0.39, 0.42, 0.41])
    c = compare_seeds(a, b)
    assert (c.p, c.n) == (pytest.approx(expected.pvalue, rel=1e-9), 3)
    assert c.detectable is not None
    assert c.se is not None
    assert c.detectable > 4 * c.se


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


@pytest.mark.parametrize(("by_seed", "why"), [({1: 0.5}, ONE_SEED), ({1: 0.5, 2: 0.5}, EQUAL_SEEDS)])
def test_one_seed_or_equal_seeds_have_no_interval(by_seed: dict[int, float], why: str) -> None:
    e = over_seeds(by_seed)
    assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, why)


@pytest.mark.parametrize("by_seed", [{}, {1: float("nan"), 2: 0.5}])
def test_no_or_no_number_is_an_error(by_seed: dict[int, float]) -> None:
    with pytest.raises((MissingInputError, CorruptInputError)):
        over_seeds(by_seed)
