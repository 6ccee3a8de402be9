"""One real Slurm for all tests here, and a copy of the repository with a small experiment."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models.recipe import base_name, name_of_clean, recipe
from tests.slurm.cluster import Cluster, cluster, missing
from tests.workflow.conftest import ROOT, copy_of, run_snakemake

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


def made_bases() -> list[str]:
    """The quick base model and its clean model, if `make demo` has made them here."""
    clean = name_of_clean(recipe("tiny_qwen2", "quick", 1).start)
    folders = [f"results/cache/models/{name}" for name in (clean, base_name("tiny_qwen2", "quick", 1))]
    return folders if (ROOT / folders[1] / "base.json").exists() else []


def clone(target: Path) -> Path:
    """The repository with the small configuration, and `made_bases`."""
    return copy_of(target, "slurm", "tests/slurm/small.yaml", *made_bases())


def snakemake(slurm: Cluster, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`snakemake WORDS` typed in `folder` by a user of the cluster."""
    return run_snakemake(folder, *words, environment=slurm.environment, timeout=1200)
