"""Verdicts over invented trees and printed numbers in which they are known; claims.yaml, its table and its command."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
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
from paper.claims import Case, judged, of_paper, of_tree, read_claims
from paper.evidence import MATCHED, MEASURES, Arm, Found, Printed, Runs
from paper.verdicts import EQUAL, UNTESTABLE
from tests.paper.claim_trees import ROLLOUTS, tree
from tests.paper.test_formulas import KEPT
from tests.paper.test_printed import TEXT, plain

HIGH, LOW = (0.700, 0.711, 0.705), (0.600, 0.612, 0.603)
BY_ID = {claim.id: claim for claim in read_claims().claims}
PAPER = printed.read()
SHORT = "A verdict needs 7 rollouts"


def seeds(column: str, values: Sequence[Any]) -> list[Any]:
    """Figures of seed 1, 2, ...: one column of the curve, or a score; None: the run is missing."""
    return [None if value is None else {column: value} for value in values]


def two(column: str, a: Sequence[Any], b: Sequence[Any], at: str = "") -> dict[tuple[str, str], Any]:
    """TEPO and GRPO/DAPO on the model of Table 1; at: under these settings."""
    return {("q7", f"{m}{at}"): seeds(column, values) for m, values in (("tepo", a), ("grpo", b))}


def rising(to: float, wiggle: float = 0.0) -> list[float]:
    """Reward that reaches its end at rollout `to` and stays; from rollout to rollout it falls back by `wiggle`."""
    return [min(1.0, n / to) * 0.8 + (wiggle if n % 2 else 0.0) for n in range(1, ROLLOUTS + 1)]


def falling(by: float) -> list[float]:
    return [1.0 - by * n for n in range(ROLLOUTS)]


def judge(root: Path, id: str, runs: Mapping[tuple[str, str], Any], **how: Any) -> list[dict[str, Any]]:
    """Rows of a claim, under the scale's settings first."""
    return [row for row in of_tree(tree(root, runs, **how)) if row["id"] == id]


# TEPO, then GRPO/DAPO: clearly on the claimed side. Swapped they are on the other.
APART: dict[str, tuple[str, Sequence[Any], Sequence[Any]]] = {
    "gain-q7": ("score", HIGH, LOW),
    "stability": ("reward", [rising(8, w) for w in (0, 0.001, 0)], [rising(8, w) for w in (0.1, 0.11, 0.1)]),
    "half-the-time": ("reward", [*map(rising, (3, 4, 3))], [*map(rising, (14, 15, 14))]),
    "trades-more-entropy": ("entropy", [*map(falling, (0.05, 0.051, 0.05))], [*map(falling, (0.02, 0.022, 0.021))]),
}


@pytest.mark.parametrize("id", APART)
def test_a_clear_difference_has_the_verdict_of_its_side(tmp_path: Path, id: str) -> None:
    column, a, b = APART[id]
    for folder, sides, verdict in (("a", (a, b), "supported"), ("b", (b, a), "contradicted")):
        (row,) = judge(tmp_path / folder, id, two(column, *sides))
        assert (row["verdict"], row["seeds"], row["n"]) == (verdict, (1, 2, 3), 3)
        assert {f"runs/q7/{m}/seed{s}" for m in ("tepo", "grpo") for s in (1, 2, 3)} == set(row["runs"])


# claim -> column, level, unit of a step: the margin, of a ratio its logarithm
PLANTED = {
    "faster-reward": ("reward", 0.5, 0.02), "lower-clip-ratio": ("clip_fraction_tokens", 0.05, 0.002),
    "theorem-3.1-tendency": ("theorem_sign_agreement", 0.5, 0.02), "higher-gradient-norm": ("grad_norm", 3.0, 0.0953),
}  # fmt: skip
# mean and sd of a paired difference, in margins -> verdict
SHAPES = {(3, 1): "supported", (-3, 1): "contradicted", (0.3, 0.1): EQUAL, (0, 8): "undecided", (0.9, 0.4): "supported"}


