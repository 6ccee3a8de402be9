"""Once per session: a tiny model with random weights, data of the quick synthetic sets, and one grader."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from core.provenance import ROOT
from evals import benchmark, fetch
from evals.benchmark import Benchmark
from evals.grading.grader import Grader
from tests.evals.generation.tiny import save_tiny

SHARED = ROOT.parent / "shared" / "data"
QUICK = ("syn_mix3", "syn_as3")


def few(key: str, samples: int = 8) -> Benchmark:
    """A registered set with fewer samples per item: what is tested here does not depend on their number."""
    found = benchmark.benchmark(key)
    if found.decoding.greedy:
        return found
    return found.model_copy(update={"decoding": dataclasses.replace(found.decoding, samples=samples)})


def read_responses(path: Path) -> list[SimpleNamespace]:
    return [SimpleNamespace(**row) for row in pq.read_table(path).to_pylist()]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def quick_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for key in QUICK:
        fetch.fetch(benchmark.benchmark(key), folder)
    return folder


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """Its two workers start once for all tests."""
    with Grader() as made:
        yield made


@pytest.fixture(scope="session")
def shared() -> Path:
    """Private copies of the seven sets, in the format a mirror may have, and of labelled outputs."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: real problems and outputs are tested only where a copy of them lies")
    return SHARED
