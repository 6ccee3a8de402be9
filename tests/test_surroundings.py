"""The whole pipeline where a path, a locale and a home folder are as unkind as they may be."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.results_tree import Tree
from report import verify
from tests.workflow.conftest import checkout

ROOT = Path(__file__).resolve().parent.parent

# One run of two rollouts, and two evaluations.
SMALL = """
scale: small
matrix:
  - {models: [tiny_qwen2], methods: [grpo], seeds: [1], steps: [2]}
training: {rollouts: 2, prompts_per_rollout: 8, samples_per_prompt: 4}
evaluation: {benchmarks: [syn_mix3], table_step: 2}
"""


@pytest.fixture
def project() -> Iterator[Path]:
    """This checkout, as it is now, in a folder with a space, both quotes and a letter outside ASCII.

    Not in pytest's own folder: the library datasets makes one file name of the whole path of its cache, which must stay
    below 255 bytes.
    """
    with tempfile.TemporaryDirectory(prefix="t e'st \"ü") as folder:
        yield checkout(Path(folder) / "b")


def environment() -> dict[str, str]:
    """ASCII as the encoding of everything that does not name its own, and a home that cannot be made."""
    folder = str(Path(sys.executable).parent)
    unkind = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "HOME": "/proc/nope"}
    left_out = ("XDG_", "MPL", "HF_", "PYTHON", "LANG", "LC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
    return kept | unkind | {"PATH": f"{folder}:{os.environ['PATH']}"}


def test_make_refuses_a_path_that_cannot_be_on_the_path(tmp_path: Path) -> None:
    """And takes one with spaces and quotes."""
    for name, refused in (("a:b", True), ("t e'st \"ü", False)):
        (tmp_path / name).mkdir()
        shutil.copyfile(ROOT / "Makefile", tmp_path / name / "Makefile")
        done = subprocess.run(["make", "-n", "help"], cwd=tmp_path / name, capture_output=True, check=False)
        assert (done.returncode != 0) == refused
        assert (b"a colon in the path" in done.stderr) == refused


def test_the_plan_can_be_made_anywhere(project: Path) -> None:
    (project / "small.yaml").write_text(SMALL, encoding="utf-8")
    line = [
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "--quiet",
        "rules",
        "--configfile",
        "config/quick.yaml",
        "small.yaml",
    ]
    done = subprocess.run(line, cwd=project, env=environment(), capture_output=True, timeout=1800, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-2000:]


@pytest.mark.slow
@pytest.mark.demo
def test_the_pipeline_runs_anywhere(project: Path) -> None:
    (project / "small.yaml").write_text(SMALL, encoding="utf-8")
    # The demo's base model, named by its recipe: building it takes longer than all the rest.
    shutil.copytree(ROOT / "results/cache", project / "results/cache", ignore=shutil.ignore_patterns(".work*"))
    line = [sys.executable, "-m", "snakemake", "--cores", "2", "--configfile", "config/quick.yaml", "small.yaml"]
    done = subprocess.run(line, cwd=project, env=environment(), capture_output=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]
    found = Tree(project / "results/small")
    assert found.layout.report.is_file()
    assert verify.problems(found) == []
