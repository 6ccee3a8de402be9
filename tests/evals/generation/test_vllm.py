"""The real vLLM, in an environment of its own (CONTRIBUTING.md): set TEPO_VLLM_PYTHON to its interpreter.

The model is random with heads of 32: vLLM's CPU attention has no kernel for the embedded models' heads of 16 and 20.
"""

import os
import subprocess
from pathlib import Path

import pytest

from evals import benchmark, fetch, generate
from evals.generation import draw
from evals.generation.engine import Settings, engine, per_sample_seed
from tests.evals.conftest import read_responses
from tests.evals.generation.tiny import save_tiny

PYTHON = os.environ.get("TEPO_VLLM_PYTHON")
ROOT = Path(__file__).resolve().parents[3]
KEYS, LIMIT, SEED = ("syn_mix4", "syn_as3"), 12, 3
SAMPLED, GREEDY = KEYS
ENVIRONMENT = os.environ | {"VLLM_CPU_KVCACHE_SPACE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.skipif(not PYTHON, reason="TEPO_VLLM_PYTHON is not set: no vLLM environment (CONTRIBUTING.md)"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny(tmp_path_factory.mktemp("model") / "heads32", seed=0, head_dim=32)


@pytest.fixture(scope="module")
def items(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for key in KEYS:
        fetch.fetch(benchmark.benchmark(key), folder)
    return folder


@pytest.fixture(scope="module")
def hf(model: Path, items: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hf")
    settings = Settings(str(model), seed=SEED, device="cpu", dtype="float32")
    generate.generate(engine("hf", settings), benchmark.select(KEYS), data=items, out=out, limit=LIMIT)
    return out


@pytest.fixture(scope="module")
def vllm(model: Path, items: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("vllm")
    command = [
        str(PYTHON), "-m", "evals.generate", "--backend", "vllm", "--model", str(model), "--benchmarks", *KEYS,
        "--data", str(items), "--out", str(out), "--seed", str(SEED), "--limit", str(LIMIT), "--dtype", "float32",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return out


def texts(out: Path, key: str) -> list[str]:
    """Without U+FFFD: a random model breaks UTF-8, and where a text ends inside a character the two decoders differ."""
    return [row.response.replace("\N{REPLACEMENT CHARACTER}", "") for row in read_responses(out / f"{key}.parquet")]


def test_greedy_responses_equal_those_of_hf(vllm: Path, hf: Path) -> None:
    assert texts(vllm, GREEDY) == texts(hf, GREEDY)


def test_stop_reasons_and_token_counts_equal_those_of_hf(vllm: Path, hf: Path) -> None:
    def facts(out: Path) -> list[tuple[str, str, int | None]]:
        return [(row.prompt_sha256, row.stop, row.tokens) for row in read_responses(out / f"{GREEDY}.parquet")]

    assert facts(vllm) == facts(hf)


def test_32_samples_are_32_draws(vllm: Path) -> None:
    rows = read_responses(vllm / f"{SAMPLED}.parquet")
    assert {row.seed for row in rows} == {per_sample_seed(SEED, sample) for sample in range(32)}
    for own in draw.by_item([vars(row) for row in rows if row.tokens == 64]).values():
        assert len(set(own)) == len(own)
