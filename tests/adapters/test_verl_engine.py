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

from methods.adapters.verl.processes import environment
from methods.training.spec import check
from records.provenance import ROOT
from tests.adapters import worlds
from tests.adapters.test_verl_loss import KEYS, STATISTICS

Figures = dict[str, Any]


def run(world: Path, folder: Path, ranks: int) -> Figures:
    """The worker's figures with so many ranks."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    variables = environment(check(worlds.spec(world, trainer="verl")).training, folder)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    out = folder / "figures.json"
    line = [sys.executable, "-m", "tests.adapters.verl_worker", str(world), str(out)]
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
        said = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert out.is_file(), "\n".join(said)[-3000:]
    found: Figures = json.loads(out.read_text())
    return found


@pytest.fixture(scope="module", params=[1, pytest.param(2, marks=pytest.mark.slow)], ids=["one rank", "two ranks"])
def figures(request: pytest.FixtureRequest, world: Path, tmp_path_factory: pytest.TempPathFactory) -> Figures:
    return {"ranks": request.param, **run(world, tmp_path_factory.mktemp("engine"), request.param)}


@pytest.mark.slow
def test_loss_and_gradient_of_every_method_are_the_plain_models(figures: Figures) -> None:
    """Over micro-batches too. Float32: another order of summation, nothing more."""
    expected = {f"{key} in {parts}" for key in KEYS for parts in (1, 2)}
    expected |= {f"{key} in 4" for key in KEYS if key in STATISTICS}
    assert set(figures["gradient"]) == expected
    assert max(figures["loss"].values()) < 1e-5, figures["loss"]
    assert max(figures["gradient"].values()) < 1e-5, figures["gradient"]


def test_at_the_first_minibatch_nothing_has_changed(figures: Figures) -> None:
    assert figures["dH"] == 0.0
    first = figures["first"]
    assert (first["mask_fraction"], first["kl_old"], first["ratio_spread"]) == (0.0, 0.0, 0.0)
    assert first["effective_sample_size"] == 1.0


def test_a_state_merges_to_the_trained_weights(figures: Figures) -> None:
    assert figures["merged"] is True
