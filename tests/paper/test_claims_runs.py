"""The ledger of a results tree: invented trees whose verdicts are known, and edits that must turn them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import scipy.stats

from core import digests
from core.files import to_csv, write_text
from core.layout import Checkpoint, Run
from core.results_tree import Tree
from evals.stats.compare import compare_seeds
from paper.claims import ledger as ledgers
from paper.claims.claims import Question, read_claims
from paper.claims.contrast import of_two_samples
from paper.claims.entries import NO_RUN, Entry, results_page
from paper.claims.ledger import LEARNT, learns, placebos, run_entries
from paper.claims.tests import KINDS, MATCHED
from report import frontier
from tests.merged_config import load
from tests.paper.claim_trees import LONG, MODELS, ROLLOUTS, STEP, Figures, both, tree
from tests.report.tables import cell, filled

ROOT = Path(__file__).resolve().parents[2]
BASELINES = ("grpo", "clip_cov", "kl_cov", "entropy_adv", "gpg", "gspo")
CLAIMS = {claim.id: claim for claim in read_claims()}


def ledger(found: Tree) -> list[Entry]:
    return ledgers.run_entries(found, CLAIMS.values())


def verdicts(root: Path, runs: Mapping[tuple[str, str], Any], **how: Any) -> dict[str, Entry]:
    """Entries under the scale's own settings, by claim."""
    own = (e for e in ledger(tree(root, runs, **how)) if e.variant is None and e.reading is None)
    return {e.id: e for e in own if e.model is None}


def three(**columns: tuple[float, float, float]) -> list[Figures]:
    """Figures of three seeds."""
    return [{name: values[seed] for name, values in columns.items()} for seed in range(3)]


def rising(to: float, wiggle: float = 0.0) -> list[float]:
    """Reward that reaches its end at rollout `to` and stays; from rollout to rollout it falls back by `wiggle`."""
    return [min(1.0, n / to) * 0.8 + (wiggle if n % 2 else 0.0) for n in range(1, ROLLOUTS + 1)]


