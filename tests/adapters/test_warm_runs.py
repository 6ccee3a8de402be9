"""Runs and evaluations that share a worker: each as it is alone, bit for bit, whatever happens to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from evals import benchmark, fetch, generate, grade
from methods.train import STOPPED
from tests.adapters import worlds
from tests.adapters.test_trl_run import wait_for_rows
from tests.adapters.worlds import numbers, weights
from tests.core.test_worker import ENVIRONMENT, Served, ended
from tests.evals.generation.tiny import save_tiny

pytestmark = pytest.mark.slow
SIZES = {"rollouts": 18, "checkpoints": (18,), "save_every": 2}  # long enough to be stopped in the middle
BLOCK = {"a": ("tepo", 1), "b": ("grpo", 2)}  # method, seed


def served_by(folder: Path) -> Served:
    return Served(folder / "worker.log", {**ENVIRONMENT, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = served_by(tmp_path_factory.mktemp("worker"))
    yield made
    made.close()


def run(
    served: Served, world: Path, out: Path, method: str = "tepo", seed: int = 1, **sizes: Any
) -> subprocess.Popen[str]:
    spec = worlds.spec(world, method, **{**SIZES, "seed": seed, **sizes})
    return served.run("--spec", json.dumps(spec), "--out", str(out), command="methods.train")


def child_of(out: Path) -> int:
    return int(json.loads((out / "state" / "lock").read_text(encoding="utf-8"))["pid"])


def provenance(out: Path) -> dict[str, Any]:
    """run.json without what is of the day: times, digests of files that hold times, and the state of the checkout."""
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    record["outputs"].pop("curve.csv")  # `numbers` compares it
    del record["environment"]["commit"], record["environment"]["dirty"]
    return {key: record[key] for key in ("spec", "inputs", "method", "environment", "outputs", "updates")}


def same(out: Path, alone: Path) -> None:
    assert numbers(out) == numbers(alone)
    assert weights(out, 18) == weights(alone, 18)
    assert provenance(out) == provenance(alone)


@pytest.fixture(scope="module")
def alone(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each in a process of its own, to which no worker is offered."""
    folder = tmp_path_factory.mktemp("alone")
    none = Served(folder / "worker.log")
    none.environment = ENVIRONMENT
    for name, one in BLOCK.items():
        assert ended(run(none, world, folder / name, *one))[0] == 0
    none.close()
    return folder


def test_a_block_in_one_worker_is_the_same_runs_alone(served: Served, world: Path, alone: Path, tmp_path: Path) -> None:
    """All at once; one is killed as the kernel kills for memory, and one told to stop: the others do not notice."""
    # The worker has its imports then: on a busy machine a command that finds it at them may run by itself.
    assert ended(run(served, world, tmp_path / "first", rollouts=1, checkpoints=(1,)))[0] == 0
    running = {name: run(served, world, tmp_path / name, *one) for name, one in BLOCK.items()}
    wait_for_rows(tmp_path / "b", running["b"], 1)  # at once: it may end while the other one is waited for
    running["b"].send_signal(signal.SIGTERM)
    wait_for_rows(tmp_path / "a", running["a"], 9)
    os.kill(child_of(tmp_path / "a"), signal.SIGKILL)
    found = {name: ended(process) for name, process in running.items()}
    assert not [name for name, (_, _, err) in found.items() if "by itself" in err]
    assert {name: code for name, (code, _, _) in found.items()} == {"a": -signal.SIGKILL, "b": STOPPED}
    for name in BLOCK:
        assert ended(run(served, world, tmp_path / name, *BLOCK[name]))[0] == 0
        same(tmp_path / name, alone / name)


def test_an_evaluation_and_its_grades_in_a_worker_are_the_same_alone(served: Served, tmp_path: Path) -> None:
    model = save_tiny(tmp_path / "model", seed=0)
    found = benchmark.select(["syn_as3"])
    fetch.fetch(found[0], tmp_path / "data")
    generate.generate(
        generate.Settings(str(model), seed=7), found, backend="hf", data=tmp_path / "data", out=tmp_path / "alone"
    )
    code, _, err = ended(
        served.run(
            "--model", str(model), "--benchmarks", "syn_as3", "--data", str(tmp_path / "data"), "--seed", "7", "--out",
            str(tmp_path / "warm"), command="evals.generate",
        )
    )  # fmt: skip
    assert (code, "by itself" in err) == (0, False)
    name = "syn_as3.parquet"
    assert (tmp_path / "warm" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()
    grade.grade(tmp_path / "warm", tmp_path / "data", tmp_path / "grades alone")
    options = ["--samples", str(tmp_path / "warm"), "--data", str(tmp_path / "data"), "--out", str(tmp_path / "grades")]
    code, _, err = ended(served.run(*options, command="evals.grade"))
    assert (code, "by itself" in err) == (0, False)
    for name in ("syn_as3.parquet", "grades.json"):
        assert (tmp_path / "grades" / name).read_bytes() == (tmp_path / "grades alone" / name).read_bytes()
