"""Two results trees: equal is said to be equal, noise to be noise, a change to be a change, and what cannot be compared
is refused by name."""

from __future__ import annotations

import csv
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.layout import Checkpoint, Run
from core.results_tree import Tree
from report import compare
from tests.report import synthetic
from tests.report.finished import edit, finish, rehash, replace, rewrite

Command = Callable[..., tuple[int, str, str]]
TEPO = Checkpoint(Run("tiny_qwen2", "tepo", 1), 12)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("one") / "results/quick")))


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("two") / "results/quick", seeds=(1, 2))))


@pytest.fixture
def other(one: Tree, tmp_path: Path) -> Tree:
    """A copy of the tree with one seed, to change."""
    return Tree(shutil.copytree(one.root, tmp_path / "quick"))


@pytest.fixture
def others(two: Tree, tmp_path: Path) -> Tree:
    """A copy of the tree with two seeds, to change."""
    return Tree(shutil.copytree(two.root, tmp_path / "quick"))


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


def test_a_tree_equals_its_copy_whatever_the_times(one: Tree, other: Tree, command: Command) -> None:
    for run in other.runs:
        # and a figure that only a later version records
        later = {"seconds_update": "99.0", "sampling_gap_mean": "0.1"}
        rewrite(other.layout.run(run) / "curve.csv", lambda row, later=later: row | later)
    # nor is an interval by another version another score
    rewrite(other.layout.scores, lambda row: row | {"low": "0.0"})
    rehash(other.root)
    code, out, err = command(compare.main, one.root, other.root)
    assert (code, err) == (0, "")
    assert "curves (apart from times) 4 of 4, checkpoints' weights 4 of 4, checkpoints' scores 5 of 5" in out
    assert out.endswith("verdict: no figure differs\n")


@pytest.mark.parametrize(("wrong", "expected"), [(3, 0), (60, 1)])
def test_a_grader_change_is_held_against_the_sampling_of_problems(
    wrong: int, expected: int, one: Tree, other: Tree, command: Command, tmp_path: Path
) -> None:
    grade_anew(other, TEPO, "syn_as3", wrong)
    code, out, _ = command(compare.main, one.root, other.root, "--csv", tmp_path / "cells.csv")
    assert code == expected, out
    assert "weights 4 of 4, checkpoints' scores 4 of 5" in out
    with open(tmp_path / "cells.csv", encoding="utf-8", newline="") as stream:
        cells = {(row["where"], row["figure"]): row for row in csv.DictReader(stream)}
    cell = cells["tiny_qwen2/tepo/step12, seed 1", "syn_as3"]
    assert float(cell["difference"]) == pytest.approx(-wrong / 100, abs=1e-12)
    assert (cell["how"], cell["moved"]) == ("the two scores' own intervals", "yes" if expected else "no")
    assert cells.keys() == {("tiny_qwen2/tepo/step12, seed 1", key) for key in ("syn_as3", "avg_pooled", "avg_macro")}


def test_a_retrained_method_is_held_against_its_seeds(two: Tree, others: Tree, command: Command) -> None:
    """A change that is alike on every seed is seen; one that is not alike lies beside the interval of two seeds."""
    runs = [run for run in others.runs if run.method == "tepo"]
    retrain(others, runs, lambda row: row | {"grad_norm": str(float(row["grad_norm"]) + 1)})
    retrain(others, runs[1:], lambda row: row | {"entropy": str(2 * float(row["entropy"]))})
    code, out, _ = command(compare.main, two.root, others.root)
    assert code == 1, out
    table = [line for line in out.splitlines() if line.startswith("| tiny_qwen2/tepo |")]
    assert [("grad_norm" in line, "moved" in line) for line in table] == [(True, True), (False, False)]
    assert "curves (apart from times) 6 of 8, checkpoints' weights 6 of 8" in out
    assert "verdict: MOVED: 1 of 2 figures" in out


def test_one_seed_cannot_know_the_noise_of_training(one: Tree, other: Tree, command: Command) -> None:
    retrain(other, [TEPO.run], lambda row: row | {"grad_norm": "99.0"})
    code, out, _ = command(compare.main, one.root, other.root)
    assert code == 0
    assert out.endswith("verdict: no figure differs beyond noise; 1 have no interval\n")


CANNOT = {
    "another scale": (lambda t: edit(t.layout.matrix, scale="embedded"), r"is of scale quick, .* of scale embedded"),
    "other problems": (
        lambda t: replace(t.layout.matrix, r'"items": 100', '"items": 50'),
        "benchmark syn_as3: .* has 100 problems x 1, .* has 50 problems x 1",
    ),
    "nothing in common": (
        lambda t: (
            replace(t.layout.scores, "(?s)tiny_qwen2,.*", lambda m: m[0].replace("tiny_qwen2,", "tiny_other,")),
            rehash(t.root),
            [(t.layout.run(run) / "run.json").unlink() for run in t.runs],
        ),
        "have neither a run nor a score in common",
    ),
    "no scores": (lambda t: t.layout.scores.unlink(), r"scores\.csv: table of scores is missing"),
}


def test_what_cannot_be_compared_is_named(
    one: Tree, tmp_path: Path, command: Command, subtests: pytest.Subtests
) -> None:
    for case, (act, expected) in CANNOT.items():
        with subtests.test(case):
            other = Tree(shutil.copytree(one.root, tmp_path / case / "quick"))
            act(other)
            code, _, err = command(compare.main, one.root, other.root)
            assert (code, err.count("\n")) == (2, 1)
            assert re.search(expected, err), err


def test_trees_with_other_benchmarks_are_compared_where_they_overlap(one: Tree, other: Tree, command: Command) -> None:
    """On the benchmarks of both. An average over others is another figure, whether or not it has the same value."""
    replace(other.layout.matrix, '"syn_seq1"', '"syn_seq2"')
    grade_anew(other, TEPO, "syn_as3", 60)
    code, out, _ = command(compare.main, one.root, other.root, "--largest", 99)
    assert code == 1
    assert "only in A (1): syn_seq1" in out
    assert "only in B (1): syn_seq2" in out
    assert re.findall(r"^\| tiny_qwen2/tepo/step12, seed 1 \| (\S+)", out, re.M) == ["syn_as3"]


def test_trees_without_a_common_benchmark_are_compared_by_their_curves(one: Tree, other: Tree) -> None:
    for entry in synthetic.BENCHMARKS:
        replace(other.layout.matrix, f'"{entry["key"]}"', f'"{entry["key"]}_other"')
    retrain(other, [TEPO.run], lambda row: row | {"grad_norm": "99.0"})
    common = compare.overlap(Tree(one.root), Tree(other.root))
    assert (common.figures, common.checkpoints, len(common.runs)) == ((), (), 4)
    assert {row["figure"] for row in compare.differences(common)} == {"grad_norm"}


def test_what_only_one_side_has_is_listed(two: Tree, others: Tree, command: Command) -> None:
    gone = Run("tiny_qwen2", "gspo", 2)
    (others.layout.run(gone) / "run.json").unlink()
    edit(others.layout.matrix, settings={"training.passes": 3})
    for run in others.runs:
        if run != gone:
            replace(others.layout.run(run) / "run.json", r'"torch": "2\.13\.0"', '"torch": "2.14.0"')
    code, out, _ = command(compare.main, two.root, others.root)
    assert code == 0
    assert "only in A (2): torch 2.13.0, tiny_qwen2/gspo/seed2" in out
    assert "only in B (2): torch 2.14.0, training.passes=3" in out
