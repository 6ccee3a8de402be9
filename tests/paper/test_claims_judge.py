"""Contrasts to verdicts: weakest link, Holm, bounds, and never a verdict without an interval that excludes the null."""

from __future__ import annotations

import math

import pytest

from evals.stats import compare
from paper.claims import ledger
from paper.claims.contrast import MODELS, Contrast, Gap, over_runs, ratio_of_sds
from paper.claims.entries import Entry
from paper.claims.tests import Outcome


def contrast(value: float | None, p: float | None, *, null: float = 0.0, at_least: bool = False) -> Contrast:
    """An interval that excludes the null exactly when p < .05."""
    if value is None or p is None:
        return Contrast("x", value, null, None, None, p, None, "points", "seed", "one seed", 1)
    half = abs(value - null) * (0.9 if p < 0.05 else 1.1) or 0.1
    return Contrast(
        "x", value, null, value - half, value + half, p, 0.1, "points", "seed", "invented", 2, at_least=at_least
    )


UP, DOWN, UNSURE_UP, UNSURE_DOWN = contrast(1, 0.001), contrast(-1, 0.001), contrast(1, 0.4), contrast(-1, 0.4)

ONE_CLAIM = {
    "clearly above": (Outcome((UP,)), "supported"),
    "clearly below": (Outcome((DOWN,)), "contradicted"),
    "clearly below, as claimed": (Outcome((DOWN,), "below"), "supported"),
    "clearly above, claimed below": (Outcome((UP,), "below"), "contradicted"),
    "inside noise": (Outcome((UNSURE_UP,)), "undecided"),
    "inside noise on the other side": (Outcome((UNSURE_DOWN,)), "undecided"),
    "exactly at the null": (Outcome((contrast(0.0, 1.0),)), "undecided"),
    "above 0 but below its own null": (Outcome((contrast(1.0, 0.001, null=2.0),)), "contradicted"),
    "no interval": (Outcome((contrast(5.0, None),)), "undecided"),
    "no figure": (Outcome((contrast(None, None),)), "undecided"),
    "all of several": (Outcome((UP, UP, UP)), "supported"),
    "all of several but one unsure": (Outcome((UP, UNSURE_UP, UP)), "undecided"),
    "one of several clearly fails": (Outcome((UP, DOWN, UP)), "contradicted"),
    "one of several fails, unsure": (Outcome((UP, UNSURE_DOWN, UP)), "undecided"),
    "one of several has no interval": (Outcome((UP, contrast(1.0, None))), "undecided"),
    "one of many fails by p .03: Holm": (Outcome((contrast(-1, 0.03), UNSURE_UP, UNSURE_UP)), "undecided"),
    "third place: two above": (Outcome((DOWN, DOWN, UP, UP), allow=2), "supported"),
    "third place: three above": (Outcome((DOWN, DOWN, DOWN, UP), allow=2), "contradicted"),
    "third place: the third above is unsure": (Outcome((DOWN, DOWN, UNSURE_DOWN, UP), allow=2), "undecided"),
    "third place: one of the needed is unsure": (Outcome((DOWN, DOWN, UNSURE_UP, UP), allow=2), "undecided"),
    "a lower bound above what is claimed": (Outcome((contrast(1, 0.001, at_least=True),), "below"), "contradicted"),
    "a lower bound below proves nothing": (Outcome((contrast(-1, 0.001, at_least=True),), "below"), "undecided"),
}


def test_verdict_of_one_claim() -> None:
    found = {case: ledger.direction(outcome) for case, (outcome, _) in ONE_CLAIM.items()}
    verdicts = {case: ledger.verdicts_of_family([seen])[0][0] for case, seen in found.items()}
    assert verdicts == {case: expected for case, (_, expected) in ONE_CLAIM.items()}


def test_holm_over_a_family() -> None:
    """p .03 alone is a verdict; beside another test of p .04 it is not. Untested claims do not count."""
    alone, beside, untested = contrast(1, 0.03), contrast(1, 0.04), contrast(1, None)
    claims = [ledger.direction(Outcome((c,))) for c in (alone, beside, untested)]
    assert [verdict for verdict, _ in ledger.verdicts_of_family(claims[::2])] == ["supported", "undecided"]
    assert ledger.verdicts_of_family(claims) == [("undecided", 0.06), ("undecided", 0.06), ("undecided", None)]


@pytest.mark.parametrize("verdict", ["supported", "contradicted"])
@pytest.mark.parametrize("ends", [(None, None), (-0.1, 0.2), (0.0, 0.2)])
def test_an_entry_without_an_interval_outside_the_null_has_no_verdict(
    verdict: str, ends: tuple[float | None, float | None]
) -> None:
    words = dict.fromkeys(("id", "family", "where", "quote", "statement", "scale", "kind", "reason"), "x")
    with pytest.raises(ValueError, match="interval"):
        Entry(
            "ours", variant=None, learning_rate=None, reading=None, verdict=verdict, estimate=0.1, null=0.0,
            low=ends[0], high=ends[1], **words,
        )  # type: ignore[arg-type]  # fmt: skip


