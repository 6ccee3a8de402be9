"""The TRL adapter: GRPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from methods import catalog
from methods.adapters import Outcome, Plan
from methods.adapters.trl import config as trl_config
from methods.adapters.trl.config import sizes
from methods.training import rollouts
from methods.training.rollouts import Refill, check_readable, order, rows_of
from records.errors import ConfigError, CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor

    from methods.adapters.trl.trainer import MethodTrainer
    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder
    from methods.training.spec import Spec


def plan(spec: Spec) -> Plan:
    """Sizes and refusals, without loading anything. Raises `ConfigError` or `MissingInputError` with one line."""
    trl_config.check_version()
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError("environment: WORLD_SIZE: the trl adapter runs in one process; groups must not be spread")
    made = sizes(spec.training, catalog.parse(spec.method))
    rollouts.check(spec, made)
    return made


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    made = plan(spec)
    method = catalog.parse(spec.method)
    reward = _resolve(spec.reward)
    start = run.open()
    try:
        running = build_trainer(spec, run, stop, made, method, reward)
        if stop():  # asked while everything was loading
            return Outcome(run.mark.update, False, None)
        running.train(resume_from_checkpoint=str(start) if start else None)
    finally:
        run.curve.close()
    recorder = running.recorder
    return Outcome(int(running.state.global_step), not recorder.stopped, recorder.collapsed_at)


def loss(method: Method, batch: Batch, parts: int = 1) -> Tensor:
    """`batch`'s loss through the trainer's `_compute_loss`, in `parts` micro-batches; for conformance tests."""
    from tests.adapters.trl_conformance import through_trainer

    return through_trainer(method, batch, parts)


def build_trainer(
    spec: Spec, run: RunFolder, stop: Callable[[], bool], made: Plan, method: Method, reward: Callable[..., list[float]]
) -> MethodTrainer:
    """The trainer, ready to go. Environment first: TRL and the hub client read it when they are imported."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TRL_EXPERIMENTAL_SILENCE="1")
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if os.environ.get("OMP_NUM_THREADS") == "1":
        torch.set_num_threads(1)
    if spec.training.device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("spec: training.device: 'cuda' is not available on this machine; allowed: cpu")
    if spec.training.device == "cuda" and torch.cuda.device_count() > 1:
        raise ConfigError("environment: CUDA_VISIBLE_DEVICES: several devices are visible; the trl adapter uses one")
    from datasets import Dataset
    from trl import GRPOConfig

    from methods.adapters.trl.recorder import Recorder
    from methods.adapters.trl.trainer import MethodTrainer

    t = spec.training
    prompts = rollouts.prompts(spec)
    tokenizer = transformers.AutoTokenizer.from_pretrained(spec.base, padding_side="left")
    config = transformers.AutoConfig.from_pretrained(spec.base)
    longest = getattr(config, "max_position_embeddings", None)
    texts = [p["prompt"] for p in prompts]
    check_readable(texts, tokenizer, longest, t.max_completion_tokens, spec.prompts, limit=t.max_prompt_tokens)
    recorder = Recorder(run, method, stop)
    made_trainer = MethodTrainer(
        method=method,
        training=t,
        recorder=recorder,
        prompts=prompts,
        run_seed=spec.seed,
        refill=Refill(len(prompts), spec.seed, run.mark.refill_position),
        model=str(spec.base),
        reward_funcs=_checked(spec.reward, reward),
        args=GRPOConfig(**trl_config.arguments(spec, made, method, run.state)),
        train_dataset=Dataset.from_list(
            rows_of(prompts, order(len(prompts), t.rollouts * made.prompts_drawn, spec.seed))
        ),
        processing_class=tokenizer,
        callbacks=[recorder],
    )
    made_trainer.remove_callback(transformers.PrinterCallback)
    recorder.write_weights = lambda folder: _write_model(made_trainer, folder)
    return made_trainer


def _write_model(trainer: MethodTrainer, folder: Path) -> None:
    """An ordinary model folder: weights, configs, tokenizer."""
    trainer.model.save_pretrained(str(folder))
    trainer.processing_class.save_pretrained(str(folder))


def _resolve(dotted: str) -> Callable[..., list[float]]:
    """`package.module:function`, imported."""
    module, colon, name = dotted.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"spec: reward: {dotted!r} is not of the form package.module:function")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"spec: reward: {dotted!r} cannot be imported ({error})") from error
    if not callable(found):
        raise ConfigError(f"spec: reward: {dotted!r} is a {type(found).__name__}, not a function")
    function: Callable[..., list[float]] = found
    return function


def _checked(name: str, reward: Callable[..., list[float]]) -> Callable[..., list[float]]:
    """The reward as TRL calls it. TRL would turn None into advantage 0 in silence; here it is an error."""

    def scored(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float]:
        values = reward(prompts, completions, answer)
        if len(values) != len(completions):
            raise CorruptInputError(f"reward {name}: returned {len(values)} values for {len(completions)} responses")
        for index, value in enumerate(values):
            if value is None or not float("-inf") < float(value) < float("inf"):
                raise CorruptInputError(
                    f"reward {name}: returned {value!r} for response {index}: {completions[index][:60]!r}"
                )
        return [float(value) for value in values]

    scored.__name__ = name
    return scored