HIGH, LOW = (0.700, 0.711, 0.705), (0.600, 0.612, 0.603)
APART: dict[str, tuple[str, tuple[Any, Any, Any], tuple[Any, Any, Any]]] = {
    "gain-q7": ("score", HIGH, LOW),
    "peak-at-72": ("score", HIGH, LOW),
    "higher-gradient-norm": ("grad_norm", (2.1, 2.3, 2.2), (1.0, 1.1, 1.05)),
    "lower-clip-ratio": ("clip_fraction_tokens", (0.001, 0.002, 0.001), (0.010, 0.012, 0.011)),
    "faster-reward": ("reward", (0.70, 0.71, 0.705), (0.60, 0.615, 0.603)),
    "keeps-exploring": ("entropy", (0.30, 0.31, 0.30), (0.10, 0.12, 0.11)),
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
    as_claimed = verdicts(tmp_path / "a", both(three(**{name: tepo}), three(**{name: grpo})))[id]
    swapped = verdicts(tmp_path / "b", both(three(**{name: grpo}), three(**{name: tepo})))[id]
    assert (as_claimed.verdict, swapped.verdict) == ("supported", "contradicted")
    for entry in (as_claimed, swapped):
        assert entry.seeds == (1, 2, 3)
        assert entry.level == "seed"
        assert entry.detectable is not None
        assert {f"runs/q7/{m}/seed{s}" for m in ("tepo", "grpo") for s in (1, 2, 3)} == set(entry.runs)


NOISY = (0.2, 0.9, 0.5)


@pytest.mark.parametrize("id", ["gain-q7", "higher-gradient-norm", "faster-reward"])
def test_noise_is_undecided_and_says_what_would_have_been_seen(tmp_path: Path, id: str) -> None:
    name = APART[id][0]
    entry = verdicts(tmp_path / "t", both(three(**{name: NOISY}), three(**{name: NOISY[::-1]})))[id]
    assert entry.verdict == "undecided"
    assert "would have found" in entry.reason
    assert entry.low is not None
    assert entry.null is not None
    assert entry.high is not None
    assert entry.low <= entry.null <= entry.high


def test_at_equal_movement_the_sweep_of_the_tree_decides_on_each_method(tmp_path: Path) -> None:
    id, runs = "faster-at-equal-movement", both(three(reward=HIGH), three(reward=LOW))
    assert "several step sizes" in verdicts(tmp_path / "none", runs)[id].reason
    found = tree(tmp_path / "swept", runs)
    row = {"model": "q7", "row": "tepo", "versus": "grpo", "title": "TEPO", "seeds": "1 2 3", "how": "jackknife"}
    row |= {"difference": 0.06, "difference_low": 0.05, "difference_high": 0.07, "p": 0.0001, "se": 0.002, "df": 2}
    others = [
        row | {"row": "gspo", "difference": 0.04, "difference_low": 0.001, "difference_high": 0.079, "p": 0.03},
        row | {"row": "dro", "difference": 0.001, "difference_low": -0.01, "difference_high": 0.012, "p": 0.8},
        row | {"row": "opo", "difference": -0.05, "difference_low": -0.06, "difference_high": -0.04, "p": 0.0002},
        row | {"row": "of nobody", "p": 0.0001},
    ]

    def judged(*rows: dict[str, Any]) -> list[Entry]:
        write_text(
            found.root / MATCHED, to_csv(frontier.MATCHED, [dict.fromkeys(frontier.MATCHED) | row for row in rows])
        )
        digests.write_list(found.layout.sums("sweep/frontier"), [found.root / MATCHED])
        return [e for e in ledger(Tree(found.root)) if e.id == id]

    entries = {e.method: e for e in judged(row, *others)}
    assert {name: e.verdict for name, e in entries.items()} == {
        None: "supported", "gspo": "undecided", "dro": "equal within the margin", "opo": "contradicted",
    }  # fmt: skip
    assert [e.p_holm for e in entries.values()] == pytest.approx([0.0004, 0.06, 0.0006, 0.8])
    assert (entries[None].estimate, entries[None].seeds, entries["opo"].quote) == (0.06, (1, 2, 3), "")
    assert entries["opo"].statement.startswith("opo in the place of TEPO: ")
    page = results_page([*ledgers.printed_entries(CLAIMS.values()), *entries.values()], "Title", "")
    assert len(re.findall(r"^\| (gspo|dro|opo) \| ", page, re.MULTILINE)) == 3
    (entry,) = judged(row | {"difference": None, "how": "tepo: no arm"})
    assert (entry.verdict, entry.estimate) == ("undecided", None)
    assert "no arm" in entry.reason


def test_where_every_rollout_moves_equally_far_no_sweep_is_needed(tmp_path: Path) -> None:
    runs = both(three(reward=HIGH), three(reward=LOW)) | {("q7", "gspo"): three(reward=(0.602, 0.611, 0.605))}
    found = tree(tmp_path / "matched", runs)
    found.matrix["training"]["kl_target"] = 0.02
    entries = {e.method: e for e in ledger(found) if e.id == "faster-at-equal-movement"}
    assert {name: e.verdict for name, e in entries.items()} == {None: "supported", "GSPO": "equal within the margin"}
    assert entries[None].estimate == pytest.approx(0.1, abs=0.01)
    assert entries["GSPO"].tests == 2


def test_a_missing_run_is_named(tmp_path: Path) -> None:
    runs = both([*three(score=HIGH)[:2], None], three(score=LOW))
    entries = verdicts(tmp_path / "t", runs)
    for id in ("gain-q7", "higher-gradient-norm", "theorem-3.1"):
        assert (entries[id].verdict, entries[id].estimate) == ("undecided", None)
        assert "missing runs/q7/tepo/seed3" in entries[id].reason


def test_one_seed_gives_no_verdict(tmp_path: Path) -> None:
    entries = verdicts(tmp_path / "t", both([{"score": 0.9}], [{"score": 0.1}]))
    tested = [e for e in entries.values() if CLAIMS[e.id].test.kind != "algebra"]
    assert {e.verdict for e in tested} == {"undecided"}
    assert "one seed" in entries["gain-q7"].reason
    assert entries["gain-q7"].estimate == pytest.approx(0.8)


def test_a_table_difference_is_the_one_of_the_tables_by_its_own_seeds(tmp_path: Path) -> None:
    found = tree(tmp_path / "t", both(three(score=HIGH), three(score=LOW)))
    entry = next(e for e in ledger(found) if e.id == "gain-q7")
    assert entry.estimate == pytest.approx(cell(filled(found, "1"), "T1.8", "avg_pooled").versus)
    # A table's interval shares the spread of other rows; a claim's does not.
    values = [
        {s: found.scores[Checkpoint(Run("q7", m, s), STEP), "avg_pooled"].value or 0.0 for s in (1, 2, 3)}
        for m in ("tepo", "grpo")
    ]
    own = compare_seeds(*values)
    assert (entry.low, entry.high, entry.p) == pytest.approx((own.low, own.high, own.p))


def test_later_steps_are_those_of_the_long_run(tmp_path: Path) -> None:
    """GRPO/DAPO overtakes TEPO's 72 steps by 132: the convergence claim fails, the gain stays."""
    grpo = three(score=LOW, long=(0.80, 0.812, 0.803))
    entries = verdicts(tmp_path / "t", both(three(score=HIGH), grpo))
    assert (entries["gain-q7"].verdict, entries["peak-at-72"].verdict) == ("supported", "contradicted")
    assert STEP < LONG


def test_tiny_models_are_no_test_of_the_papers_and_show_what_was_measured(tmp_path: Path) -> None:
    found = verdicts(tmp_path / "t", both(three(score=HIGH), three(score=LOW)), stand_ins=True)
    for entry in found.values():
        claim = CLAIMS[entry.id]
        assert claim.untestable is None or entry.verdict == "not testable at this scale", entry.id
        assert claim.untestable in (None, entry.reason), entry.id
    entry = found["gain-q7"]  # counts in no family
    assert entry.bases == "q7 for Qwen2.5-7B (injected noise)"
    assert entry.estimate == pytest.approx(0.1, abs=0.01)
    assert entry.low is not None
    assert (entry.p_holm, entry.tests) == (None, None)


SCALES = {"paper": (False, "pretrained"), "embedded": (True, "injected noise")}
SCALES |= {"clean": (True, "no injected noise"), "smollm": (True, "pretrained")}


@pytest.mark.parametrize("scale", SCALES)
def test_which_scales_stand_in_for_the_papers_models(tmp_path: Path, scale: str) -> None:
    expected, family = SCALES[scale]
    from workflow import matrix

    planned = matrix.matrix(load([ROOT / "config" / f"{name}.yaml" for name in dict.fromkeys(("embedded", scale))]))
    (tmp_path / "matrix.json").write_text(json.dumps(planned))
    found = Tree(tmp_path)
    assert {model["bases"] for model in found.models} == {family}
    assert ledgers.stands_in(found) is expected
    entries = {e.id: e for e in ledger(found)}
    assert list(dict.fromkeys(entries)) == list(CLAIMS)
    told = "not testable at this scale" if expected else "undecided"
    assert entries["gain-q7"].verdict == told


def test_five_models_are_one_sample_of_models(tmp_path: Path) -> None:
    tepo = {m: "tepo+beta=1" if m == "q14" else "tepo" for m in MODELS}
    norms = dict(zip(MODELS, (2.0, 2.1, 2.4, 1.9, 2.2), strict=True))
    runs = {(m, tepo[m]): [{"grad_norm": norms[m]}, {"grad_norm": norms[m] + 0.1}] for m in MODELS}
    runs |= {(m, "grpo"): [{"grad_norm": 1.0}, {"grad_norm": 1.2}] for m in MODELS}
    entry = verdicts(tmp_path / "t", runs)["higher-gradient-norm"]
    assert (entry.verdict, entry.level, entry.n, len(entry.runs)) == ("supported", "model and seed", 5, 20)
    runs["m7", "grpo"] = [{"grad_norm": 5.0}, {"grad_norm": 5.2}]  # one model the other way is enough doubt
    assert verdicts(tmp_path / "u", runs)["higher-gradient-norm"].verdict == "undecided"


AGREEMENT = {
    "all": ((0.999, 0.998, 0.999), "supported", "supported"),
    "most": ((0.80, 0.81, 0.80), "contradicted", "supported"),
    "half": ((0.45, 0.55, 0.50), "contradicted", "undecided"),
    "few": ((0.20, 0.21, 0.20), "contradicted", "contradicted"),
}


@pytest.mark.parametrize("case", AGREEMENT)
def test_theorem_against_always_and_against_a_coin(tmp_path: Path, case: str) -> None:
    shares, always, coin = AGREEMENT[case]
    same = three(theorem_sign_agreement=shares)
    entries = verdicts(tmp_path / "t", both(same, same))
    assert (entries["theorem-3.1"].verdict, entries["theorem-3.1-tendency"].verdict) == (always, coin)


COLLAPSE = {
    "collapsed": ([{"reward": [0.001 * s] * ROLLOUTS, "collapsed": 7} for s in (0, 1, 2)], "supported"),
    "alive": ([{"reward": rising(8 + s)} for s in (0, 1, 2)], "contradicted"),
    "one of three": (
        [{"reward": [0.0] * ROLLOUTS, "collapsed": 7}, {"reward": rising(8)}, {"reward": rising(9)}],
        "undecided",
    ),
}


@pytest.mark.parametrize("case", COLLAPSE)
def test_collapse_of_beta_1(tmp_path: Path, case: str) -> None:
    figures, expected = COLLAPSE[case]
    for n, figure in enumerate(figures):  # no two runs end exactly alike
        figure["reward"] = [r + 0.002 * n for r in figure["reward"]]
    assert verdicts(tmp_path / "t", {("q7", "tepo_kl_all+beta=1"): figures})["collapse-of-beta-1"].verdict == expected


def test_readings_are_entries_of_their_own(tmp_path: Path) -> None:
    key = "tepo_kl_all+beta=1+kl-estimator=k1"
    runs = {("q7", "tepo_kl_all+beta=1"): COLLAPSE["alive"][0], ("q7", key): COLLAPSE["collapsed"][0]}
    found = [e for e in ledger(tree(tmp_path / "t", runs)) if e.id == "collapse-of-beta-1"]
    assert [(e.reading, e.verdict) for e in found] == [
        (None, "contradicted"),
        ("the KL estimate k1 as a loss", "supported"),
    ]
    assert all(key in run for run in found[1].runs)


RANKS = {"two above": (0.50, "supported"), "five above": (0.30, "contradicted")}


@pytest.mark.parametrize("case", RANKS)
def test_third_place_allows_two_above(tmp_path: Path, case: str) -> None:
    tepo, expected = RANKS[case]
    scores = dict(zip(BASELINES, (0.70, 0.65, 0.40, 0.40, 0.40, 0.10), strict=True)) | {"tepo": tepo}
    runs = {("q7", m): three(score=(s, s + 0.001 * n, s + 0.003)) for n, (m, s) in enumerate(scores.items())}
    assert verdicts(tmp_path / "t", runs)["top3-q7-aime24"].verdict == expected


def test_every_claim_has_an_entry_in_both_ledgers(tmp_path: Path) -> None:
    entries = verdicts(tmp_path / "t", both(three(score=HIGH), three(score=LOW)))
    assert list(entries) == list(CLAIMS) == [e.id for e in ledgers.printed_entries(CLAIMS.values())]


def test_hot_and_calm_are_two_entries(tmp_path: Path) -> None:
    runs = both(three(grad_norm=(2.1, 2.3, 2.2)), three(grad_norm=(1.0, 1.1, 1.05)))
    runs |= {("q7", f"{method}@hot"): runs["q7", other] for method, other in (("tepo", "grpo"), ("grpo", "tepo"))}
    variants = {"hot": {"title": "hot", "changes": {"training.learning_rate": 2e-4}}}
    found = [e for e in ledger(tree(tmp_path / "t", runs, variants=variants)) if e.id == "higher-gradient-norm"]
    assert [(e.variant, e.learning_rate, e.verdict) for e in found] == [
        (None, 1e-4, "supported"),
        ("hot", 2e-4, "contradicted"),
    ]
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
    assert entry.estimate == pytest.approx(sum(ABOVE) / 3 - sum(BELOW) / 3)
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
    found = tree(tmp_path / "t", both(three(score=ABOVE), three(score=BELOW)), variants=variants)
    assert placebos(found) == ["coin"]
    assert placebos(found, "hot") == ["hot_coin"]


def test_a_missing_run_of_a_placebo_is_no_placebo_run(tmp_path: Path) -> None:
    runs = both(three(score=ABOVE), three(score=BELOW))
    runs |= {("q7", "tepo@coin"): [*three(score=BELOW)[:2], None], ("q7", "grpo@coin"): three(score=BELOW)}
    entry = next(e for e in run_entries(tree(tmp_path / "t", runs, variants=COIN)) if e.id == "gain-q7")
    assert (entry.verdict, entry.placebo) == ("supported", NO_RUN)


def test_every_kind_of_test_is_asked_or_not(tmp_path: Path) -> None:
    asked = {kind for kind in KINDS if learns(Question(kind, {"measure": LEARNT[1]}))}
    sides = {"difference_of_rows", "highest", "ordering", "rank"}
    assert asked == sides | {"convergence", "curve_ratio", "curve_mean_difference"}
    assert {claim.id for claim in read_claims() if learns(claim.test)} > {"gain-q7", "faster-reward"}
