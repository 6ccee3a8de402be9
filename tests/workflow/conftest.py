"""Snakemake in a copy of the repository, so that tests can edit files and configurations."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "Snakefile", "config", "profiles", "environment.yml", "workflow", "records", "methods", "evals", "models", "paper",
    "report", "docs/notebook", "docs/readings.md",
)  # fmt: skip
Snakemake = Callable[..., subprocess.CompletedProcess[str]]


def run_snakemake(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`snakemake WORDS` typed in `folder`, with this interpreter's environment activated."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        ["snakemake", *words], cwd=folder, env=os.environ | {"PATH": path},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def copy_of(target: Path, *extra: str) -> Path:
    """What a job reads, and `extra` paths, copied to `target` with their times: Snakemake decides by times too."""
    target.mkdir(parents=True)
    subprocess.run(["cp", "-a", "--parents", *SOURCES, *extra, str(target)], cwd=ROOT, check=True)
    return target


def large_matrix(seeds: int) -> str:
    """To lay over config/paper.yaml: every pair of model and method in its matrix with so many seeds."""
    blocks = yaml.safe_load((ROOT / "config" / "paper.yaml").read_text())["matrix"]
    large = [block | {"seeds": list(range(1, seeds + 1))} for block in blocks]
    return yaml.safe_dump({"scale": "large", "title": "Large", "note": "To test planning.", "matrix": large})


@pytest.fixture(scope="session")
def here() -> Snakemake:
    """Snakemake in the repository itself: for dry runs and for what `make demo` left."""
    return lambda *words: run_snakemake(ROOT, *words)
