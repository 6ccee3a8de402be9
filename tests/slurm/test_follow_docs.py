"""docs/cluster.md, typed: a reader who starts from an empty folder ends with a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.follow_docs import follow

pytestmark = pytest.mark.slow


def test_the_page_can_be_followed_from_an_empty_folder(slurm: Cluster, tmp_path: Path) -> None:
    said = follow(slurm, tmp_path)
    assert "| TEPO" in said
    assert (tmp_path / "tepo-bench/results/small/tables/table1.md").exists()
