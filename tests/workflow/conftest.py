"""Snakemake in a copy of the repository, so that tests can edit files and configurations."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Container, Mapping
from functools import cache
from pathlib import Path

import pytest

from core.files import write_json, write_text
from core.provenance import sha256_file
from workflow.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "Snakefile", "config", "profiles", "environment.yml", "workflow", "core", "methods", "evals", "models", "paper",
    "report", "docs",
)  # fmt: skip
Snakemake = Callable[..., subprocess.CompletedProcess[str]]


def run_snakemake(
    folder: Path, *words: str, environment: Mapping[str, str] = os.environ, timeout: int = 300
) -> subprocess.CompletedProcess[str]:
    """`snakemake WORDS` typed in `folder`, with this interpreter's environment activated."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    return subprocess.run(
        ["snakemake", *words], cwd=folder, env={**environment, "PATH": path},
        capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip


def copy_of(target: Path, *extra: str) -> Path:
    """What a job reads, and `extra` paths, copied to `target` with their times: Snakemake decides by times too."""
    target.mkdir(parents=True)
    subprocess.run(["cp", "-a", "--parents", *SOURCES, *extra, str(target)], cwd=ROOT, check=True)
    return target


def checkout(target: Path) -> Path:
    """All that git has or would add, but the kept references, copied to `target`."""
    listed = subprocess.check_output(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, os.fsdecode(listed).split("\0")):
        if not name.startswith("results/reference/") and ((ROOT / name).is_file() or (ROOT / name).is_symlink()):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)
    return target


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without its results: everything is still to do. Tests leave no configuration of theirs in it."""
    return copy_of(tmp_path_factory.mktemp("copy") / "clone", "README.md")


@pytest.fixture(scope="session")
def dry_run(clone: Path) -> Snakemake:
    """`snakemake -n -p WORDS` in that copy, once for the same words."""
    return cache(lambda *words: run_snakemake(clone, "-n", "-p", *words))


def finish(of: Plan, records: Container[Path], **facts: object) -> None:
    """Write those of the records, with the files beside them that a plan looks at, as today's code would."""
    benchmarks, runs = of.config["evaluation"]["benchmarks"], {of.record(planned): planned for planned in of.planned}
    for _, path, code in of._codes():
        if path not in records:
            continue
        if path.name == "run.json":
            write_text(path.with_name("curve.csv"), "rollout\n1\n")
            own = dict(zip(("code", "method_code"), code.split("-"), strict=True))
            outputs = {"curve.csv": sha256_file(path.with_name("curve.csv"))}
            run = runs[path].run
            base, prompts = of.base(run.model, run.seed), of.prompts(run)
            spec = of.specification(runs[path], base.as_posix(), prompts.as_posix())
            write_json(path, {"inputs": own, "outputs": outputs, "wall_seconds": 1.0, "spec": spec} | facts)
        else:
            write_json(path, {"code": code, "benchmarks": {}} | facts)
            for key in benchmarks:
                write_text(path.with_name(f"{key}.parquet"), "PAR1PAR1")
