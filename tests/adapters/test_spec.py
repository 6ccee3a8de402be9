"""Bad input ends before training with one line that names the key, the value and what is allowed."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from methods.adapters import trl
from methods.training import spec as specs
from tests.adapters import worlds

Train = Callable[..., int]

BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown trainer": ({"trainer": "trll"}, "trainer: unknown value 'trll'; allowed: trl, verl; nearest: trl"),
    "checkpoint beyond rollouts": ({"checkpoints": [3]}, r"checkpoints: 3 is not a rollout of this run \(1 to 2\)"),
    "no checkpoint": ({"checkpoints": []}, "checkpoints: names no rollout"),
    "half a group per minibatch": ({"minibatches": 3}, "training.minibatches: 3 does not divide prompts_per_rollout 4"),
    "uneven parts": ({"micro_batches": 3}, "training.micro_batches: 3 does not divide a minibatch of 8 sequences"),
    "bf16 on cpu": ({"precision": "bfloat16"}, "training.precision: bfloat16 needs device cuda"),
    "several nodes on cpu": ({"nodes": 2, "gpus_per_node": 4}, "training.nodes: 2 x 4 GPUs need device cuda, got cpu"),
    "an engine over three of four GPUs": (
        {"device": "cuda", "gpus_per_node": 4, "tensor_parallel": 3},
        "training.tensor_parallel: 3 does not divide the 4 GPUs of a node",
    ),
    "all of the memory": ({"rollout_memory": 1.0}, "training.rollout_memory: 1.0 is not a share"),
    "negative seed": ({"seed": -1}, "seed: must be greater than or equal to 0, got -1"),
}


def test_bad_specification_is_one_clear_line(tmp_path: Path) -> None:
    for changes, message in BAD.values():
        with pytest.raises(ConfigError, match=message) as error:
            specs.check(worlds.spec(tmp_path, **changes))
        assert "\n" not in str(error.value)


def test_specification_from_a_file_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(worlds.spec(tmp_path, seed=-1)))
    with pytest.raises(ConfigError, match=f"{re.escape(str(path))}: seed: must be .* got -1"):
        specs.read(str(path))
    path.write_text("{")
    with pytest.raises(ConfigError, match="not valid JSON"):
        specs.read(str(path))
    with pytest.raises(MissingInputError, match="run specification is missing"):
        specs.read(str(tmp_path / "nothing.json"))


def test_what_the_architecture_page_shows_is_accepted() -> None:
    page = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    text = page[page.index('{"scale"') : page.index('"checkpoints": [12]}') + len('"checkpoints": [12]}')]
    assert specs.read(text).training.updates_per_rollout == 8


def planned(world: Path, **changes: Any) -> Any:
    return trl.preflight(specs.check(worlds.spec(world, **changes)))


def test_plan_derives_trls_sizes(world: Path) -> None:
    made = planned(world, micro_batches=2)
    assert (made.prompts_drawn, made.sequences_drawn, made.sequences_per_minibatch) == (6, 24, 8)
    assert made.trainer == {
        "per_device_train_batch_size": 6,
        "steps_per_generation": 4,
        "num_iterations": 2,
        "gradient_accumulation_steps": 2,
        "max_steps": 8,
    }


def test_a_mean_over_micro_batches_refuses_a_split(world: Path) -> None:
    key = "grpo+agg-scope=microbatch"
    with pytest.raises(ConfigError, match=r"micro_batches: 2 would split a minibatch, but grpo.*divides.*allowed: 1"):
        planned(world, method=key, micro_batches=2)
    assert planned(world, method=key).updates == 8
    assert planned(world, method=key, micro_batches=2, cov_scope="microbatch").updates == 8
    assert planned(world, method="clip_cov", micro_batches=2).updates == 8


@pytest.mark.parametrize(
    "changes",
    [{"device": "cuda", "nodes": 2}, {"device": "cuda", "gpus_per_node": 8}, {"attention": "flash_attention_2"}],
    ids=["nodes", "gpus", "attention"],
)
def test_trl_refuses_what_takes_more_than_one_device(world: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(
        ConfigError, match=r"^spec: training\.\w+: .*: the trl adapter runs on one device; allowed: "
    ) as e:
        planned(world, **changes)
    assert "\n" not in str(e.value)


def test_missing_inputs_are_named(world: Path, tmp_path: Path, train: Train) -> None:
    with pytest.raises(MissingInputError, match="nowhere: base model is missing"):
        train(tmp_path / "run", base=str(tmp_path / "nowhere"))
    with pytest.raises(MissingInputError, match="prompts are missing"):
        train(tmp_path / "run", prompts=str(tmp_path / "none.jsonl"))
    bare = tmp_path / "bare"
    shutil.copytree(world / "base", bare)
    (bare / "tokenizer_config.json").unlink()
    for trainer in ("trl", "verl"):
        with pytest.raises(MissingInputError, match=r"bare: tokenizer_config\.json is missing"):
            train(tmp_path / "run", base=str(bare), trainer=trainer)
        with pytest.raises(ConfigError, match="one rollout draws"):
            train(tmp_path / "run", trainer=trainer, prompts_per_rollout=4000)


LINES = {
    "too few": (
        [{"prompt": f"<bos>{i}", "answer": "1"} for i in range(5)],
        ConfigError,
        "holds 5 prompts, one rollout",
    ),
    "no answer": ([{"prompt": "<bos>1"}] * 9, CorruptInputError, "line 1: answer: must be text, got None"),
    "too long": (
        [{"prompt": f"<bos>{i}" + "1" * 60, "answer": "1"} for i in range(9)],
        ConfigError,
        "line 1: prompt: 62 tokens and a response of 8 exceed the model's 64 positions",
    ),
    "longer than allowed": (
        [{"prompt": f"<bos>{i}" + "1" * 3000, "answer": "1"} for i in range(9)],
        ConfigError,
        "line 1: prompt: 3002 tokens; training.max_prompt_tokens is 2048",
    ),
}


def test_bad_prompts_are_named(train: Train, tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    for lines, kind, message in LINES.values():
        path.write_text("\n".join(json.dumps(line) for line in lines))
        with pytest.raises(kind, match=message):
            train(tmp_path / "run", prompts=str(path))


REWARDS = {
    "no.such.module:f": "cannot be imported",
    "tests.adapters.worlds:nothing": "cannot be imported",
    "tests.adapters.worlds": "is not of the form",
    "tests.adapters.worlds:TRAINING": "is a dict, not a function",
}


def test_a_reward_or_method_that_is_none_is_named(train: Train, tmp_path: Path) -> None:
    for reward, message in REWARDS.items():
        with pytest.raises(BenchError, match=message):
            train(tmp_path / "run", reward=reward)
    with pytest.raises(ConfigError, match=r"unknown value 'tepoo'.*nearest: tepo"):
        train(tmp_path / "run", "tepoo")
