"""The estimate of GPU memory: sizes of models, what is refused, and activations against what the system measures."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.errors import ConfigError
from core.layout import Run
from core.provenance import ROOT
from methods import catalog
from methods.training import spec
from methods.training.spec import Training
from models import registry
from tests.merged_config import load
from tests.workflow.test_plan import problems, staged, world
from workflow import matrix, memory, resources
from workflow.matrix import Planned

PAPER = load([ROOT / "config/embedded.yaml", ROOT / "config/paper.yaml"])

# of the tensors in the hub repositories, as their pages state them
PARAMETERS = {
    "qwen2.5_0.5b": 494_032_768,
    "qwen2.5_1.5b": 1_543_714_304,
    "qwen2.5_7b": 7_615_616_512,
    "r1_distill_qwen_7b": 7_615_616_512,
    "qwen3_14b": 14_768_307_200,
    "r1_distill_llama_8b": 8_030_261_248,
    "mistral_7b_instruct_v0.2": 7_241_732_096,
}


def shape(model: str) -> registry.Shape:
    found = registry.model(model).shape
    assert found is not None, f"{model}: has no shape"
    return found


def training(**changes: Any) -> Training:
    """Of the paper's GRPO on Qwen2.5-7B."""
    (planned, *_) = matrix.plan(PAPER)
    return spec.check(matrix.specification(PAPER, planned, "base", "prompts")).training.model_copy(update=changes)


def test_a_shape_has_the_models_parameters() -> None:
    assert {model: shape(model).parameters for model in PARAMETERS} == PARAMETERS


@pytest.mark.parametrize("model_type", ["qwen2", "qwen3", "llama", "mistral"])
def test_parameters_are_counted_as_transformers_makes_them(model_type: str) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "vocab_size": 50, "head_dim": 8}
    sizes |= {"num_attention_heads": 4, "num_key_value_heads": 2}
    for tied in (False, True):
        with torch.device("meta"):
            config = AutoConfig.for_model(model_type, **sizes, tie_word_embeddings=tied)
            made = AutoModelForCausalLM.from_config(config)
        declared = registry.Shape(model_type=model_type, **sizes, tie_word_embeddings=tied, source="here")
        assert declared.parameters == made.num_parameters()
        assert declared.layer_parameters == sum(p.numel() for p in made.model.layers[0].parameters())


def test_a_fetched_model_of_other_sizes_is_named(tmp_path: Path) -> None:
    of = staged(world(tmp_path))
    config = {"hidden_size": 3584, "vocab_size": 151936, "num_hidden_layers": 28}
    (of.base("qwen2.5_7b") / "config.json").write_text(json.dumps(config))
    (line,) = [line for line in problems(of) if "config.json" in line]
    assert line.endswith("vocab_size: 151936, and its file in config/models says 152064")


def test_memory_grows_with_what_takes_it() -> None:
    """Each part of the estimate by a change of the setting that alone decides it."""
    method, qwen = catalog.parse("tepo"), shape("qwen2.5_7b")
    usual = memory.estimate(qwen, training(), method, 79.1)
    flash = memory.estimate(qwen, training(attention="flash_attention_2"), method, 79.1)
    ratio = memory.FRAGMENTATION / memory.GIB
    assert usual.phases["update"] - flash.phases["update"] == pytest.approx(3 * usual.tokens**2 * ratio)
    sync = memory.estimate(qwen, training(offload=True), method, 79.1).phases["weight sync"]
    embedding, bucket = 152_064 * 3584 * 4, 2 * memory.GIB
    assert embedding == pytest.approx(2.18e9, rel=1e-3)
    assert (sync - 2.5) * memory.GIB == pytest.approx(1.08 * (embedding + bucket) + 2 * PARAMETERS["qwen2.5_7b"])
    assert usual.phases["weight sync"] - sync == pytest.approx(12 * qwen.parameters / 8 * ratio)
    twice = memory.estimate(qwen, training(nodes=2), method, 79.1)
    assert twice.states == pytest.approx(usual.states / 2)
    rows = memory.estimate(qwen, training(cov_scope="microbatch"), catalog.parse("clip_cov"), 79.1)
    assert rows.tokens <= 2 * (2048 + 8192)


