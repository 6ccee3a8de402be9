"""One checkpoint: the formulas against the textbook and brute force, avg@k, pass@k and maj@k, and what is refused."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.stats import nct, t

from core.errors import ConfigError, CorruptInputError, MissingInputError
from evals.stats import intervals, sizes
from evals.stats.compare import (
    EQUAL_SEEDS,
    NO_SEED,
    ONE_SEED,
    by_clean_model,
    chances_of_being_best,
    chosen_again,
    compare,
    compare_macro,
    compare_pooled,
    compare_seeds,
    detectable,
    holm,
    over_seeds,
    ranks,
    with_choice,
)
from evals.stats.estimate import Comparison, Estimate, Samples, estimate, generation_se, macro, maj_at_k, pooled
from evals.stats.sizes import Error, Score, measured_parts, samples_needed, score_errors, units_needed
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


def test_copies_of_a_problem_are_one_draw() -> None:
    """Every problem stored twice: the same score, the same SE; as separate problems the SE would shrink by root 2."""
    right = beta(40, 1, 0.4, seed=2)
    once = estimate(samples(right))
    labels = tuple(f"q{i % 40}" for i in range(80))
    twice = estimate(samples(np.vstack([right, right]), problems=labels))
    assert (twice.value, twice.n) == (once.value, 40)
    assert twice.se == pytest.approx(once.se, rel=1e-12)
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high), rel=1e-9)


def test_greedy_interval_is_wilsons() -> None:
    """With one sample, or all samples alike: scipy's, for as many answers as there are problems."""
    for right, n, k in ((40, 100, 1), (29, 30, 32), (30, 30, 1), (0, 5, 4), (499, 500, 1)):
        e = estimate(samples(np.arange(n)[:, None] < np.full((n, k), right)))
        expected = stats.binomtest(right, n).proportion_ci(method="wilson")
        assert (e.low, e.high) == pytest.approx((expected.low, expected.high), rel=1e-12)


def test_one_problem_has_no_interval_and_problems_alike_are_no_certainty() -> None:
    e = estimate(samples(np.array([[True, False]])))
    assert (e.value, e.se, e.low, e.high, e.how) == (0.5, None, None, None, "one problem: no interval")
    e = estimate(samples(np.tile([True, False], (30, 1))))
    assert (e.se, e.high - e.low > 0.2) == (None, True)


def test_generation_se_by_hand() -> None:
    """Two problems x 2 samples, one answered both ways: sqrt(1/4 / (2 - 1)) / 2."""
    assert generation_se(samples(np.array([[True, False], [True, True]]))) == 0.25
    assert generation_se(samples(np.array([[False, False], [True, True]]))) is None
    assert generation_se(samples(np.array([[True], [False]]))) is None


def test_pooled_and_macro_by_hand_and_a_missing_benchmark_is_never_silently_zero() -> None:
    """3 of 4 greedy, and two problems x 4 samples with 2 of 8: pooled 5/12, macro 1/2."""
    a = samples(np.array([[1], [1], [1], [0]], bool))
    b = samples(np.array([[1, 1, 0, 0], [0, 0, 0, 0]], bool))
    assert pooled({"a": a, "b": b}).value == pytest.approx(5 / 12, abs=1e-15)
    assert macro({"a": a, "b": b}).value == 0.5
    parts = {"a": a, "b": 12}
    left_out, as_wrong, mean = pooled(parts), pooled(parts, missing_as_wrong=True), macro(parts)
    assert (left_out.value, as_wrong.value) == (0.75, 3 / 16)
    assert "left out" in left_out.how
    assert "counted as wrong" in as_wrong.how
    assert "no macro" in mean.how
    assert (mean.value, mean.low, mean.high, mean.se) == (None, None, None, None)


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


