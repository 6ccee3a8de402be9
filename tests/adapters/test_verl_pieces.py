"""The adapter's own decisions, without verl's processes: order of rows, rewards, waits, versions, states."""

import asyncio
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
from methods.adapters.verl.config import check_cpus
from methods.adapters.verl.processes import LostRunError, Watchdog
from methods.training.spec import check
from tests.adapters import worlds


def hangs(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    time.sleep(1.0)
    return [1.0]


LOCK = threading.Lock()


def reads_all(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    assert LOCK.locked(), "taken before the clock starts"
    return [float((prompts, responses, answers) == (["1+1?"], ["2"], ["3"]))]


reads_all.lock = LOCK  # type: ignore[attr-defined]


def crashes(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    raise KeyError("gold")


def scored(reward: str) -> Any:
    text = json.dumps([[reward], [1.0], 0.2])
    return dataset.compute_score(text, "2", "3", {"prompt": "1+1?"}, anything="else")


REWARDS = {
    "tests.adapters.test_verl_pieces:reads_all": (1.0, None),
    "evals.reward:boxed": (0.0, None),
    "tests.adapters.test_verl_pieces:crashes": (0.0, "KeyError: 'gold' (response '2')"),
    "tests.adapters.worlds:one_nan": (0.0, "returned nan for response 0: '2'"),
    "tests.adapters.worlds:one_short": (0.0, "returned 0 values for 1 responses"),
}


def test_a_reward_scores_or_returns_what_went_wrong() -> None:
    """Never an exception: verl would take the sample out of its group in silence."""
    for name, (score, error) in REWARDS.items():
        found = asyncio.run(scored(name))
        assert (found["score"], found["acc"], found["timeout"]) == (score, score, False), name
        assert (found["error"] or "").startswith(f"reward {name}: {error}" if error else ""), name
        assert (found["error"] is None) == (error is None), name


def test_a_reward_that_is_late_ends_its_process_and_one_that_did_not_grade_does_not() -> None:
    """It would keep the reward's lock and a place in the executor: all later responses would wait for it."""
    found = asyncio.run(scored("tests.adapters.worlds:one_none"))
    assert (found["timeout"], found["error"]) == (True, None)
    code = "import asyncio; from tests.adapters.test_verl_pieces import hangs, scored; asyncio.run(scored({!r}))"
    line = [sys.executable, "-c", code.format(late := "tests.adapters.test_verl_pieces:hangs")]
    done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: reward {late}: did not return within 0.2 s")


def test_a_reward_that_failed_ends_the_run() -> None:
    """Before anything is learned from the score beside the failure."""
    import torch

    from methods.adapters.verl.worker import RESPONSE_FIELDS, Response, responses

    extra: list[dict[str, Any]] = [{"error": None}, {"error": None, "timeout": True}]
    columns = [torch.tensor([5, 6]), torch.tensor([5, 1])], [torch.tensor([0.0, 1.0])] * 2
    data = dict(zip(RESPONSE_FIELDS, (*columns, [{"reward_extra_info": info} for info in extra]), strict=True))
    keys = ["000001-00-000000_0_0", "000001-00-000000_1_0"]
    expected = [Response(keys[0], keys[0][:-4], 1.0, 2, True), Response(keys[1], keys[0][:-4], None, 2, False)]
    assert responses(keys, data, 2, [1]) == expected
    extra[1]["error"] = "reward x: no"
    with pytest.raises(BenchError, match=r"^rollout 1: reward x: no$"):
        responses(keys, data, 2, [1])


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
    with pytest.raises(LostRunError, match=r"rollout 3: sampling: no end after 0.2 s"), watch.watching():  # noqa: PT012
        watch.restart("rollout 3: sampling")
        time.sleep(60)
    assert signal.getsignal(signal.SIGALRM) is before, "the handler was not put back"
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "the timer still runs"


VERSIONS: dict[str, tuple[str | None, str, type[BenchError], str]] = {
    "verl": ("0.9.2", "cpu", ConfigError, "environment: verl: version '0.9.2' is .*needs 0.9.1"),
    "trl": ("1.17.0", "cpu", ConfigError, "environment: trl: version '1.17.0' is .*needs 1.16.0"),
    "vllm": (None, "cuda", MissingInputError, "environment: vllm: the package is not installed"),
}


@pytest.mark.parametrize("package", VERSIONS)
def test_an_environment_that_cannot_run_verl_is_one_line(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right, (found, device, kind, message) = verl.version, VERSIONS[package]
    monkeypatch.setattr(verl, "version", lambda name: found if name == package else right(name))
    with pytest.raises(kind, match=message):
        verl.check_versions(device)


GPU = {"device": "cuda", "trainer": "verl", "minibatches": 1, "prompts_per_rollout": 8, "samples_per_prompt": 8}


@pytest.mark.parametrize(("gpus", "needed"), [(1, 6), (8, 34)])
def test_too_few_cpus_are_refused(gpus: int, needed: int) -> None:
    training = check(worlds.spec(Path("world"), gpus_per_node=gpus, max_tokens_per_gpu=20480, **GPU)).training
    check_cpus(training, needed, "Ray")
    message = rf"environment: CPUs: this machine has {needed - 1}; a run on {gpus} GPUs? needs {needed} .*would hang"
    with pytest.raises(ConfigError, match=message):
        check_cpus(training, needed - 1, "this machine")


def test_weights_that_do_not_fit_the_base_are_refused(world: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    actor = tmp_path / "global_step_1" / "actor"
    actor.mkdir(parents=True)
    (actor / "fsdp_config.json").write_text('{"world_size": 1}')
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
