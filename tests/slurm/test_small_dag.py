"""The whole chain through sbatch gives the numbers of the same chain run locally, byte for byte."""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import PROFILE, SMALL, clone, snakemake

pytestmark = pytest.mark.slow
RESULTS = Path("results/small")
LIMIT = 240  # seconds for the chain on the cluster, 2 cores that have nothing else to do


@pytest.fixture(scope="module")
def both(slurm: Cluster, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, str, float]:
    """Folder of the local run, folder of the run on the cluster, what Snakemake said there, and its seconds."""
    folders = []
    for name, profile in (("local", ()), ("cluster", PROFILE)):
        folder = clone(tmp_path_factory.mktemp(name) / "clone")
        began = time.monotonic()
        done = snakemake(slurm, folder, "table1", *profile, *SMALL)
        seconds, said = time.monotonic() - began, done.stdout + done.stderr
        assert done.returncode == 0, said[-8000:]
        folders.append(folder)
    return folders[0], folders[1], said, seconds


def test_tables_and_scores_are_byte_equal(both: tuple[Path, Path, str, float]) -> None:
    local, remote, _, _ = both
    for name in ("scores.csv", "tables/table1.csv", "tables/table1.tidy.csv", "tables/table1.md", "matrix.json"):
        assert (remote / RESULTS / name).read_bytes() == (local / RESULTS / name).read_bytes(), name


def test_curves_are_equal_but_for_their_times(both: tuple[Path, Path, str, float]) -> None:
    local, remote, _, _ = both
    curves = sorted((local / RESULTS / "runs").glob("*/*/seed*/curve.csv"))
    assert len(curves) == 2
    for path in curves:
        here, there = (pd.read_csv(p, dtype=str) for p in (path, remote / path.relative_to(local)))
        numbers = [column for column in here if not str(column).startswith("seconds_")]
        pd.testing.assert_frame_equal(there[numbers], here[numbers])


def test_every_job_but_the_cheap_ones_went_through_sbatch(both: tuple[Path, Path, str, float]) -> None:
    _, _, said, seconds = both
    submitted = Counter(re.findall(r"slurm_logs/rule_([a-z_]+)/", said))
    assert submitted - Counter(base=1) == {"train": 2, "generate": 3, "grade": 3}
    others = max(1.0, os.getloadavg()[2] / (os.cpu_count() or 1) - 1)  # processes that wait for each core beside ours
    assert seconds < LIMIT * others
    print(f"{submitted.total()} jobs through sbatch in {seconds:.0f} s")


def test_the_run_names_its_job_and_the_job_its_log(both: tuple[Path, Path, str, float]) -> None:
    _, remote, _, _ = both
    for folder in (remote / RESULTS / "runs").glob("*/*/seed*"):
        events = pd.read_json(folder / "state/events.jsonl", lines=True, dtype=False)
        assert events["event"].iloc[-1] == "end"
        logs = list((remote / ".snakemake/slurm_logs/rule_train").glob(f"*/{events['slurm_job_id'].iloc[0]}.log"))
        assert [folder.parent.name in log.parent.name for log in logs] == [True]


def test_a_second_run_plans_nothing(slurm: Cluster, both: tuple[Path, Path, str, float]) -> None:
    _, remote, _, _ = both
    said = snakemake(slurm, remote, "table1", "-n", *PROFILE, *SMALL)
    assert "Nothing to be done" in said.stdout + said.stderr
