"""One checkpoint: the formulas against the textbook and brute force, avg@k, pass@k and maj@k, and what is refused."""

from __future__ import annotations

import doctest
import itertools
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from scipy import stats

import evals.stats.compare
import evals.stats.estimate
from core.errors import ConfigError, CorruptInputError
from evals.stats import intervals
from evals.stats.estimate import (
    Comparison,
    Estimate,
    NotRun,
    estimate,
    generation_se,
    macro,
    maj_at_k,
    pass_at_k,
    pooled,
)
from evals.stats.responses import Samples
from tests.evals.stats.fixtures import beta


def samples(right: np.ndarray, problems: tuple[str, ...] = ()) -> Samples:
    return Samples(tuple(f"p{i:04d}" for i in range(len(right))), np.asarray(right, bool), problems)


def test_se_is_sd_over_root_n_of_problem_means() -> None:
    right = beta(30, 32, 0.2, seed=1)
    y = right.mean(1)
    e = estimate(samples(right))
    assert e.value == right.mean()
    assert e.se == pytest.approx(y.std(ddof=1) / np.sqrt(30), rel=1e-12)
    assert (e.level, e.n) == ("problem", 30)


def test_degrees_of_freedom_fall_when_few_problems_differ() -> None:
    y = np.zeros(400)
    y[:3] = 1
    assert 4 < intervals.clustered_mean(y, 1.0).df < 8


def test_copies_of_a_problem_are_one_draw() -> None:
    """Every problem stored twice: the same score, the same SE; as separate problems the SE would shrink by root 2."""
    right = beta(40, 1, 0.4, seed=2)
    once = estimate(samples(right))
    labels = tuple(f"q{i % 40}" for i in range(80))
    twice = estimate(samples(np.vstack([right, right]), labels))
    assert (twice.value, twice.n) == (once.value, 40)
    assert twice.se == pytest.approx(once.se, rel=1e-12)
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high), rel=1e-9)


