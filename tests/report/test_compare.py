"""Two trees, methods, checkpoints or printed scores: what is equal, what is noise, what is a change; and what cannot be
compared is refused by name in one line."""

import hashlib
import math
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from core.errors import ConfigError
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals import learning_curves
from evals.scores import MACRO, POOLED
from evals.stats import MARGIN
from evals.stats.compare import paired
from evals.tree import Tree, open_tree
from paper.claims import read_claims
from report import compare, page, view
from tests.report import synthetic
from tests.report.conftest import Command
from tests.report.finished import edit, rewrite

TEPO = Checkpoint(Run("tiny_qwen2", "tepo", 1), 12)


@pytest.fixture
def others(scored_twice: Tree, tmp_path: Path) -> Tree:
    """A copy of the tree with two seeds, to change."""
    return Tree(shutil.copytree(scored_twice.root, tmp_path / "quick"))


def grade_anew(tree: Tree, checkpoint: Checkpoint, benchmark: str, wrong: int) -> None:
    """Turn the first `wrong` right answers into wrong ones, and score again."""
    right = synthetic.verdicts(checkpoint)
    places = [(i, k) for i, answers in enumerate(right[benchmark]) for k, ok in enumerate(answers) if ok]
    for i, k in places[:wrong]:
        right[benchmark][i][k] = False
    synthetic.grade(tree.root, checkpoint, right)
    synthetic.score(tree)