GOOD: dict[str, Any] = {"value": 0.5, "se": 0.1, "low": 0.3, "high": 0.7, "how": "t", "n": 30}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"se": 0.0}, "never 0"),
        ({"se": float("nan")}, "None"),
        ({"low": 0.5, "high": 0.5}, "point"),
        ({"low": None}, "two ends"),
        ({"low": 0.6}, "does not hold"),
        ({"value": None}, "does not hold None"),
    ],
)
def test_an_estimate_refuses_what_means_nothing(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Estimate(**GOOD | change)
    renamed = {("difference" if k == "value" else k): v for k, v in (GOOD | change).items()}
    with pytest.raises(ValueError, match=message):
        Comparison(**renamed)


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


def test_mover_adds_the_squares_of_what_lies_below_and_above_each_part() -> None:
    value, below, above, weight = (np.array(x) for x in ([0.2, 0.5], [0.03, 0.04], [0.05, 0.01], [0.25, 0.75]))
    total, (low, high) = intervals.combine(weight, value, value - below, value + above)
    expected = [np.sqrt(((weight * half) ** 2).sum()) for half in (below, above)]
    assert (total, total - low, high - total) == pytest.approx((0.425, *expected))


def twins(n: int, k: int, *, seed: int = 0, gap: float = 0.0) -> tuple[Samples, Samples]:
    """Two checkpoints whose chances on each problem differ by an sd of .05 and by `gap`."""
    rng = np.random.default_rng(seed)
    chance = rng.beta(0.5, 1.0, n)
    other = (chance + rng.normal(0, 0.05, n) + gap).clip(0, 1)
    return samples(rng.random((n, k)) < other[:, None]), samples(rng.random((n, k)) < chance[:, None])


def test_p_is_the_paired_t_test_when_differences_are_ordinary() -> None:
    d = stats.norm.ppf((np.arange(64) + 0.5) / 64) * 0.2
    right_a = np.arange(100) < np.round(50 + 100 * d / 2)[:, None] + 3
    right_b = np.arange(100) < np.round(50 - 100 * d / 2)[:, None]
    a, b = samples(right_a), samples(right_b)
    expected = stats.ttest_rel(right_a.mean(1), right_b.mean(1))
    c, interval = compare(a, b), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)


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
        assert c.high == pytest.approx(1 - 0.025 ** (1 / n))
        assert c.low == -c.high


def test_interval_and_p_agree_about_significance() -> None:
    for gap, seed in itertools.product((0.0, 0.02, 0.2), range(10)):
        parts = {key: twins(n, k, seed=seed + n, gap=gap) for key, n, k in (("x", 30, 32), ("y", 200, 1))}
        a, b = ({key: pair[side] for key, pair in parts.items()} for side in (0, 1))
        for c in (compare(*parts["x"]), compare(*parts["y"]), compare_pooled(a, b), compare_macro(a, b)):
            assert (c.p < 0.05) == (c.low > 0 or c.high < 0), (gap, seed)


def test_other_problems_and_other_benchmarks_cannot_be_compared() -> None:
    a, more = samples(beta(5, 1, 0.5, seed=0)), samples(beta(5, 2, 0.5, seed=0))
    for b, message in ((samples(beta(6, 1, 0.5, seed=0)), "p0005"), (samples(beta(5, 1, 0.5, seed=0), 1), "p0000")):
        with pytest.raises(CorruptInputError, match=message):
            compare(a, b)
    for parts, others, message in (({"x": a, "y": a}, {"x": a}, "y"), ({"x": a}, {"x": more}, "the pools differ")):
        with pytest.raises(CorruptInputError, match=message):
            compare_pooled(parts, others)


def test_scores_over_seeds_have_wilsons_interval_and_other_figures_the_t_interval() -> None:
    x = np.array([0.31, 0.35, 0.30])
    e = over_seeds(dict(enumerate(x)))
    effective = x.mean() * (1 - x.mean()) / stats.sem(x) ** 2
    for end in (e.low, e.high):
        assert abs(x.mean() - end) / np.sqrt(end * (1 - end) / effective) == pytest.approx(stats.t.ppf(0.975, 2))
    assert (e.value, e.se) == pytest.approx((x.mean(), stats.sem(x)), rel=1e-12)
    assert (e.level, e.n) == ("seed", 3)
    e = over_seeds(dict(enumerate(10 * x)), bounds=(0.0, float("inf")))
    low, high = stats.t.interval(0.95, 2, 10 * x.mean(), 10 * stats.sem(x))
    assert (e.value, e.se, e.low, e.high) == pytest.approx((10 * x.mean(), 10 * stats.sem(x), low, high), rel=1e-12)


