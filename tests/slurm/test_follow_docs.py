"""docs/cluster.md, typed: a reader who starts from an empty folder ends with a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slurm.cluster import Cluster
from tests.slurm.follow_docs import commands, follow

pytestmark = pytest.mark.slow


def test_the_page_can_be_followed_from_an_empty_folder(slurm: Cluster, tmp_path: Path) -> None:
    said = follow(slurm, tmp_path)
    assert "| TEPO" in said
    assert (tmp_path / "tepo-bench/results/small/tables/table1.md").exists()


def test_a_command_that_fails_is_noticed(slurm: Cluster, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ cd /\n$ pwd\n$ false\n$ echo beyond\n```\n")
    assert commands(page) == ["cd /", "pwd", "false", "echo beyond"]
    with pytest.raises(RuntimeError, match=r"(?s)exit code 1 after.*\$ false\n$"):
        follow(slurm, tmp_path, page)