def retrain(tree: Tree, runs: list[Run], change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    """Give runs other curves and other weights."""
    for run in runs:
        rewrite(tree.layout.run(run) / "curve.csv", change)
        edit(tree.layout.run(run) / "run.json", outputs={"checkpoints/step12": f"another {run.path}"})


def test_a_tree_equals_its_copy_whatever_the_times(scored: Tree, scored_copy: Tree, command: Command) -> None:
    for run in scored_copy.runs:
        # and a figure that only a later version records
        later = {"seconds_update": "99.0", "sampling_gap_mean": "0.1"}
        curve = scored_copy.layout.run(run) / "curve.csv"
        rewrite(curve, lambda row, later=later: row | later)
        outputs = {"curve.csv": hashlib.sha256(curve.read_bytes()).hexdigest()}
        edit(curve.with_name("run.json"), outputs=scored_copy.record(run)["outputs"] | outputs)
    # nor is an interval by another version another score
    rewrite(scored_copy.layout.scores, lambda row: row | {"low": "0.0"})
    code, out, err = command(compare.main, scored.root, scored_copy.root)
    assert (code, err) == (0, "")
    assert "curves (apart from times) 4 of 4, checkpoints' scores 5 of 5" in out
    assert out.endswith("verdict: no figure differs\n")


@pytest.mark.parametrize(("wrong", "expected"), [(3, 0), (60, 1)])
def test_a_grader_change_is_held_against_the_sampling_of_problems(
    wrong: int, expected: int, scored: Tree, scored_copy: Tree, command: Command
) -> None:
    grade_anew(scored_copy, TEPO, "syn_as3", wrong)
    code, out, _ = command(compare.main, scored.root, scored_copy.root)
    assert (code, "4 of 4, checkpoints' scores 4 of 5" in out) == (expected, True), out
    found = {row["figure"]: row for row in compare.of_trees(scored, Tree(scored_copy.root))[1]}
    assert found.keys() == {"syn_as3", "avg_pooled", "avg_macro"}
    assert found["syn_as3"]["difference"] == pytest.approx(-wrong / 100, abs=1e-12)
    assert (found["syn_as3"]["where"], found["syn_as3"]["moved"]) == ("tiny_qwen2/tepo/step12, seed 1", bool(expected))


def test_trees_of_two_scales_are_not_compared(scored: Tree, scored_copy: Tree, command: Command) -> None:
    edit(scored_copy.layout.matrix, scale="embedded")
    code, _, err = command(compare.main, scored.root, scored_copy.root)
    assert (code, err.count("\n"), "is of scale quick" in err) == (2, 1, True), err


def test_a_retrained_method_is_held_against_its_seeds(scored_twice: Tree, others: Tree, command: Command) -> None:
    """A change that is alike on every seed is seen; one that is not alike lies beside the interval of two seeds."""
    runs = [run for run in others.runs if run.method == "tepo"]
    retrain(others, runs, lambda row: row | {"grad_norm": str(float(row["grad_norm"]) + 1)})
    retrain(others, runs[1:], lambda row: row | {"entropy": str(2 * float(row["entropy"]))})
    code, out, _ = command(compare.main, scored_twice.root, others.root)
    assert code == 1, out
    table = [line for line in out.splitlines() if line.startswith("tiny_qwen2/tepo ")]
    assert [("grad_norm" in line, "moved" in line) for line in table] == [(True, True), (False, False)]
    assert "curves (apart from times) 6 of 8" in out
    assert "verdict: MOVED: 1 of 2 figures" in out


KEPT = ROOT / "results" / "reference"


def curves(tree: str, method: str) -> dict[int, pd.DataFrame]:
    """By seed, in their order."""
    runs = open_tree(KEPT / tree).layout.run(Run("tiny_qwen2", method, 1)).parent
    found = {int(run.name.removeprefix("seed")): pd.read_csv(run / "curve.csv") for run in runs.glob("seed*")}
    return dict(sorted(found.items()))


def areas(tree: str, method: str) -> pd.Series:
    """By seed, from the kept curves: what the area is by its definition."""
    found = curves(tree, method)
    return pd.Series({seed: found[seed].drop_duplicates("rollout")["reward"].mean() for seed in found})


def test_two_methods_have_the_paired_t_test_over_clean_models_and_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)  # pytest may set it: nothing is wrapped outside of a terminal
    tree = open_tree(KEPT / "embedded")
    line = compare.lines(tree, compare.contrasts(tree, "gspo", "grpo"))[0]
    test = stats.ttest_rel(areas("embedded", "gspo"), areas("embedded", "grpo"))
    interval = test.confidence_interval()
    assert (line["model"], line["measure"], line["pairs"]) == ("tiny_qwen2", "area", 8)
    assert [line["low"], line["high"], line["p"]] == pytest.approx([interval.low, interval.high, test.pvalue], rel=1e-9)
    claims = {claim.measure: claim.margin for claim in read_claims().claims if claim.margin}
    assert claims["area"] == claims["score"] == MARGIN
    found = {(low, high): compare.verdict(line | {"comparison": replace(
                 line["comparison"], difference=(low + high) / 2, low=low, high=high)})
             for low, high in ((0.001, 0.1), (-0.1, -0.001), (-0.01, 0.019), (-0.01, 0.03))}  # fmt: skip
    assert list(found.values()) == ["ahead", "behind", "equal within the margin", "undecided"]
    assert compare.verdict(line | {"measure": "movement"}) == "", "more movement is not better"
    printed = compare.text("gspo", "grpo", [line])
    assert printed.splitlines()[3].split()[-2:] == [str(line["needed"]), compare.verdict(line)]


def test_several_pairs_are_averaged_by_seed_and_a_run_is_compared_with_its_start() -> None:
    tree = open_tree(KEPT / "matched")
    flat, far = (areas("matched", "tepo" + at) - areas("matched", "grpo" + at) for at in ("", "@far"))
    (line, *_) = compare.lines(tree, compare.contrasts(tree, "tepo,tepo@far", "grpo,grpo@far"))
    test = stats.ttest_1samp((flat + far) / 2, 0)
    assert (line["measure"], line["pairs"], line["units"]) == ("area", 8, 8)
    assert [line["difference"], line["p"]] == pytest.approx([(flat + far).mean() / 2, test.pvalue], rel=1e-9)
    with pytest.raises(ConfigError, match="tepo and grpo,grpo@far: must be as many methods on each side"):
        compare.contrasts(tree, "tepo", "grpo,grpo@far")
    with pytest.raises(ConfigError, match="grpo,start: base and start cannot be averaged with others"):
        compare.contrasts(tree, "tepo,tepo@far", "grpo,start")
    (line,) = compare.lines(tree, compare.contrasts(tree, "tepo@far", "start"))
    first = [curve.reward.iloc[0] for curve in curves("matched", "tepo@far").values()]
    assert (line["measure"], line["mean_b"]) == ("final", pytest.approx(sum(first) / 8))