def test_the_bucket_of_the_weight_sync_is_verls() -> None:
    keys = yaml.safe_load((ROOT / "methods/adapters/verl/config.yaml").read_text(encoding="utf-8"))
    bucket = keys["actor_rollout_ref"]["rollout"]["checkpoint_engine"]["update_weights_bucket_megabytes"]
    assert bucket * 2**20 == memory.BUCKET


def test_attention_costs_what_sdpa_multiplies() -> None:
    """Counted by torch in one layer given a mask, as packed sequences are; then 28 layers and five passes."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    qwen, tokens = shape("qwen2.5_7b"), 128
    heads = torch.randn(1, qwen.num_attention_heads, tokens, qwen.head_dim)
    mask = torch.block_diag(*[torch.ones(32, 32)] * 4).bool().tril()
    with FlopCounterMode(display=False) as counted, sdpa_kernel(SDPBackend.MATH):
        torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=mask)
    run, method = training(), catalog.parse("grpo")
    length = memory.PROMPT + memory.RESPONSE * run.max_completion_tokens
    rows = run.prompts_per_rollout * run.samples_per_prompt
    found = memory.attention_flops(qwen, run, method) / (rows * length * memory.largest_batch(run, method))
    assert found == pytest.approx(5 * 28 * counted.get_total_flops() / tokens**2)
    share = found * 19_875 / (5 * 2 * qwen.parameters)
    assert share == pytest.approx(0.524, abs=1e-3)


COMMON = {"num_attention_heads": 4, "num_key_value_heads": 2}
PASSES = {  # what dominates -> sizes, tokens, precision
    "head": (
        {**COMMON, "model_type": "qwen2", "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2}
        | {"head_dim": 32, "vocab_size": 32768},
        1280,
        "bfloat16",
    ),
    # float32: a CPU's kernels for bfloat16 have buffers of their own, which a GPU's have not
    "layers": (
        {**COMMON, "model_type": "llama", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
        | {"head_dim": 64, "vocab_size": 128},
        2048,
        "float32",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", PASSES)
def test_a_pass_takes_what_is_estimated(what: str) -> None:
    """The system's own figure, in a process of its own. 10 %: pages, and buffers of libraries, of 100 to 300 MB."""
    sizes, tokens, precision = PASSES[what]
    line = [sys.executable, "-m", "tests.workflow.memory_pass", json.dumps(sizes), str(tokens), precision]
    # every tensor is given back to the system when it is freed: without it malloc keeps some, as it sees fit
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, encoding="utf-8", check=True)
    made = registry.Shape(**sizes, tie_word_embeddings=False, source="here")  # type: ignore[arg-type]
    width = 2 if precision == "bfloat16" else 4
    layers = memory.activations(made, tokens, width) + memory.attention_mask(tokens, width)
    expected = {"head": memory.output_head(made, tokens, width), "layers": layers}
    assert expected[what] == max(expected.values())
    assert int(done.stdout) == pytest.approx(expected[what], rel=0.1)


GPU = {"device": "cuda", "rollouts": 72, "gpus_per_node": 8}
TINY_RUN = Planned(Run("tiny_qwen2", "grpo", 1), "grpo", (8,))
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


def settings_of(**hot: object) -> dict[str, object]:
    return {"training": {"rollouts": 8}, "cluster": None, "variants": {"hot": {"title": "", "training": hot}}}


def test_models_over_several_nodes_are_told_apart() -> None:
    assert resources.several_nodes(settings_of(), [TINY_RUN]) == set()
    assert resources.several_nodes(settings_of(nodes=2, device="cuda"), [HOT]) == {"tiny_qwen2"}
    with pytest.raises(ConfigError, match="runs of tiny_qwen2 need 1 and 2"):
        resources.several_nodes(settings_of(nodes=2, device="cuda"), [TINY_RUN, HOT])


def test_a_pattern_matches_its_names_and_no_other() -> None:
    matching = re.compile(resources.pattern({"qwen2.5_7b", "tiny"}))
    assert [bool(matching.fullmatch(name)) for name in ("qwen2.5_7b", "tiny", "qwen2x5_7b", "")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert not re.fullmatch(resources.pattern(set()), "anything")
