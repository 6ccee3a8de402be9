"""What decides a difference: numbers of units, bounds of a printed score's variance, what sampling leaves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import nct, t

from evals.stats import sizes
from evals.stats.compare import detectable
from evals.stats.sizes import Error, Score, measured_parts, samples_needed, score_errors, units_needed

SPREAD = 0.73


@pytest.mark.parametrize("tests", [1, 6, 22])
@pytest.mark.parametrize(("sd", "effect"), [(0.03, 0.05), (0.011, -0.01), (0.28, 0.2), (0.3, 0.02)])
def test_the_units_needed_have_the_power_and_one_less_has_not(sd: float, effect: float, tests: int) -> None:
    n = units_needed(sd, effect, tests)
    assert n is not None
    for units, enough in ((n, True), (n - 1, False)):
        critical = t.ppf(1 - 0.05 / 2 / tests, units - 1)
        assert (nct.sf(critical, units - 1, abs(effect) / sd * math.sqrt(units)) >= 0.8) == enough
    assert units_needed(sd, 0.0) is None


def variance(p: np.ndarray, q: np.ndarray, w: np.ndarray, k: int, m: int) -> float:
    """Of y - z over problems drawn with weights w from chances (p, q), k and m samples of each."""
    gap = (w * (p - q)).sum()
    return float((w * ((p - q) ** 2 + p * (1 - p) / k + q * (1 - q) / m)).sum() - gap**2)


def test_no_problems_lie_outside_the_bounds_and_some_reach_them() -> None:
    rng = np.random.default_rng(11)
    for _ in range(3000):
        k, m = (int(x) for x in rng.choice([1, 4, 32], 2))
        p, q = rng.beta(*rng.uniform(0.02, 2, 2), 6), rng.beta(*rng.uniform(0.02, 2, 2), 6)
        w = rng.dirichlet(np.full(6, 0.5))
        a, b = Score(float(w @ p), 30, k), Score(float(w @ q), 30, m)
        least, assumed, most = (30 * error.total for error in score_errors(a, b, SPREAD, float(rng.uniform(-1, 1))))
        assert least - 1e-12 <= variance(p, q, w, k, m) <= most + 1e-12
        assert least <= assumed <= most
    gap, p = 0.1, 0.4
    least, _, most = score_errors(Score(p, 30, 32), Score(p - gap, 30, 32), SPREAD, 0.9)
    ends = np.array([gap, 1.0]), np.array([0.0, 1 - gap]), np.array([(1 - p) / (1 - gap), (p - gap) / (1 - gap)])
    assert 30 * least.total == pytest.approx(variance(*ends, 32, 32))
    opposite = np.array([1.0, 0, 0]), np.array([0.0, 1, 0]), np.array([p, p - gap, 1 - 2 * p + gap])
    assert 30 * most.total == pytest.approx(variance(*opposite, 32, 32))


@pytest.mark.parametrize(("problems", "k"), [(30, 32), (83, 32), (500, 1)])
def test_of_problems_as_assumed_the_interval_covers_and_the_power_is_as_stated(problems: int, k: int) -> None:
    """Beta difficulties with a + b = .73; a share of the problems, the correlation, is equally hard for both."""
    rng, repeats, correlation = np.random.default_rng([12, problems, k]), 2000, 0.8

    def drawn(p: float, q: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores of both sides, and their differences in standard errors of the assumed case around 0."""
        u, v = rng.random((2, repeats, problems))
        grid = (np.arange(2000) + 0.5) / 2000
        tables = [np.quantile(rng.beta(s * SPREAD, (1 - s) * SPREAD, 200_000), grid) for s in (p, q)]
        other = np.where(rng.random(u.shape) < correlation, u, v)
        chances = (table[(x * 2000).astype(int)] for table, x in zip(tables, (u, other), strict=True))
        y, z = (rng.binomial(k, chance).mean(1) / k for chance in chances)
        pairs = zip(y, z, strict=True)
        errors = [score_errors(Score(a, problems, k), Score(b, problems, k), SPREAD, correlation)[1] for a, b in pairs]
        return y - z, np.sqrt([error.total for error in errors])

    critical = t.ppf(0.975, problems - 1)
    gap, se = drawn(0.4, 0.4)
    assert np.mean(np.abs(gap) <= critical * se) == pytest.approx(0.95, abs=0.015)
    effect = detectable(float(np.median(se)), problems - 1)
    gap, se = drawn(0.4 + effect / 2, 0.4 - effect / 2)
    assert np.mean(gap > critical * se) == pytest.approx(0.8, abs=0.04)


def test_what_sampling_leaves_is_the_spread_between_problems_and_the_samples_needed_have_the_power() -> None:
    rng, n, k, repeats = np.random.default_rng(13), 60, 8, 2000

    def chances(rows: int) -> tuple[np.ndarray, np.ndarray]:
        p = rng.beta(1.0, 1.5, (rows, n)) * 0.8
        return p + 0.03 + rng.normal(0, 0.05, p.shape).clip(-0.03, 0.1), p

    left, parts = [], []
    for p, q in zip(*chances(repeats), strict=True):
        y, z = rng.binomial(k, p) / k, rng.binomial(k, q) / k
        sides = [measured_parts(share, np.full(n, k)) for share in (y, z)]
        assert sides[0] is not None
        assert sides[1] is not None
        parts.append(sides[0].between)
        left.append((y - z).var(ddof=1) - sides[0].sampled - sides[1].sampled)
    p, q = chances(5000)
    floor = float((p - q).var())
    assert np.mean(left) == pytest.approx(floor, abs=4 * float(np.std(left)) / math.sqrt(repeats))
    assert np.mean(parts) == pytest.approx(p.var(), rel=0.02)

    sampled = float((p * (1 - p) + q * (1 - q)).mean()) / k
    effect = float((p - q).mean())
    times = samples_needed(Error((floor + sampled) / n, floor / n), effect, n - 1)
    assert times is not None
    more = math.ceil(k * times)
    gap = (rng.binomial(more, p) - rng.binomial(more, q)) / more
    found = gap.mean(1) > t.ppf(0.975, n - 1) * gap.std(1, ddof=1) / math.sqrt(n)
    assert found.mean() == pytest.approx(0.8, abs=0.03)
    assert samples_needed(Error(0.02, 0.01), 0.1, n - 1) == math.inf
    assert samples_needed(Error(0.02, None), 0.1, n - 1) is None


def test_one_sample_a_problem_does_not_tell_its_parts() -> None:
    assert measured_parts([0.0, 1.0, 1.0], [1, 1, 1]) is None
    assert sizes.beta_parts(Score(0.3, 30, 32), 1e9).between == pytest.approx(0.0, abs=1e-9), "all problems alike"