def test_one_model_is_tested_over_seeds_as_tables_are() -> None:
    a, b = {1: 0.61, 2: 0.64, 3: 0.66}, {1: 0.52, 2: 0.57, 3: 0.55}
    found = compare.compare_seeds(a, b)
    made = over_runs("x", {"m": {s: a[s] - b[s] for s in a}}, null=0.0, unit="points", bounds=(-1, 1), runs=[])
    assert (made.value, made.low, made.high, made.p, made.detectable) == pytest.approx(
        (found.difference, found.low, found.high, found.p, found.detectable)
    )
    assert (made.level, made.n) == ("seed", 3)


def test_several_models_are_tested_over_their_means() -> None:
    """Seeds of a model that agree closely do not make three models more than three."""
    values = {"a": {1: 0.1, 2: 0.1}, "b": {1: 0.2, 2: 0.2}, "c": {1: 0.3, 2: 0.3, 3: 0.3}}
    made = over_runs("x", values, null=0.05, unit="points", bounds=(-1, 1), runs=[])
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (made.value, made.low, made.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    assert (made.level, made.n, made.null) == (MODELS, 3, 0.05)


@pytest.mark.parametrize(("values", "words"), [({1: 0.5}, "one seed"), ({1: 0.5, 2: 0.5}, "agree exactly")])
def test_without_spread_there_is_no_interval(values: dict[int, float], words: str) -> None:
    made = over_runs("x", {"m": values}, null=0.0, unit="points", bounds=(-1, 1), runs=[])
    assert made.low is None
    assert made.p is None
    assert words in made.how


def test_ratio_of_sds_by_f() -> None:
    """Two groups of two against one of three: variances .02 and .005, 2 and 2 degrees of freedom, F(.975) = 39."""
    made = ratio_of_sds("x", [[0.0, 0.2], [0.5, 0.7]], [[0.0, 0.0707106781, -0.0707106781]], runs=[])
    assert (made.value, made.low, made.high) == pytest.approx((2.0, 2 / math.sqrt(39), 2 * math.sqrt(39)), rel=1e-6)
    assert made.p == pytest.approx(2 * (1 / (1 + 4)))  # P(F(2, 2) > f) = 1/(1 + f)
    with pytest.raises(Gap, match="one seed"):
        ratio_of_sds("x", [[0.5]], [[0.1, 0.2]], runs=[])


def test_undecided_by_holm_says_so_and_detectable_counts_the_family() -> None:
    """Two claims of one family, each with p between 2.5 and 5 %: the intervals exclude the null, and Holm says no."""
    from evals.stats.compare import detectable_in_family

    a, b = {1: 0.50, 2: 0.53, 3: 0.515, 4: 0.52}, {1: 0.48, 2: 0.498, 3: 0.507, 4: 0.49}
    comparison = compare.compare_seeds(a, b)
    assert comparison.p is not None
    assert 0.025 < comparison.p < 0.05
    contrast = over_runs("x", {"m": {s: a[s] - b[s] for s in a}}, null=0.0, unit="points", bounds=(-1, 1), runs=[])
    assert contrast.low is not None
    assert contrast.low > 0
    assert contrast.detectable_of is not None
    assert contrast.detectable_of(2) == pytest.approx(detectable_in_family(comparison, 2))
    assert contrast.detectable_of(2) > contrast.detectable_of(1) == pytest.approx(contrast.detectable)
    seen = ledger.direction(Outcome((contrast,)))
    ((verdict, p), _) = ledger.verdicts_of_family([seen, seen])
    assert (verdict, p) == ("undecided", pytest.approx(2 * comparison.p))
    reason = ledger._why_undecided(seen, p, 2)
    assert "the interval excludes the null, but not after Holm's correction over the 2 claims of its family" in reason


def test_ratio_of_sds_knows_its_two_sides() -> None:
    """One degree of freedom above, many below: P(F(1, inf) < f) = P(|z| < sqrt f)."""
    many = [[math.sin(n) for n in range(4000)]]
    made = ratio_of_sds("x", [[0.0, 1.0]], many, runs=[])
    sd = math.sqrt(0.5) / (made.value or 1)
    ends = [math.sqrt(0.5) / sd / z for z in (2.2414, 0.031337)]  # |z| below which 97.5 % and 2.5 % lie
    assert (made.low, made.high) == pytest.approx(ends, rel=2e-3)
