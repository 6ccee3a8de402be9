"""C1 to C3 through verl's real engine (FSDP2 on a CPU, one process and two), and its checkpoints merged."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.provenance import ROOT
from methods.adapters.verl.processes import environment
from methods.training.spec import check
from tests.adapters import worlds
from tests.adapters.test_verl_loss import KEYS, STATISTICS

Figures = dict[str, Any]


def run(world: Path, folder: Path, ranks: int, *others: Path) -> Figures:
    """The worker's figures with so many ranks; others: see `verl_worker`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = environment(check(worlds.spec(world, trainer="verl")).training, folder)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    out = folder / "figures.json"
    line = [sys.executable, "-m", "tests.adapters.verl_worker", *map(str, (world, out, *others))]
    processes = [
        subprocess.Popen(
            line,
            cwd=ROOT,
            env={**os.environ, **variables, **address, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = []
    try:
        said = [process.communicate(timeout=1800)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert out.is_file(), "\n".join(said)[-3000:]
    found: Figures = json.loads(out.read_text())
    return found


OTHERS = ("qwen3", "llama", "mistral")  # beside the world's own qwen2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_engine_computes_the_methods_losses(ranks: int, world: Path, tmp_path: Path) -> None:
    others = []
    for model_type in OTHERS if ranks == 1 else ():
        (tmp_path / model_type).mkdir()
        others.append(worlds.build(tmp_path / model_type, prompts=1, model_type=model_type))
    figures = run(world, tmp_path, ranks, *others)
    # Loss and gradient of every method are the plain model's: packed, over micro-batches too, with the paper's four
    # architectures. Float32: another order of summation.
    expected = {f"{key} in {parts}" for key in KEYS for parts in (1, 2)}
    expected |= {f"{key} in 4" for key in KEYS if key in STATISTICS}
    assert set(figures["gradient"]) == {world.name, *(path.name for path in others)}
    for name, found in figures["gradient"].items():
        assert set(found) == (expected if name == world.name else {f"{key} in 2" for key in KEYS})
        assert max(found.values()) < 1e-5, (name, found)
        # relative to 0.01 where a loss is smaller: half a unit in the last place of a log-prob between 8 and 16 is 5e-7
        assert max(figures["loss"][name].values()) < 5e-5, (name, figures["loss"][name])

    # at the first minibatch nothing has changed
    assert figures["dH"] == 0.0
    first = figures["first"]
    assert (first["mask_fraction"], first["kl_old"], first["ratio_spread"]) == (0.0, 0.0, 0.0)
    assert first["effective_sample_size"] == 1.0

    # in bfloat16 too, because the old pass has the update's micro-batches: cut by tokens over all minibatches, as verl
    # would do it, the same weights give other entropies
    same, other = figures["unchanged"]["True"], figures["unchanged"]["False"]
    assert (same["share"], same["largest"]) == (0.0, 0.0)
    assert other["share"] > 0.01

    assert figures["tokens with logits"] == 5  # a chunk; the micro-batch has 61 tokens on one rank
    assert figures["merged"] is True  # a state merges to the trained weights
