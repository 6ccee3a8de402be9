"""The manifest says what is there and how it came to be; verify names everything that is no longer so."""

import re
import shutil
from pathlib import Path

import pytest

from core.files import write_json, write_text
from core.layout import Checkpoint, Run
from evals.store import read_record
from evals.tree import MANIFEST, Tree
from report import manifest, verify
from tests.core.test_digests import flip
from tests.report import synthetic
from tests.report.conftest import Command
from tests.report.finished import cut, edit, replace
from tests.workflow.conftest import copy_of, run_snakemake

TEPO, GRPO = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("tepo", "grpo"))
RUN = f"runs/{TEPO.run.path.as_posix()}"


@pytest.fixture(scope="module")
def listed(finished: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A complete tree with its manifest."""
    root = Path(shutil.copytree(finished.root.parent, tmp_path_factory.mktemp("listed") / "results")) / "quick"
    (root / "tables").mkdir()
    (root / "tables/table1.md").write_text("| a table |\n")
    write_json(root / MANIFEST, manifest.build(Tree(root)))
    return Tree(root)


@pytest.fixture
def broken(listed: Tree, tmp_path: Path) -> Path:
    """The root of a copy to break, with its inputs beside it."""
    return Path(shutil.copytree(listed.root.parent, tmp_path / "results")) / "quick"


def swap(root: Path, *kinds: str) -> None:
    for kind in kinds:
        below = "checkpoints" if kind == "runs" else ""
        one, two = (root / kind / at.run.path / below / f"step{at.step}" for at in (TEPO, GRPO))
        one.rename(root / "aside")
        two.rename(one)
        (root / "aside").rename(two)


def edit_a_score(root: Path) -> None:
    replace(
        root / "scores.csv",
        r"(tiny_qwen2,tepo,1,12,avg_macro,(?:[^,]*,){4}0\.\d\d)(\d)",
        lambda m: m[1] + str(9 - int(m[2])),
    )


def edit_an_interval(root: Path) -> None:
    replace(root / "scores.csv", r"(tiny_qwen2,tepo,1,12,syn_as3,(?:[^,]*,){6})0\.\d+", r"\g<1>0.0001")


BROKEN = {
    "a bit flipped": (
        lambda root: flip(root / RUN / "curve.csv", 0.9),
        [f"differs: {RUN}/curve.csv: sha256 ", "curve.csv: not the curve that "],
    ),
    "two grades folders swapped": (
        lambda root: swap(root, "grades"),
        [
            "differs: grades/tiny_qwen2/tepo/seed1/step12/syn_as3.parquet: ",
            "differs: grades/tiny_qwen2/grpo/seed1/step12/syn_as3.parquet: ",
            "tepo/seed1/step12/grades.json: syn_as3: graded other samples than those of ",
        ],
    ),
    "a file added": (lambda root: (root / "tables/notes.txt").write_text("?"), ["extra: tables/notes.txt"]),
    "a run deleted": (
        lambda root: shutil.rmtree(root / RUN),
        [f"missing: {RUN}/run.json", f"missing: {RUN}/curve.csv"],
    ),
    "weights cut short": (
        lambda root: cut(root / RUN / "checkpoints/step12/model.safetensors"),
        [f"{RUN}/checkpoints/step12: not the checkpoint that "],
    ),
    "a base model edited": (
        lambda root: (root.parent / "cache/models/invented/config.json").write_text("other"),
        ["models/invented: base_files: not what "],
    ),
    "two checkpoints swapped": (
        lambda root: swap(root, "runs"),
        [f"{RUN}/checkpoints/step12: not the checkpoint that "],
    ),
    "code edited while it ran": (
        lambda root: edit(root / RUN / "run.json", code_warning="code of train: was edited while it ran"),
        [f"code: {TEPO.run.path.as_posix()}: code of train: was edited while it ran"],
    ),
    "a record that is no JSON": (
        lambda root: (root / "grades" / TEPO.path / "grades.json").write_text("{"),
        ["differs: grades/tiny_qwen2/tepo/seed1/step12/grades.json: ", "chain: "],
    ),
}


def test_a_finished_tree_stands(listed: Tree, command: Command) -> None:
    code, out, err = command(verify.main, "--results", listed.root)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("everything stands (91 files, 4 checkpoints, 13 input files listed)")


@pytest.mark.parametrize("case", BROKEN)
def test_what_was_done_to_a_tree_is_named(case: str, broken: Path, command: Command) -> None:
    act, expected = BROKEN[case]
    act(broken)
    code, out, err = command(verify.main, "--results", broken)
    assert (code, err) == (1, "")
    for words in expected:
        assert any(words in line for line in out.splitlines()), f"{words!r} not in:\n{out}"


UNCHAINED = {
    "an average edited": (edit_a_score, r"tepo/seed1/step12 avg_macro: score is 0\.\d+, the grades give 0\.\d+"),
    "an interval edited": (edit_an_interval, r"tepo/seed1/step12 syn_as3: low is 0\.0001, the grades give 0\.\d+"),
    "samples and grades of two checkpoints swapped": (
        lambda root: swap(root, "samples", "grades"),
        r"tepo/seed1/step12/samples\.json: model: drawn from .*grpo.*, expected .*tepo/seed1/checkpoints/step12",
    ),
    "other items than those answered": (
        lambda root: write_text(root.parent / "cache/benchmarks/syn_as3.jsonl", "other"),
        r"syn_as3\.jsonl: not the file that .*samples\.json was made from",
    ),
    "samples of another base model's tokenizer": (
        lambda root: edit(root / "samples/tiny_qwen2/base/seed0/step0/samples.json", files_sha256="b" * 64),
        r"base/seed0/step0/samples\.json: drawn from another base model than tiny_qwen2/grpo/seed1 was trained from",
    ),
    "samples of another base model": (
        lambda root: edit(root / "samples/tiny_qwen2/base/seed0/step0/samples.json", weights_sha256="b" * 64),
        r"base/seed0/step0/samples\.json: drawn from another base model than tiny_qwen2/grpo/seed1 was trained from",
    ),
    "a checkpoint that its run does not list": (
        lambda root: edit(root / RUN / "run.json", outputs={"curve.csv": "c" * 64}),
        r"run\.json has no checkpoint step12",
    ),
    "grades with other answers than those of the items": (
        lambda root: edit(
            root / "grades" / TEPO.path / "grades.json",
            benchmarks={
                key: entry | {"data_sha256": "b" * 64}
                for key, entry in read_record(root / "grades" / TEPO.path / "grades.json").items()
            },
        ),
        r"grades\.json: syn_as3: graded with other answers than those of .*syn_as3\.jsonl that .*samples\.json names",
    ),
    "a row for something that was not graded": (
        lambda root: shutil.rmtree(root / "grades" / TEPO.path),
        r"tepo/seed1/step12: scored, but nothing was graded",
    ),
    "grades without a row": (
        lambda root: replace(root / "scores.csv", r"(?:tiny_qwen2,tepo,1,12,.*\n)+", ""),
        r"tepo/seed1/step12 syn_mix3: no such row, though it was graded",
    ),
}


@pytest.mark.parametrize("case", UNCHAINED)
def test_no_manifest_is_written_over_a_broken_chain(case: str, broken: Path, command: Command) -> None:
    act, expected = UNCHAINED[case]
    act(broken)
    before = (broken / MANIFEST).read_text()
    code, out, _ = command(manifest.main, "--results", broken)
    assert code == 1
    assert "no manifest written" in out
    assert re.search(expected, out), out
    assert (broken / MANIFEST).read_text() == before


def test_what_is_not_finished_is_listed_as_missing(broken: Path) -> None:
    (broken / RUN / "run.json").unlink()
    shutil.rmtree(broken / "grades" / TEPO.path)
    content = manifest.build(Tree(broken))
    assert content["missing"] == {"runs": [TEPO.run.path.as_posix()], "checkpoints": [TEPO.path.as_posix()]}


def test_without_a_manifest_there_is_nothing_to_hold_against(broken: Path, command: Command) -> None:
    (broken / MANIFEST).unlink()
    code, _, err = command(verify.main, "--results", broken)
    assert code == 2
    assert "manifest (python -m report.manifest writes it) is missing" in err


@pytest.mark.slow
def test_snakemake_verify_fails_when_verify_does(tmp_path: Path) -> None:
    """Through `| tee {log}`: a rule whose command fails must fail."""
    clone = copy_of(tmp_path / "clone")
    synthetic.write_tree(clone / "results/quick")
    done = run_snakemake(clone, "verify", "--configfile", "config/quick.yaml")
    assert "manifest.json: manifest (python -m report.manifest writes it) is missing" in done.stdout + done.stderr
    assert done.returncode != 0


def test_the_base_of_a_seed_is_held_against_the_runs_of_that_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bases of different seeds have different weights, which is no contradiction; of one seed it is."""
    seeds = (4, 0)
    own = Tree(synthetic.write_tree(tmp_path / "quick", seeds=seeds, base_seeds=seeds))
    base = Checkpoint.base(str(synthetic.MODEL["key"]), seeds[0])

    def record(run: Run) -> dict[str, object]:
        return {"inputs": {"base": str(run.seed), "base_files": None}}

    monkeypatch.setattr(own, "record", record)
    monkeypatch.setattr(manifest.store, "read_folder", lambda path: drawn)
    monkeypatch.setattr(type(own.layout.root), "is_file", lambda path: True)
    monkeypatch.setattr(manifest, "_check_parquets", lambda path: [])
    drawn = {"weights_sha256": str(seeds[0]), "files_sha256": None, "benchmarks": {}}
    assert list(manifest._check_samples(own, base)) == []
    drawn["weights_sha256"] = str(seeds[1])
    said = list(manifest._check_samples(own, base))
    assert len(said) == len(synthetic.METHODS)
    assert all(f"seed{seeds[0]} was trained from" in line for line in said)