def test_greedy_interval_is_wilsons() -> None:
    """With one sample, or all samples alike: scipy's, for as many answers as there are problems."""
    for right, n, k in ((40, 100, 1), (29, 30, 32), (30, 30, 1), (0, 5, 4), (499, 500, 1)):
        e = estimate(samples(np.arange(n)[:, None] < np.full((n, k), right)))
        expected = stats.binomtest(right, n).proportion_ci(method="wilson")
        assert (e.low, e.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_ends_rise_with_the_problems_solved_and_no_interval_is_wider_than_for_one_more_error() -> None:
    for n, k in ((2, 1), (5, 32), (30, 1), (30, 32), (83, 32), (200, 1)):
        found = [estimate(samples(np.arange(n)[:, None] < np.full((n, k), right))) for right in range(n + 1)]
        low, high = (np.array([getattr(e, end) for e in found]) for end in ("low", "high"))
        assert (np.diff(low) > 0).all(), (n, k)
        assert (np.diff(high) > 0).all(), (n, k)
        assert (np.diff((high - low)[n // 2 :]) < 1e-15).all(), (n, k)


def test_all_right_or_all_wrong_still_has_an_interval() -> None:
    """As wide as for n single answers: 32 equal samples of 30 problems do not make 960 problems."""
    for (n, k), all_right in itertools.product(((30, 32), (100, 1), (500, 1), (10, 1)), (True, False)):
        e = estimate(samples(np.full((n, k), all_right)))
        assert e.se is None
        assert e.low is not None
        assert e.high is not None
        assert e.high - e.low == pytest.approx(1.959964**2 / (n + 1.959964**2), rel=1e-6)
        assert e.value in (e.low, e.high)


def test_one_problem_has_no_interval_and_problems_alike_are_no_certainty() -> None:
    e = estimate(samples(np.array([[True, False]])))
    assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, "one problem: no interval")
    e = estimate(samples(np.tile([True, False], (30, 1))))
    assert (e.se, e.high - e.low > 0.2) == (None, True)  # type: ignore[operator]


def test_generation_se_by_hand() -> None:
    """Two problems x 2 samples, one answered both ways: sqrt(1/4 / (2 - 1)) / 2."""
    assert generation_se(samples(np.array([[True, False], [True, True]]))) == 0.25
    assert generation_se(samples(np.array([[False, False], [True, True]]))) is None
    assert generation_se(samples(np.array([[True], [False]]))) is None


def test_pooled_and_macro_by_hand() -> None:
    """3 of 4 greedy, and two problems x 4 samples with 2 of 8: pooled 5/12, macro 1/2."""
    a = samples(np.array([[1], [1], [1], [0]], bool))
    b = samples(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert pooled({"a": a, "b": b}).value == pytest.approx(5 / 12, abs=1e-15)
    assert macro({"a": a, "b": b}).value == 0.5


def test_a_missing_benchmark_is_never_silently_zero() -> None:
    a = samples(np.array([[1], [1], [1], [0]], bool))
    parts = {"a": a, "b": NotRun(12)}
    left_out, as_wrong, mean = pooled(parts), pooled(parts, missing_as_wrong=True), macro(parts)
    assert (left_out.value, as_wrong.value, mean.value) == (0.75, 3 / 16, None)
    assert "left out" in left_out.how
    assert "counted as wrong" in as_wrong.how
    assert "no macro" in mean.how
    assert (mean.low, mean.high, mean.se) == (None, None, None)


def test_pass_at_k_is_the_share_of_subsets_with_a_right_one() -> None:
    for c, k in product(range(7), range(1, 7)):
        right = [i < c for i in range(6)]
        subsets = list(combinations(right, k))
        assert pass_at_k([right], k)[0] == pytest.approx(sum(map(any, subsets)) / len(subsets), abs=1e-15), (c, k)


def test_pass_at_k_refuses_more_samples_than_there_are() -> None:
    for k in (0, 3):
        with pytest.raises(ConfigError, match=f"k = {k}"):
            pass_at_k([[True, False]], k)


def test_maj_at_k() -> None:
    cases: list[tuple[list[str | None], list[int], float]] = [
        (["4", "4", "5"], [1, 1, 0], 1.0),
        (["4", "5", "5"], [1, 0, 0], 0.0),
        (["4", "5"], [1, 0], 1 / 2),  # a tie: the share of tied answers that is right
        (["4", "5", "6"], [1, 0, 0], 1 / 3),
        (["4", "4", "5", "5", "6"], [0, 0, 1, 1, 0], 1 / 2),
        ([None, None, None, "4"], [0, 0, 0, 1], 1.0),  # no answer is no vote
        ([None, None], [0, 0], 0.0),
        (["4", "4", "5"], [1, 0, 0], 1 / 2),  # one answer judged in two ways: its share
    ]
    for answers, right, score in cases:
        assert maj_at_k([answers], [right]).tolist() == [score], answers


def test_examples_in_docstrings() -> None:
    tried = sum(
        doctest.testmod(module, raise_on_error=True).attempted for module in (evals.stats.compare, evals.stats.estimate)
    )
    assert tried >= 2


GOOD: dict[str, Any] = {"value": 0.5, "se": 0.1, "low": 0.3, "high": 0.7, "level": "problem", "how": "t", "n": 30}
GOOD_PAIR = {("difference" if k == "value" else k): v for k, v in GOOD.items()} | {"p": 0.1, "detectable": 0.3}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"se": 0.0}, "never 0"),
    ({"se": -0.1}, "never 0"),
    ({"se": float("nan")}, "None"),
    ({"value": float("nan"), "low": None, "high": None}, "None"),
    ({"low": 0.5, "high": 0.5}, "point"),
    ({"low": None}, "two ends"),
    ({"high": None}, "two ends"),
    ({"low": 0.6}, "does not hold"),
    ({"value": None}, "needs a value"),
    ({"level": "sample"}, "problem, seed"),
    ({"how": ""}, "how"),
]


def test_an_estimate_refuses_what_means_nothing() -> None:
    Estimate(**GOOD)
    Comparison(**GOOD_PAIR)
    for change, message in REFUSED:
        with pytest.raises(ValueError, match=message):
            Estimate(**GOOD | change)
        renamed = {("difference" if k == "value" else k): v for k, v in change.items()}
        with pytest.raises(ValueError, match=message):
            Comparison(**GOOD_PAIR | renamed)
    with pytest.raises(ValueError, match="p = 2"):
        Comparison(**GOOD_PAIR | {"p": 2.0})


def test_samples_without_problems_or_verdicts_are_refused() -> None:
    for right in (
        np.ones(960, bool),  # 960 samples without their problems
        np.ones((3, 32), bool),  # another number of problems than items
        np.full((2, 4), 0.5),  # partial credit
        np.array([[1, None], [0, 1]], dtype=object),  # an unknown verdict
        np.zeros((2, 0), bool),
    ):
        with pytest.raises(CorruptInputError):
            Samples(("a", "b"), right)
    with pytest.raises(CorruptInputError, match="'a' occurs more than once"):
        Samples(("a", "a"), np.ones((2, 1), bool))


def test_mover_is_the_stratified_interval_for_symmetric_parts() -> None:
    value, half, weight = np.array([0.2, 0.5]), np.array([0.03, 0.04]), np.array([0.25, 0.75])
    total, (low, high) = intervals.combine(weight, value, value - half, value + half)
    expected = np.sqrt(((weight * half) ** 2).sum())
    assert (total, total - low, high - total) == pytest.approx((0.425, expected, expected))
