"""TRL's settings for a run, every one that matters written out: the defaults are bf16, decay to 0, telemetry."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from methods.adapters import Plan
from methods.method import Method
from methods.training.spec import Spec, Training
from records.errors import ConfigError
from records.provenance import version

TRL_VERSION = "1.16.0"  # the private methods overridden in `trl_trainer` are this version's; tests/adapters pin them

# What only a trainer of several devices can do otherwise.
_ONLY = {"nodes": 1, "gpus_per_node": 1, "tensor_parallel": 1, "attention": "sdpa"}


def check_version() -> None:
    """Raise unless the installed TRL is the one whose private methods we override."""
    found = version("trl")
    if found != TRL_VERSION:
        raise ConfigError(f"environment: trl: version {found!r} is installed; allowed: {TRL_VERSION}")


def sizes(training: Training, method: Method) -> Plan:
    """TRL's sizes for ours. TRL counts in slices: one slice is one forward and backward pass."""
    for name, only in _ONLY.items():
        if getattr(training, name) != only:
            raise ConfigError(
                f"spec: training.{name}: {getattr(training, name)!r}: the trl adapter runs on one device; "
                f"allowed: {only!r}"
            )
    if method.scope == "batch" and training.cov_scope == "minibatch" and training.micro_batches > 1:
        raise ConfigError(
            f"spec: training.micro_batches: {training.micro_batches} would split a minibatch, but {method.key} takes "
            f"statistics over all of it (scope batch); allowed: 1, or cov_scope: microbatch"
        )
    slices = training.minibatches * training.micro_batches
    drawn = prompts_drawn(training, slices)
    sequences = drawn * training.samples_per_prompt
    return Plan(
        prompts_drawn=drawn,
        sequences_drawn=sequences,
        sequences_per_minibatch=training.rows_per_minibatch,
        updates_per_rollout=training.updates_per_rollout,
        updates=training.updates,
        trainer={
            "per_device_train_batch_size": sequences // slices,
            "steps_per_generation": slices,
            "num_iterations": training.passes,
            "gradient_accumulation_steps": training.micro_batches,
            "max_steps": training.updates,
        },
    )


def prompts_drawn(training: Training, slices: int) -> int:
    """Prompts of one rollout before filtering, rounded up until TRL can cut their sequences into equal slices."""
    step = slices // math.gcd(slices, training.samples_per_prompt)
    return -(-training.prompts_drawn // step) * step


def arguments(spec: Spec, plan: Plan, method: Method, folder: Path) -> dict[str, Any]:
    """Keyword arguments of `GRPOConfig`. The loss-shaping ones are TRL's off position: our loss replaces TRL's."""
    t = spec.training
    cpu = t.device == "cpu"
    return {
        **plan.trainer,
        "output_dir": str(folder),
        "seed": spec.seed,
        "data_seed": spec.seed,
        # sampling
        "num_generations": t.samples_per_prompt,
        "max_completion_length": t.max_completion_tokens,
        "temperature": t.temperature,
        "top_p": 1.0,
        "top_k": 0,
        "min_p": None,
        "repetition_penalty": 1.0,
        "use_vllm": False,
        "vllm_importance_sampling_correction": False,
        "mask_truncated_completions": False,
        "shuffle_dataset": False,  # our order, and one epoch: TRL's shuffle starts over in a resumed second epoch
        "remove_unused_columns": False,
        "pad_to_multiple_of": None,
        # optimiser
        "optim": "adamw_torch",
        "learning_rate": t.learning_rate,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "weight_decay": t.weight_decay,
        "adam_beta1": 0.9,
        "adam_beta2": 0.999,
        "adam_epsilon": 1e-8,
        "max_grad_norm": t.gradient_clip,
        # numbers
        "use_cpu": cpu,
        "bf16": t.precision == "bfloat16",
        "fp16": False,
        "tf32": None if cpu else False,
        "gradient_checkpointing": False,
        "torch_compile": False,
        "disable_dropout": True,
        "use_cache": True,  # False would be saved into every checkpoint's config and slow its evaluation down
        # A switch only: TRL loads and runs the reference model if beta is not 0; its beta enters no loss of ours.
        "beta": 1.0 if "ref_logp" in method.needs else 0.0,
        "model_init_kwargs": {"dtype": "float32", "attn_implementation": "eager" if cpu else "sdpa"},
        # TRL's own loss terms: unused, off
        "loss_type": "dapo",
        "scale_rewards": "group",
        "entropy_coef": 0.0,
        "use_adaptive_entropy": False,
        "top_entropy_quantile": 1.0,
        "sync_ref_model": False,
        "use_bias_correction_kl": False,
        # records: ours
        "logging_strategy": "no",
        "logging_nan_inf_filter": False,
        "save_strategy": "no",  # our callback asks for saves, on rollout edges only
        "save_total_limit": 2,
        "eval_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "log_completions": False,
        "push_to_hub": False,
        "restore_callback_states_from_checkpoint": False,
        "ignore_data_skip": False,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": not cpu,
    }
