"""A run's value for every key of verl's configuration that acts, section by section. Nothing is left to a default.

Sizes: verl counts minibatches in prompts and a step in rollouts, as we do. Two columns where the devices differ: `cuda`
is the cluster; `cpu` is what verl needs to run without GPU, flash attention and inference engine (tests, small runs).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from methods.adapters.verl.actor_keys import log_probs
from methods.adapters.verl.names import ADVANTAGE, AGENT_LOOP, CPU_ROLLOUT, REWARD_FUNCTION, REWARD_METRIC, TRAINER
from methods.method import Method
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from methods.adapters.verl.files import Files

ENDLESS = 1_000_000  # epochs: `total_training_steps` ends a run, not the data

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
    "actor_rollout_ref.model.fused_kernel_options": ("actor_rollout_ref.model.use_fused_kernels", False),
    "actor_rollout_ref.rollout.multi_turn": ("actor_rollout_ref.rollout.multi_turn.enable", False),
    "actor_rollout_ref.rollout.prometheus": ("actor_rollout_ref.rollout.prometheus.enable", False),
    "actor_rollout_ref.rollout.trace": ("actor_rollout_ref.rollout.trace.backend", None),
    "actor_rollout_ref.rollout.disaggregation": ("actor_rollout_ref.rollout.disaggregation.enabled", False),
    "algorithm.kl_ctrl": ("algorithm.use_kl_in_reward", False),
    "algorithm.pf_ppo": ("algorithm.use_pf_ppo", False),
    "transfer_queue.backend.MooncakeStore": ("transfer_queue.backend.storage_backend", "SimpleStorage"),
    "trainer.v1.colocate_async": ("trainer.v1.trainer_mode", TRAINER),
    "trainer.v1.separate_async": ("trainer.v1.trainer_mode", TRAINER),
    "skip.rollout": ("skip.rollout.enable", False),
    "skip.rollout_tq": ("skip.rollout_tq.enable", False),
    "skip.async_rollout": ("skip.async_rollout.enable", False),
}


def data(spec: Spec, files: Files) -> dict[str, Any]:
    t = spec.training
    return {
        "tokenizer": None,
        "use_shm": False,
        "train_files": str(files.train_parquet),
        "val_files": str(files.val_parquet),
        "train_max_samples": -1,
        "val_max_samples": -1,
        "prompt_key": "prompt",
        "reward_fn_key": "data_source",
        "max_prompt_length": t.max_prompt_tokens,
        "max_response_length": t.max_completion_tokens,
        "train_batch_size": t.prompts_per_rollout,
        "gen_batch_size": t.prompts_drawn,
        "val_batch_size": None,
        "return_raw_input_ids": False,
        "return_raw_chat": True,
        "return_full_prompt": False,
        "shuffle": False,  # the file is in our order
        "seed": spec.seed,
        "dataloader_num_workers": 0,  # the position of the stream is then exact in a checkpoint
        "image_patch_size": 14,
        "validation_shuffle": False,
        "filter_overlong_prompts": False,
        "filter_overlong_prompts_workers": 1,
        "truncation": "left",
        "image_key": "images",
        "video_key": "videos",
        "audio_key": "audios",
        "trust_remote_code": False,
        "custom_cls": {"path": None, "name": None},
        "return_multi_modal_inputs": False,
        "apply_chat_template_kwargs": {},
        "mm_processor_kwargs": {},
    }


def rollout(spec: Spec, method: Method) -> dict[str, Any]:
    t = spec.training
    cuda = t.device == "cuda"
    return {
        "name": "vllm" if cuda else CPU_ROLLOUT,
        "mode": "async",
        "nnodes": 0,  # the engines share the trainer's GPUs
        "n_gpus_per_node": t.gpus_per_node,
        "n": t.samples_per_prompt,
        "temperature": t.temperature,
        "top_k": -1,
        "top_p": 1.0,
        "do_sample": True,
        "ignore_eos": False,
        "full_determinism": False,  # breaks under tensor parallelism; per-request seeds do what is needed
        "seed": spec.seed,
        "prompt_length": t.max_prompt_tokens,
        "response_length": t.max_completion_tokens,
        "max_model_len": t.max_prompt_tokens + t.max_completion_tokens,
        "max_num_batched_tokens": max(8192, t.max_prompt_tokens + t.max_completion_tokens),
        "max_num_seqs": 256,
        "dtype": t.precision,
        "gpu_memory_utilization": t.rollout_memory,
        "tensor_model_parallel_size": t.tensor_parallel,
        "data_parallel_size": 1,
        "expert_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "enforce_eager": False,
        "cudagraph_capture_sizes": None,
        "free_cache_engine": cuda,
        "enable_chunked_prefill": True,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        "scheduling_policy": "fcfs",
        "load_format": "dummy",  # the trainer sends the weights
        "layered_summon": False,
        **log_probs(t, method),
        "disable_log_stats": True,
        "over_sample_rate": 0,
        "multi_stage_wake_up": False,
        "engine_kwargs": {"vllm": {}, "sglang": {}, "trtllm": {}},
        "val_kwargs": {"top_k": -1, "top_p": 1.0, "temperature": 0, "n": 1, "do_sample": False},
        "router_config_path": None,
        "calculate_log_probs": False,  # of the engine: old log-probabilities are the trainer's own
        "agent": {
            "num_workers": 8 if cuda else 1,
            "default_agent_loop": AGENT_LOOP,
            "agent_loop_config_path": None,
            "custom_async_server": {"path": None, "name": None},
        },
        "checkpoint_engine": {
            "backend": "naive",
            "update_weights_bucket_megabytes": 2048,
            "engine_kwargs": {},
            "custom_backend_module": None,
        },
        "skip_tokenizer_init": True,
        "enable_rollout_routing_replay": False,
        "moe_load_balance_metrics_interval": 0,
        "quantization": None,
        "quantization_config_file": None,
    }


def algorithm(t: Training) -> dict[str, Any]:
    return {
        "adv_estimator": ADVANTAGE,
        "gamma": 1.0,
        "lam": 1.0,
        "norm_adv_by_std_in_grpo": True,
        "use_kl_in_reward": False,
        "kl_penalty": "kl",
        "use_pf_ppo": False,
        "filter_groups": {
            "enable": False,  # groups are filtered by `GroupBuffer`: verl's own filter depends on timing
            "metric": REWARD_METRIC,
            "max_num_gen_batches": 0,  # ignored by verl's V1 trainer
            "max_inflight_gen_batches": 1,
        },
        "rollout_correction": {
            "rollout_is": None,
            "rollout_is_threshold": 2.0,
            "rollout_rs": None,
            "rollout_rs_threshold": None,
            "bypass_mode": False,  # would skip the pass that gives old entropies
            "loss_type": "ppo_clip",
            "rollout_is_batch_normalize": False,
        },
    }


def reward(t: Training, files: Files) -> dict[str, Any]:
    return {
        "num_workers": 8 if t.device == "cuda" else 1,
        "custom_reward_function": {"path": str(files.reward_module), "name": REWARD_FUNCTION},
        "reward_manager": {"source": "register", "name": "naive"},
    }


def trainer(spec: Spec, files: Files) -> dict[str, Any]:
    t = spec.training
    return {
        "device": t.device,
        "nnodes": t.nodes,
        "n_gpus_per_node": t.gpus_per_node,
        "total_epochs": ENDLESS,
        "total_training_steps": t.rollouts,
        "project_name": "tepo-bench",
        "experiment_name": spec.name,
        "logger": ["file"],  # the progress lines are ours
        "balance_batch": True,
        "log_val_generations": 0,
        "rollout_data_dir": None,
        "validation_data_dir": None,
        "val_before_train": False,
        "val_only": False,
        "test_freq": -1,
        "critic_warmup": 0,
        "save_freq": t.save_every,
        "esi_redundant_time": 0,
        # never `auto`: it goes on from whatever lies in the folder
        "resume_mode": "disable" if files.resume is None else "resume_path",
        "resume_from_path": None if files.resume is None else str(files.resume),
        "default_local_dir": str(files.checkpoints),
        "default_hdfs_dir": None,
        "del_local_ckpt_after_load": False,
        "max_actor_ckpt_to_keep": 2,
        "max_critic_ckpt_to_keep": 2,
        "checkpoint_callback_class": None,
        "ray_wait_register_center_timeout": 300,
        "use_v1": True,  # the V0 trainer drops old entropies and ignores filter_groups
        "v1": {
            "trainer_mode": TRAINER,
            "sync": {},
            "sampler": {
                "max_off_policy_threshold": 8,
                "max_off_policy_strategy": "drop",
                "sync_refill_failed_groups": False,
                "custom_sampler": {"path": None, "name": None},
                "sampler_kwargs": {},
            },
        },
    }


def transfer_queue(t: Training) -> dict[str, Any]:
    units = 8 if t.device == "cuda" else 1
    return {
        "enable": True,
        "metrics": {"enabled": False, "port": 0},
        "backend": {
            "storage_backend": "SimpleStorage",
            "SimpleStorage": {"total_storage_size": 100000, "num_data_storage_units": units},
        },
    }


def ray(t: Training, files: Files) -> dict[str, Any]:
    """What `ray.init` gets. On a cluster of several nodes Ray runs already and takes no sizes."""
    environment = {"VERL_FILE_LOGGER_PATH": str(files.log)}
    start: dict[str, Any] = {"num_cpus": None, "runtime_env": {"py_executable": None, "env_vars": environment}}
    if t.device == "cpu":
        # one pretended GPU: verl places its workers by GPUs
        start |= {"num_cpus": 16, "num_gpus": 1, "include_dashboard": False}
    if files.ray_temp is not None:
        start["_temp_dir"] = str(files.ray_temp)
    return {"ray_init": start, "timeline_json_file": None}
