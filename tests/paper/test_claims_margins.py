"""Practical equivalence, bounds and interventions: planted effects of known size get the verdict that they deserve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evals.stats import compare
from paper.claims import entries, ledger
from paper.claims.claims import read_claims
from paper.claims.contrast import Contrast, Gap, over_runs, ratio_of_paired_sds, ratio_of_sds
from paper.claims.entries import Entry
from paper.claims.tests import Outcome
from tests.paper.claim_trees import MODELS, ROLLOUTS, Figures, both, tree

CLAIMS = {claim.id: claim for claim in read_claims()}
DRAW = np.random.default_rng(0)
SEEDS = 8
EQUAL = "equal within the margin"


def judged(root: Path, runs: Mapping[tuple[str, str], Any], id: str) -> list[Entry]:
    return ledger.run_entries(tree(root, runs), [CLAIMS[id]])


def steps(change: float, spread: float, level: float) -> tuple[list[float], list[float]]:
    """Figures of 8 seeds on both sides: `change` apart on average, whatever the draw, with this sd of the distance."""
    noise = DRAW.normal(size=SEEDS)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * spread
    return [level + change + x for x in noise], [level] * SEEDS


# claim -> (column, level, sign of what is claimed, margin); the column is constant over rollouts
PLANTED = {
    "faster-reward": ("reward", 0.5, 1, 0.02),
    "lower-clip-ratio": ("clip_fraction_tokens", 0.05, -1, 0.002),
    "keeps-exploring": ("entropy", 0.3, 1, 0.02),
    "theorem-3.1-tendency": ("theorem_sign_agreement", 0.5, 1, 0.02),
}
# change and sd of a paired difference in margins -> verdict, and words beside it
SHAPES: dict[str, tuple[float, float, str, str]] = {
    "an effect of three margins": (3.0, 1.0, "supported", ""),
    "an effect of three margins the other way": (-3.0, 1.0, "contradicted", ""),
    "no effect, little noise": (0.0, 0.5, EQUAL, ""),
    "a small effect, little noise": (0.3, 0.1, EQUAL, "above the null, but by less than the margin"),
    "a small effect the other way": (-0.3, 0.1, EQUAL, "below the null, but by less than the margin"),
    "no effect, much noise": (0.0, 8.0, "undecided", "at most"),
    "an effect that noise hides": (2.0, 8.0, "undecided", "at most"),
    "an effect that reaches out of the margin": (0.9, 0.4, "supported", ""),
}


@pytest.mark.parametrize(
    ("id", "shape"),
    # every shape once; of the other measures the three kinds of verdict
    [("faster-reward", shape) for shape in SHAPES]
    + [(id, shape) for id in PLANTED if id != "faster-reward" for shape in list(SHAPES)[1:7:2]],
)
def test_planted_effects(tmp_path: Path, id: str, shape: str) -> None:
    column, level, sign, margin = PLANTED[id]
    change, spread, verdict, words = SHAPES[shape]
    left, right = steps(sign * change * margin, spread * margin, level)
    if id == "theorem-3.1-tendency":
        right = left  # a level and not a difference: both methods' runs are averaged
    runs = both([{column: x} for x in left], [{column: x} for x in right])
    (entry,) = judged(tmp_path / "t", runs, id)
    assert entry.verdict == verdict
    if sign < 0:
        words = words.replace("above", "BELOW").replace("below", "above").replace("BELOW", "below")
    assert words in entry.reason
    assert (entry.margin_low, entry.margin_high) == pytest.approx((entry.null - margin, entry.null + margin))  # type: ignore[operator]


RATIOS = {1.5: "supported", 1.0: EQUAL, 1.05: EQUAL, 0.7: "contradicted"}


@pytest.mark.parametrize("ratio", RATIOS)
def test_ratios_have_margins_that_are_ratios(tmp_path: Path, ratio: float) -> None:
    factors = np.exp(steps(math.log(ratio), 0.03, 0.0)[0])
    runs = both([{"grad_norm": 3.0 * f} for f in factors], [{"grad_norm": 3.0}] * SEEDS)
    (entry,) = judged(tmp_path / "t", runs, "higher-gradient-norm")
    assert (entry.verdict, entry.estimate) == (RATIOS[ratio], pytest.approx(ratio))
    assert (entry.margin_low, entry.margin_high) == pytest.approx((1 / 1.1, 1.1))
    assert "margin 0.909 to 1.1 ratio" in entries.margin(entry)


def test_a_verdict_never_contradicts_its_interval() -> None:
    """Any estimate, noise, null, side and margin; two contrasts at a time."""
    seen = set()
    for _ in range(3000):
        contrasts = []
        for _ in range(int(DRAW.integers(1, 3))):
            null, value, half = (float(x) for x in DRAW.normal(size=3))
            half = abs(half) * float(DRAW.choice([0.05, 0.5, 2.0]))
            wide = float(DRAW.choice([0.1, 1.0, 3.0]))
            p = 0.05 * math.exp(1 - abs(value - null) / half)  # below .05 exactly where the interval excludes the null
            contrasts.append(
                Contrast(
                    "x", value, null, value - half, value + half, min(1.0, p), 0.1, "points", "seed", "invented", 8,
                    margin=(null - wide, null + wide) if DRAW.random() < 0.8 else None,
                    at_least=bool(DRAW.random() < 0.1),
                )
            )  # fmt: skip
        side = DRAW.choice(["above", "below"])
        direction = ledger.direction(Outcome(tuple(contrasts), side))
        ((verdict, p_holm),) = ledger.verdicts_of_family([direction])
        seen.add(verdict)
        decisive = direction.contrast
        if verdict == "undecided" and not decisive.low <= decisive.null <= decisive.high:  # type: ignore[operator]
            reason = ledger._why_undecided(direction, p_holm, 1)
            assert "the interval excludes the null, but" in reason or "the interval is that of a lower bound" in reason
        inside = [c.margin is not None and c.margin[0] <= c.low and c.high <= c.margin[1] for c in contrasts]  # type: ignore[operator]
        assert (verdict == EQUAL) == (all(inside) and not any(c.at_least for c in contrasts))
        sign = 1 if side == "above" else -1
        ends = [(sign * (c.low - c.null), sign * (c.high - c.null)) for c in contrasts]  # type: ignore[operator]
        if verdict == "supported":
            assert all(min(pair) > 0 for pair in ends)
        if verdict == "contradicted":
            assert any(max(pair) < 0 for pair in ends)
    assert seen == {"supported", "contradicted", "undecided", EQUAL}


# Interventions.

FREE, HELD = "tepo_nokl", "tepo_held+target=0.5"
FALLING = [0.5 * (1 - n / ROLLOUTS) + 0.02 for n in range(ROLLOUTS)]
KEPT = [0.5] * ROLLOUTS


def learning(gain: float, seed: int) -> list[float]:
    return [0.1 + (gain + 0.005 * (seed % 3)) * n / ROLLOUTS for n in range(ROLLOUTS)]


def intervention(gain: float, entropy: list[float]) -> dict[tuple[str, str], list[Figures]]:
    """Without the hold reward gains .8; with it, `gain`."""
    return {
        ("q7", FREE): [{"reward": learning(0.8, s), "entropy": FALLING} for s in range(4)],
        ("q7", HELD): [{"reward": learning(gain, 2 * s), "entropy": entropy} for s in range(4)],
    }


MECHANISM = {
    "nothing is left of the gain": (0.0, "supported", "supported"),
    "a quarter is left": (0.2, "supported", "supported"),
    "three quarters are left": (0.6, "contradicted", "supported"),
    "everything is left": (0.8, "contradicted", EQUAL),
    "more is gained with entropy held": (1.0, "contradicted", "contradicted"),
}


@pytest.mark.parametrize("case", MECHANISM)
def test_does_reward_rise_with_entropy_held(tmp_path: Path, case: str) -> None:
    gain, half, area = MECHANISM[case]
    found = tree(tmp_path / "t", intervention(gain, KEPT))
    claims = [CLAIMS["performance-by-entropy"], CLAIMS["entropy-held-learns-less"]]
    assert [entry.verdict for entry in ledger.run_entries(found, claims)] == [half, area]


def test_an_intervention_that_did_not_hold_decides_nothing(tmp_path: Path) -> None:
    (entry,) = judged(tmp_path / "t", intervention(0.0, FALLING), "performance-by-entropy")
    assert (entry.verdict, entry.estimate) == ("undecided", None)
    assert "entropy was not held" in entry.reason


# Several models, and the main one alone.


def test_the_model_with_most_seeds_is_also_judged_alone(tmp_path: Path) -> None:
    """Seven seeds agree on one model; four others with two seeds each say something else."""
    tepo = {m: "tepo+beta=1" if m == "q14" else "tepo" for m in MODELS}
    left, right = steps(0.08, 0.02, 0.5)
    runs: dict[tuple[str, str], Any] = {(m, "grpo"): [{"reward": 0.5}] * 2 for m in MODELS}
    runs |= {(m, tepo[m]): [{"reward": 0.4 + 0.05 * n}, {"reward": 0.45}] for n, m in enumerate(MODELS)}
    runs["q7", "tepo"], runs["q7", "grpo"] = [{"reward": x} for x in left], [{"reward": x} for x in right]
    over, alone = judged(tmp_path / "t", runs, "faster-reward")
    assert (over.model, over.level, over.n, over.verdict) == (None, "model and seed", 5, "undecided")
    assert (alone.model, alone.level, alone.n, alone.verdict) == ("q7", "seed", SEEDS, "supported")
    assert alone.tests == over.tests == 1  # a family of its own
    assert entries.setting(alone) == "learning rate 0.0001, q7 alone"
    assert entries.read(_written(tmp_path / "claims.csv", [over, alone])) == [over, alone]


def _written(path: Path, found: list[Entry]) -> Path:
    path.write_text(entries.to_text(found), encoding="utf-8")
    return path


# Spread over seeds that both sides share.


def pairs(draw: np.random.Generator, ratio: float, shared: float, n: int = SEEDS) -> list[tuple[float, float]]:
    a, b = draw.normal(size=(2, n))
    b = shared * a + math.sqrt(1 - shared**2) * b
    return [(ratio * x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


@pytest.mark.parametrize("shared", [0.0, 0.8])
@pytest.mark.parametrize("ratio", [1.0, 2.0])
def test_the_interval_of_a_paired_ratio_of_sds_covers(ratio: float, shared: float) -> None:
    draw, times = np.random.default_rng(1), 1500
    found = [ratio_of_paired_sds("x", [pairs(draw, ratio, shared)], runs=[]) for _ in range(times)]
    covered = sum(c.low <= ratio <= c.high for c in found) / times  # type: ignore[operator]
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / times)
    # p and interval are one test
    assert all((c.p < 0.05) == (not c.low <= 1 <= c.high) for c in found)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("groups", "words"),
    [
        ([[(0.1, 0.2), (0.3, 0.5)]], "fewer than three seeds"),
        ([[(0.1, 0.2), (0.1, 0.3), (0.1, 0.5)]], "agree exactly"),
        ([[(0.1, 0.2), (0.2, 0.4), (0.3, 0.6)]], "move together"),
    ],
)
def test_spreads_that_cannot_be_tested_say_why(groups: list[list[tuple[float, float]]], words: str) -> None:
    with pytest.raises(Gap, match=words):
        ratio_of_paired_sds("x", groups, runs=[])


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
    assert (made.level, made.n, made.null) == ("model and seed", 3, 0.05)


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