@pytest.mark.parametrize("id", PLANTED)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_planted_effects(tmp_path: Path, id: str, shape: tuple[float, float]) -> None:
    """Of 8 seeds: as large as three margins, small with little noise, drowned in noise, out of the margin."""
    (column, level, margin), (mean, sd) = PLANTED[id], shape
    noise = np.random.default_rng(0).normal(size=8)
    change = mean + (noise - noise.mean()) / noise.std(ddof=1) * sd
    change *= margin * (-1 if id == "lower-clip-ratio" else 1)
    a = level * np.exp(change) if id == "higher-gradient-norm" else level + change
    b = a if id == "theorem-3.1-tendency" else [level] * 8  # a level, of which both methods' runs are the mean
    (row,) = judge(tmp_path / "t", id, two(column, list(a), list(b)))
    assert row["verdict"] == SHAPES[shape]
    assert (row["detectable"] > abs(row["estimate"] - row["null"])) or row["verdict"] != "undecided"
    low, high = (1 / 1.1, 1.1) if id == "higher-gradient-norm" else (row["null"] - margin, row["null"] + margin)
    assert (row["margin_low"], row["margin_high"]) == pytest.approx((low, high), rel=1e-3)


WITH_TWO = two("score", HIGH, LOW)
MISSING = two("score", [*HIGH[:2], None], LOW)
OVERTAKEN = {("q7", "tepo"): seeds("score", HIGH), ("q7", "grpo"): [{"score": s, "long": 0.8 + s / 100} for s in LOW]}
LATE = two("reward", [*[rising(3), rising(4)] * 4, rising(31)], [rising(14)] * 9)
OPEN: dict[str, tuple[str, dict[tuple[str, str], Any], dict[str, Any], str, str]] = {
    "a missing curve": ("faster-reward", MISSING, {}, "not tested", "missing runs/q7/tepo/seed3"),
    "one seed": ("gain-q7", two("score", HIGH[:1], LOW[:1]), {}, "undecided", "one seed"),
    "another slot": ("gain-q14", WITH_TWO, {}, "not tested", "not part of this scale"),
    "no other method": ("faster-reward", {("q7", "tepo"): seeds("reward", HIGH)}, {}, "not tested", "grpo"),
    "stand-ins": ("gain-q7", WITH_TWO, {"stand_ins": True}, UNTESTABLE, ""),
    "too few rollouts": ("faster-reward", two("reward", HIGH, LOW), {"rollouts": 6}, "not tested", SHORT),
    "no sweep": ("faster-at-equal-movement", WITH_TWO, {}, "not tested", "several step sizes"),
    "overtaken later": ("peak-at-72", OVERTAKEN, {}, "contradicted", ""),
    "one run never gets there": ("fewer-steps", LATE, {}, "undecided", "the truth may lie above the null"),
    "no run gets there": ("half-the-time", two("reward", [[0.1] * 16] * 4, [rising(3), rising(4)] * 2), {},
        "contradicted", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", OPEN)
def test_what_cannot_be_decided_has_a_reason(tmp_path: Path, case: str) -> None:
    id, runs, how, verdict, words = OPEN[case]
    (row,) = judge(tmp_path / "t", id, runs, **how)
    assert row["verdict"] == verdict
    assert words in row["reason"]
    assert (row["estimate"] is None) == (verdict == "not tested")
    if verdict == UNTESTABLE:  # shown, and in no family
        assert row["estimate"] == pytest.approx(0.1, abs=0.01)
        assert (row["p_holm"], row["tests"]) == (None, None)


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
    means = {1: (0.70 + 0.72 + 0.71) / 3 - 0.5, 2: (0.60 + 0.61 + 0.60) / 3 - 0.5}
    own = compare_seeds(means, {1: 0.0, 2: 0.0})
    assert (row["n"], row["p"], row["low"]) == pytest.approx((2, own.p, own.low))


def difference(value: float, p: float) -> Found:
    half = abs(value) * (0.5 if p < 0.05 else 2.0) or 0.1
    return Found(Comparison(difference=value, low=value - half, high=value + half, p=p, how="x", n=3))


def test_holm_over_the_claims_of_a_family() -> None:
    """Two claims of one family, each with p between 2.5 and 5 %: intervals exclude the null, the corrected p do not."""
    for row in judged([Case(BY_ID[id], [difference(0.1, 0.03)]) for id in ("gain-q7", "gain-q14")]):
        assert (row["verdict"], row["p_holm"], row["tests"]) == ("undecided", pytest.approx(0.06), 2)
        assert "not after Holm's correction over 2 claims" in row["reason"]


# values and p of a claim's contrasts -> verdict, p
CONTRASTS: dict[tuple[tuple[float, float], ...], tuple[str, float]] = {
    ((0.1, 0.01), (0.2, 0.001)): ("supported", 0.01),
    ((0.1, 0.2), (0.2, 0.001)): ("undecided", 0.2),
    ((0.1, 0.001), (-0.2, 0.02)): ("contradicted", 0.02),
    ((-0.1, 0.03), (-0.2, 0.03)): ("undecided", 0.06),
    ((0.0, 1.0), (0.2, 0.001)): ("undecided", 1.0),
}


@pytest.mark.parametrize("found", CONTRASTS, ids=str)
def test_a_claim_of_several_contrasts_needs_them_all(found: tuple[tuple[float, float], ...]) -> None:
    (row,) = judged([Case(BY_ID["kl-mask"], [difference(*each) for each in found])])
    assert (row["verdict"], row["p"]) == (CONTRASTS[found][0], pytest.approx(CONTRASTS[found][1]))


def test_settings_are_judged_apart_and_controls_not_at_all(tmp_path: Path) -> None:
    changes = {"hot": {"training.learning_rate": 2e-4}, "coin": {"reward": "coin"}, "again": {"stream": 1}}
    variants = {name: {"title": name, "changes": change} for name, change in changes.items()}
    runs = {k: v for n in changes for k, v in two("reward", LOW, HIGH, f"@{n}").items()} | two("reward", HIGH, LOW)
    found = judge(tmp_path / "t", "faster-reward", runs, variants=variants)
    assert [(row["setting"], row["verdict"]) for row in found] == [(None, "supported"), ("hot", "contradicted")]
    assert all("@hot" in run for run in found[1]["runs"])


ABOVE, BELOW = (0.70, 0.71, 0.705), (0.60, 0.615, 0.603)
NONE = (0.10, 0.11, 0.102), (0.101, 0.109, 0.104)  # no difference
LESS = (0.20, 0.211, 0.204), (0.15, 0.163, 0.151)  # half of the difference under the true reward
SAME = (0.40, 0.412, 0.406), (0.30, 0.318, 0.301)  # all of it
GAINS, SMALL = (0.02, 0.14, 0.11, 0.07, 0.05, 0.09, 0.12, 0.15), (0.012, -0.004, 0.003, 0.006)
FAST, SLOW = [*map(rising, (3, 4, 3))], [*map(rising, (14, 15, 14))]
CLIPPED = (0.001, 0.002, 0.001), (0.010, 0.012, 0.011)
# claim, column, TEPO and GRPO/DAPO under the true reward, and under placebos -> verdict, words on placebos
PLACEBOS: list[tuple[str, str, tuple[Any, Any], dict[str, tuple[Any, Any]], str, str]] = [
    ("faster-reward", "reward", (ABOVE, BELOW), {"coin": NONE, "shuffled": LESS}, "supported", "beats coin, shuffled"),
    ("faster-reward", "reward", (ABOVE, BELOW), {"coin": NONE, "shuffled": SAME}, "undecided", "not beyond shuffled"),
    ("gain-q7", "score", (ABOVE, BELOW), {}, "supported", "no placebo run"),
    # paired over the four seeds that both have, the interval would hold 0
    ("gain-q7", "score", ([0.5 + g for g in GAINS], [0.5] * 8), {"coin": ([0.1 + g for g in SMALL], [0.1] * 4)},
     "supported", "beats coin; no run of shuffled"),
    ("half-the-time", "reward", (FAST, SLOW), {"coin": (FAST, SLOW)}, "undecided", "not beyond coin"),
    ("lower-clip-ratio", "clip_fraction_tokens", CLIPPED, {"coin": CLIPPED}, "supported", ""),  # not learnt
]  # fmt: skip


def test_a_placebo_on_another_model_decides_nothing(tmp_path: Path) -> None:
    there = {("l8", f"{method}@coin"): values for (_, method), values in two("reward", *SAME).items()}
    variants = {"coin": {"title": "coin", "changes": {"reward": "coin"}}}
    (row,) = judge(tmp_path / "t", "faster-reward", two("reward", ABOVE, BELOW) | there, variants=variants)
    assert (row["verdict"], row["placebo"]) == ("supported", "no placebo run")


@pytest.mark.parametrize("case", range(len(PLACEBOS)))
def test_an_effect_that_a_placebo_shows_too_is_not_supported(tmp_path: Path, case: int) -> None:
    id, column, pair, under, verdict, words = PLACEBOS[case]
    variants = {name: {"title": name, "changes": {"reward": name}} for name in ("coin", "shuffled")}
    runs = two(column, *pair)
    for name, sides in under.items():
        runs |= two(column, *sides, at=f"@{name}")
    (row,) = judge(tmp_path / "t", id, runs, variants=variants)
    assert (row["verdict"], row["placebo"]) == (verdict, words)
    assert ("beyond the placebo reward" in row["reason"]) == (verdict == "undecided")


def test_the_excess_over_a_placebo_of_other_seeds_is_welchs(tmp_path: Path) -> None:
    runs = Runs(tree(tmp_path / "t", WITH_TWO))
    a, b = ({"q7": dict(enumerate(values, 1))} for values in (GAINS, SMALL))
    found = runs.compare(a, b)
    welch = scipy.stats.ttest_ind(GAINS, SMALL, equal_var=False)
    low, high = welch.confidence_interval()
    assert (found.p, found.low, found.high) == pytest.approx((welch.pvalue, low, high), rel=1e-9)
    assert runs.compare({"q7": {1: 0.1, 2: 0.2}}, {"q7": {1: 0.0}}).p is None


SWEPT = ({"p_holm": 0.04}, "supported"), ({"p_holm": 0.3}, "undecided"), ({"difference": None}, "not tested")


def test_at_equal_movement_a_sweep_decides_or_runs_that_all_move_as_far(tmp_path: Path) -> None:
    id, runs = "faster-at-equal-movement", two("reward", HIGH, LOW)
    (row,) = judge(tmp_path / "matched", id, runs, kl_target=0.02)
    assert (row["verdict"], row["estimate"]) == ("supported", pytest.approx(0.1, abs=0.01))
    found = tree(tmp_path / "swept", runs)
    swept: dict[str, Any] = {"model": "q7", "measure": "area", "row": "tepo", "versus": "grpo", "how": "jackknife"}
    swept |= {
        "seeds": "1 2",
        "difference": 0.06,
        "difference_low": 0.05,
        "difference_high": 0.07,
        "p": 0.01,
        "se": 0.002,
        "df": 2,
    }
    others = [swept | {"row": "gspo", "difference": 0.9}, swept | {"measure": "score", "difference": 0.8}]
    for change, verdict in SWEPT:
        rows = [{"tests": 9, "p_holm": 0.9} | row for row in (swept | change, *others)]
        write_text(found.root / MATCHED, to_csv(tuple(rows[0]), rows))
        (row,) = (row for row in of_tree(Tree(found.root)) if row["id"] == id)
        wanted = (verdict, None, None) if verdict == "not tested" else (verdict, 0.06, 9)
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
    arms = [Arm("q7", method, 72, row) for method, row in (("tepo", "T1.8"), ("grpo", "T1.2"))]
    found = Printed(PAPER).contrast([(arms[0], arms[1])], 0.0).seen
    assert (found.difference, found.low, found.high) == pytest.approx((0.0174, 0.0174 - half, 0.0174 + half), rel=2e-3)


TURNED = {  # printed averages, changed in every row of the same run; their cells stay
    "as printed": (
        {},
        {"gain-q14": "supported", "gain-of-two-percent": "undecided", "highest-everywhere": "undecided"},
    ),
    "gain swapped": ({"T1.17": "41.51", "T1.11": "44.02"}, {"gain-q14": "contradicted"}),
    "gain gone": ({"T1.17": "41.61"}, {"gain-q14": "undecided"}),
    "seeds far apart": ({"T4.5": "22.62"}, {"gain-q14": "undecided"}),
    "mask useless": ({"T3.20": "42.00"}, {"kl-mask": "contradicted"}),
}


@pytest.mark.parametrize("case", TURNED)
def test_verdicts_turn_with_the_printed_numbers(monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    averages, expected = TURNED[case]
    changed = dict(PAPER)
    for id, value in averages.items():
        for row in [row for row in PAPER.values() if row.run == PAPER[id].run]:
            changed[row.id] = replace(row, cells={**row.cells, "avg": Decimal(value)})
    # the changed averages are meant: none is replaced by what its cells imply
    monkeypatch.setattr(claims, "by_cells", lambda paper: paper)
    found = {row["id"]: row["verdict"] for row in of_paper(changed) if row["source"] == "print"}
    assert {id: found[id] for id in expected} == expected


def test_a_formula_is_judged_by_its_counts() -> None:
    rows = {row["id"]: row for row in of_paper() if row["source"] == "formulas"}
    low, high = scipy.stats.beta.ppf((0.025, 0.975), (1081, 1082), (920, 919))  # Clopper-Pearson
    row = rows["lemma-3.2"]
    assert (row["estimate"], row["low"], row["high"]) == pytest.approx((0.5405, low, high))
    assert {row["verdict"] for row in rows.values()} == {"contradicted"}


# claims.yaml, its table, the command.


def test_quotes_stand_in_the_paper() -> None:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    text = plain(TEXT.read_text(encoding="utf-8"))
    assert [claim.quote for claim in BY_ID.values() if plain(claim.quote) not in text] == []


def test_claims_are_named_once_and_name_what_exists() -> None:
    assert len(BY_ID) == len(read_claims().claims)
    rows = {id for id, row in PAPER.items() if row.run or row.kind == "mean"}
    for claim in BY_ID.values():
        assert claim.measure in MEASURES
        assert {*claim.models} <= {*printed.MODELS}
        for name in (*claim.a, *claim.b):
            assert name in KEPT or name in rows or catalog.parse(name).key == name


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
    rows = {(row["source"], row["id"]): row for row in verdicts.read(path)}
    assert {id for _, id in rows} == BY_ID.keys()
    assert rows["runs", "gain-q7"]["estimate"] == pytest.approx(0.1, abs=0.01)
    text = read_text(found.root / "claims.md", "page")
    assert "q7 for Qwen2.5-7B (injected noise)" in text
    assert len(re.findall(r"^\| [a-z0-9.-]+ \| ", text, re.MULTILINE)) == len(rows) + 2  # header and rule
    assert len({line.count("|") for line in text.splitlines() if line.startswith("| ")}) == 1
    write_text(path, read_text(path, "claims").replace("not tested", "nearly"))
    with pytest.raises(BenchError, match=r"claims.csv.*verdict.*'nearly'"):
        verdicts.read(path)
