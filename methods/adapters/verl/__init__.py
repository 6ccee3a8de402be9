"""The verl adapter: PPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`.

Differences from stock verl are listed at the top of `trainer`. This module imports neither verl nor torch.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import BenchError, ConfigError, MissingInputError
from core.provenance import ROOT, version
from methods import catalog
from methods.adapters import SHORT, TRL_VERSION, VERL_VERSION, Outcome, temporary_folder
from methods.adapters.reward import Reward
from methods.adapters.verl.config import CPU_PLUGIN, PROMPTS, check_cpus, compose, overrides
from methods.method import Method
from methods.training import rollouts
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from methods.training.run_folder import RunFolder


def check(t: Training, method: Method) -> None:
    """Raise `ConfigError` for settings that verl does not support."""
    longest, cuda = t.max_prompt_tokens + t.max_completion_tokens, t.device == "cuda"
    parts = f"{t.gpus} GPUs" if t.gpus > 1 else f"{t.micro_batches} micro-batches"
    split = t.gpus > 1 or t.micro_batches > 1
    for refused, problem in (
        (t.kl_target is not None, f"training.kl_target: {t.kl_target}: only trl scales a rollout's step; set null"),
        (t.sampler is not None, f"training.sampler: {t.sampler}: verl samples with an engine of its own; set null"),
        (t.shared_prefix, "training.shared_prefix: True: verl's engine scores whole rows; allowed: False"),
        (
            t.rows_per_minibatch % t.gpus,
            f"training.nodes: {t.nodes} x {t.gpus_per_node} GPUs do not divide a minibatch of {t.rows_per_minibatch} "
            "sequences",
        ),
        (
            cuda and t.micro_batches > 1,
            f"training.micro_batches: {t.micro_batches}: on cuda verl cuts a minibatch by max_tokens_per_gpu; "
            "allowed: 1",
        ),
        (
            cuda and t.max_tokens_per_gpu < longest,
            f"training.max_tokens_per_gpu: {t.max_tokens_per_gpu} is less than the longest sequence "
            f"({t.max_prompt_tokens} + {t.max_completion_tokens} = {longest})",
        ),
        (
            not method.splittable and t.cov_scope == "minibatch" and split,
            f"training.cov_scope: minibatch: {method.key} divides by the tokens of a micro-batch, and {parts} would "
            "split the minibatch; allowed: microbatch",
        ),
    ):
        if refused:
            raise ConfigError(f"spec: {problem}")


def preflight(spec: Spec) -> None:
    """Raise a one-line `ConfigError` (unsupported settings) or `MissingInputError`; `train` checks verl's version."""
    if spec.placebo is not None:
        # A placebo needs all responses of a draw at once; verl's reward workers score each response separately.
        raise ConfigError(f"spec: placebo: {spec.placebo!r}: the verl adapter trains on true rewards only")
    check(spec.training, catalog.parse(spec.method))
    plugin = ROOT / CPU_PLUGIN.replace(".", "/")
    if spec.training.device == "cpu" and not plugin.is_dir():
        raise MissingInputError(f"{plugin}: missing: verl runs on a CPU from a clone, with its folder tests")
    rollouts.check_inputs(spec, spec.training.prompts_drawn)


def check_versions(device: str) -> None:
    """Raise `ConfigError` for an unsupported version, `MissingInputError` for a missing package.

    Called before Ray starts, because its workers would hide the reason in their logs.
    """
    for name in ("verl", "vllm") if device == "cuda" else ("verl",):
        if version(name) is None:
            raise MissingInputError(f"environment: {name}: the package is not installed; see docs/scale.md")
    # verl imports TRL if installed; the shim in `worker` is for this version
    for name, allowed in (("verl", (VERL_VERSION,)), ("trl", (TRL_VERSION, None))):
        if (found := version(name)) not in allowed:
            raise ConfigError(f"environment: {name}: version {found!r} is installed; verl needs {allowed[0]}")


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    from methods.adapters.verl.processes import environment

    check_versions(spec.training.device)
    reward = Reward(spec.rewards, spec.reward_weights)
    with temporary_folder(run.state, SHORT) as short:
        # Set before verl, Ray and datasets are imported, because they read their variables once. Without
        # HF_DATASETS_CACHE, datasets would copy every prompt table into the home folder.
        os.environ.update(environment(spec.training, short) | {"HF_DATASETS_CACHE": str(short / "datasets")})
        if "RAY_ADDRESS" not in os.environ:  # the run's Ray rejects programs without this token
            os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        return _drive(spec, run, stop, reward, short)


def _drive(spec: Spec, run: RunFolder, stop: Callable[[], bool], reward: Reward, short: Path) -> Outcome:
    """Resume from the run's last state, or start. Raises a worker's exception if it is one of our one-line errors.

    short: the run's temporary folder, for files that are not needed after the process.
    """
    import ray
    import transformers
    from omegaconf import OmegaConf
    from ray.exceptions import RayActorError, RayTaskError
    from verl.trainer.main_ppo import TaskRunnerV1

    from methods.adapters.verl import checkpoint, dataset, processes
    from methods.adapters.verl.trainer import MethodTrainer
    from methods.training.curve import Recorder

    t = spec.training
    prompts = rollouts.prompts(spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.base)
    rollouts.check_readable(spec, [row["prompt"] for row in prompts], tokenizer)
    start = run.open()
    MethodTrainer.recorder = recorder = Recorder(run, catalog.parse(spec.method), stop)
    MethodTrainer.end_tokens = _end_tokens(spec.base, tokenizer)
    MethodTrainer.refill = rollouts.Refill(len(prompts), spec.seed, run.start.refill_position)
    MethodTrainer.watchdog = watchdog = processes.Watchdog()
    try:
        # a state is also saved at a collapse, for the checkpoints; the run does not continue from it
        if rollouts.collapsed(run.curve.rewards, run.start.rollout, run.extremes):
            return Outcome(len(run.curve.rows), True, run.start.rollout)
        with watchdog.watching():
            dataset.write_parquet(prompts, reward.text, run.state / PROMPTS)
            resume = None if start is None else checkpoint.step_of(start)
            # a subfolder, because Ray opens its folder to all users
            config = compose(overrides(spec, run.state, resume, short / "ray"))
            OmegaConf.save(config, run.state / "verl.yaml")
            with processes.ray_for(config, processes.environment(t, short)):
                check_cpus(t, ray.cluster_resources().get("CPU", 0), "Ray")
                recorder.stopped = stop()
                if not recorder.stopped:
                    # verl's class without Ray: this process is the driver, not a Ray actor
                    driver: Any = TaskRunnerV1.__ray_metadata__.modified_class
                    driver().run(config)
    except RayTaskError as error:
        if isinstance(error.cause, BenchError):
            raise error.cause from None
        raise
    except RayActorError as error:
        message = " ".join(str(error).split())
        raise processes.LostRunError(f"verl: a worker died ({message}); run the same command to go on") from None
    finally:
        run.curve.close()
    return Outcome(len(run.curve.rows), not recorder.stopped, recorder.collapsed_at)


def _end_tokens(base: str, tokenizer: Any) -> list[int]:
    """Return the tokens that end a response. A generation config may list more than the tokenizer."""
    from transformers import GenerationConfig

    own = (Path(base) / "generation_config.json").is_file()
    tokens: Any = GenerationConfig.from_pretrained(base).eos_token_id if own else None
    tokens = tokenizer.eos_token_id if tokens is None else tokens
    return list(tokens) if isinstance(tokens, list) else [tokens]
