"""Controls in real runs: what a placebo changes and what it leaves, and two streams of one seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.files import read_json
from evals import placebo
from methods.adapters import adapter
from methods.train import STOPPED
from methods.training import spec as specs
from methods.training.rollouts import stream_seed
from methods.training.run_folder import code_of
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter
from tests.adapters.worlds import numbers, weights

Draw = tuple[list[str], list[str], list[float]]  # prompts, responses, true rewards


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Draw]:
    """Every draw that is scored from now on."""
    from methods.adapters.trl.trainer import MethodTrainer

    seen: list[Draw] = []
    original = MethodTrainer._calculate_rewards

    def watched(self: Any, inputs: Any, prompts: Any, completions: Any, *rest: Any) -> Any:
        found = original(self, inputs, prompts, completions, *rest)
        seen.append((list(prompts), list(completions), found[:, 0].tolist()))
        return found

    monkeypatch.setattr(MethodTrainer, "_calculate_rewards", watched)
    return seen


def control(world: Path, **keys: Any) -> dict[str, Any]:
    return worlds.spec(world, "grpo") | keys


def go(document: dict[str, Any], out: Path, stop: Any = None) -> int:
    from methods.train import StopRequest, execute

    return execute(json.dumps(document), out, stop or StopRequest())


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.slow
def test_a_placebo_is_what_the_method_gets_and_the_curve_keeps_the_true_reward(
    world: Path, tmp_path: Path, drawn: list[Draw]
) -> None:
    for name in ("inverted", "shuffled", "format"):
        drawn.clear()
        document = control(world, placebo=placebo.dotted(name), variant=name)
        assert go(document, tmp_path / name) == 0
        by_rollout = {int(row["rollout"]): row for row in numbers(tmp_path / name)}
        assert len(drawn) == len(by_rollout) == 2
        for row, (_, responses, true) in zip(by_rollout.values(), drawn, strict=True):
            assert float(row["reward"]) == pytest.approx(mean(true), abs=1e-12), name
            assert true == worlds.even([], responses, []), name
            if name == "format":  # random weights write no box: every group is constant, and nothing is trained on
                assert (row["reward_given"], row["groups_kept"], row["grad_norm"]) == ("0.0", "0", "")
            else:
                given = 1 - mean(true) if name == "inverted" else mean(true)
                assert float(row["reward_given"]) == pytest.approx(given, abs=1e-12), name
        record = read_json(tmp_path / name / "run.json")
        assert (record["spec"]["placebo"], record["spec"]["variant"]) == (placebo.dotted(name), name)

    # Stopped after the first rollout and resumed: the same numbers.
    document, out = control(world, placebo=placebo.dotted("shuffled"), variant="shuffled"), tmp_path / "stopped"
    assert go(document, out, StopAfter(2)) == STOPPED
    assert go(document, out) == 0
    assert numbers(out) == numbers(tmp_path / "shuffled")
    assert weights(out) == weights(tmp_path / "shuffled")


@pytest.mark.slow
def test_another_stream_has_the_same_prompts_and_other_samples(
    world: Path, tmp_path: Path, drawn: list[Draw], trained: dict[str, Path]
) -> None:
    """Stream 0 is the run as it is without a stream."""
    assert go(control(world, stream=0), tmp_path / "zero") == 0
    assert go(control(world, stream=1), tmp_path / "again", StopAfter(2)) == STOPPED
    assert go(control(world, stream=1), tmp_path / "again") == 0  # resumed
    zero, again = drawn[:2], drawn[2:]
    assert numbers(tmp_path / "zero") == numbers(trained["grpo"])[:8]
    assert weights(tmp_path / "zero") != weights(tmp_path / "again")
    for (prompts, responses, _), (other_prompts, other_responses, _) in zip(zero, again, strict=True):
        assert prompts == other_prompts
        same = sum(a == b for a, b in zip(responses, other_responses, strict=True))
        assert same < len(responses) / 2  # short responses of random weights may agree


def test_streams_are_seeds_of_their_own_and_stream_0_is_the_run_as_it_was(tmp_path: Path) -> None:
    def of(seed: int, **keys: int) -> int:
        return stream_seed(specs.check(worlds.spec(tmp_path) | {"seed": seed} | keys))

    assert of(3) == of(3, stream=0) == 3
    found = [of(seed, stream=stream) for seed in range(10) for stream in range(3)]
    assert len(set(found)) == len(found)
    assert all(0 <= seed < 2**63 for seed in found)


def test_verl_refuses_a_placebo_in_one_line(tmp_path: Path) -> None:
    spec = specs.check(control(tmp_path, trainer="verl", placebo=placebo.dotted("coin")))
    with pytest.raises(ConfigError, match=r"spec: placebo: 'evals\.placebo:coin': the verl adapter trains on true"):
        adapter("verl").preflight(spec)


def test_a_run_is_another_one_when_its_placebo_is_edited() -> None:
    """Its own file counts, as the reward's does; runs without a placebo do not depend on it."""
    plain = code_of("grpo", "trl", "evals.reward:boxed")
    assert code_of("grpo", "trl", "evals.reward:boxed", placebo.dotted("coin")).hashes[0] != plain.hashes[0]
