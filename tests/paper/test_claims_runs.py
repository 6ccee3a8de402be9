"""The ledger of a results tree: invented trees whose verdicts are known, margins, and edits that must turn them."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from core import digests
from core.files import to_csv, write_text
from core.results_tree import Tree
from evals.stats import compare
from evals.stats.compare import compare_seeds
from paper import printed
from paper.claims import entries
from paper.claims import ledger as ledgers
from paper.claims.claims import Outcome, read_claims
from paper.claims.contrast import Contrast, Gap, of_two_samples, over_runs, ratio_of_paired_sds, ratio_of_sds
from paper.claims.entries import NO_RUN, Entry, results_page
from paper.claims.from_runs import MATCHED, Excess, Runs
from paper.claims.ledger import placebos, run_entries
from paper.printed import AVERAGE
from report import frontier
from tests.merged_config import load
from tests.paper.claim_trees import LONG, MODELS, ROLLOUTS, STEP, Figures, both, tree
from tests.report.tables import cell, filled
from workflow import matrix

ROOT = Path(__file__).resolve().parents[2]
BASELINES = ("grpo", "clip_cov", "kl_cov", "entropy_adv", "gpg", "gspo")
CLAIMS = {claim.id: claim for claim in read_claims()}


def verdicts(root: Path, runs: Mapping[tuple[str, str], Any], **how: Any) -> dict[str, Entry]:
    """Entries under the scale's own settings, by claim."""
    own = (e for e in run_entries(tree(root, runs, **how)) if e.variant is None and e.reading is None)
    return {e.id: e for e in own if e.model is None}


def seeds(**columns: Sequence[Any]) -> list[Figures]:
    """Figures of seed 1, 2, ..., from each column's values."""
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def rising(to: float, wiggle: float = 0.0) -> list[float]:
    """Reward that reaches its end at rollout `to` and stays; from rollout to rollout it falls back by `wiggle`."""
    return [min(1.0, n / to) * 0.8 + (wiggle if n % 2 else 0.0) for n in range(1, ROLLOUTS + 1)]


