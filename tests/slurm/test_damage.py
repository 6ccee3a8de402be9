"""Clocks that jump and files that are damaged, on this machine: nothing is trained twice, nothing damaged is read."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.slurm.conftest import SMALL, clone, snakemake

pytestmark = pytest.mark.slow
RESULTS = Path("results/small")
TABLES = ("scores.csv", "tables/table1.csv", "tables/table1.tidy.csv")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = clone(tmp_path_factory.mktemp("finished") / "clone")
    done = snakemake(None, folder, "table1", *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def tables(folder: Path) -> list[bytes]:
    return [(folder / RESULTS / name).read_bytes() for name in TABLES]


def starts(folder: Path) -> list[str]:
    """What happened in all runs: no second start, if nothing was trained again."""
    files = sorted((folder / RESULTS / "runs").glob("*/*/*/state/events.jsonl"))
    return [json.loads(line)["event"] for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize("jump", [86_400, -10 * 365 * 86_400], ids=["a day ahead", "ten years back"])
def test_after_a_clock_jump_nothing_is_trained_again(jump: float, finished: Path) -> None:
    """Snakemake goes by content where files are small."""
    before, happened = tables(finished), starts(finished)
    touched = [*finished.glob("results/cache/models/tiny_qwen2-*/base.json")]
    touched += finished.glob(f"{RESULTS}/runs/*/*/*/run.json")
    assert len(touched) > 2
    try:
        for path in touched:
            os.utime(path, (time.time() + jump,) * 2)
        done = snakemake(None, finished, "table1", *SMALL)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for path in touched:
            os.utime(path)
    assert tables(finished) == before
    assert starts(finished) == happened


def test_jobs_that_run_again_find_their_work_done(finished: Path) -> None:
    """As after a jump that Snakemake does fall for: it deletes the outputs first."""
    before, happened = tables(finished), starts(finished)
    done = snakemake(None, finished, *SMALL, "--forcerun", "train", "generate", "--", "table1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("finished already, outputs verified") == 2
    assert tables(finished) == before
    assert starts(finished) == happened


@pytest.mark.parametrize("kind", ["a byte changed", "cut short"])
def test_a_damaged_samples_file_is_named_and_made_again(kind: str, finished: Path) -> None:
    """Grading refuses it by name, unless Snakemake has a reason to make it again anyway; its bytes never count."""
    before = tables(finished)
    checkpoint = "tiny_qwen2/tepo/seed1/step3"
    grades = finished / RESULTS / "grades" / checkpoint / "grades.json"
    path = min((finished / RESULTS / "samples" / checkpoint).glob("*.parquet"))
    right = path.read_bytes()
    content = bytearray(right)
    content[len(content) // 2] ^= 1
    # a new file: the store of finished benchmarks may hold the old one under another name
    damaged = path.with_suffix(".tmp")
    damaged.write_bytes(content if kind == "a byte changed" else content[: len(content) // 2])
    os.replace(damaged, path)
    done = snakemake(None, finished, str(grades.relative_to(finished)), *SMALL)
    said = done.stdout + done.stderr
    if done.returncode:
        assert [line for line in said.splitlines() if line.startswith("error: ") and path.name in line], said[-4000:]
        path.unlink()
    (finished / RESULTS / "scores.csv").unlink()  # else nobody asks for what is missing
    done = snakemake(None, finished, str(RESULTS / "scores.csv"), *SMALL)
    assert done.returncode == 0, done.stdout + done.stderr
    assert tables(finished) == before
    assert path.read_bytes() == right
