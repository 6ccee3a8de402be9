"""The adapter's own decisions, without verl's processes: order of rows, rewards, waits, versions, states."""

import asyncio
import dataclasses
import importlib
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError, MissingInputError
from core.provenance import ROOT
from methods import catalog
from methods.adapters import verl
from methods.adapters.verl import checkpoint, dataset
from methods.adapters.verl.processes import StalledError, Watchdog
from methods.training.spec import check
from tests.adapters import worlds


def hangs(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    time.sleep(1.0)
    return [1.0]


LOCK = threading.Lock()


def one_at_a_time(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    assert LOCK.locked(), "taken before the clock starts"
    return [1.0]


one_at_a_time.lock = LOCK  # type: ignore[attr-defined]


def crashes(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    raise KeyError("gold")


def reads_all(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [float((prompts, responses, answers) == (["1+1?"], ["2"], ["3"]))]


REWARDS = {
    "tests.adapters.test_verl_pieces:reads_all": (1.0, None),
    "tests.adapters.test_verl_pieces:one_at_a_time": (1.0, None),
    "evals.reward:boxed": (0.0, None),
    "tests.adapters.test_verl_pieces:crashes": (0.0, "KeyError: 'gold' (response '2')"),
    "tests.adapters.worlds:one_nan": (0.0, "returned nan for response 0: '2'"),
    "tests.adapters.worlds:one_short": (0.0, "returned 0 values for 1 responses"),
}


def test_a_reward_scores_or_returns_what_went_wrong() -> None:
    """Never an exception: verl would take the sample out of its group in silence."""
    for name, (score, error) in REWARDS.items():
        text = json.dumps([[name], [1.0], 60.0])
        found = asyncio.run(dataset.compute_score(text, "2", "3", {"prompt": "1+1?"}, anything="else"))
        assert (found["score"], found["acc"], found["timeout"]) == (score, score, False), name
        assert (found["error"] is None) == (error is None), name
        if error is not None:
            assert found["error"].startswith(f"reward {name}: {error}")


def test_a_reward_that_is_late_ends_its_process_and_one_that_did_not_grade_does_not() -> None:
    """It would keep the reward's lock and a place in the executor: all later responses would wait for it."""
    none = json.dumps([["tests.adapters.worlds:one_none"], [1.0], 0.2])
    found = asyncio.run(dataset.compute_score(none, "2", "3", {"prompt": "1+1?"}))
    assert (found["timeout"], found["error"]) == (True, None)
    late = json.dumps([["tests.adapters.test_verl_pieces:hangs"], [1.0], 0.2])
    code = f"""
import asyncio
from methods.adapters.verl.dataset import compute_score
asyncio.run(compute_score({late!r}, "2", "3", {{"prompt": "1+1?"}}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith("error: reward tests.adapters.test_verl_pieces:hangs: did not return within 0.2 s")


def test_a_reward_that_failed_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is learned from the score beside the failure."""
    from methods.adapters.verl import trainer, worker

    buffer: Any = object.__new__(trainer.GroupBuffer)
    buffer.training, buffer.end_tokens = check(worlds.spec(Path("world"), samples_per_prompt=2)).training, [1]
    buffer._sync_metadata_from_transfer_queue = lambda: None
    buffer.pending_keys = buffer.running_keys = buffer.failure_keys = {"train": set()}
    buffer.partitions, buffer.finished_keys = {"train": ["1-0-0_0_0", "1-0-0_1_0"]}, {"train": {"1-0-0"}}
    rows = [worker.Response(key, "1-0-0", 0.0, 3, False, error) for key, error in (("a", None), ("b", "reward x: no"))]
    monkeypatch.setattr(trainer.tq, "kv_batch_get", lambda **_: None)
    monkeypatch.setattr(trainer, "responses", lambda *_: rows)
    with pytest.raises(BenchError, match="rollout 1: reward x: no"):
        buffer._wait_for_rows("train")


def test_ranks_cut_the_same_minibatches_each_with_its_share_of_the_tokens() -> None:
    """verl gives each rank an equal run of rows and lets it cut `size / ranks` of them per minibatch."""
    import torch

    from methods.adapters.verl.trainer import by_rank

    size, minibatches = 128, 4
    noise = torch.randn(size * minibatches, generator=torch.Generator().manual_seed(0))
    lengths = (6 + 0.7 * noise).exp().round().int().tolist()  # a few long ones, as responses have them
    assert by_rank(lengths, size, 1) == list(range(len(lengths)))
    for ranks in (2, 8):
        order = by_rank(lengths, size, ranks)
        assert sorted(order) == list(range(len(lengths)))
        share, cut = len(lengths) // ranks, size // ranks
        for minibatch in range(minibatches):
            of_rank = [order[rank * share + minibatch * cut :][:cut] for rank in range(ranks)]
            rows = sorted(row for mine in of_rank for row in mine)
            assert rows == list(range(minibatch * size, (minibatch + 1) * size))
            tokens = [sum(lengths[row] for row in mine) for mine in of_rank]
            assert max(tokens) * ranks < 1.01 * sum(tokens)


def test_advantages_are_the_methods_and_zero_where_verl_filled_up() -> None:
    import torch

    from methods.adapters.verl.trainer import advantages

    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1], [1, 1, 0], [0, 0, 0]])
    scores = torch.zeros(5, 3)
    scores[0, 1], scores[2, 2] = 1.0, 1.0
    uids = ["b", "a", "a", "b", "pad1"]
    for key in ("grpo", "opo", "reinforce_pp"):  # the last two weigh responses by their lengths
        method = catalog.parse(key)
        found, returns = advantages(method)(token_level_rewards=scores, response_mask=mask, index=uids, config=None)
        lengths = torch.tensor([2, 1, 3, 2])
        expected = method.advantage(torch.tensor([1.0, 0.0, 1.0, 0.0]), torch.tensor([1, 0, 0, 1]), lengths)
        assert torch.equal(found[:4, 0], expected), key
        assert torch.equal(found, returns), key
        assert not found[mask == 0].any(), key


def test_a_wait_without_end_is_ended() -> None:
    watch, before = Watchdog(0.2), signal.getsignal(signal.SIGALRM)
    with pytest.raises(StalledError, match=r"rollout 3: sampling: no end after 0.2 s"), watch.watching():  # noqa: PT012
        watch.restart("rollout 3: sampling")
        time.sleep(60)
    assert signal.getsignal(signal.SIGALRM) is before, "the handler was not put back"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "the timer still runs"


def test_a_wait_that_no_signal_ends_is_ended_with_a_traceback() -> None:
    """Also a clean-up that hangs, as Ray's shutdown can."""
    program = (
        "import threading; from methods.adapters.verl import processes; processes.LAST_SECONDS = 0.2\n"
        "wait = lambda: threading.Event().wait(60)\n"
        "with processes.Watchdog(0.2).watching():\n    try: wait()\n    finally: wait()"
    )
    line = [sys.executable, "-c", program]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "Timeout (0:00:00.400000)!" in done.stderr


VERSIONS: dict[str, tuple[dict[str, str | None], str, type[BenchError], str]] = {
    "another verl": ({"verl": "0.9.2"}, "cpu", ConfigError, "environment: verl: version '0.9.2' is .*needs 0.9.1"),
    "no verl": ({"verl": None}, "cpu", MissingInputError, "environment: verl: the package is not installed"),
    "another trl": ({"trl": "1.17.0"}, "cpu", ConfigError, "environment: trl: version '1.17.0' is .*needs 1.16.0"),
    "no vllm on a GPU": ({"vllm": None}, "cuda", MissingInputError, "environment: vllm: the package is not installed"),
}


@pytest.mark.parametrize("case", VERSIONS)
def test_an_environment_that_cannot_run_verl_is_one_line(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, (changed, device, kind, message) = verl.version, VERSIONS[case]
    monkeypatch.setattr(verl, "version", lambda name: changed[name] if name in changed else right(name))
    with pytest.raises(kind, match=message):
        verl.check_versions(device)


GPU = {"device": "cuda", "trainer": "verl", "minibatches": 1, "prompts_per_rollout": 8, "samples_per_prompt": 8}


@pytest.mark.parametrize(("gpus", "needed"), [(1, 6), (8, 34)])
def test_cpus_that_verl_reserves_are_counted_and_too_few_are_refused(gpus: int, needed: int) -> None:
    """One per storage unit, one for the controller, three per GPU: as their sources have it."""
    import inspect

    import transfer_queue.controller
    import transfer_queue.storage.simple_storage
    from transfer_queue.utils.common import get_placement_group
    from verl.single_controller.ray.base import ResourcePoolManager

    from methods.adapters.verl.config import check_cpus, storage_units

    training = check(worlds.spec(Path("world"), gpus_per_node=gpus, max_tokens_per_gpu=20480, **GPU)).training
    per_gpu = {f.name: f.default for f in dataclasses.fields(ResourcePoolManager)}["max_colocate_count"]
    per_unit = inspect.signature(get_placement_group).parameters["num_cpus_per_actor"].default
    for module in (transfer_queue.controller, transfer_queue.storage.simple_storage):
        assert "@ray.remote(num_cpus=1)" in inspect.getsource(module)
    assert needed == per_unit * storage_units(training) + 1 + per_gpu * gpus + 1
    check_cpus(training, needed, "Ray")
    message = rf"environment: CPUs: this machine has {needed - 1}; a run on {gpus} GPUs? needs {needed} .*would hang"
    with pytest.raises(ConfigError, match=message):
        check_cpus(training, needed - 1, "this machine")


def saved_by(ranks: int, state: Path, step: int = 1) -> Path:
    """A state as verl leaves it, saved by so many ranks."""
    actor = state / f"global_step_{step}" / "actor"
    actor.mkdir(parents=True)
    (actor / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": ranks}))
    return state


def test_a_state_of_another_number_of_processes_is_refused(tmp_path: Path) -> None:
    saved = saved_by(8, tmp_path)
    checkpoint.check_world_size(saved, 8)
    message = r"was saved by 8 processes; training.nodes x gpus_per_node = 4 cannot go on from it; set them to 8 in all"
    with pytest.raises(ConfigError, match=message) as error:
        checkpoint.check_world_size(saved, 4)
    assert "\n" not in str(error.value)


def test_weights_that_do_not_fit_the_base_are_refused(world: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    actor = checkpoint.actor_of(saved_by(1, tmp_path / "state"))
    weights = AutoModelForCausalLM.from_pretrained(str(world / "base"), dtype=torch.float32).state_dict()
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    checkpoint.write_model(actor, world / "base", tmp_path / "whole")
    again = AutoModelForCausalLM.from_pretrained(str(tmp_path / "whole"))
    assert again.dtype == torch.float32
    assert all(torch.equal(weights[name], x) for name, x in again.state_dict().items())
    assert again.generation_config.eos_token_id[1:] == list(range(60, 100))

    del weights["model.norm.weight"]
    torch.save(weights, actor / "model_world_size_1_rank_0.pt")
    with pytest.raises(BenchError, match=r"weights do not fit .*: model.norm.weight"):
        checkpoint.write_model(actor, world / "base", tmp_path / "part")


def test_the_port_of_a_worker_group_is_none_that_a_connection_can_have(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer: Any = importlib.import_module("methods.adapters.verl.trainer")
    monkeypatch.setattr(trainer, "RayWorkerGroup", lambda **options: options["master_port_range"])
    ranges = [trainer.trainer_base.RayWorkerGroup(resource_pool=None) for _ in range(20)]
    # between the ports of Ray's workers and those that Linux gives connections
    assert all(19999 < first < end == 32768 for first, end in ranges)
    assert len({first for first, _ in ranges}) > 1, "groups that begin together draw different ports"
