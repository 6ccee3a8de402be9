"""Every run of the paper's scale as verl's configuration: complete, accepted by verl, and not verl's trap defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from methods import catalog
from methods.adapters.verl import config as verl_config
from methods.adapters.verl import plan, preflight
from methods.training import spec as specs
from methods.training.spec import Spec
from tests.adapters import worlds
from tests.merged_config import load
from workflow import matrix

ROOT = Path(__file__).resolve().parents[2]
FILES = verl_config.Files(
    train_parquet=Path("run/train.parquet"),
    val_parquet=Path("run/val.parquet"),
    checkpoints=Path("run/state"),
    log=Path("run/verl.jsonl"),
    reward_module=Path("rewards.py"),
)
PAPER = load([ROOT / "config/embedded.yaml", ROOT / "config/paper.yaml"])
RUNS = {planned.run.path.as_posix(): planned for planned in matrix.plan(PAPER)}


def paper_spec(name: str, **training: Any) -> Spec:
    given = matrix.specification(PAPER, RUNS[name], "models/base", "prompts.jsonl")
    return specs.check({**given, "training": given["training"] | training})


def cpu_spec(**changes: Any) -> Spec:
    return specs.check(worlds.spec(Path("world"), trainer="verl", **changes))


TEPO = "qwen2.5_7b/tepo/seed2"
A, M, R = "actor_rollout_ref.actor", "actor_rollout_ref.model", "actor_rollout_ref.rollout"

# key -> its value at the paper's scale, where verl has another default or two places
TRAPS: dict[str, Any] = {
    "algorithm.adv_estimator": "methods",
    "critic.enable": False,
    f"{A}.optim.lr": 5e-7,
    f"{A}.optim.weight_decay": 0.0,
    f"{A}.ppo_mini_batch_size": 16,  # in prompts: verl multiplies by n
    f"{A}.ppo_epochs": 1,
    f"{A}.clip_ratio_high": 0.28,
    f"{A}.clip_ratio_c": 1e9,
    f"{A}.calculate_entropy": True,  # else the loss reads no entropy
    f"{A}.use_dynamic_bsz": True,
    f"{A}.strategy": "fsdp2",
    f"{A}.fsdp_config.seed": 2,
    f"{A}.data_loader_seed": 2,
    f"{M}.use_fused_kernels": True,
    f"{M}.external_lib": "methods.adapters.verl.worker",
    f"{R}.n": 8,
    f"{R}.seed": 2,
    f"{R}.name": "vllm",
    f"{R}.tensor_model_parallel_size": 1,
    f"{R}.log_prob_max_token_len_per_gpu": 20480,  # packed as the updates are, else dH is noise
    "data.max_prompt_length": 2048,
    "data.max_response_length": 8192,
    "data.truncation": "left",
    "data.train_batch_size": 64,
    "data.shuffle": False,
    "reward.custom_reward_function.path": "rewards.py",
    "trainer.resume_mode": "disable",
    "trainer.save_freq": 4,
    "trainer.total_training_steps": 72,
    "trainer.val_before_train": False,
    "trainer.v1.trainer_mode": "methods",
}


# Sections that are off: section -> (the key that turns it off, its value). What else they hold is never read.
OFF: dict[str, tuple[str, Any]] = {
    "critic": ("critic.enable", False),
    "distillation": ("distillation.enabled", False),
    "reward.reward_model": ("reward.reward_model.enable", False),
    "reward.reward_manager.module": ("reward.reward_manager.source", "register"),
    "reward.sandbox_fusion": ("reward.sandbox_fusion.url", None),
    "reward_model": ("reward_model.enable", None),  # the old names of `reward`, kept by verl: null is unset
    "custom_reward_function": ("custom_reward_function.path", None),
    "sandbox_fusion": ("sandbox_fusion.url", None),
    "global_profiler": ("global_profiler.tool", None),
    "actor_rollout_ref.actor.profiler": ("actor_rollout_ref.actor.profiler.enable", False),
    "actor_rollout_ref.ref.profiler": ("actor_rollout_ref.ref.profiler.enable", False),
    "actor_rollout_ref.rollout.profiler": ("actor_rollout_ref.actor.profiler.enable", False),
    "actor_rollout_ref.actor.qat": ("actor_rollout_ref.actor.qat.enable", False),
    "actor_rollout_ref.actor.fsdp_config.qat": ("actor_rollout_ref.actor.fsdp_config.qat.enable", False),
    "actor_rollout_ref.ref.fsdp_config.qat": ("actor_rollout_ref.ref.fsdp_config.qat.enable", False),
    "actor_rollout_ref.actor.fsdp_config.turbo_config": ("actor_rollout_ref.actor.strategy", "fsdp2"),
    "actor_rollout_ref.ref.fsdp_config.turbo_config": ("actor_rollout_ref.actor.strategy", "fsdp2"),
    "actor_rollout_ref.model.lora": ("actor_rollout_ref.model.lora.rank", 0),
    "actor_rollout_ref.model.mtp": ("actor_rollout_ref.model.mtp.enable", False),
    "actor_rollout_ref.model.tiled_mlp": ("actor_rollout_ref.model.tiled_mlp.enabled", False),
    "actor_rollout_ref.rollout.multi_turn": ("actor_rollout_ref.rollout.multi_turn.enable", False),
    "actor_rollout_ref.rollout.prometheus": ("actor_rollout_ref.rollout.prometheus.enable", False),
    "actor_rollout_ref.rollout.trace": ("actor_rollout_ref.rollout.trace.backend", None),
    "actor_rollout_ref.rollout.disaggregation": ("actor_rollout_ref.rollout.disaggregation.enabled", False),
    "algorithm.kl_ctrl": ("algorithm.use_kl_in_reward", False),
    "algorithm.pf_ppo": ("algorithm.use_pf_ppo", False),
    "transfer_queue.backend.MooncakeStore": ("transfer_queue.backend.storage_backend", "SimpleStorage"),
    "trainer.v1.colocate_async": ("trainer.v1.trainer_mode", "methods"),
    "trainer.v1.separate_async": ("trainer.v1.trainer_mode", "methods"),
    "skip.rollout": ("skip.rollout.enable", False),
    "skip.rollout_tq": ("skip.rollout_tq.enable", False),
    "skip.async_rollout": ("skip.async_rollout.enable", False),
}


def defaults() -> dict[str, Any]:
    from omegaconf import OmegaConf

    return dict(verl_config._leaves(OmegaConf.to_container(verl_config._defaults(), resolve=False)))


def test_the_papers_values_reach_verls_configuration() -> None:
    ours = verl_config.overrides(paper_spec(TEPO), FILES)
    assert {key: ours[key] for key in TRAPS} == TRAPS


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_no_key_that_acts_is_left_to_verl(device: str) -> None:
    """A key is ours, or follows one of ours, or lies in a section that one of ours turns off."""
    ours = verl_config.overrides(paper_spec(TEPO) if device == "cuda" else cpu_spec(), FILES)
    groups = {name.rsplit(".", i)[0] for name in ours for i in range(1, 5)}  # `override_config` is {} until filled
    left = [
        key
        for key, value in defaults().items()
        if key not in ours
        and key not in groups
        and not key.endswith("_target_")
        and not (isinstance(value, str) and value.startswith("${"))
        and not any(key.startswith(f"{section}.") for section in OFF)
    ]
    assert left == ["model_engine"]  # which YAML files Hydra takes, not a setting
    for section, (switch, value) in OFF.items():
        assert ours[switch] == value, section
        assert any(key.startswith(f"{section}.") for key in defaults()), f"verl has no section {section}"


@pytest.mark.slow
def test_verl_accepts_every_kind_of_run_of_the_paper() -> None:
    """Every method and every model once; other runs differ in numbers only."""
    methods = {planned.run.method: name for name, planned in RUNS.items()}
    models = {planned.run.model: name for name, planned in RUNS.items()}
    for name in sorted({*methods.values(), *models.values()}):
        spec = paper_spec(name)
        made = verl_config.compose(verl_config.overrides(spec, FILES))
        planned = plan(spec.training, catalog.parse(spec.method))
        assert made.actor_rollout_ref.actor.ppo_mini_batch_size * made.actor_rollout_ref.rollout.n == 128, name
        assert planned.updates_per_rollout == 4, name
        assert made.trainer.nnodes * made.trainer.n_gpus_per_node == (16 if "14b" in name else 8), name
        # methods of scope batch too: their statistics are gathered over all micro-batches
        assert made.actor_rollout_ref.actor.use_dynamic_bsz, name
        assert made.actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu is None, name


@pytest.mark.slow
def test_what_verl_refuses_is_one_line() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({f"{A}.clip_ratio_hi": 0.28}, r"clip_ratio_hi: verl has no such key; nearest: .*clip_ratio_high"),
        ({f"{A}.loss_agg_mode": "token"}, "verl: refuses its configuration: .*loss_agg_mode"),
        ({"data.train_batch_size": 8, f"{A}.use_dynamic_bsz": False}, "verl: refuses its configuration"),
        ({f"{R}.mode": "sync"}, "verl: refuses its configuration: .*sync"),  # a removed mode
    ]
    for change, message in cases:
        with pytest.raises(ConfigError, match=message) as caught:
            verl_config.compose(verl_config.overrides(paper_spec(TEPO), FILES) | change)
        assert "\n" not in str(caught.value)


REFUSED = {
    "GPUs that do not divide": (TEPO, {"nodes": 3}, "training.nodes: 3 x 8 GPUs do not divide a minibatch of 128"),
    "micro-batches by count": (TEPO, {"micro_batches": 2}, "micro_batches: 2: on cuda verl cuts"),
    "too few tokens": (TEPO, {"max_tokens_per_gpu": 8192}, r"8192 is less than the longest sequence \(2048 \+ 8192"),
}


def test_plan_refuses_with_one_line() -> None:
    for name, changes, message in REFUSED.values():
        spec = paper_spec(name, **changes)
        with pytest.raises(ConfigError, match=message) as caught:
            plan(spec.training, catalog.parse(spec.method))
        assert "\n" not in str(caught.value)


def test_a_mean_over_micro_batches_and_statistics_over_a_minibatch() -> None:
    """The first is another number when the minibatch is split; the second are gathered over GPUs and micro-batches."""
    training = paper_spec(TEPO).training
    message = (
        r"grpo.* divides by the tokens of a micro-batch, and 8 GPUs would split the minibatch; allowed: microbatch"
    )
    with pytest.raises(ConfigError, match=message):
        plan(training, catalog.parse("grpo+agg-scope=microbatch"))
    by_tokens = {"ppo_max_token_len_per_gpu": 20480}
    for key in ("clip_cov", "kl_cov", "tepo_steer", "top_entropy"):
        assert by_tokens.items() <= plan(training, catalog.parse(key)).trainer.items()
        split = training.model_copy(update={"cov_scope": "microbatch"})
        assert plan(split, catalog.parse(key)).trainer["ppo_micro_batch_size_per_gpu"] == 2


def test_plan_reads_what_is_there_without_torch(world: Path) -> None:
    made = preflight(specs.check(worlds.spec(world, trainer="verl", filter="none", prompts_per_rollout=4)))
    assert (made.prompts_drawn, made.sequences_drawn, made.updates) == (4, 16, 8)
    assert made.trainer["ppo_mini_batch_size"] == 2
