"""One file of a finished tree is damaged: each command names it; the pipeline where path and locale are unkind."""

import contextlib
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest
import yaml

from core import digests, errors
from core.files import read_json, write_json
from core.results_tree import Tree
from report import manifest, verify
from tests import planted
from tests.core.test_digests import flip
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.finished import finish
from tests.slurm.conftest import clone
from tests.workflow.conftest import checkout

ROOT = "results/quick"
READERS = {
    "score": "evals.score --out results/quick/scores.csv",
    "table": "report.tables --table 1",
    "show": "report.show table1",
    "convergence": "report.convergence",
    "page": "report.build",
    "manifest": "report.manifest",
    "verify": "report.verify",
}
KINDS = {  # pattern of files -> the commands that read them; `verify` reads all
    "matrix.json": "table show page", "runs/*/*/*/run.json": "convergence page", "runs/*/*/*/curve.csv": "convergence",
    "runs/*/*/*/checkpoints/*/*": "", "samples/*/*/*/*/samples.json": "page", "samples/*/*/*/*/*.parquet": "page",
    "grades/*/*/*/*/grades.json": "score page", "grades/*/*/*/*/*.parquet": "score table page",
    "scores.csv": "table page", "tables/table1.tidy.csv": "", "figures/figure2.csv": "page",
    "figures/convergence.csv": "page", "claims.csv": "page", "report.html": "", "report.data/**/*": "",
    manifest.NAME: "",
}  # fmt: skip


def run(reader: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Exit code of the command as typed, and what it printed; a traceback goes through."""
    module, *words = READERS[reader].split()
    if reader == "score":
        tree = Tree(Path(ROOT))
        checkpoints, benchmarks = (str(c.path) for c in tree.checkpoints), (entry["key"] for entry in tree.benchmarks)
        words += ["--checkpoints", *checkpoints, "--benchmarks", *benchmarks]
    capsys.readouterr()
    try:
        with mock.patch("sys.argv", [module, *words, "--results", ROOT]):
            errors.run(importlib.import_module(module).main)
    except SystemExit as ended:
        return int(ended.code or 0), "".join(capsys.readouterr())
    return 0, ""


def contents() -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in Path("results").rglob("*") if path.is_file()}


def put(right: dict[Path, bytes], times: dict[Path, int]) -> None:
    """The tree as it was, times too: the page tells when the last run ended."""
    for path in contents().keys() - right.keys():
        path.unlink()
    for path, content in right.items():
        if not path.is_file() or path.read_bytes() != content:
            with contextlib.suppress(OSError):
                path.rmdir()
            path.write_bytes(content)
        os.utime(path, ns=(times[path],) * 2)


@pytest.mark.slow
def test_no_fault_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = finish(Tree(synthetic.write_tree(Path(ROOT))))
    for pattern in ("matrix.json", "runs/*/*/*/run.json", "samples/**/samples.json", "grades/**/grades.json"):
        for path in tree.root.glob(pattern):
            write_json(path, digests.with_own(read_json(path)))
    write_files(tree)
    for reader in [*READERS, *READERS]:  # the second time nothing changes
        code, said = run(reader, capsys)
        assert code == 0 or reader == "verify", said
    right = contents()
    times = {path: path.stat().st_mtime_ns for path in right}
    assert run("verify", capsys)[0] == 0
    for number, (pattern, readers) in enumerate(KINDS.items()):
        path, *others = sorted(path for path in Path(ROOT).glob(pattern) if path.is_file())
        damages: list[Callable[[Path], object]] = [
            lambda path: flip(path, 0.4), lambda path: os.truncate(path, len(right[path]) // 2), Path.unlink,
            lambda path: (path.unlink(), path.mkdir()),
            lambda path, other=others[-1] if others else None: path.write_bytes(right[other] if other else b""),
        ]  # fmt: skip
        for damage in (damages[number % 5], damages[(number + 2) % 5]):
            for reader in (*readers.split(), "verify"):
                damage(path)
                if path.is_file():
                    os.utime(path, ns=(times[path],) * 2)
                damaged, case = contents(), (pattern, number, reader)
                code, said = run(reader, capsys)
                after = contents()
                if code:
                    assert code == (1 if reader == "verify" and "error: " not in said else 2), (case, said)
                    assert path.name in said or f"{path.parent.name}/" in said or f"{path.parent.name}:" in said, case
                    assert reader == "verify" or said.count("error: ") == 1, (case, said)
                else:  # the damaged file may be written again; nothing follows from the damage
                    assert reader != "verify", case
                    assert {p for p in after if after[p] not in (right.get(p), damaged.get(p))} == set(), case
                put(right, times)


PROJECT = Path(__file__).resolve().parent.parent

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


def snakemake(project: Path, *words: str) -> None:
    """With the small configuration, which it writes, in the unkind environment."""
    (project / "small.yaml").write_text(SMALL, encoding="utf-8")
    line = [sys.executable, "-m", "snakemake", *words, "--configfile", "config/quick.yaml", "small.yaml"]
    done = subprocess.run(line, cwd=project, env=environment(), capture_output=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr.decode("utf-8", "replace")[-4000:]


def test_make_refuses_a_path_that_cannot_be_on_the_path(tmp_path: Path) -> None:
    """And takes one with spaces and quotes."""
    for name, refused in (("a:b", True), ("t e'st \"ü", False)):
        (tmp_path / name).mkdir()
        shutil.copyfile(PROJECT / "Makefile", tmp_path / name / "Makefile")
        done = subprocess.run(["make", "-n", "help"], cwd=tmp_path / name, capture_output=True, check=False)
        assert (done.returncode != 0) == refused
        assert (b"a colon in the path" in done.stderr) == refused


def test_the_plan_can_be_made_anywhere(project: Path) -> None:
    snakemake(project, "-n", "--quiet", "rules")


@pytest.mark.slow
@pytest.mark.demo
def test_the_pipeline_runs_anywhere(project: Path) -> None:
    # The demo's base model, named by its recipe: building it takes longer than all the rest.
    shutil.copytree(PROJECT / "results/cache", project / "results/cache", ignore=shutil.ignore_patterns(".work*"))
    snakemake(project, "--cores", "2")
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
