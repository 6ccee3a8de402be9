"""A tiny model with random weights, and data of the quick synthetic sets, once per session."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from evals import fetch, registry
from evals.benchmark import Benchmark

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "data" / "benchmarks"
QUICK = ("syn_mix3", "syn_as3")


def few(key: str, samples: int = 8) -> Benchmark:
    """A registered set with fewer samples per item: what is tested here does not depend on their number."""
    found = registry.benchmark(key)
    if found.decoding.greedy:
        return found
    return dataclasses.replace(found, decoding=dataclasses.replace(found.decoding, samples=samples))


def save_tiny(folder: Path, seed: int, *, kind: str = "qwen2") -> Path:
    """A random model of the tiny classes with the project's tokenizer."""
    from models import architectures, tokenizer
    from models.registry import Architecture

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    model = architectures.fresh(Architecture(kind, num_key_value_heads=2, head_dim=16, **sizes), seed=seed)
    model.save_pretrained(folder)
    tokenizer.save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("models") / "tiny", seed=0)


@pytest.fixture(scope="session")
def quick_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for key in QUICK:
        fetch.fetch(registry.benchmark(key), folder)
    return folder


@pytest.fixture
def shared() -> Path:
    """The private copies of the seven sets, in the format a mirror may have."""
    if not SHARED.is_dir():
        pytest.skip(f"{SHARED} is not there: the paper's sets are checked only where a copy of them lies")
    return SHARED
