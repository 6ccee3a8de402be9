"""The whole chain through sbatch gives the numbers of the same chain run locally, byte for byte."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.conftest import PROFILE, SMALL, clone, snakemake
from tests.slurm.follow_docs import follow

RESULTS = Path("results/small")


@pytest.mark.slow
@pytest.mark.chain
def test_the_cluster_gives_the_local_numbers(slurm: Cluster, tmp_path: Path) -> None:
    local, remote = (clone(tmp_path / name) for name in ("local", "cluster"))
    said = ""
    for folder, profile in ((local, ()), (remote, PROFILE)):
        done = snakemake(slurm, folder, "table1", *profile, *SMALL)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said[-8000:]

    for name in ("scores.csv", "tables/table1.csv", "tables/table1.tidy.csv", "tables/table1.md", "matrix.json"):
        assert (remote / RESULTS / name).read_bytes() == (local / RESULTS / name).read_bytes(), name
    curves = sorted((local / RESULTS / "runs").glob("*/*/seed*/curve.csv"))
    assert len(curves) == 2
    for path in curves:
        here, there = (pd.read_csv(p, dtype=str) for p in (path, remote / path.relative_to(local)))
        numbers = [column for column in here if not str(column).startswith("seconds_")]
        pd.testing.assert_frame_equal(there[numbers], here[numbers])

    submitted = Counter(re.findall(r"slurm_logs/rule_([a-z_]+)/", said))
    assert submitted - Counter(base=1) == {"train": 2, "generate": 3, "grade": 3}, "cheap jobs run at once"
    for folder in (remote / RESULTS / "runs").glob("*/*/seed*"):  # a run names its job, and the job's log is there
        events = pd.read_json(folder / "state/events.jsonl", lines=True, dtype=False)
        assert events["event"].iloc[-1] == "end"
        logs = list((remote / ".snakemake/slurm_logs/rule_train").glob(f"*/{events['slurm_job_id'].iloc[0]}.log"))
        assert [folder.parent.name in log.parent.name for log in logs] == [True]

    again = snakemake(slurm, remote, "table1", "-n", *PROFILE, *SMALL)
    assert "Nothing to be done" in again.stdout + again.stderr


@pytest.mark.slow
def test_the_page_can_be_followed_from_an_empty_folder(slurm: Cluster, tmp_path: Path) -> None:
    said = follow(slurm, tmp_path)
    assert "| TEPO" in said
    assert (tmp_path / "tepo-bench/results/small/tables/table1.md").exists()
