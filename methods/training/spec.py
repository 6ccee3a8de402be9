"""Specification of a training run: the JSON for `python -m methods.train --spec`, as pydantic models. No torch here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, field_validator, model_validator

from core.declared import Declared, KeyProblemError, Tuple, validated
from core.errors import ConfigError
from core.files import parse_json, read_text

Trainer = Literal["trl", "verl"]

# Positive integers and positive numbers: the types of nearly all sizes and rates of a run.
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]


class Yoke(Declared):
    """Movement of another run, which a run follows rollout by rollout."""

    # Method of that run, with its variant if it has one: `tepo`, `tepo@hot`. Model and seed are the same.
    yoke: Annotated[str, Field(min_length=1)]


class Training(Declared):
    """Sizes and optimiser of a run. `prompts_per_rollout` prompts are trained on; more may be drawn, see `filter`."""

    rollouts: Count
    prompts_per_rollout: Count
    samples_per_prompt: Annotated[int, Field(ge=2)]  # the advantage in a group of one is undefined
    minibatches: Count  # per pass; whole prompt groups each
    passes: Count  # over the minibatches of a rollout
    learning_rate: Positive  # constant, no warm-up
    weight_decay: Annotated[float, Field(ge=0)]
    gradient_clip: Positive
    # KL in nats per token by which each rollout moves the policy, or one for each: the change of its updates is scaled
    kl_target: Positive | Tuple[Positive] | Yoke | None = None
    temperature: Positive
    sampler: Literal["vllm"] | None = None  # trl only; None: transformers' `generate`, or the same tokens faster
    max_completion_tokens: Count
    oversample: Annotated[float, Field(ge=1)] = 1.0  # ratio of prompts drawn first to kept; for filters that draw more
    # removal of groups whose rewards are all equal; see `methods.training.rollouts`
    filter: Literal["oversample", "mask", "refill", "none"] = "oversample"
    refill_rounds: Annotated[int, Field(ge=0)] = 4  # extra draws per rollout that filter `refill` may make
    micro_batches: Count = 1  # parts in which a minibatch is computed (gradient accumulation)
    shared_prefix: bool = False  # score a prompt only once for all its responses; see `adapters.trl.shared_prefix`
    save_every: Count = 4  # rollouts between two states to resume from
    # states that are kept; with only one, a run whose state is damaged starts from the beginning
    kept_states: Annotated[int, Field(ge=1, le=2)] = 2
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: autocast, on cuda only
    cov_scope: Literal["minibatch", "microbatch"] = "minibatch"  # R15: batch for statistics of methods of scope batch
    sampler_check: bool = True  # end the run when sampler and trainer disagree; see `rollouts.SamplerCheck`
    max_prompt_tokens: Count = 2048  # reading R24
    nodes: Count = 1
    gpus_per_node: Count = 1
    tensor_parallel: Count = 1  # GPUs that one inference engine spans
    rollout_memory: Annotated[float, Field(gt=0, lt=1)] = 0.6  # of a GPU's memory, for the inference engine
    max_tokens_per_gpu: Count = 20480  # of one forward and backward pass; 2 x (2048 + 8192), two longest sequences
    offload: bool = False  # keep weights, gradients and optimiser in host memory; for models too large for the GPU
    # verl packs sequences with either. flash_attention_2 is faster for long sequences and requires the package
    # flash-attn, which our environments do not include.
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"

    @property
    def prompts_drawn(self) -> int:
        """Prompts drawn per rollout before groups are filtered; filter `refill` draws more as needed."""
        # `mask` and `none` keep at most what is drawn: more prompts would make the rollout larger
        factor = self.oversample if self.filter in ("oversample", "refill") else 1.0
        # 10 * 1.1 is 11.000000000000002: the small number prevents rounding errors from adding a prompt.
        return math.ceil(self.prompts_per_rollout * factor - 1e-9)

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def rows_per_minibatch(self) -> int:
        """Sequences of one update minibatch, over all GPUs."""
        return self.prompts_per_rollout // self.minibatches * self.samples_per_prompt

    @property
    def updates_per_rollout(self) -> int:
        """Optimiser steps per rollout."""
        return self.minibatches * self.passes

    @property
    def updates(self) -> int:
        """Optimiser steps of the whole run."""
        return self.rollouts * self.updates_per_rollout

    @model_validator(mode="after")
    def _check(self) -> Training:
        rows, cpu, half = self.rows_per_minibatch, self.device != "cuda", self.precision == "bfloat16"
        prompts, gpus = self.prompts_per_rollout, f"{self.nodes} x {self.gpus_per_node} GPUs"
        whole = f"does not divide prompts_per_rollout {prompts} (a minibatch holds whole prompt groups)"
        for key, wrong, problem in (
            ("minibatches", prompts % self.minibatches, f"{self.minibatches} {whole}"),
            (
                "micro_batches",
                rows % self.micro_batches,
                f"{self.micro_batches} does not divide a minibatch of {rows} sequences",
            ),
            ("precision", half and cpu, f"bfloat16 needs device cuda, got {self.device}"),
            ("nodes", self.gpus > 1 and cpu, f"{gpus} need device cuda, got {self.device}"),
            (
                "tensor_parallel",
                self.gpus_per_node % self.tensor_parallel,
                f"{self.tensor_parallel} does not divide the {self.gpus_per_node} GPUs of a node",
            ),
            (
                "kl_target",
                isinstance(self.kl_target, tuple) and len(self.kl_target) < self.rollouts,
                f"must have a value for each of {self.rollouts} rollouts, got {self.kl_target}",
            ),
        ):
            if wrong:
                raise KeyProblemError(key, problem)
        return self


class Spec(Declared):
    """Specification of one run; see docs/architecture.md."""

    scale: str
    model: str
    method: str
    seed: Annotated[int, Field(ge=0)]
    trainer: Trainer
    base: str
    prompts: str
    reward: str | Tuple[str]  # `package.module:function`, or several, whose weighted sum is the reward
    training: Training
    checkpoints: Tuple[int]  # rollouts after which weights are published for evaluation; sorted, without duplicates
    variant: str | None = None  # name of the settings if they differ from the scale's; also in the folder's name
    reward_weights: Tuple[float] = ()  # one for each of several rewards; empty: 1 each
    # Dotted name of the function that replaces the true rewards for the method: see `evals.placebo`. The curve's
    # `reward` is the true one either way.
    placebo: str | None = None
    # Random stream of the run's sampling and selection. Two streams of a seed have the same base, prompts and order of
    # prompts, and differ by chance only.
    stream: Annotated[int, Field(ge=0)] = 0
    yoke: str | None = None  # curve.csv of the run that `training.kl_target.yoke` names
    _document: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON as given, without our defaults: it is written to run.json and identifies the run."""
        return self._document

    @property
    def rewards(self) -> tuple[str, ...]:
        return (self.reward,) if isinstance(self.reward, str) else self.reward

    @property
    def name(self) -> str:
        """Name of the run in progress lines."""
        variant = f"@{self.variant}" if self.variant else ""
        return f"{self.model}/{self.method}{variant}/seed{self.seed}"

    @property
    def digest(self) -> str:
        """sha256 of the document, independent of key order and spacing."""
        return hashlib.sha256(json.dumps(self.document, sort_keys=True).encode()).hexdigest()

    @field_validator("checkpoints")
    @classmethod
    def _sort(cls, checkpoints: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(checkpoints)))

    @model_validator(mode="after")
    def _check_yoke(self) -> Spec:
        if isinstance(self.training.kl_target, Yoke) != (self.yoke is not None):
            raise KeyProblemError("yoke", "goes with training.kl_target.yoke: set it to that run's curve.csv")
        return self

    @model_validator(mode="after")
    def _check_checkpoints(self) -> Spec:
        rollouts = self.training.rollouts
        if not self.checkpoints:
            raise KeyProblemError("checkpoints", "names no rollout; the last one, at least, is to be evaluated")
        for step in self.checkpoints:
            if not 1 <= step <= rollouts:
                raise KeyProblemError("checkpoints", f"{step} is not a rollout of this run (1 to {rollouts})")
        return self


def read(text: str) -> Spec:
    """Return the specification in `text`, JSON or the path of a JSON file. `ConfigError` names the first wrong key."""
    where = "spec"
    if not text.lstrip().startswith("{"):  # a JSON object begins with a brace; anything else is a path
        where = text
        text = read_text(text, "run specification", ConfigError)
    return check(parse_json(text, where, ConfigError), where)


def check(document: Mapping[str, Any], where: str = "spec") -> Spec:
    """Return `document` as a `Spec`; raise a one-line `ConfigError` with file, key, value and allowed values."""
    spec = validated(Spec, document, where)
    spec._document = dict(document)
    return spec
