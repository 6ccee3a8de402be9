"""Sizes of a run in verl's terms, and every refusal that needs neither verl nor a model. No torch, no verl here."""

from __future__ import annotations

from methods import catalog
from methods.adapters import Plan
from methods.adapters.verl import actor_keys
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training
from records.errors import ConfigError


def plan(spec: Spec) -> Plan:
    """Raises `ConfigError` or `MissingInputError` with one line: what verl cannot do, what is not there."""
    made = sizes(spec.training, catalog.parse(spec.method))
    rollouts.check(spec, made)
    return made


def sizes(t: Training, method: Method) -> Plan:
    """verl's sizes for ours."""
    _check(t, method)
    by_tokens = actor_keys.packs_by_tokens(t, method)
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
            **(
                {"ppo_max_token_len_per_gpu": t.max_tokens_per_gpu}
                if by_tokens
                else {"ppo_micro_batch_size_per_gpu": actor_keys.micro_batch_rows(t, method)}
            ),
            "total_training_steps": t.rollouts,
        },
    )


def _check(t: Training, method: Method) -> None:
    if "full_logp" in method.needs:
        raise ConfigError(
            f"spec: method: {method.key} needs the whole distribution at every token, which verl's engine does not "
            "hand to a loss; allowed: another kl-estimator, or trainer: trl"
        )
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
    if method.scope == "batch" and t.cov_scope == "minibatch" and (t.gpus > 1 or t.micro_batches > 1):
        parts = f"{t.gpus} GPUs" if t.gpus > 1 else f"{t.micro_batches} micro-batches"
        raise ConfigError(
            f"spec: training.cov_scope: minibatch: {method.key} takes statistics over all of a minibatch, which "
            f"{parts} would share; allowed: microbatch"
        )
