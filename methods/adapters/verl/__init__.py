"""The verl adapter: PPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`.

Differences from stock verl are listed at the top of `trainer`. This module imports neither verl nor torch.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import ConfigError, MissingInputError
from core.provenance import version
from methods import catalog
from methods.adapters import TRL_VERSION, VERL_VERSION, Plan
from methods.adapters.verl.config import micro_batch_rows, packs_by_tokens
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from methods.adapters import Outcome
    from methods.training.run_folder import RunFolder


def plan(training: Training, method: Method) -> Plan:
    """Return verl's sizes for ours; raise `ConfigError` for what verl does not support."""
    t = training
    if "full_logp" in method.needs:
        raise ConfigError(
            f"spec: method: {method.key} needs the whole distribution at every token, which verl's engine does not "
            "hand to a loss; allowed: another kl-estimator, or trainer: trl"
        )
    if t.kl_target is not None:
        raise ConfigError(f"spec: training.kl_target: {t.kl_target}: only trl scales a rollout's step; set null")
    if t.shared_prefix:
        raise ConfigError("spec: training.shared_prefix: True: verl's engine scores whole rows; allowed: False")
    if t.rows_per_minibatch % t.gpus:
        raise ConfigError(
            f"spec: training.nodes: {t.nodes} x {t.gpus_per_node} GPUs do not divide a minibatch of "
            f"{t.rows_per_minibatch} sequences"
        )
    if t.device == "cuda" and t.micro_batches > 1:
        raise ConfigError(
            f"spec: training.micro_batches: {t.micro_batches}: on cuda verl cuts a minibatch by max_tokens_per_gpu; "
            "allowed: 1"
        )
    longest = t.max_prompt_tokens + t.max_completion_tokens
    if t.device == "cuda" and t.max_tokens_per_gpu < longest:
        raise ConfigError(
            f"spec: training.max_tokens_per_gpu: {t.max_tokens_per_gpu} is less than the longest sequence "
            f"({t.max_prompt_tokens} + {t.max_completion_tokens} = {longest})"
        )
    if not method.splittable and t.cov_scope == "minibatch" and (t.gpus > 1 or t.micro_batches > 1):
        parts = f"{t.gpus} GPUs" if t.gpus > 1 else f"{t.micro_batches} micro-batches"
        raise ConfigError(
            f"spec: training.cov_scope: minibatch: {method.key} divides by the tokens of a micro-batch, and {parts} "
            "would split the minibatch; allowed: microbatch"
        )
    if packs_by_tokens(t, method):
        micro_batch = {"ppo_max_token_len_per_gpu": t.max_tokens_per_gpu}
    else:
        micro_batch = {"ppo_micro_batch_size_per_gpu": micro_batch_rows(t, method)}
    return Plan(
        prompts_drawn=t.prompts_drawn,
        sequences_drawn=t.prompts_drawn * t.samples_per_prompt,
        sequences_per_minibatch=t.rows_per_minibatch,
        updates_per_rollout=t.updates_per_rollout,
        updates=t.updates,
        trainer={
            "nnodes": t.nodes,
            "n_gpus_per_node": t.gpus_per_node,
            "train_batch_size": t.prompts_per_rollout,
            "ppo_mini_batch_size": t.prompts_per_rollout // t.minibatches,
            "ppo_epochs": t.passes,
            "sequences_per_minibatch_and_gpu": t.rows_per_minibatch // t.gpus,
            **micro_batch,
            "total_training_steps": t.rollouts,
        },
    )


def preflight(spec: Spec) -> Plan:
    """Return the plan; raise a one-line `ConfigError` (unsupported settings) or `MissingInputError`.

    verl's version is checked in `train`, not here, because `--plan` must work where verl is not installed.
    """
    if spec.placebo is not None:
        # A placebo needs all responses of a draw at once; verl's reward workers score each response separately.
        raise ConfigError(f"spec: placebo: {spec.placebo!r}: the verl adapter trains on true rewards only")
    sizes = plan(spec.training, catalog.parse(spec.method))
    rollouts.check_inputs(spec, sizes.prompts_drawn)
    return sizes


def check_versions(device: str) -> None:
    """Raise `ConfigError` for an unsupported version, `MissingInputError` for a missing package.

    Called before Ray starts, because its workers would hide the reason in their logs.
    """
    installed = version("verl")
    if installed is None:
        raise MissingInputError("environment: verl: the package is not installed; see docs/scale.md")
    if installed != VERL_VERSION:
        raise ConfigError(f"environment: verl: version {installed!r} is installed; allowed: {VERL_VERSION}")
    trl = version("trl")
    if trl not in (None, TRL_VERSION):  # verl imports TRL if installed; the shim in `worker` is for this version
        raise ConfigError(
            f"environment: trl: version {trl!r} is installed beside verl; allowed: {TRL_VERSION}, or none"
        )
    if device == "cuda" and version("vllm") is None:
        raise MissingInputError(
            f"environment: vllm: the package is not installed, and verl {installed} samples with it"
        )


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    from methods.adapters.verl.processes import environment, short_folder

    sizes = plan(spec.training, catalog.parse(spec.method))
    check_versions(spec.training.device)
    with short_folder() as name:
        short = Path(name)
        # Set before verl, Ray and datasets are imported, because they read their variables once. Without
        # HF_DATASETS_CACHE, datasets would copy every prompt table into the home folder.
        os.environ.update(environment(spec.training, short) | {"HF_DATASETS_CACHE": str(short / "datasets")})
        if "RAY_ADDRESS" not in os.environ:  # the run's Ray rejects programs without this token
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        from methods.adapters.verl.trainer import drive

        return drive(spec, run, stop, sizes, short)