HIGH, LOW = (0.700, 0.711, 0.705), (0.600, 0.612, 0.603)
APART: dict[str, tuple[str, tuple[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "gain-q7": ("score", HIGH, LOW),
    "higher-gradient-norm": ("grad_norm", (2.1, 2.3, 2.2), (1.0, 1.1, 1.05)),
    "seconds-per-step": ("seconds_update", (0.10, 0.11, 0.10), (0.50, 0.52, 0.51)),
    "shorter-reasoning": ("response_tokens", (20.0, 21.0, 20.0), (40.0, 42.0, 41.0)),
    "stability": ("reward", tuple(rising(8, w) for w in (0, 0.001, 0)), tuple(rising(8, w) for w in (0.1, 0.11, 0.1))),
    "half-the-time": ("reward", tuple(map(rising, (3, 4, 3))), tuple(map(rising, (14, 15, 14)))),
    "trades-more-entropy": (
        "entropy",
        tuple([1.0 - x * n for n in range(ROLLOUTS)] for x in (0.05, 0.051, 0.05)),
        tuple([1.0 - x * n for n in range(ROLLOUTS)] for x in (0.02, 0.022, 0.021)),
    ),
}  # fmt: skip
"""Claim -> a figure in which TEPO (first) is on the claimed side of GRPO/DAPO, clearly."""


@pytest.mark.parametrize("id", APART)
def test_clear_differences_have_the_verdict_of_their_side(tmp_path: Path, id: str) -> None:
    """Swapping the two methods' numbers turns the verdict."""
    name, tepo, grpo = APART[id]
    as_claimed = verdicts(tmp_path / "a", both(seeds(**{name: tepo}), seeds(**{name: grpo})))[id]
    swapped = verdicts(tmp_path / "b", both(seeds(**{name: grpo}), seeds(**{name: tepo})))[id]
    assert (as_claimed.verdict, swapped.verdict) == ("supported", "contradicted")
    for entry in (as_claimed, swapped):
        assert entry.seeds == (1, 2, 3)
        assert entry.level == "seed"
        assert entry.detectable is not None
        assert {f"runs/q7/{m}/seed{s}" for m in ("tepo", "grpo") for s in (1, 2, 3)} == set(entry.runs)


def test_at_equal_movement_the_sweep_of_the_tree_decides_on_each_method(tmp_path: Path) -> None:
    id, runs = "faster-at-equal-movement", both(seeds(reward=HIGH), seeds(reward=LOW))
    assert "several step sizes" in verdicts(tmp_path / "none", runs)[id].reason
    found = tree(tmp_path / "swept", runs)
    row = {"model": "q7", "measure": "area", "row": "tepo", "versus": "grpo", "title": "TEPO", "seeds": "1 2 3",
           "how": "jackknife"}  # fmt: skip
    row |= {"difference": 0.06, "difference_low": 0.05, "difference_high": 0.07, "p": 0.0001, "se": 0.002, "df": 2}
    others = [
        row | {"row": "gspo", "difference": 0.04, "difference_low": 0.001, "difference_high": 0.079, "p": 0.03},
        row | {"row": "dro", "difference": 0.001, "difference_low": -0.01, "difference_high": 0.012, "p": 0.8},
        row | {"row": "opo", "difference": -0.05, "difference_low": -0.06, "difference_high": -0.04, "p": 0.0002},
        row | {"row": "of nobody", "p": 0.0001},
        row | {"measure": "score", "row": "dro", "difference": 0.9},
    ]

    def judged(*rows: dict[str, Any]) -> list[Entry]:
        write_text(
            found.root / MATCHED, to_csv(frontier.MATCHED, [dict.fromkeys(frontier.MATCHED) | row for row in rows])
        )
        digests.write_list(found.layout.sums("sweep/frontier"), [found.root / MATCHED])
        return [e for e in run_entries(Tree(found.root)) if e.id == id]

    entries = {e.method: e for e in judged(row, *others)}
    assert {name: e.verdict for name, e in entries.items()} == {
        None: "supported", "gspo": "undecided", "dro": "equal within the margin", "opo": "contradicted",
    }  # fmt: skip
    assert [e.p_holm for e in entries.values()] == pytest.approx([0.0004, 0.06, 0.0006, 0.8])
    assert (entries[None].estimate, entries[None].seeds, entries["opo"].quote) == (0.06, (1, 2, 3), "")
    assert entries["opo"].statement.startswith("opo in the place of TEPO: ")
    page = results_page([*ledgers.printed_entries(), *entries.values()], "Title", "")
    assert len(re.findall(r"^\| (gspo|dro|opo) \| ", page, re.MULTILINE)) == 3
    (entry,) = judged(row | {"difference": None, "how": "tepo: no arm"})
    assert (entry.verdict, entry.estimate) == ("not tested", None)
    assert "no arm" in entry.reason


def test_where_every_rollout_moves_equally_far_no_sweep_is_needed(tmp_path: Path) -> None:
    runs = both(seeds(reward=HIGH), seeds(reward=LOW)) | {("q7", "gspo"): seeds(reward=(0.602, 0.611, 0.605))}
    found = tree(tmp_path / "matched", runs)
    found.matrix["training"]["kl_target"] = 0.02
    entries = {e.method: e for e in run_entries(found) if e.id == "faster-at-equal-movement"}
    assert {name: e.verdict for name, e in entries.items()} == {None: "supported", "GSPO": "equal within the margin"}
    assert entries[None].estimate == pytest.approx(0.1, abs=0.01)
    assert entries["GSPO"].tests == 2


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    runs = both([*seeds(score=HIGH)[:2], None], seeds(score=LOW))
    entries = verdicts(tmp_path / "t", runs)
    for id in ("gain-q7", "higher-gradient-norm", "theorem-3.1"):
        assert (entries[id].verdict, entries[id].estimate) == ("not tested", None)
        assert "missing runs/q7/tepo/seed3" in entries[id].reason


def test_one_seed_gives_no_verdict(tmp_path: Path) -> None:
    entries = verdicts(tmp_path / "t", both([{"score": 0.9}], [{"score": 0.1}]))
    tested = [e for e in entries.values() if CLAIMS[e.id].test.kind != "algebra"]
    assert {e.verdict for e in tested} <= {"undecided", "not tested"}
    assert "one seed" in entries["gain-q7"].reason
    assert entries["gain-q7"].estimate == pytest.approx(0.8)


def test_a_table_difference_is_the_one_of_the_tables_by_its_own_seeds(tmp_path: Path) -> None:
    found = tree(tmp_path / "t", both(seeds(score=HIGH), seeds(score=LOW)))
    entry = next(e for e in run_entries(found) if e.id == "gain-q7")
    assert entry.estimate == pytest.approx(cell(filled(found, "1"), "T1.8", "avg_pooled").versus)
    # A table's interval shares the spread of other rows; a claim's does not.
    own = compare_seeds(*(dict(enumerate(values, 1)) for values in (HIGH, LOW)))
    assert (entry.low, entry.high, entry.p) == pytest.approx((own.low, own.high, own.p))


def test_later_steps_are_those_of_the_long_run(tmp_path: Path) -> None:
    """GRPO/DAPO overtakes TEPO's 72 steps by 132: the convergence claim fails, the gain stays."""
    grpo = seeds(score=LOW, long=(0.80, 0.812, 0.803))
    entries = verdicts(tmp_path / "t", both(seeds(score=HIGH), grpo))
    assert (entries["gain-q7"].verdict, entries["peak-at-72"].verdict) == ("supported", "contradicted")
    assert STEP < LONG


def test_tiny_models_are_no_test_of_the_papers_and_show_what_was_measured(tmp_path: Path) -> None:
    found = verdicts(tmp_path / "t", both(seeds(score=HIGH), seeds(score=LOW)), stand_ins=True)
    for entry in found.values():
        claim = CLAIMS[entry.id]
        assert claim.untestable is None or entry.verdict == "not testable at this scale", entry.id
        assert claim.untestable in (None, entry.reason), entry.id
    entry = found["gain-q7"]  # counts in no family
    assert entry.bases == "q7 for Qwen2.5-7B (injected noise)"
    assert entry.estimate == pytest.approx(0.1, abs=0.01)
    assert entry.low is not None
    assert (entry.p_holm, entry.tests) == (None, None)


@pytest.mark.parametrize(
    ("scale", "expected", "family"),
    [
        ("paper", False, "pretrained"), ("embedded", True, "injected noise"), ("clean", True, "no injected noise"),
        ("smollm", True, "pretrained"),
    ],
)  # fmt: skip
def test_which_scales_stand_in_for_the_papers_models(tmp_path: Path, scale: str, expected: bool, family: str) -> None:
    planned = matrix.matrix(load([ROOT / "config" / f"{name}.yaml" for name in dict.fromkeys(("embedded", scale))]))
    (tmp_path / "matrix.json").write_text(json.dumps(planned))
    found = Tree(tmp_path)
    assert {model["bases"] for model in found.models} == {family}
    assert ledgers.stands_in(found) is expected
    entries = {e.id: e for e in run_entries(found)}
    assert list(dict.fromkeys(entries)) == list(CLAIMS)
    told = "not testable at this scale" if expected else "not tested"
    assert entries["gain-q7"].verdict == told


@pytest.mark.parametrize(
    ("shares", "always"), [((0.999, 0.998, 0.999), "supported"), ((0.80, 0.81, 0.80), "contradicted")]
)
def test_theorem_against_always_and_against_a_coin(tmp_path: Path, shares: tuple[float, ...], always: str) -> None:
    same = seeds(theorem_sign_agreement=shares)
    entries = verdicts(tmp_path / "t", both(same, same))
    assert (entries["theorem-3.1"].verdict, entries["theorem-3.1-tendency"].verdict) == (always, "supported")


def test_readings_of_collapse_are_entries_of_their_own(tmp_path: Path) -> None:
    """As printed one of three runs collapses, in the other reading all do."""
    printed, key = "tepo_kl_all+beta=1", "tepo_kl_all+beta=1+kl-estimator=k1"
    collapsed = [{"reward": [0.5] * 4 + [0.003 * s] * (ROLLOUTS - 4), "collapsed": 7} for s in (0, 1, 2)]
    alive = [{"reward": rising(8)}, {"reward": rising(9)}]
    runs = {("q7", printed): collapsed[:1] + alive, ("q7", key): collapsed}
    found = judged_alone(tmp_path / "t", runs, "collapse-of-beta-1")
    expected = [(None, "undecided"), ("the KL estimate k1 as a loss", "supported")]
    assert [(e.reading, e.verdict) for e in found] == expected
    assert all(key in run for run in found[1].runs)


@pytest.mark.parametrize(("tepo", "expected"), [(0.62, "supported"), (0.50, "contradicted")])
def test_third_place_allows_two_above(tmp_path: Path, tepo: float, expected: str) -> None:
    scores = dict(zip(BASELINES, (0.70, 0.65, 0.60, 0.40, 0.40, 0.10), strict=True)) | {"tepo": tepo}
    runs = {("q7", m): seeds(score=(s, s + 0.001 * n, s + 0.003)) for n, (m, s) in enumerate(scores.items())}
    assert verdicts(tmp_path / "t", runs)["top3-q7-aime24"].verdict == expected


def test_hot_and_calm_are_two_entries(tmp_path: Path) -> None:
    runs = both(seeds(grad_norm=(2.1, 2.3, 2.2)), seeds(grad_norm=(1.0, 1.1, 1.05)))
    runs |= {("q7", f"{method}@hot"): runs["q7", other] for method, other in (("tepo", "grpo"), ("grpo", "tepo"))}
    variants = {"hot": {"title": "hot", "changes": {"training.learning_rate": 2e-4}}}
    found = [e for e in run_entries(tree(tmp_path / "t", runs, variants=variants)) if e.id == "higher-gradient-norm"]
    expected = [(None, 1e-4, "supported"), ("hot", 2e-4, "contradicted")]
    assert [(e.variant, e.learning_rate, e.verdict) for e in found] == expected
    assert all("@hot" in run for run in found[1].runs)
    assert not any("@hot" in run for run in found[0].runs)


COIN = {"coin": {"title": "placebo, coin", "changes": {"reward": "coin"}}}
SHUFFLED = {"shuffled": {"title": "placebo, shuffled", "changes": {"reward": "shuffled"}}}
ABOVE, BELOW = (0.70, 0.71, 0.705), (0.60, 0.615, 0.603)
NONE = (0.10, 0.11, 0.102), (0.101, 0.109, 0.104)  # no difference
LESS = (0.20, 0.211, 0.204), (0.15, 0.163, 0.151)  # half of the difference under the true reward
SAME = (0.40, 0.412, 0.406), (0.30, 0.318, 0.301)  # all of it


def judged(folder: Path, name: str, id: str, under: dict[str, Any], variants: Any, pair: Any = (ABOVE, BELOW)) -> Entry:
    """under: placebo -> the figures of TEPO and GRPO/DAPO under it."""
    runs = both(seeds(**{name: pair[0]}), seeds(**{name: pair[1]}))
    for placebo, (left, right) in under.items():
        found = both(seeds(**{name: left}), seeds(**{name: right}))
        runs |= {(slot, f"{method}@{placebo}"): figures for (slot, method), figures in found.items()}
    own = [e for e in run_entries(tree(folder, runs, variants=variants)) if e.id == id and e.reading is None]
    assert [e.variant for e in own] == [None]  # a control is no setting under which claims are judged
    return own[0]


LEARNS = {"gain-q7": "score", "faster-reward": "reward"}


@pytest.mark.parametrize("id", LEARNS)
@pytest.mark.parametrize(
    ("under", "verdict", "said"),
    [
        ({"coin": NONE}, "supported", "beats coin; no run of shuffled"),
        ({"coin": NONE, "shuffled": LESS}, "supported", "beats coin, shuffled"),
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
    assert entry.estimate == pytest.approx(sum(ABOVE) / 3 - sum(BELOW) / 3)
    if verdict == "undecided":
        assert "not beyond the placebo" in entry.reason


def test_the_excess_is_paired_by_seed(tmp_path: Path) -> None:
    """Effects of .1, .3 and .5, and .05 less under the placebo in each seed: a large spread, and a sure excess."""
    high, low = (0.4, 0.6, 0.8), (0.3, 0.3, 0.3)
    less = tuple(x - 0.05 + wiggle for x, wiggle in zip(high, (0.0, 0.002, 0.001), strict=True))
    # Four times as many seeds, so that the claim itself is supported.
    entry = judged(tmp_path / "t", "score", "gain-q7", {"coin": (less * 4, low * 4)}, COIN, (high * 4, low * 4))
    assert (entry.verdict, entry.placebo) == ("supported", "beats coin")


def test_a_placebo_of_fewer_seeds_is_another_sample(tmp_path: Path) -> None:
    """Eight seeds under the true reward and four under the placebo: no seed of the claim is lost."""
    gains = (0.02, 0.14, 0.11, 0.07, 0.05, 0.09, 0.12, 0.15)
    small = (0.012, -0.004, 0.003, 0.006)
    pair = tuple(0.5 + gain for gain in gains), (0.5,) * 8
    under = tuple(0.1 + gain for gain in small), (0.1,) * 4
    entry = judged(tmp_path / "t", "score", "gain-q7", {"coin": under}, COIN, pair)
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
    found = tree(tmp_path / "t", both(seeds(score=ABOVE), seeds(score=BELOW)), variants=variants)
    assert placebos(found) == ["coin"]
    assert placebos(found, "hot") == ["hot_coin"]


def test_a_missing_run_of_a_placebo_is_no_placebo_run(tmp_path: Path) -> None:
    runs = both(seeds(score=ABOVE), seeds(score=BELOW))
    runs |= {("q7", "tepo@coin"): [*seeds(score=BELOW)[:2], None], ("q7", "grpo@coin"): seeds(score=BELOW)}
    entry = next(e for e in run_entries(tree(tmp_path / "t", runs, variants=COIN)) if e.id == "gain-q7")
    assert (entry.verdict, entry.placebo) == ("supported", NO_RUN)


DRAW = np.random.default_rng(0)
SEEDS = 8
EQUAL = "equal within the margin"


def judged_alone(root: Path, runs: Mapping[tuple[str, str], Any], id: str) -> list[Entry]:
    return run_entries(tree(root, runs), [CLAIMS[id]])


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
    "a small effect, little noise": (0.3, 0.1, EQUAL, "above the null, but by less than the margin"),
    "no effect, much noise": (0.0, 8.0, "undecided", "at most"),
    "a small effect the other way": (-0.3, 0.1, EQUAL, "below the null, but by less than the margin"),
    "an effect that reaches out of the margin": (0.9, 0.4, "supported", ""),
}


@pytest.mark.parametrize(
    ("id", "shape"),
    # every shape once; of the other measures the three kinds of verdict
    [("faster-reward", shape) for shape in SHAPES]
    + [(id, shape) for id in PLANTED if id != "faster-reward" for shape in list(SHAPES)[1:4]],
)
def test_planted_effects(tmp_path: Path, id: str, shape: str) -> None:
    column, level, sign, margin = PLANTED[id]
    change, spread, verdict, words = SHAPES[shape]
    left, right = steps(sign * change * margin, spread * margin, level)
    if id == "theorem-3.1-tendency":
        right = left  # a level and not a difference: both methods' runs are averaged
    runs = both([{column: x} for x in left], [{column: x} for x in right])
    (entry,) = judged_alone(tmp_path / "t", runs, id)
    assert entry.verdict == verdict
    assert ("would have found" in entry.reason) == (verdict == "undecided")
    if sign < 0:
        words = words.replace("above", "BELOW").replace("below", "above").replace("BELOW", "below")
    assert words in entry.reason
    assert (entry.margin_low, entry.margin_high) == pytest.approx((entry.null - margin, entry.null + margin))  # type: ignore[operator]


@pytest.mark.parametrize(("ratio", "verdict"), [(1.05, EQUAL), (0.7, "contradicted")])
def test_ratios_have_margins_that_are_ratios(tmp_path: Path, ratio: float, verdict: str) -> None:
    factors = np.exp(steps(math.log(ratio), 0.03, 0.0)[0])
    runs = both([{"grad_norm": 3.0 * f} for f in factors], [{"grad_norm": 3.0}] * SEEDS)
    (entry,) = judged_alone(tmp_path / "t", runs, "higher-gradient-norm")
    assert (entry.verdict, entry.estimate) == (verdict, pytest.approx(ratio))
    assert (entry.margin_low, entry.margin_high) == pytest.approx((1 / 1.1, 1.1))
    assert "margin 0.909 to 1.1 ratio" in entries.margin(entry)


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


@pytest.mark.parametrize(
    ("gain", "half", "area"),  # what is left of the gain of .8
    [(0.2, "supported", "supported"), (0.6, "contradicted", "supported"), (1.0, "contradicted", "contradicted")],
)
def test_does_reward_rise_with_entropy_held(tmp_path: Path, gain: float, half: str, area: str) -> None:
    found = tree(tmp_path / "t", intervention(gain, KEPT))
    claims = [CLAIMS["performance-by-entropy"], CLAIMS["entropy-held-learns-less"]]
    assert [entry.verdict for entry in run_entries(found, claims)] == [half, area]


def test_an_intervention_that_did_not_hold_decides_nothing(tmp_path: Path) -> None:
    (entry,) = judged_alone(tmp_path / "t", intervention(0.0, FALLING), "performance-by-entropy")
    assert (entry.verdict, entry.estimate) == ("not tested", None)
    assert "entropy was not held" in entry.reason


# Several models, and the main one alone.


def test_the_model_with_most_seeds_is_also_judged_alone(tmp_path: Path) -> None:
    """Seven seeds agree on one model; four others with two seeds each say something else."""
    tepo = {m: "tepo+beta=1" if m == "q14" else "tepo" for m in MODELS}
    left, right = steps(0.08, 0.02, 0.5)
    runs: dict[tuple[str, str], Any] = {(m, "grpo"): [{"reward": 0.5}] * 2 for m in MODELS}
    runs |= {(m, tepo[m]): [{"reward": 0.4 + 0.05 * n}, {"reward": 0.45}] for n, m in enumerate(MODELS)}
    runs["q7", "tepo"], runs["q7", "grpo"] = [{"reward": x} for x in left], [{"reward": x} for x in right]
    over, alone = judged_alone(tmp_path / "t", runs, "faster-reward")
    assert (over.model, over.level, over.n, over.verdict) == (None, "model and seed", 5, "undecided")
    assert (alone.model, alone.level, alone.n, alone.verdict) == ("q7", "seed", SEEDS, "supported")
    assert alone.tests == over.tests == 1  # a family of its own
    assert entries.setting(alone) == "learning rate 0.0001, q7 alone"
    (tmp_path / "claims.csv").write_text(entries.to_text([over, alone]), encoding="utf-8")
    assert entries.read(tmp_path / "claims.csv") == [over, alone]


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


def contrast(value: float | None, p: float | None, *, null: float = 0.0, **more: Any) -> Contrast:
    """An interval that excludes the null exactly when p < .05."""
    if value is None or p is None:
        return Contrast("x", value, null, None, None, p, "points", "seed", "one seed", 1)
    half = abs(value - null) * (0.9 if p < 0.05 else 1.1) or 0.1
    return Contrast("x", value, null, value - half, value + half, p, "points", "seed", "invented", 2, **more)


UP, DOWN, UNSURE_UP, UNSURE_DOWN = contrast(1, 0.001), contrast(-1, 0.001), contrast(1, 0.4), contrast(-1, 0.4)
INSIDE, AT_LEAST = contrast(1, 0.001, margin=(-3, 3)), contrast(-1, 0.001, at_least=True)

ONE_CLAIM = {
    "clearly above": (Outcome((UP,)), "supported"),
    "clearly below": (Outcome((DOWN,)), "contradicted"),
    "clearly below, as claimed": (Outcome((DOWN,), "below"), "supported"),
    "inside noise": (Outcome((UNSURE_UP,)), "undecided"),
    "exactly at the null": (Outcome((contrast(0.0, 1.0),)), "undecided"),
    "above 0 but below its own null": (Outcome((contrast(1.0, 0.001, null=2.0),)), "contradicted"),
    "no interval": (Outcome((contrast(5.0, None),)), "undecided"),
    "no figure": (Outcome((contrast(None, None),)), "not tested"),
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
    "a lower bound below proves nothing": (Outcome((AT_LEAST,), "below"), "undecided"),
    "all of several inside their margins": (Outcome((INSIDE, INSIDE)), EQUAL),
    "one of several inside its margin": (Outcome((INSIDE, UP)), "supported"),
    "a lower bound inside its margin": (Outcome((replace(INSIDE, at_least=True),)), "supported"),
}


def test_verdict_of_one_claim() -> None:
    found = {case: ledgers.direction(outcome) for case, (outcome, _) in ONE_CLAIM.items()}
    verdicts = {case: ledgers.verdicts_of_family([seen])[0][0] for case, seen in found.items()}
    assert verdicts == {case: expected for case, (_, expected) in ONE_CLAIM.items()}
    assert "that of a lower bound" in ledgers._why_undecided(ledgers.direction(Outcome((AT_LEAST,), "below")), 0.001, 1)


def test_several_claimed_places_cost_as_many_chances() -> None:
    """Four of six are needed, so two may fail: the fourth p counts three times."""
    sure = [contrast(1, p) for p in (1e-4, 1e-4, 1e-4, 0.01)]
    seen = ledgers.direction(Outcome((*sure, UNSURE_UP, UNSURE_DOWN), allow=2))
    assert (seen.claimed, seen.contrast.p, seen.p) == (True, 0.01, pytest.approx(0.03))


def test_an_excess_over_several_models_averages_the_clean_models_of_each(tmp_path: Path) -> None:
    """Seeds 1 and 3 of each model continue one clean model; the placebo has all its seeds on another."""
    runs: dict[tuple[str, str], Any] = {}
    for model in MODELS:
        tepo = "tepo+beta=1" if model == "q14" else "tepo"
        for method, values in ((tepo, (0.8, 0.5, 0.6)), ("grpo", (0.3, 0.3, 0.3))):
            runs[model, method] = [{"reward": value} for value in values]
            runs[model, f"{method}@coin"] = [{"reward": 0.3 + 0.01 * n} for n in range(3)]
    found = tree(tmp_path / "t", runs, variants=COIN)
    for entry in found.matrix["models"]:
        entry["starts"] = 2
    source, rows = Excess(Runs(found, printed.read()), "coin"), CLAIMS["higher-gradient-norm"].test.arguments
    made = source.difference(rows["left"], rows["right"], "area", AVERAGE, 0.0)
    assert made.n == 5
    assert made.value == pytest.approx((0.7 + 0.5) / 2 - 0.3)


def test_holm_over_a_family() -> None:
    """p .03 alone is a verdict; beside p .04 or a claim exactly at its null it is not. Untested claims do not count."""
    one, other, at_null, untested = (contrast(1, 0.03), contrast(1, 0.04), contrast(0.0, 1.0), contrast(1, None))
    alone, *others = (ledgers.direction(Outcome((c,))) for c in (one, other, at_null, untested))
    families = [[verdict for verdict, _ in ledgers.verdicts_of_family([alone, each])] for each in others]
    assert families == [["undecided"] * 2, ["undecided"] * 2, ["supported", "undecided"]]
    assert ledgers.verdicts_of_family([alone, others[0], others[2]]) == [("undecided", 0.06)] * 2 + [
        ("undecided", None)
    ]


@pytest.mark.parametrize("verdict", ["supported", "contradicted"])
@pytest.mark.parametrize("ends", [(None, None), (-0.1, 0.2), (0.0, 0.2)])
def test_an_entry_without_an_interval_outside_the_null_has_no_verdict(
    verdict: str, ends: tuple[float | None, float | None]
) -> None:
    words = dict.fromkeys(("id", "family", "where", "quote", "statement", "scale"), "x")
    with pytest.raises(ValueError, match="interval"):
        Entry("ours", verdict=verdict, estimate=0.1, null=0.0, low=ends[0], high=ends[1], **words)  # type: ignore[arg-type]


def test_several_models_are_tested_over_their_means() -> None:
    """Seeds of a model that agree closely do not make three models more than three."""
    values = {"a": {1: 0.1, 2: 0.1}, "b": {1: 0.2, 2: 0.2}, "c": {1: 0.3, 2: 0.3, 3: 0.3}}
    made = over_runs("x", values, null=0.05, unit="points", bounds=(-1, 1), runs=[])
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (made.value, made.low, made.high) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    assert (made.level, made.n, made.null) == ("model and seed", 3, 0.05)


def test_undecided_by_holm_says_so_and_detectable_counts_the_family() -> None:
    """Two claims of one family, each with p between 2.5 and 5 %: the intervals exclude the null, and Holm says no."""
    a, b = {1: 0.50, 2: 0.53, 3: 0.515, 4: 0.52}, {1: 0.48, 2: 0.498, 3: 0.507, 4: 0.49}
    comparison = compare.compare_seeds(a, b)
    assert 0.025 < comparison.p < 0.05  # type: ignore[operator]
    contrast = over_runs("x", {"m": {s: a[s] - b[s] for s in a}}, null=0.0, unit="points", bounds=(-1, 1), runs=[])
    assert contrast.low > 0  # type: ignore[operator]
    assert contrast.detectable(2) == pytest.approx(compare.detectable_in_family(comparison, 2))
    assert contrast.detectable(2) > contrast.detectable(1)  # type: ignore[operator]
    seen = ledgers.direction(Outcome((contrast,)))
    ((verdict, p), _) = ledgers.verdicts_of_family([seen, seen])
    assert (verdict, p) == ("undecided", pytest.approx(2 * comparison.p))
    reason = ledgers._why_undecided(seen, p, 2)
    assert "the interval excludes the null, but not after Holm's correction over the 2 claims of its family" in reason


def test_ratio_of_sds_by_f() -> None:
    """Two groups of two against one of five: variances .02 and .005, 2 and 4 degrees of freedom.

    P(F(2, 4) > f) = 1/(1 + f/2)^2.
    """
    spread = 0.05 * math.sqrt(2)
    made = ratio_of_sds("x", [[0.0, 0.2], [0.5, 0.7]], [[0.0, spread, -spread, spread, -spread]], runs=[])
    ends = [2 / math.sqrt(2 * (tail**-0.5 - 1)) for tail in (0.025, 0.975)]
    assert (made.value, made.low, made.high) == pytest.approx((2.0, *ends))
    assert made.p == pytest.approx(2 / (1 + 4 / 2) ** 2)
    with pytest.raises(Gap, match="one seed"):
        ratio_of_sds("x", [[0.5]], [[0.1, 0.2]], runs=[])
