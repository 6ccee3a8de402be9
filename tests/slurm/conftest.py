"""One real Slurm for all tests here, and a copy of the repository in which a small experiment takes half a minute."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.recipe import base_name, name_of_clean, recipe
from tests.slurm.cluster import Cluster, cluster, missing
from tests.workflow.conftest import ROOT, copy_of

REQUIRED = "TEPO_BENCH_REQUIRE_SLURM"  # set where these tests must run, as .ci/run does
SMALL = ("--configfile", "config/quick.yaml", "tests/slurm/small.yaml")
# No conda here: jobs run in this interpreter's environment, as they do where the environment is loaded by hand.
PROFILE = ("--profile", "slurm", "--sdm", "env-modules", "--slurm-init-seconds-before-status-checks", "5")


@pytest.fixture(scope="session")
def slurm() -> Iterator[Cluster]:
    """A running cluster, or a skip that says why there is none."""
    reason = missing()
    if reason:
        assert not os.environ.get(REQUIRED), f"{REQUIRED} is set: {reason}"
        pytest.skip(f"no Slurm here: {reason}")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: sockets lie in it
    try:
        with cluster(folder) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clone(target: Path) -> Path:
    """The repository with the small configuration, and the quick base model if `make demo` has made it."""
    cache, clean = Path("results/cache/models"), name_of_clean(recipe("tiny_qwen2", "quick", 1).start)
    base = cache / base_name("tiny_qwen2", "quick", 1)
    extra = [str(cache / clean), str(base)] if (ROOT / base / "base.json").exists() else []
    return copy_of(target, "slurm", "tests/slurm/small.yaml", *extra)


def snakemake(slurm: Cluster | None, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`snakemake WORDS` typed in `folder` by a user of the cluster, or of this machine."""
    here = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return subprocess.run(
        ["snakemake", *words], cwd=folder, env=slurm.environment if slurm else here,
        capture_output=True, text=True, timeout=1200, check=False,
    )  # fmt: skip