def drawn(rng: np.random.Generator, clean: int, seeds: int, icc: float) -> tuple[dict[int, float], dict[int, int]]:
    """Differences by seed around 0 with intraclass correlation `icc`, and the clean model of each seed."""
    clusters = {seed: seed % clean for seed in range(1, seeds + 1)}
    ours = math.sqrt(icc) * rng.standard_normal(clean)
    value = {s: float(ours[c] + math.sqrt(1 - icc) * rng.standard_normal()) for s, c in clusters.items()}
    return {s: 0.05 * x for s, x in value.items()}, clusters


@pytest.mark.parametrize(("clean", "counted_apart"), [(4, 85), (8, 97)])
def test_seeds_that_share_clean_models_are_covered(clean: int, counted_apart: float) -> None:
    """Eight seeds, intraclass correlation 0.9; counted apart, seeds of four clean models are covered too seldom."""
    rng, repeats, held, apart = np.random.default_rng(clean), 2000, 0, 0
    for _ in range(repeats):
        value, clusters = drawn(rng, clean, 8, 0.9)
        zero = dict.fromkeys(value, 0.0)
        together, each = compare_seeds(value, zero, clusters=clusters), compare_seeds(value, zero)
        assert (together.n, each.n) == (clean, 8)
        held += together.low < 0 < together.high
        apart += each.low < 0 < each.high
    assert 93 <= 100 * held / repeats <= 97
    assert 100 * apart / repeats <= counted_apart


def test_the_mean_over_clean_models_by_hand() -> None:
    value, clusters = {1: 0.1, 2: 0.4, 5: 0.3, 3: 0.9, 7: 0.5}, {seed: seed % 4 for seed in range(9)}
    assert by_clean_model(value, clusters) == {1: 0.2, 2: 0.4, 3: 0.7}
    e, c = over_seeds(value, clusters=clusters), compare_seeds(value, dict.fromkeys(value, 0.0), clusters=clusters)
    assert (e.value, e.n, e.how) == (pytest.approx(1.3 / 3), 3, "Wilson-t over 3 clean models, 5 seeds")
    expected = stats.ttest_1samp([0.2, 0.4, 0.7], 0.0)
    assert (c.p, c.df, c.how) == (pytest.approx(expected.pvalue), 2, "paired t over 3 clean models, 5 seeds")
    assert chances_of_being_best({"a": value, "b": dict.fromkeys(value, 0.0)}, clusters)[0]["a"] == pytest.approx(
        1 - c.p / 2, abs=0.01
    )


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


def test_with_as_many_clean_models_as_seeds_nothing_changes() -> None:
    """Bit for bit; and seeds of one clean model are about that one, as those of a hub model are."""
    rng = np.random.default_rng(5)
    a, b = ({seed: float(rng.random()) for seed in range(1, 9)} for _ in range(2))
    for clusters in ({seed: seed % 8 for seed in a}, dict.fromkeys(a, 0)):
        alone = " of one clean model" * (len({*clusters.values()}) == 1)
        for ours, plain in (
            (over_seeds(a, clusters=clusters), over_seeds(a)),
            (compare_seeds(a, b, clusters=clusters), compare_seeds(a, b)),
        ):
            assert replace(ours, how=plain.how) == plain
            assert ours.how == plain.how + alone
        assert ranks({"a": a, "b": b}, clusters) == ranks({"a": a, "b": b})


def test_compare_seeds_is_the_paired_t_test_over_common_seeds() -> None:
    a, b = {1: 0.41, 2: 0.47, 3: 0.44, 9: 0.99}, {3: 0.41, 2: 0.42, 1: 0.39}
    expected = stats.ttest_rel([0.41, 0.47, 0.44], [0.39, 0.42, 0.41])
    c, interval = compare_seeds(a, b), expected.confidence_interval()
    assert (c.p, c.low, c.high) == pytest.approx((expected.pvalue, interval.low, interval.high), rel=1e-9)
    assert (c.n, c.detectable > 4 * c.se) == (3, True)
    wide = compare_seeds({1: 0.9, 2: 0.1}, {1: 0.1, 2: 0.2})
    assert (wide.low, wide.high) == (-1, 1), "cut to what a difference can be"


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
    for n in (2, 3, 30):
        difference = detectable(1 / np.sqrt(n), n - 1)
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


SPREAD = 0.73


