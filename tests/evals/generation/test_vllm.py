"""The real vLLM, in an environment of its own (CONTRIBUTING.md): set TEPO_VLLM_PYTHON to its interpreter.

The model is random with heads of 32: vLLM's CPU attention has no kernel for the embedded models' heads of 16 and 20.
"""

import os
import subprocess
from pathlib import Path

import pytest

from evals import benchmark, data, fetch, generate
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
def outs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Samples of vLLM, in its own environment, and of hf."""
    root = tmp_path_factory.mktemp("vllm")
    model, items, own, hf = save_tiny(root / "heads32", seed=0, head_dim=32), root / "data", root / "own", root / "hf"
    for key in KEYS:
        fetch.fetch(benchmark.benchmark(key), items)
    settings = Settings(str(model), seed=SEED, device="cpu", dtype="float32")
    generate.generate(engine("hf", settings), data.select(KEYS), data=items, out=hf, limit=LIMIT)
    command = [
        str(PYTHON), "-m", "evals.generate", "--backend", "vllm", "--model", str(model), "--benchmarks", *KEYS,
        "--data", str(items), "--out", str(own), "--seed", str(SEED), "--limit", str(LIMIT), "--dtype", "float32",
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return own, hf


def test_greedy_responses_stop_reasons_and_token_counts_equal_those_of_hf(outs: tuple[Path, Path]) -> None:
    """Without U+FFFD: a random model breaks UTF-8, and where a text ends inside a character the two decoders differ."""
    found = [
        [(row.prompt_sha256, row.response.replace("\ufffd", ""), row.stop, row.tokens) for row in read_responses(path)]
        for path in (out / f"{GREEDY}.parquet" for out in outs)
    ]
    assert found[0] == found[1]


def test_32_samples_are_32_draws(outs: tuple[Path, Path]) -> None:
    rows = read_responses(outs[0] / f"{SAMPLED}.parquet")
    assert {row.seed for row in rows} == {per_sample_seed(SEED, sample) for sample in range(32)}
    long = [(row.item_id, row.response) for row in rows if row.tokens == 64]
    assert len(set(long)) == len(long)
