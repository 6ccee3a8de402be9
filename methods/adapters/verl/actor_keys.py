"""verl's keys of the model and of the passes over it: actor, reference, optimiser, engine, micro-batches.

Our loss replaces verl's (`set_loss_fn`), so verl's loss keys are unread; they hold GRPO/DAPO's values, so that a loss
that was not replaced would at least not be one of verl's defaults.
"""

from __future__ import annotations

from typing import Any

from methods.adapters.verl.names import EXTERNAL_LIB
from methods.method import Method
from methods.training.spec import Spec, Training


def model(spec: Spec) -> dict[str, Any]:
    t = spec.training
    return {
        "path": spec.base,
        "hf_config_path": None,
        "tokenizer_path": None,
        "use_shm": False,
        "trust_remote_code": False,
        "custom_chat_template": None,
        "external_lib": EXTERNAL_LIB[t.device],  # imported by the driver and by every worker
        "override_config": {"attn_implementation": t.attention},
        "enable_gradient_checkpointing": t.device == "cuda",
        "enable_activation_offload": False,
        "use_remove_padding": t.attention == "flash_attention_2",  # packing needs its kernels
        "lora_rank": 0,
        "lora_alpha": 16,
        "target_modules": "all-linear",
        "exclude_modules": None,
        "lora_adapter_path": None,
        "use_liger": False,
        "use_fused_kernels": False,
    }


def actor(spec: Spec, method: Method) -> dict[str, Any]:
    t = spec.training
    dynamic = packs_by_tokens(t, method)
    return {
        "strategy": "fsdp2",
        "rollout_n": t.samples_per_prompt,
        "ppo_mini_batch_size": t.prompts_per_rollout // t.minibatches,  # prompts
        "ppo_micro_batch_size": None,
        "ppo_micro_batch_size_per_gpu": None if dynamic else micro_batch_rows(t, method),
        "use_dynamic_bsz": dynamic,
        "ppo_max_token_len_per_gpu": t.max_tokens_per_gpu,
        "ppo_epochs": t.passes,
        "shuffle": False,
        "data_loader_seed": spec.seed,
        "calculate_entropy": True,
        "calculate_sum_pi_squared": False,
        "entropy_coeff": 0,
        "grad_clip": t.gradient_clip,
        # the reference's log-probabilities are computed if this is set; verl's own term has weight 0 and is unread
        "use_kl_loss": "ref_logp" in method.needs,
        "kl_loss_coef": 0.0,
        "kl_loss_type": "low_var_kl",
        # verl's own loss: unread, see the module's docstring
        "clip_ratio": 0.2,
        "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.28,
        "clip_ratio_c": 1e9,
        "tau_pos": 1.0,
        "tau_neg": 1.05,
        "loss_agg_mode": "token-mean",
        "loss_scale_factor": None,
        "policy_loss": {
            "loss_mode": "vanilla",
            "clip_cov_ratio": 0.0002,
            "clip_cov_lb": 1.0,
            "clip_cov_ub": 5.0,
            "kl_cov_ratio": 0.002,
            "ppo_kl_coef": 1.0,
            "dro_beta": None,
        },
        "freeze_vision_tower": False,
        "use_prefix_grouper": False,
        "use_torch_compile": False,
        "ulysses_sequence_parallel_size": 1,
        "entropy_from_logits_with_chunking": t.device == "cuda",  # a full-vocabulary entropy at once costs gigabytes
        "entropy_from_logits_chunk_size": 2048,
        "entropy_checkpointing": t.device == "cuda",
        "pad_to_length": False,
        "use_remove_padding": t.attention == "flash_attention_2",
        "optim": optimiser(t),
        "fsdp_config": engine(spec, forward_only=False),
        "checkpoint": {
            "save_contents": ["model", "optimizer", "extra"],
            "load_contents": ["model", "optimizer", "extra"],
            "async_save": False,
            "strict": True,
        },
    }


def optimiser(t: Training) -> dict[str, Any]:
    """AdamW at a constant rate (reading R27)."""
    return {
        "optimizer": "AdamW",
        "optimizer_impl": "torch.optim",
        "lr": t.learning_rate,
        "lr_warmup_steps_ratio": 0.0,
        "lr_warmup_steps": 0,
        "total_training_steps": t.rollouts,
        "weight_decay": t.weight_decay,
        "betas": [0.9, 0.999],
        "clip_grad": t.gradient_clip,
        "min_lr_ratio": 1.0,
        "num_cycles": 0.5,
        "lr_scheduler_type": "constant",
        "zero_indexed_step": True,
        "warmup_style": None,
        "override_optimizer_config": None,
    }


def engine(spec: Spec, *, forward_only: bool) -> dict[str, Any]:
    """FSDP2 with float32 weights; `precision` is that of the passes."""
    t = spec.training
    low = "bf16" if t.precision == "bfloat16" else "fp32"
    return {
        "strategy": "fsdp2",
        "wrap_policy": {"min_num_params": 0},
        "param_offload": False,
        "optimizer_offload": False,
        "offload_policy": False,
        "reshard_after_forward": True,
        "fsdp_size": -1,
        "forward_prefetch": False,
        "model_dtype": "fp32",
        "dtype": t.precision,
        "mixed_precision": {"param_dtype": low, "reduce_dtype": "fp32", "buffer_dtype": "fp32"},
        "use_orig_params": False,
        "seed": spec.seed,
        "full_determinism": False,
        "ulysses_sequence_parallel_size": 1,
        "use_torch_compile": False,
        "use_no_sync_for_gradient_accumulation": False,
        "pad_to_length_bucket": 1024,
        "forward_only": forward_only,
    }


def reference(spec: Spec, method: Method) -> dict[str, Any]:
    t = spec.training
    return {
        "strategy": "fsdp2",
        "rollout_n": t.samples_per_prompt,
        "use_torch_compile": False,
        **log_probs(t, method),
        "ulysses_sequence_parallel_size": 1,
        "entropy_from_logits_with_chunking": t.device == "cuda",
        "entropy_from_logits_chunk_size": 2048,
        "entropy_checkpointing": False,
        "pad_to_length": False,
        "fsdp_config": engine(spec, forward_only=True),
    }


def log_probs(t: Training, method: Method) -> dict[str, Any]:
    """Passes without gradient, packed as the updates are: packed otherwise, dH would be rounding noise (reading R6)."""
    dynamic = packs_by_tokens(t, method)
    return {
        "log_prob_micro_batch_size": None,
        "log_prob_micro_batch_size_per_gpu": None if dynamic else micro_batch_rows(t, method),
        "log_prob_use_dynamic_bsz": dynamic,
        "log_prob_max_token_len_per_gpu": t.max_tokens_per_gpu,
    }


def packs_by_tokens(t: Training, method: Method) -> bool:
    """Whether micro-batches are cut by tokens. Not where a method's statistics would follow the cut."""
    return t.device == "cuda" and method.scope != "batch"


def micro_batch_rows(t: Training, method: Method) -> int:
    """Sequences of a micro-batch on one device: as many as fit on a GPU where statistics are per micro-batch."""
    if t.device == "cuda" and t.cov_scope == "microbatch":
        fitting = max(1, t.max_tokens_per_gpu // (t.max_prompt_tokens + t.max_completion_tokens))
        return min(fitting, t.rows_per_minibatch // t.gpus)
    return t.rows_per_minibatch // t.micro_batches
