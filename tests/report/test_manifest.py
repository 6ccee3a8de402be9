"""The manifest lists what is there; verify names everything that is no longer so."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.files import write_json, write_text
from core.layout import Checkpoint, Run
from evals.tree import MANIFEST, Tree
from report import manifest, verify
from tests.core.test_digests import flip
from tests.report.conftest import Command
from tests.report.finished import cut, edit

TEPO, GRPO = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("tepo", "grpo"))
RUN = f"runs/{TEPO.run.path.as_posix()}"
BASE = "samples/tiny_qwen2/base/seed0/step0/samples.json"
GRADES = f"grades/{TEPO.path}/grades.json"


@pytest.fixture(scope="module")
def listed(scored: Tree, tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A complete tree with its manifest."""
    root = Path(shutil.copytree(scored.root.parent, tmp_path_factory.mktemp("listed") / "results")) / "quick"
    write_text(root / "tables/table1.md", "| a table |\n")
    write_json(root / MANIFEST, manifest.build(Tree(root)))
    return Tree(root)


@pytest.fixture
def broken(listed: Tree, tmp_path: Path) -> Path:
    """The root of a copy to break, with its inputs beside it."""
    return Path(shutil.copytree(listed.root.parent, tmp_path / "results")) / "quick"


BROKEN: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "a bit flipped": (
        lambda root: flip(root / RUN / "curve.csv", 0.9),
        [f"differs: {RUN}/curve.csv: sha256 ", r"curve\.csv: not the file that .*run\.json lists"],
    ),
    "a record that is not JSON": (lambda root: (root / GRADES).write_text("{"), [f"differs: {GRADES}: ", "chain: "]),
    "a file added": (lambda root: (root / "tables/notes.txt").write_text("?"), ["extra: tables/notes.txt"]),
    "a run deleted": (
        lambda root: shutil.rmtree(root / RUN),
        [f"missing: {RUN}/run.json", f"missing: {RUN}/curve.csv", "step12: missing, though .*samples.json lists it"],
    ),
    "weights cut short": (
        lambda root: cut(root / RUN / "checkpoints/step12/model.safetensors"),
        [f"{RUN}/checkpoints/step12: not the folder that ", f"{RUN}/checkpoints/step12: not the weights that "],
    ),
    "a base model edited": (
        lambda root: (root.parent / "cache/models/invented/config.json").write_text("other"),
        ["models/invented: not the configuration and tokenizer that "],
    ),
    "samples of another base model": (
        lambda root: edit(root / BASE, weights_sha256="b" * 64),
        [f"invented: not the weights that .*{BASE} lists"],
    ),
}


def test_a_finished_tree_stands(listed: Tree, broken: Path, command: Command) -> None:
    code, out, err = command(verify.main, "--results", listed.root)
    assert (code, err) == (0, "")
    assert out.rstrip().endswith("everything stands (91 files, 4 checkpoints, 13 input files listed)")
    edit(broken / RUN / "run.json", code_warning="was edited")
    write_json(broken / MANIFEST, manifest.build(Tree(broken)))
    code, out, _ = command(verify.main, "--results", broken)
    assert (code, out.splitlines()[0].endswith("seed1: was edited")) == (0, True), "a warning alone is no difference"
    (broken / MANIFEST).unlink()
    code, _, err = command(verify.main, "--results", broken)
    assert (code, "manifest (python -m report.manifest writes it) is missing" in err) == (2, True)


@pytest.mark.parametrize("case", BROKEN)
def test_what_was_done_to_a_tree_is_named(case: str, broken: Path, command: Command) -> None:
    act, expected = BROKEN[case]
    act(broken)
    code, out, err = command(verify.main, "--results", broken)
    assert (code, err) == (1, "")
    assert [pattern for pattern in expected if not re.search(pattern, out)] == [], out


def test_what_is_not_finished_is_listed_as_missing(broken: Path) -> None:
    (broken / RUN / "run.json").unlink()
    shutil.rmtree(broken / "grades" / TEPO.path)
    content = manifest.build(Tree(broken))
    assert content["missing"] == {"runs": [TEPO.run.path.as_posix()], "checkpoints": [TEPO.path.as_posix()]}
