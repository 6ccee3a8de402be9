"""A tiny model with random weights, and data of the quick synthetic sets, once per session."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from evals import benchmark, fetch
from evals.benchmark import Benchmark
from evals.store import Response
from tests.evals.generation.tiny import save_tiny

ROOT = Path(__file__).resolve().parents[3]
SHARED = ROOT.parent / "shared" / "data" / "benchmarks"
QUICK = ("syn_mix3", "syn_as3")


def few(key: str, samples: int = 8) -> Benchmark:
    """A registered set with fewer samples per item: what is tested here does not depend on their number."""
    found = benchmark.benchmark(key)
    if found.decoding.greedy:
        return found
    return dataclasses.replace(found, decoding=dataclasses.replace(found.decoding, samples=samples))


def read_responses(path: Path) -> list[Response]:
    return [Response(**row) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def quick_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for key in QUICK:
        fetch.fetch(benchmark.benchmark(key), folder)
    return folder


@pytest.fixture
def shared() -> Path:
    """The private copies of the seven sets, in the format a mirror may have."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: the paper's sets are checked only where a copy of them lies")
    return SHARED
