"""The TRL adapter: GRPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`.

Differences from stock TRL are listed at the top of `trainer`. This module imports neither TRL nor torch.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.errors import ConfigError
from core.provenance import version
from methods import catalog, sampling
from methods.adapters import TRL_VERSION, Outcome, Plan, resolved
from methods.adapters.trl import shared_prefix
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from methods.training.run_folder import RunFolder

# Settings for several devices, or for packages missing from the TRL environment: only one value is possible.
ONLY: dict[str, object] = {"nodes": 1, "gpus_per_node": 1, "tensor_parallel": 1, "attention": "sdpa"}


def plan(training: Training, method: Method) -> Plan:
    """Return TRL's sizes for ours; raise `ConfigError` for what TRL does not support."""
    for name, allowed in ONLY.items():
        if getattr(training, name) != allowed:
            raise ConfigError(
                f"spec: training.{name}: {getattr(training, name)!r}: the trl adapter runs on one device; "
                f"allowed: {allowed!r}"
            )
    if not method.splittable and training.cov_scope == "minibatch" and training.micro_batches > 1:
        raise ConfigError(
            f"spec: training.micro_batches: {training.micro_batches} would split a minibatch, but {method.key} divides "
            f"by the tokens of a micro-batch; allowed: 1, or cov_scope: microbatch"
        )
    # TRL counts in micro-batches: a rollout is split into `steps_per_generation` of them, all of the same size. So the
    # prompts of a rollout are rounded up until their sequences can be split into equal parts.
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
    """Return the plan without loading a model. Raises `ConfigError` or `MissingInputError` with one line."""
    installed = version("trl")
    if installed != TRL_VERSION:
        raise ConfigError(f"environment: trl: version {installed!r} is installed; allowed: {TRL_VERSION}")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("environment: WORLD_SIZE: the trl adapter runs in one process; groups must not be spread")
    sizes = plan(spec.training, catalog.parse(spec.method))
    rollouts.check_inputs(spec, sizes.prompts_drawn)
    if spec.training.shared_prefix:
        shared_prefix.check(spec.base)
    return sizes


# Read once, when TRL and the hub client are imported. Without these variables TRL sends a ping.
VARIABLES = {"HF_HUB_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}
# Third-party modules that a run imports: a worker (`core.worker`) imports them once for many runs.
LIBRARIES = ("pydantic", "yaml", "datasets", "trl.trainer.grpo_trainer", *sampling.LIBRARIES)


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    sizes = plan(spec.training, catalog.parse(spec.method))
    os.environ.update(VARIABLES)
    from methods.adapters.trl.trainer import build_trainer

    reward = resolved(spec.reward)
    start = run.open()
    try:
        trainer = build_trainer(spec, run, stop, sizes, reward)
        if stop():  # the stop request arrived during loading
            return Outcome(run.start.update, False, None)
        trainer.train(resume_from_checkpoint=str(start) if start else None)
    finally:
        run.curve.close()
    recorder = trainer.recorder
    responses = trainer.present.responses
    share = getattr(reward, "unanswered", None)
    unanswered = share(responses) if share and responses else None
    return Outcome(int(trainer.state.global_step), not recorder.stopped, recorder.collapsed_at, unanswered)
