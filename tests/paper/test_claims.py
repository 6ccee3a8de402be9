"""Verdicts over invented trees and printed numbers in which they are known; claims.yaml, its table and its command."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats

from core.errors import BenchError
from core.files import read_text, to_csv, write_text
from core.provenance import ROOT
from evals.stats.compare import compare_seeds
from evals.stats.estimate import Comparison
from evals.tree import Tree
from methods import catalog
from paper import claims, printed, verdicts
from paper.claims import MATCHED, MEASURES, Arm, Case, Found, Printed, Runs, judged, of_tree, read_claims
from paper.verdicts import EQUAL, UNTESTABLE
from tests.paper.claim_trees import ROLLOUTS, tree
from tests.paper.test_formulas import KEPT
from tests.paper.test_printed import TEXT, plain

HIGH, LOW = (0.700, 0.711, 0.705), (0.600, 0.612, 0.603)
BY_ID = {claim.id: claim for claim in read_claims().claims}
PAPER = printed.read()


def seeds(column: str, values: Sequence[Any]) -> list[Any]:
    """Figures of seed 1, 2, ...: one column of the curve, or a score; None: the run is missing."""
    return [None if value is None else {column: value} for value in values]


def two(column: str, a: Sequence[Any], b: Sequence[Any], at: str = "") -> dict[tuple[str, str], Any]:
    """TEPO and GRPO/DAPO on the model of Table 1; at: under these settings."""
    return {("q7", f"{m}{at}"): seeds(column, values) for m, values in (("tepo", a), ("grpo", b))}


def rising(to: float) -> list[float]:
    """Reward that reaches its end at rollout `to` and stays."""
    return [min(1.0, n / to) * 0.8 for n in range(1, ROLLOUTS + 1)]


def falling(by: float) -> list[float]:
    return [1.0 - by * n for n in range(ROLLOUTS)]


def judge(root: Path, id: str, runs: Mapping[tuple[str, str], Any], **how: Any) -> list[dict[str, Any]]:
    """Rows of a claim, under the scale's settings first."""
    return [row for row in of_tree(tree(root, runs, **how)) if row["id"] == id]


SETS = {name: {"title": name, "changes": {"reward": name}} for name in ("coin", "shuffled")}
FAST, SLOW = [*map(rising, (3, 4, 3))], [*map(rising, (14, 15, 14))]
NONE, LESS, SAME = (
    ((0.10, 0.11, 0.102), (0.101, 0.109, 0.104)),
    ((0.20, 0.211, 0.204), (0.15, 0.163, 0.151)),
    (HIGH, LOW),
)
GAINS, SMALL = (0.02, 0.14, 0.11, 0.07, 0.05, 0.09, 0.12, 0.15), (0.012, -0.004, 0.003, 0.006)
WITH_TWO, REWARD = two("score", HIGH, LOW), two("reward", HIGH, LOW)
OVERTAKEN = {("q7", "tepo"): seeds("score", HIGH), ("q7", "grpo"): [{"score": s, "long": 0.8 + s / 100} for s in LOW]}
NEVER = two("reward", [[0.1] * 16] * 4, [rising(3), rising(4)] * 2)


def under(pair: tuple[Any, Any], name: str = "coin") -> dict[tuple[str, str], Any]:
    return two("reward", *pair, at=f"@{name}")


