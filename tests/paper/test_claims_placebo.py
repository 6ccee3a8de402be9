"""A supported claim about what is learnt must exceed the same contrast under each placebo reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from paper.claims.claims import Question, read_claims
from paper.claims.contrast import of_two_samples
from paper.claims.entries import NO_RUN, Entry
from paper.claims.ledger import LEARNT, learns, placebos, run_entries
from paper.claims.tests import KINDS
from tests.paper.claim_trees import both, tree
from tests.paper.test_claims_runs import rising, three

COIN = {"coin": {"title": "placebo, coin", "changes": {"reward": "coin"}}}
SHUFFLED = {"shuffled": {"title": "placebo, shuffled", "changes": {"reward": "shuffled"}}}
HIGH, LOW = (0.70, 0.71, 0.705), (0.60, 0.615, 0.603)
NONE = (0.10, 0.11, 0.102), (0.101, 0.109, 0.104)  # no difference
LESS = (0.20, 0.211, 0.204), (0.15, 0.163, 0.151)  # half of the difference under the true reward
SAME = (0.40, 0.412, 0.406), (0.30, 0.318, 0.301)  # all of it


def judged(folder: Path, name: str, id: str, under: dict[str, Any], variants: Any, pair: Any = (HIGH, LOW)) -> Entry:
    """under: placebo -> the figures of TEPO and GRPO/DAPO under it."""
    runs = both(three(**{name: pair[0]}), three(**{name: pair[1]}))
    for placebo, (left, right) in under.items():
        found = both(three(**{name: left}), three(**{name: right}))
        runs |= {(slot, f"{method}@{placebo}"): figures for (slot, method), figures in found.items()}
    own = [e for e in run_entries(tree(folder, runs, variants=variants)) if e.id == id and e.reading is None]
    assert [e.variant for e in own] == [None]  # a control is no setting under which claims are judged
    return own[0]


LEARNS = {"gain-q7": "score", "faster-reward": "reward"}


@pytest.mark.parametrize("id", LEARNS)
@pytest.mark.parametrize(
    ("under", "verdict", "said"),
    [
        ({}, "supported", NO_RUN),
        ({"coin": NONE}, "supported", "beats coin; no run of shuffled"),
        ({"coin": NONE, "shuffled": LESS}, "supported", "beats coin, shuffled"),
        ({"coin": SAME}, "undecided", "not beyond coin"),
        ({"coin": NONE, "shuffled": SAME}, "undecided", "not beyond shuffled"),
        ({"coin": NONE[::-1], "shuffled": LESS[::-1]}, "supported", "beats coin, shuffled"),
    ],
)
def test_a_gain_that_a_placebo_shows_too_is_not_supported(
    tmp_path: Path, id: str, under: dict[str, Any], verdict: str, said: str
) -> None:
    entry = judged(tmp_path / "t", LEARNS[id], id, under, COIN | SHUFFLED)
    assert (entry.verdict, entry.placebo) == (verdict, said)
    # its figures stay those of the true reward
    assert entry.estimate == pytest.approx(sum(HIGH) / 3 - sum(LOW) / 3)
    if verdict == "undecided":
        assert "not beyond the placebo" in entry.reason


def test_the_excess_is_paired_by_seed(tmp_path: Path) -> None:
    """Effects of .1, .3 and .5, and .05 less under the placebo in each seed: a large spread, and a sure excess."""
    high, low = (0.4, 0.6, 0.8), (0.3, 0.3, 0.3)
    less = tuple(x - 0.05 + wiggle for x, wiggle in zip(high, (0.0, 0.002, 0.001), strict=True))
    under = {"coin": (less, low)}
    # Four times as many seeds, so that the claim itself is supported.
    pair = tuple(side * 4 for side in (high, low))
    entry = judged_of(tmp_path / "t", pair, tuple(side * 4 for side in under["coin"]))
    assert (entry.verdict, entry.placebo) == ("supported", "beats coin")


def test_a_placebo_of_fewer_seeds_is_another_sample(tmp_path: Path) -> None:
    """Eight seeds under the true reward and four under the placebo: no seed of the claim is lost."""
    gains = (0.02, 0.14, 0.11, 0.07, 0.05, 0.09, 0.12, 0.15)
    small = (0.012, -0.004, 0.003, 0.006)
    pair = tuple(0.5 + gain for gain in gains), (0.5,) * 8
    under = tuple(0.1 + gain for gain in small), (0.1,) * 4
    entry = judged_of(tmp_path / "t", pair, under)
    assert (entry.verdict, entry.placebo) == ("supported", "beats coin")
    # paired over the four seeds that both have, the interval would hold 0
    paired = scipy.stats.ttest_1samp([a - b for a, b in zip(gains, small, strict=False)], 0.0)
    assert paired.pvalue > 0.05

    welch = scipy.stats.ttest_ind(gains, small, equal_var=False)
    left, right = (dict(enumerate(values, 1)) for values in (gains, small))
    contrast = of_two_samples("excess", left, right, unit="reward", reach=2.0, runs=[])
    low, high = welch.confidence_interval()
    assert (contrast.p, contrast.low, contrast.high) == pytest.approx((welch.pvalue, low, high), rel=1e-9)
    one = of_two_samples("excess", left, {1: 0.0}, unit="reward", reach=2.0, runs=[])
    assert (one.low, one.p) == (None, None)


def judged_of(folder: Path, pair: Any, under: Any) -> Entry:
    def figures(values: Any) -> list[dict[str, float]]:
        return [{"score": value} for value in values]

    runs = both(figures(pair[0]), figures(pair[1]))
    found = both(figures(under[0]), figures(under[1]))
    runs |= {(slot, f"{method}@coin"): of for (slot, method), of in found.items()}
    return next(e for e in run_entries(tree(folder, runs, variants=COIN)) if e.id == "gain-q7" and e.reading is None)


def test_rollouts_to_a_reward_that_no_placebo_reaches(tmp_path: Path) -> None:
    fast, slow = tuple(map(rising, (3, 4, 3))), tuple(map(rising, (14, 15, 14)))
    flat = tuple([0.1 + 0.001 * n] * 16 for n in range(3))
    entry = judged(tmp_path / "t", "reward", "half-the-time", {"coin": (flat, flat)}, COIN, (fast, slow))
    assert (entry.verdict, entry.placebo) == ("supported", "beats coin")
    same = judged(tmp_path / "u", "reward", "half-the-time", {"coin": (fast, slow)}, COIN, (fast, slow))
    assert same.verdict == "undecided"


def test_a_property_of_the_loss_is_held_against_no_placebo(tmp_path: Path) -> None:
    clipped = (0.001, 0.002, 0.001), (0.010, 0.012, 0.011)
    entry = judged(tmp_path / "t", "clip_fraction_tokens", "lower-clip-ratio", {"coin": clipped}, COIN, clipped)
    assert (entry.verdict, entry.placebo) == ("supported", "")


def test_a_placebo_belongs_to_the_settings_that_it_shares(tmp_path: Path) -> None:
    hot = {"training.learning_rate": 2e-4}
    variants = {
        **COIN,
        "hot": {"title": "hot", "changes": hot},
        "hot_coin": {"title": "hot, coin", "changes": hot | {"reward": "coin"}},
        "again": {"title": "again", "changes": {"stream": 1}},
    }
    found = tree(tmp_path / "t", both(three(score=HIGH), three(score=LOW)), variants=variants)
    assert placebos(found) == ["coin"]
    assert placebos(found, "hot") == ["hot_coin"]


def test_a_missing_run_of_a_placebo_is_no_placebo_run(tmp_path: Path) -> None:
    runs = both(three(score=HIGH), three(score=LOW))
    runs |= {("q7", "tepo@coin"): [*three(score=LOW)[:2], None], ("q7", "grpo@coin"): three(score=LOW)}
    entry = next(e for e in run_entries(tree(tmp_path / "t", runs, variants=COIN)) if e.id == "gain-q7")
    assert (entry.verdict, entry.placebo) == ("supported", NO_RUN)


def test_every_kind_of_test_is_asked_or_not(tmp_path: Path) -> None:
    asked = {kind for kind in KINDS if learns(Question(kind, {"measure": LEARNT[1]}))}
    sides = {"difference_of_rows", "highest", "ordering", "rank"}
    assert asked == sides | {"convergence", "curve_ratio", "curve_mean_difference"}
    assert {claim.id for claim in read_claims() if learns(claim.test)} > {"gain-q7", "faster-reward"}
