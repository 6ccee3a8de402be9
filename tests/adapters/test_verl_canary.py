"""C7: what we rely on inside verl 0.9.1. If one fails after an upgrade, read that place again before pinning."""

from __future__ import annotations

import inspect
from typing import Any

from methods.adapters import VERL_VERSION
from methods.adapters.verl import check_versions

# Methods of verl's trainer that ours overrides or calls, with their parameters.
TRAINER = {
    "on_init_end": ["self"],
    "on_step_begin": ["self"],
    "on_step_end": ["self"],
    "on_sample_end": ["self"],
    "_build_replay_buffer": ["self"],
    "_next_train_batch": ["self", "num_prompts"],
    "_submit_batch_to_rollout": ["self", "batch"],
    "_step_once": ["self", "metrics", "timing_raw", "sample_batch_size"],
    "_get_required_batch_multiple": ["self", "dp_size"],
    "_compute_old_log_prob": ["self", "batch", "metrics"],
    "_balance_batch": ["self", "batch", "metrics", "logging_prefix", "keep_minibatch"],
    "_save_checkpoint": ["self"],
    "_compute_metrics": ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"],
}
BUFFER = {
    "sample": ["self", "global_steps", "partition_id", "batch_size"],
    "_sync_metadata_from_transfer_queue": ["self"],
    "_clear_groups": ["self", "partition_id", "uids"],
    "_materialize_batch": ["self", "partition_id", "selected_prompt_uids", "partition_snapshot"],
    "_wait_for_next_poll": ["self", "partition_id", "last_debug_time"],
}
REPLACED = {
    "_build_replay_buffer",
    "_next_train_batch",
    "_get_required_batch_multiple",
}  # without `super()`, on purpose
WRAPPED = {"_save_checkpoint": "_save_state"}  # verl's is called from another place


def verls_trainer() -> Any:
    from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync

    return PPOTrainerSync


def source(owner: Any, name: str) -> str:
    return inspect.getsource(inspect.unwrap(getattr(owner, name)))


def test_versions_are_the_pinned_ones() -> None:
    from core.provenance import version

    assert version("verl") == VERL_VERSION
    check_versions("cpu")


def test_signatures() -> None:
    from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

    for owner, pinned in ((verls_trainer(), TRAINER), (ReplayBuffer, BUFFER)):
        found = {name: list(inspect.signature(inspect.unwrap(getattr(owner, name))).parameters) for name in pinned}
        assert found == pinned


def test_every_override_exists_in_verl_and_calls_super() -> None:
    from methods.adapters.verl.trainer import MethodTrainer

    ours = {n for n, f in vars(MethodTrainer).items() if inspect.isfunction(f) and hasattr(verls_trainer(), n)}
    assert ours - {"__init__"} == set(TRAINER) - {"_submit_batch_to_rollout", "on_sample_end"}
    for name in ours - REPLACED:
        where = vars(MethodTrainer)[WRAPPED.get(name, name)]
        assert f"super().{name}(" in inspect.getsource(where), name


TEXTS = {  # place in verl -> what must stand there
    "the loss sees old entropies": (
        "_compute_old_log_prob",
        'data["entropy"] = response_from_nested(data.pop("entropy")',
    ),
    "the old pass always has entropies": ("_compute_old_log_prob", '"calculate_entropy": True'),
    "figures of all updates come back together": ("_update_actor", "self.actor_rollout_wg.update_actor(batch)"),
    "passes are epochs of the worker": ("_update_actor", '"epochs": self.config.actor_rollout_ref.actor.ppo_epochs'),
    "filling is added before balancing": ("_balance_batch", "upsample_batch_to_divisible_size(batch, batch_multiple"),
    "the mode is compared as a string": ("_submit_batch_to_rollout", 'self.trainer_mode != "sync"'),
    "our estimator is asked": ("_compute_advantage", "adv_estimator=self.config.algorithm.adv_estimator"),
    "the state's place is the configuration's": ("_save_checkpoint", "self.config.trainer.default_local_dir"),
    "the loop ends by total_training_steps": ("fit", "self.global_steps <= self.total_training_steps"),
}


def test_texts_of_verls_trainer() -> None:
    changed = [what for what, (name, text) in TEXTS.items() if text not in source(verls_trainer(), name)]
    assert not changed


def test_a_rewards_extra_values_reach_the_buffer() -> None:
    from verl.experimental.reward_loop.reward_manager.naive import NaiveRewardManager

    text = source(NaiveRewardManager, "run_single")
    for part in ("iscoroutinefunction", 'result["score"]', "reward_extra_info[key] = value"):
        assert part in text + inspect.getsource(NaiveRewardManager.__init__)