@pytest.mark.parametrize("tests", [1, 6, 22])
@pytest.mark.parametrize(("sd", "effect"), [(0.03, 0.05), (0.011, -0.01), (0.28, 0.2), (0.3, 0.02)])
def test_the_units_needed_have_the_power_and_one_less_has_not(sd: float, effect: float, tests: int) -> None:
    n = units_needed(sd, effect, tests)
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
def test_of_problems_as_assumed_the_difference_varies_as_is_stated(problems: int, k: int) -> None:
    """Beta difficulties with a + b = .73; a share of the problems, the correlation, is equally hard for both."""
    rng, correlation = np.random.default_rng([12, problems, k]), 0.8
    p, other = rng.beta(0.4 * SPREAD, 0.6 * SPREAD, (2, 4000, problems))
    q = np.where(rng.random(p.shape) < correlation, p, other)
    y, z = (rng.binomial(k, chance).mean(1) / k for chance in (p, q))
    stated = score_errors(Score(0.4, problems, k), Score(0.4, problems, k), SPREAD, correlation)[1]
    assert (y - z).var() == pytest.approx(stated.total, rel=0.07)  # three standard errors
    if k > 1:
        assert (p - q).mean(1).var() == pytest.approx(stated.floor, rel=0.07)


def test_the_parts_of_a_score_are_unbiased_and_the_samples_needed_have_the_power() -> None:
    rng, n, k = np.random.default_rng(13), 60, 8
    p_RP = rng.beta(1.0, 1.5, (2000, n))
    parts = np.array([measured_parts(y_P, np.full(n, k)) for y_P in rng.binomial(k, p_RP) / k])
    assert parts.mean(0) == pytest.approx([p_RP.var(), (p_RP * (1 - p_RP)).mean() / k], rel=0.02)
    error, effect = Error(0.003, 0.001), 0.12
    times = samples_needed(error, effect, n - 1)
    assert detectable(math.sqrt(error.floor + (error.total - error.floor) / times), n - 1) == pytest.approx(effect)
    assert samples_needed(Error(0.02, 0.01), 0.1, n - 1) == math.inf
    assert samples_needed(Error(0.02, None), 0.1, n - 1) is None


def test_one_sample_a_problem_does_not_tell_its_parts() -> None:
    assert measured_parts([0.0, 1.0, 1.0], [1, 1, 1]) is None
    assert sizes.beta_parts(Score(0.3, 30, 32), 1e9).between == pytest.approx(0.0, abs=1e-9), "all problems alike"


def test_chances_and_places_follow_from_the_paired_differences() -> None:
    rng = np.random.default_rng(3)
    for seeds in (2, 3, 8):
        shared = rng.normal(0, 0.1, seeds)
        a, b = (dict(enumerate(0.5 + gain + shared + rng.normal(0, 0.01, seeds))) for gain in (0.01, 0.0))
        comparison = compare_seeds(a, b)
        assert comparison.p is not None
        expected = 1 - comparison.p / 2 if comparison.difference > 0 else comparison.p / 2  # type: ignore[operator]
        chances, how = chances_of_being_best({"a": a, "b": b})
        assert chances["a"] == pytest.approx(expected, abs=0.012)  # 3.4 standard errors of 20,000 draws
        assert sum(chances.values()) == pytest.approx(1)
        assert f"{seeds} seeds in common" in how
    one, two, three = ({1: x, 2: x + 0.1, 3: x + 0.2} for x in (0.1, 0.5, 0.3))
    assert ranks({"a": one, "b": two, "c": three}) == {"a": (3, 3), "b": (1, 1), "c": (2, 2)}, "always apart"
    assert ranks({"a": one, "b": dict(one)}) == {"a": (1, 1), "b": (1, 1)}, "a tie has the better place"
    assert chances_of_being_best({"a": one, "b": dict(one)})[0] == {"a": 0.5, "b": 0.5}
    for fewer in ({"a": one}, {"a": one, "b": {1: 0.4, 4: 0.6}}):  # one method, one seed in common
        assert (chances_of_being_best(fewer)[0], ranks(fewer)) == ({}, {})
    unsure = ranks({"a": {1: 0.5, 2: 0.1}, "b": {1: 0.1, 2: 0.5}})
    assert unsure == {"a": (1, 2), "b": (1, 2)}