def test_rollouts_that_miss_their_target_are_counted_below_tables_and_on_the_page() -> None:
    """By the tree's constant targets here; curves of today have a column of them (tests/adapters/test_trl_run.py)."""
    tree, missed = open_tree(KEPT / "matched"), {}
    for method, target in (("entropy_adv", 0.006), ("entropy_adv@far", 0.02), ("gspo", 0.006)):
        reached = pd.concat(curve.kl_step.dropna() for curve in curves("matched", method).values())
        missed[method] = int(((reached / target - 1).abs() > 0.05).sum())
        for seed, curve in curves("matched", method).items():
            own = (curve.kl_step / target - 1).abs() > 0.05
            assert learning_curves.missed_targets(tree, Run("tiny_qwen2", method, seed)) == (own.sum(), 12)
    sentences = list(view.missed_targets(tree, [run for run in tree.runs if run.method in missed]))
    assert sorted(missed.values()) == [0, 1, 9]
    assert [sentence.partition(": ")[2] for sentence in sentences] == [
        f"{missed[name]} of 96 rollouts missed training.kl_target by more than 5%."
        for name in ("entropy_adv", "entropy_adv@far")
    ]
    assert set(sentences) < set(page.warnings(tree, []))


def test_a_trees_own_methods_have_verdicts_against_its_baseline(scored_twice: Tree, tmp_path: Path) -> None:
    """What a call of snakemake ends with: one line for a method and measure, corrected over the methods."""
    methods = synthetic.METHODS | {"dr_grpo": ("Dr. GRPO", 0.8), "rloo": ("RLOO", 0.5)}
    tree = Tree(synthetic.write_tree(tmp_path / "mine", seeds=(1, 2, 3), scale="mine", methods=methods))
    head, *shown = compare.of_own(tree).splitlines()
    assert head.startswith("Own methods minus grpo")
    names = [line.split(":")[0] for line in shown]
    of = "tiny_qwen2, area under the reward curve", "tiny_qwen2, score after 12, percent"
    assert names == [f"{title}, {what}" for what in of for title in ("Dr. GRPO", "RLOO")]
    area, _, score, _ = compare.lines(tree, compare.contrasts(tree, "dr_grpo", "grpo"))
    assert shown[0].endswith(f"], ahead (3 seeds, {area['needed']} needed)")
    assert (compare.verdict(score), ", undecided (" in shown[2]) == ("ahead", True), "one of two, after Holm"
    assert compare.of_own(scored_twice) == "", "every method is in a table"


def test_of_a_sweep_each_method_is_taken_at_its_value() -> None:
    """On the seeds that chose nothing; each continues a clean model of its own."""
    tree = open_tree(KEPT / "tuned")
    line = compare.lines(tree, compare.contrasts(tree, "tepo", "grpo", "chosen"))[0]
    sides = [areas("tuned", tree.chosen["tiny_qwen2", name]).loc[:8] for name in ("tepo", "grpo")]
    test, mean = stats.ttest_rel(*sides), (sides[0] - sides[1]).mean()
    assert (line["pairs"], line["units"]) == (8, 8)
    assert [line["difference"], line["p"]] == pytest.approx([mean, test.pvalue], rel=1e-9)


def test_a_method_is_compared_with_the_model_before_rl_benchmark_by_benchmark() -> None:
    """One hub model is the base of every seed; one made here has a base for each."""
    kept = pd.read_csv(open_tree(KEPT / "smollm").layout.scores).query("benchmark == 'syn_q_words'")
    after, before = (kept[kept.method == method].score.to_numpy() for method in ("tepo", "base"))
    assert (len(after), len(before)) == (4, 1)
    tree = open_tree(KEPT / "smollm")
    (line,) = compare.lines(tree, compare.contrasts(tree, "tepo", "base"), ["syn_q_words"])
    test = stats.ttest_1samp(after - before, 0)
    assert line["measure"] == "syn_q_words after 8"
    assert [line["difference"], line["p"]] == pytest.approx([after.mean() - before[0], test.pvalue], rel=1e-9)
    found = compare.pairs(open_tree(KEPT / "embedded"), "tepo", "base")
    assert all(b == Run(a.model, "base", a.seed) for a, b in found)


