"""Practical equivalence, bounds and interventions: planted effects of known size get the verdict that they deserve."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paper.claims import entries, ledger
from paper.claims.claims import read_claims
from paper.claims.contrast import Contrast, Gap, ratio_of_paired_sds
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