# claim, runs, how the tree differs -> verdict, words of its reason or of what it says of placebos
CASES: dict[str, tuple[str, Mapping[tuple[str, str], Any], dict[str, Any], str, str]] = {
    "score": ("gain-q7", WITH_TWO, {}, "supported", "no placebo run"),
    "twice as fast": ("half-the-time", two("reward", FAST, SLOW), {}, "supported", "no placebo run"),
    "entropy falls further": ("trades-more-entropy", two("entropy", [*map(falling, (0.05, 0.051))],
        [*map(falling, (0.02, 0.022))]), {}, "supported", ""),
    "a missing curve": ("faster-reward", two("score", [*HIGH[:2], None], LOW), {}, "not tested",
        "missing runs/q7/tepo/seed3"),
    "one seed": ("gain-q7", two("score", HIGH[:1], LOW[:1]), {}, "undecided", "one seed"),
    "stand-ins": ("gain-q7", WITH_TWO, {"stand_ins": True}, UNTESTABLE, ""),
    "too few rollouts": ("faster-reward", REWARD, {"rollouts": 6}, "not tested", "A verdict needs 7 rollouts"),
    "all move as far": ("faster-at-equal-movement", REWARD, {"kl_target": 0.02}, "supported", ""),
    "overtaken later": ("peak-at-72", OVERTAKEN, {}, "contradicted", ""),
    "no run gets there": ("half-the-time", NEVER, {}, "contradicted", ""),
    "beats placebos": ("faster-reward", REWARD | under(NONE) | under(LESS, name="shuffled"), {"variants": SETS},
        "supported", "beats coin, shuffled"),
    "a placebo does as well": ("faster-reward", REWARD | under(NONE) | under((HIGH, LOW), name="shuffled"),
        {"variants": SETS}, "undecided", "beyond the placebo reward shuffled"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_verdicts(tmp_path: Path, case: str) -> None:
    id, runs, how, verdict, words = CASES[case]
    (row,) = judge(tmp_path / "t", id, runs, **how)
    assert row["verdict"] == verdict
    assert words in (row["reason"] or row["placebo"])
    assert (row["estimate"] is None) == (verdict == "not tested")
    if verdict == UNTESTABLE:  # shown, and in no family
        assert (row["p_holm"], row["tests"]) == (None, None)
    if case == "no run gets there":  # GRPO/DAPO does after 5 and 6 rollouts; TEPO not before one more than planned
        assert row["estimate"] == pytest.approx((ROLLOUTS + 1) / math.sqrt(5 * 6))
    if case == "score":
        assert (row["estimate"], row["seeds"], row["n"]) == (pytest.approx(0.1, abs=0.01), (1, 2, 3), 3)
        assert {f"runs/q7/{m}/seed{s}" for m in ("tepo", "grpo") for s in (1, 2, 3)} == set(row["runs"])


def test_settings_are_judged_apart_and_controls_not_at_all(tmp_path: Path) -> None:
    changes = {"hot": {"training.learning_rate": 2e-4}, "coin": {"reward": "coin"}, "again": {"stream": 1}}
    variants = {name: {"title": name, "changes": change} for name, change in changes.items()}
    runs = REWARD | {place: v for n in changes for place, v in two("reward", LOW, HIGH, f"@{n}").items()}
    found = judge(tmp_path / "t", "faster-reward", runs, variants=variants)
    assert [(row["setting"], row["verdict"]) for row in found] == [(None, "supported"), ("hot", "contradicted")]
    assert all("@hot" in run for run in found[1]["runs"])


# claim -> column, level, unit of a step: the margin, of a ratio its logarithm
PLANTED = {
    "faster-reward": ("reward", 0.5, 0.02), "lower-clip-ratio": ("clip_fraction_tokens", 0.05, 0.002),
    "theorem-3.1-tendency": ("theorem_sign_agreement", 0.5, 0.02), "higher-gradient-norm": ("grad_norm", 3.0, 0.0953),
}  # fmt: skip
# mean and sd of a paired difference, in margins -> verdict
SHAPES = {(3, 1): "supported", (-3, 1): "contradicted", (0.3, 0.1): EQUAL, (0, 8): "undecided", (0.9, 0.4): "supported"}


@pytest.mark.parametrize("id", PLANTED)
def test_effects_of_eight_seeds_in_units_of_the_margin(tmp_path: Path, id: str) -> None:
    column, level, margin = PLANTED[id]
    noise = np.random.default_rng(0).normal(size=8)
    for (mean, sd), verdict in SHAPES.items():
        change = mean + (noise - noise.mean()) / noise.std(ddof=1) * sd
        change *= margin * (-1 if id == "lower-clip-ratio" else 1)
        a = list(level * np.exp(change) if id == "higher-gradient-norm" else level + change)
        b = a if id == "theorem-3.1-tendency" else [level] * 8  # a level, of which both methods' runs are the mean
        (row,) = judge(tmp_path / f"{mean}", id, two(column, a, b))
        assert row["verdict"] == verdict
        assert (row["detectable"] > abs(row["estimate"] - row["null"])) or row["verdict"] != "undecided"
        low, high = (1 / 1.1, 1.1) if id == "higher-gradient-norm" else (row["null"] - margin, row["null"] + margin)
        assert (row["margin_low"], row["margin_high"]) == pytest.approx((low, high), rel=1e-3)


def test_units_are_models_or_clean_models(tmp_path: Path) -> None:
    """Seeds of a model that agree closely do not make three models more than three; q14 has TEPO under beta 1."""
    gains = {"q7": 0.1, "q14": 0.2, "l8": 0.3}
    runs: dict[tuple[str, str], Any] = {(m, "grpo"): seeds("reward", [0.5] * 3) for m in gains}
    runs |= {(m, "tepo+beta=1" if m == "q14" else "tepo"): seeds("reward", [0.5 + g] * 3) for m, g in gains.items()}
    runs["m7", "tepo"] = seeds("reward", [0.9] * 3)  # no GRPO/DAPO there: left out
    (row,) = judge(tmp_path / "models", "faster-reward", runs)
    half = 4.302652729911275 * 0.1 / math.sqrt(3)
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((0.2, 0.2 - half, 0.2 + half))
    assert (row["n"], row["seeds"]) == (3, (1, 2, 3))

    a = (0.70, 0.60, 0.72, 0.61, 0.71, 0.60)
    (row,) = judge(tmp_path / "clean", "faster-reward", two("reward", a, (0.5,) * 6), starts=2)
    own = compare_seeds({1: 2.13 / 3 - 0.5, 2: 1.81 / 3 - 0.5}, {1: 0.0, 2: 0.0})
    assert (row["n"], row["p"], row["low"]) == pytest.approx((2, own.p, own.low))


def difference(value: float, p: float) -> Found:
    half = abs(value) * (0.5 if p < 0.05 else 2.0) or 0.1
    return Found(Comparison(difference=value, low=value - half, high=value + half, p=p, how="x", n=3))


def test_holm_over_the_claims_of_a_family_and_the_contrasts_of_a_claim() -> None:
    """Two claims of one family, each with p between 2.5 and 5 %: intervals exclude the null, the corrected p do not."""
    for row in judged([Case(BY_ID[id], [difference(0.1, 0.03)]) for id in ("gain-q7", "gain-q14")]):
        assert (row["verdict"], row["p_holm"], row["tests"]) == ("undecided", pytest.approx(0.06), 2)
        assert "not after Holm's correction over 2 claims" in row["reason"]
    for contrasts, verdict, p in (  # values and p of a claim's contrasts: it needs them all
        ([(0.1, 0.01), (0.2, 0.001)], "supported", 0.01),
        ([(0.1, 0.2), (0.2, 0.001)], "undecided", 0.2),
        ([(0.1, 0.001), (-0.2, 0.02)], "contradicted", 0.02),
        ([(-0.1, 0.03), (-0.2, 0.03)], "undecided", 0.06),
        ([(0.0, 1.0), (0.2, 0.001)], "undecided", 1.0),
    ):
        (row,) = judged([Case(BY_ID["kl-mask"], [difference(*each) for each in contrasts])])
        assert (row["verdict"], row["p"]) == (verdict, pytest.approx(p))


def test_the_excess_over_a_placebo_of_other_seeds_is_welchs(tmp_path: Path) -> None:
    runs = Runs(tree(tmp_path / "t", WITH_TWO))
    a, b = ({"q7": dict(enumerate(values, 1))} for values in (GAINS, SMALL))
    found = runs.compare(a, b)
    welch = scipy.stats.ttest_ind(GAINS, SMALL, equal_var=False)
    low, high = welch.confidence_interval()
    assert (found.p, found.low, found.high) == pytest.approx((welch.pvalue, low, high), rel=1e-9)
    assert runs.compare({"q7": {1: 0.1, 2: 0.2}}, {"q7": {1: 0.0}}).p is None


def test_at_equal_movement_the_file_of_a_sweep_decides(tmp_path: Path) -> None:
    root = tree(tmp_path / "swept", REWARD).root
    swept: dict[str, Any] = {"model": "q7", "measure": "area", "row": "tepo", "versus": "grpo", "how": "jackknife"}
    swept |= {"seeds": "1 2", "difference": 0.06, "difference_low": 0.05, "difference_high": 0.07, "p": 0.01}
    swept |= {"se": 0.002, "df": 2, "tests": 9, "p_holm": 0.9}
    others = [swept | {"row": "gspo", "difference": 0.9}, swept | {"measure": "score", "difference": 0.8}]
    for change, wanted in (
        ({"p_holm": 0.04}, ("supported", 0.06, 9)),
        ({"p_holm": 0.3}, ("undecided", 0.06, 9)),
        ({"difference": None}, ("not tested", None, None)),
    ):
        write_text(root / MATCHED, to_csv(tuple(swept), [swept | change, *others]))
        (row,) = (row for row in of_tree(Tree(root)) if row["id"] == "faster-at-equal-movement")
        assert (row["verdict"], row["estimate"], row["tests"]) == wanted


# Printed numbers and formulas.


def test_chance_by_hand() -> None:
    """Table 4: three pairs of seeds, averages .55, .04 and .03 points apart, against generation noise of the counts."""

    def generation(a: str, b: str) -> float:
        shares = {k: float((PAPER[a].cells[k] or 0) + (PAPER[b].cells[k] or 0)) / 200 for k in printed.POOL}
        sds = {k: math.sqrt(2 * p * (1 - p) * 0.73 / 1.73 / printed.COLUMN[k]) for k, p in shares.items()}
        return math.hypot(*(printed.POOL[k] / 8844 * sd for k, sd in sds.items()))

    pairs = {("T4.1", "T4.2"): 0.0055, ("T4.3", "T4.4"): 0.0004, ("T4.5", "T4.6"): 0.0003}
    factor = sum((apart / generation(*pair)) ** 2 for pair, apart in pairs.items()) / 3
    half = 3.182446305284263 * math.sqrt(factor) * generation("T1.8", "T1.2")
    assert Printed(PAPER)._sd("T1.8", "T1.2") == pytest.approx(generation("T1.8", "T1.2"), rel=1e-3)
    arms = [Arm("q7", method, 72, row) for method, row in (("tepo", "T1.8"), ("grpo", "T1.2"))]
    found = Printed(PAPER).contrast([(arms[0], arms[1])], 0.0).seen
    assert (found.difference, found.low, found.high) == pytest.approx((0.0174, 0.0174 - half, 0.0174 + half), rel=2e-3)


# claims.yaml, its table, the command.


def test_claims_are_named_once_and_name_what_exists() -> None:
    assert len(BY_ID) == len(read_claims().claims)
    rows = {id for id, row in PAPER.items() if row.run or row.kind == "mean"}
    for claim in BY_ID.values():
        assert claim.measure in MEASURES
        assert {*claim.models} <= {*printed.MODELS}
        assert all(n in KEPT or n in rows or catalog.parse(n).key == n for n in (*claim.a, *claim.b))
    if TEXT.is_file():
        text = plain(TEXT.read_text(encoding="utf-8"))
        assert [claim.quote for claim in BY_ID.values() if plain(claim.quote) not in text] == []


def test_the_table_in_docs_is_what_the_command_prints() -> None:
    assert claims.table() in read_text(ROOT / "docs/claims.md", "page")


def test_the_command_writes_what_the_page_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tree(tmp_path / "tiny", WITH_TWO, stand_ins=True)
    monkeypatch.setattr("sys.argv", ["claims", "--results", str(found.root)])
    claims.main()
    assert "not testable at this scale" in capsys.readouterr().out
    path = found.root / "claims.csv"
    rows = verdicts.read(path)
    assert {row["id"] for row in rows} == BY_ID.keys()
    write_text(path, read_text(path, "claims").replace("not tested", "nearly"))
    with pytest.raises(BenchError, match=r"claims.csv.*verdict.*'nearly'"):
        verdicts.read(path)