# Two checkpoints, or two printed scores.

A, B = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("gspo", "grpo"))


def by_problem(a: str, b: str) -> list[compare.OfProblems]:
    return compare.over_problems(compare.read_side(a), compare.read_side(b))


def side(tree: Tree, checkpoint: Checkpoint) -> str:
    return f"{tree.root}:{checkpoint.path.as_posix()}"


def test_two_checkpoints_are_compared_as_everywhere_else(scored: Tree) -> None:
    expected = paired(scored, A, B)
    found = {line.benchmark: line for line in by_problem(side(scored, A), side(scored, B))}
    assert found.keys() - {compare.ALL} == expected.keys() - {POOLED, MACRO}
    for key, line in found.items():
        c, e = line.main, expected[POOLED if key == compare.ALL else key]
        for name in ("difference", "se", "low", "high", "p", "detectable", "n"):
            assert getattr(c, name) == pytest.approx(getattr(e, name), rel=1e-9, abs=1e-12)
        assert len(line.found) == 1


def test_table_1_of_the_paper(command: Command) -> None:
    found = by_problem("paper:tepo", "paper:T1.2")
    aime = found[0]
    p, q, n, k = 0.1260, 0.1125, 30, 32
    between = [x * (1 - x) / 1.73 for x in (p, q)]
    floor = between[0] + between[1] - 2 * 0.9 * math.sqrt(math.prod(between))
    total = floor + sum(x * (1 - x) * 0.73 / 1.73 / k for x in (p, q))
    expected = [(p - q) * (1 - p + q) / k, total, p + q - (p - q) ** 2]
    assert [n * c.se**2 for c in aime.found] == pytest.approx(expected)
    assert [line.benchmark for line in found][-1] == compare.ALL
    whole = found[-1].main
    assert (whole.n, round(100 * (whole.difference or 0), 2)) == (4401, 1.74), "the printed difference of Avg."
    _, out, _ = command(compare.main, "paper:tepo", "paper:grpo")
    assert re.search(r"^aime24 +the same 30 +32 +12\.6 +11\.2 +\+1\.3 \[", out, re.MULTILINE)
    assert by_problem("paper:q7/tepo", "paper:grpo") == found


TREE = "results/reference"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (f"tepo kl_cof --results {TREE}/embedded", "kl_cof.*kl_cov"),
        (f"clip_cov clip_cov+fraction=0.01 --results {TREE}/embedded", "one method there"),
        (f"base tepo --results {TREE}/embedded", "base is not a run: it can only be subtracted; write it second"),
        (f"tepo grpo --results {TREE}/embedded --compared chosen", "sweep: this tree has none"),
        ("0.3:30:32 0.2:30:32 --benchmarks x", "--benchmarks: is an option of METHOD METHOD --results TREE"),
        ("inf:30:32 0.2:30:32", "inf:30:32: score .* got 'inf'"),
        ("paper:tepoo paper:grpo", "the paper's tables: row: unknown value 'tepoo'.*nearest: tepo"),
        ("tepo grpo", "tepo: no results there; for two methods of a tree add --results TREE"),
        ("0.3:30:32 paper:grpo", "0.3:30:32 and paper:grpo: no benchmark in common: one without a name and aime24"),
        (f"{TREE}/embedded:tiny_qwen2/tepo/seed1/step paper:grpo", "nearest: .*tepo/seed1/step7"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    typed: str, message: str, monkeypatch: pytest.MonkeyPatch, command: Command, tmp_path: Path
) -> None:
    (tmp_path / "results").symlink_to(ROOT / "results")
    monkeypatch.chdir(tmp_path)
    code, _, error = command(compare.main, *typed.split())
    assert (code, error.count("\n"), bool(re.search(message, error))) == (2, 1, True), error
