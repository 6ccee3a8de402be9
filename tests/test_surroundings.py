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
import yaml

from core.results_tree import Tree
from report import verify
from tests import planted
from tests.slurm.conftest import clone
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


ONE_RUN = {"matrix": [{"models": ["tiny_qwen2"], "methods": ["grpo"], "seeds": [1], "steps": [2]}],
         "training": {"rollouts": 2}, "evaluation": {"benchmarks": ["syn_add2q"], "table_step": 2}}  # fmt: skip


def started(folder: Path, *line: str, **environment: str) -> tuple[int, str, set[tuple[str, str]]]:
    """Exit code of a program, what it said, and the secrets in command lines meanwhile."""
    variables = {**os.environ, **planted.ENVIRONMENT, **environment}
    variables["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    said = folder / "said"
    with open(said, "a", encoding="utf-8") as stream:
        program = subprocess.Popen(line, cwd=folder, env=variables, stdout=stream, stderr=stream)
        with planted.told_by_arguments(program.pid) as in_arguments:
            code = program.wait()
    return code, said.read_text(encoding="utf-8"), in_arguments


@pytest.mark.slow
def test_the_pipeline_tells_no_secret(tmp_path: Path) -> None:
    """From training to the page; then once more with a step that fails, which prints a traceback."""
    folder, home = clone(tmp_path / "clone"), tmp_path / "home"
    home.mkdir()
    (folder / "one.yaml").write_text(yaml.safe_dump(ONE_RUN))
    configuration = ("--configfile", "config/quick.yaml", "tests/slurm/small.yaml", "one.yaml")
    code, said, in_arguments = started(folder, "snakemake", "report", *configuration, "--cores", "1", HOME=str(home))
    assert code == 0, said[-3000:]
    assert (folder / "results/small/report.html").is_file()
    assert in_arguments == set()
    assert planted.told_by_files(folder, home) == set()

    (folder / "results/small/scores.csv").unlink()
    (folder / "evals/score.py").write_text("import os\n\nos.environ['NOT_SET']\n")
    code, said, in_arguments = started(folder, "snakemake", "report", *configuration, "--cores", "1", HOME=str(home))
    assert code != 0
    assert "KeyError: 'NOT_SET'" in (folder / "logs/small/score.log").read_text()
    assert (in_arguments, planted.told_by_files(folder, home)) == (set(), set())
