"""Real runs of TRL on a tiny model: when one ends early, what it refuses, and what run.json says of it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from core.errors import ConfigError
from core.files import read_json
from methods import catalog
from methods.method import Method
from methods.parts import Part
from methods.train import StopRequest, execute
from methods.training import rollouts, run_folder
from tests.adapters import worlds

SMALL = {"prompts_per_rollout": 2, "minibatches": 1, "passes": 1, "oversample": 1.0, "max_completion_tokens": 4}
Train = Callable[..., int]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    world = worlds.build(tmp_path_factory.mktemp("world"))

    def go(out: Path, method: str, **changes: Any) -> int:
        spec = worlds.spec(world, method, **SMALL | changes)
        return execute(json.dumps(spec), out, StopRequest())

    return go


# ---- a collapse ----


def ended_at(rewards: list[list[float]]) -> int | None:
    """The rollout at which a run with these rewards of responses ends, on its way through a state and back."""
    seen: tuple[float, ...] = ()
    means: dict[int, float] = {}
    for number, of_rollout in enumerate(rewards, 1):
        found = rollouts.figures(number, of_rollout, [], 2, [1], [False])
        seen = min(*seen, *found["extremes"]), max(*seen, *found["extremes"])
        means[number] = found["reward_given"]
        position = run_folder.Position(extremes=seen).model_dump_json()
        seen = run_folder.Position.model_validate_json(position).extremes
        if rollouts.collapsed(means, number, seen):
            return number
    return None


def right(count: int, wrong: float = 0.0) -> list[float]:
    return [1.0] * count + [wrong] * (512 - count)


COLLAPSES: dict[str, tuple[list[list[float]], int | None]] = {
    "no answer is ever right": ([right(0)] * 9, 5),
    "at most two groups of 64 teach": ([right(2)] * 9, 5),
    "three right answers of 512 teach": ([right(3)] * 9, None),
    "five in a row": ([*[right(0)] * 4, right(99), *[right(0)] * 9], 10),
    "-1 and 1, learning": ([right(count, -1.0) for count in range(20, 220, 20)], None),
    "-1 and 1, none right after the first": ([right(200, -1.0), *[right(1, -1.0)] * 9], 6),
    "-1 for all": ([right(0, -1.0)] * 9, 5),
    "1 for all is a solved task": ([right(512)] * 9, None),
    "half a point for the form alone": ([right(30, 0.5), *[right(0, 0.5)] * 9], 6),
    "one reward far above": ([[1000.0, *right(200)], *[right(100)] * 9], None),
    "one reward far below": ([[-1000.0, *right(200)], *[right(100)] * 9], None),
}


@pytest.mark.parametrize("case", COLLAPSES)
def test_a_run_ends_when_its_rewards_stay_at_the_lowest(case: str) -> None:
    rewards, end = COLLAPSES[case]
    assert ended_at(rewards) == end


def test_a_collapse_is_printed_and_each_checkpoint_has_its_rollouts(
    train: Train, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = {"checkpoints": (3, 7, 9), "rollouts": 9}
    assert train(tmp_path / "none", "grpo", reward="tests.adapters.worlds:never", **steps) == 0
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"{tmp_path}/none: collapsed at rollout 5 of 9: mean rewards of the last 5 nearly 0, the lowest seen; "
        "training ended; step7, step9: weights of rollout 5"
    )
    record = read_json(tmp_path / "none/run.json")
    assert (record["collapsed_at"], record["updates"]) == (5, 5)
    assert record["rollouts"] == {"checkpoints/step3": 3, "checkpoints/step7": 5, "checkpoints/step9": 5}


# ---- a formula that keeps state ----


def with_memory(slot: str) -> Method:
    memory: list[torch.Tensor] = []

    def running_baseline(reward_B: torch.Tensor, group_B: torch.Tensor, lengths_B: torch.Tensor | None) -> torch.Tensor:
        memory.append(reward_B.mean())
        return reward_B - torch.stack(memory).mean()

    def adaptive_coefficient(t: Any) -> torch.Tensor:
        memory.append(t.logp_BT.detach().mean())
        return t.advantage * t.logp_BT * torch.stack(memory).mean()

    functions: dict[str, Callable[..., Any]] = {"advantage": running_baseline, "surrogate": adaptive_coefficient}
    method, changes = catalog.parse("grpo"), cast(Any, {slot: Part(functions[slot])})
    return replace(method, key="mine", parts=replace(method.parts, **changes))


@pytest.mark.parametrize(("slot", "what"), [("advantage", "advantage"), ("surrogate", "loss")])
def test_a_method_with_memory_is_refused_at_the_first_update(
    slot: str, what: str, train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run would start with an empty memory, and go on to other numbers."""
    method = with_memory(slot)
    monkeypatch.setattr(catalog, "parse", lambda _: method)
    with pytest.raises(ConfigError, match=rf"^mine: the {what} of the same input differs between two calls: [^\n]*$"):
        train(tmp_path / "run", "grpo", filter="none")


# ---- a folder that holds another run ----


def test_another_specification_in_a_finished_folder_is_refused(train: Train, tmp_path: Path) -> None:
    out, one = tmp_path / "run", {"rollouts": 1, "checkpoints": (1,)}
    assert train(out, "grpo", **one) == 0
    before = (out / "run.json").read_bytes()
    for changed, words in ({"temperature": 0.5}, "training.temperature: 1.0 there, 0.5 here"), ({}, "'tepo' here"):
        with pytest.raises(ConfigError, match=rf"another specification \(.*{words}\); .* --out, "):
            train(out, "grpo" if changed else "tepo", **one | changed)
    assert (out / "run.json").read_bytes() == before
