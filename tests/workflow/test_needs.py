"""What jobs ask for follows from their settings: none of it is the site's."""

from __future__ import annotations

import re

import pytest

from core.errors import ConfigError
from core.layout import Run
from workflow import resources
from workflow.matrix import Planned

GPU = {"device": "cuda", "rollouts": 72, "gpus_per_node": 8}
TINY = Planned(Run("tiny_qwen2", "grpo", 1), "grpo", (8,))
HOT = Planned(Run("tiny_qwen2", "grpo@hot", 1), "grpo@hot", (8,))


@pytest.mark.parametrize(
    ("settings", "gpus", "nodes"),
    [({}, 0, 1), ({"device": "cpu"}, 0, 1), (GPU, 8, 1), (GPU | {"nodes": 2}, 16, 2)],
    ids=["default", "cpu", "one node", "two nodes"],
)
def test_training_asks_for_the_gpus_of_its_specification(settings: dict[str, object], gpus: int, nodes: int) -> None:
    need = resources.train(settings)
    assert (need.gpus, need.nodes) == (gpus, nodes)


def test_more_rollouts_more_time() -> None:
    assert resources.train(GPU | {"rollouts": 132}).minutes > resources.train(GPU).minutes > 72 * 357 / 60  # as printed


def test_vllm_takes_a_gpu_and_nothing_else_does() -> None:
    assert {backend: resources.generate(backend).gpus for backend in ("hf", "vllm", "openai")} == {
        "hf": 0, "vllm": 1, "openai": 0,
    }  # fmt: skip


def config(**hot: object) -> dict[str, object]:
    return {"training": {"rollouts": 8}, "cluster": None, "variants": {"hot": {"title": "", "training": hot}}}


def test_models_over_several_nodes_are_told_apart() -> None:
    assert resources.several_nodes(config(), [TINY]) == set()
    assert resources.several_nodes(config(nodes=2, device="cuda"), [HOT]) == {"tiny_qwen2"}
    with pytest.raises(ConfigError, match="runs of tiny_qwen2 need 1 and 2"):
        resources.several_nodes(config(nodes=2, device="cuda"), [TINY, HOT])


def test_a_pattern_matches_its_names_and_no_other() -> None:
    matching = re.compile(resources.pattern({"qwen2.5_7b", "tiny"}))
    assert [bool(matching.fullmatch(name)) for name in ("qwen2.5_7b", "tiny", "qwen2x5_7b", "")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not re.fullmatch(resources.pattern(set()), "anything")
