"""Exports, each read back by the library that they are for."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from core.results_tree import Tree
from report import export
from tests.report import synthetic
from tests.report.finished import finish

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return finish(Tree(synthetic.write_tree(tmp_path_factory.mktemp("checkout") / "results/quick")))


@pytest.fixture
def exported(tree: Tree, tmp_path: Path, command: Command) -> Callable[..., tuple[Path, str]]:
    """`exported(form, *options)` -> folder and what was printed."""

    def go(form: str, *options: str) -> tuple[Path, str]:
        code, out, err = command(export.main, "--results", tree.root, "--to", form, "--out", tmp_path / "out", *options)
        assert (code, err) == (0, "")
        return tmp_path / "out", out

    return go


def test_eval_results_come_back_from_huggingface_hub(tree: Tree, exported: Callable[..., tuple[Path, str]]) -> None:
    from huggingface_hub import parse_eval_result_entries

    folder, said = exported("eval-results", "--dataset", "syn_mix3=me/mixed", "--dataset", "syn_as3=me/sums")
    files = sorted(folder.rglob("*.yaml"))
    assert len(files) == 2 * len(tree.checkpoints)
    assert {path.parent.name for path in files} == {".eval_results"}
    for checkpoint in tree.checkpoints:
        path = folder / checkpoint.path / ".eval_results/syn_mix3.yaml"
        (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        score = tree.scores[checkpoint, "syn_mix3"]
        assert score.value is not None
        assert (entry.dataset_id, entry.task_id) == ("me/mixed", "syn_mix3")
        assert entry.value == pytest.approx(100 * score.value, abs=1e-6)
        assert entry.notes is not None
        assert entry.notes.startswith("avg@8, 20 problems, 95 % interval ")
    assert "left out, no data set on the hub: syn_inv2, syn_add2q, syn_mix2, syn_mul4, syn_seq1" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--to", "eval-result"), "--to: unknown value 'eval-result'; allowed: .*; nearest: eval-results"),
        (("--to", "eval-results"), "none of its benchmarks is a data set on the hub .*--dataset KEY=ORGANISATION/NAME"),
        (("--to", "eval-results", "--dataset", "syn_mix3"), "--dataset: 'syn_mix3' is not of the form"),
        (("--to", "eval-results", "--dataset", "syn_mix9=a/b"), "'syn_mix9'.*nearest: syn_mix3"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    options: tuple[str, ...], said: str, tree: Tree, tmp_path: Path, command: Command
) -> None:
    code, out, err = command(export.main, "--results", tree.root, "--out", tmp_path / "out", *options)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert re.search(said, err), err
    assert not (tmp_path / "out").exists()


def test_a_folder_with_something_in_it_is_left_alone(tree: Tree, tmp_path: Path, command: Command) -> None:
    (tmp_path / "mine").write_text("?")
    code, _, err = command(export.main, "--results", tree.root, "--to", "eval-results", "--out", tmp_path)
    assert (code, err.startswith("error: command line: --out: ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
