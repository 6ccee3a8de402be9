"""Paired differences between two checkpoints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from core.errors import CorruptInputError
from evals.stats.compare import compare, compare_macro, compare_pooled
from evals.stats.estimate import estimate
from evals.stats.responses import Samples
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


def test_se_agrees_with_the_bootstrap_over_problems() -> None:
    a, b = twins(200, 8, seed=1)
    d = a.right.mean(1) - b.right.mean(1)
    draws = np.random.default_rng(2).multinomial(200, np.full(200, 1 / 200), 20000) @ d / 200
    assert compare(a, b).se == pytest.approx(draws.std(), rel=0.02)


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


def test_difference_is_antisymmetric() -> None:
    a, b = twins(50, 4, seed=3)
    c, d = compare(a, b), compare(b, a)
    assert (c.difference, c.low, c.high) == pytest.approx((-d.difference, -d.high, -d.low), abs=1e-15)  # type: ignore
    assert (c.p, c.detectable) == pytest.approx((d.p, d.detectable))


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


def test_a_stratum_without_differences_does_not_narrow_the_average_to_a_point() -> None:
    x, y = twins(30, 32)[0], twins(200, 1)[0]
    c = compare_pooled({"x": x, "y": y}, {"x": x, "y": y})
    assert (c.difference, c.p) == (0.0, pytest.approx(1.0))
    assert c.se is not None
    assert c.se > 0


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
