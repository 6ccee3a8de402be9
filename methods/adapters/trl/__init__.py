"""The TRL adapter: GRPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`.

What differs from stock TRL, and why, stands at the top of `trainer`. This module imports neither TRL nor torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods import catalog
from methods.adapters import TRL_VERSION, Outcome, Plan
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training
from records.errors import ConfigError
from records.provenance import version

if TYPE_CHECKING:
    from methods.training.run_folder import RunFolder

# Settings of several devices, or of packages that the TRL environment does not hold: only one value is possible.
ONLY: dict[str, object] = {"nodes": 1, "gpus_per_node": 1, "tensor_parallel": 1, "attention": "sdpa"}


def plan(training: Training, method: Method) -> Plan:
    """TRL's sizes for ours, or a `ConfigError` for what TRL cannot do."""
    for name, allowed in ONLY.items():
        if getattr(training, name) != allowed:
            raise ConfigError(
                f"spec: training.{name}: {getattr(training, name)!r}: the trl adapter runs on one device; "
                f"allowed: {allowed!r}"
            )
    if method.scope == "batch" and training.cov_scope == "minibatch" and training.micro_batches > 1:
        raise ConfigError(
            f"spec: training.micro_batches: {training.micro_batches} would split a minibatch, but {method.key} takes "
            f"statistics over all of it (scope batch); allowed: 1, or cov_scope: microbatch"
        )
    # TRL counts in micro-batches: a rollout is cut into `steps_per_generation` of them, all of the same size. So the
    # prompts of a rollout are rounded up until their sequences can be cut into equal parts.
    micro_batches = training.minibatches * training.micro_batches
    multiple = micro_batches // math.gcd(micro_batches, training.samples_per_prompt)
    prompts_drawn = -(-training.prompts_drawn // multiple) * multiple
    sequences = prompts_drawn * training.samples_per_prompt
    return Plan(
        prompts_drawn=prompts_drawn,
        sequences_drawn=sequences,
        sequences_per_minibatch=training.rows_per_minibatch,
        updates_per_rollout=training.updates_per_rollout,
        updates=training.updates,
        trainer={
            "per_device_train_batch_size": sequences // micro_batches,
            "steps_per_generation": micro_batches,
            "num_iterations": training.passes,
            "gradient_accumulation_steps": training.micro_batches,
            "max_steps": training.updates,
        },
    )


def preflight(spec: Spec) -> Plan:
    """Sizes and refusals, without loading anything. Raises `ConfigError` or `MissingInputError` with one line."""
    installed = version("trl")
    if installed != TRL_VERSION:
        raise ConfigError(f"environment: trl: version {installed!r} is installed; allowed: {TRL_VERSION}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("environment: WORLD_SIZE: the trl adapter runs in one process; groups must not be spread")
    sizes = plan(spec.training, catalog.parse(spec.method))
    rollouts.check_inputs(spec, sizes.prompts_drawn)
    return sizes


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    sizes = preflight(spec)
    # Set before TRL and the hub client are imported: they read their variables once. Without them TRL sends a ping.
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRL_EXPERIMENTAL_SILENCE="1")
    from methods.adapters.trl.trainer import build_trainer, resolve_reward

    reward = resolve_reward(spec.reward)
    start = run.open()
    try:
        trainer = build_trainer(spec, run, stop, sizes, reward)
        if stop():  # asked while everything was loading
            return Outcome(run.mark.update, False, None)
        trainer.train(resume_from_checkpoint=str(start) if start else None)
    finally:
        run.curve.close()
    recorder = trainer.recorder
    return Outcome(int(trainer.state.global_step), not recorder.stopped, recorder.collapsed_at)


def arguments(spec: Spec, sizes: Plan, method: Method, folder: Path) -> dict[str, Any]:
    """Keyword arguments of `GRPOConfig`, every one that matters written out.

    TRL's defaults are bfloat16, a learning rate that decays to 0, and telemetry. The arguments that shape TRL's loss
    are in its off position: our loss replaces TRL's.
    """
    t = spec.training
    cpu = t.device == "cpu"
    return {
        **sizes.trainer,
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
