"""What one training run is: the JSON that `python -m methods.train --spec` takes, as pydantic models. No torch here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, PrivateAttr, field_validator, model_validator

from core.declared import Declared, KeyProblemError, Tuple, validated
from core.errors import ConfigError
from core.files import parse_json, read_text

Trainer = Literal["trl", "verl"]
TRAINERS: tuple[str, ...] = get_args(Trainer)

# Whole numbers and numbers above 0: nearly every size and rate of a run.
Count = Annotated[int, Field(gt=0)]
Positive = Annotated[float, Field(gt=0)]


class Training(Declared):
    """Sizes and optimiser of a run. `prompts_per_rollout` is what is trained on; more may be drawn, see `filter`."""

    rollouts: Count
    prompts_per_rollout: Count
    samples_per_prompt: Annotated[int, Field(ge=2)]  # the advantage of a group of one is not defined
    minibatches: Count  # per pass; whole prompt groups each
    passes: Count  # over the minibatches of a rollout
    learning_rate: Positive  # constant, no warm-up
    weight_decay: Annotated[float, Field(ge=0)]
    gradient_clip: Positive
    kl_target: Positive | None = (
        None  # KL in nats a token by which each rollout moves the policy: the updates' change is scaled
    )
    temperature: Positive
    max_completion_tokens: Count
    oversample: Annotated[float, Field(ge=1)] = 1.0  # prompts drawn first over prompts kept; for filters that draw more
    # of groups whose rewards are all equal; see `methods.training.rollouts`
    filter: Literal["oversample", "mask", "refill", "none"] = "oversample"
    refill_rounds: Annotated[int, Field(ge=0)] = 4  # extra draws per rollout that filter `refill` may make
    micro_batches: Count = 1  # a minibatch is computed in so many parts (gradient accumulation)
    shared_prefix: bool = False  # score a prompt once for all its responses, for less; see `adapters.trl.shared_prefix`
    save_every: Count = 4  # rollouts between two states to resume from
    # states that stay; with one, a run whose state was damaged begins anew
    kept_states: Annotated[int, Field(ge=1, le=2)] = 2
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["float32", "bfloat16"] = "float32"  # bfloat16: autocast, on cuda only
    cov_scope: Literal["minibatch", "microbatch"] = "minibatch"  # R15: where methods of scope batch take statistics
    sampler_check: bool = True  # end the run when sampler and trainer disagree; see `rollouts.SamplerCheck`
    max_prompt_tokens: Count = 2048  # reading R24
    nodes: Count = 1
    gpus_per_node: Count = 1
    tensor_parallel: Count = 1  # GPUs that one inference engine spans
    rollout_memory: Positive = 0.6  # share of a GPU's memory that the inference engine may take
    max_tokens_per_gpu: Count = 20480  # of one forward and backward pass; 2 x (2048 + 8192), two longest sequences
    offload: bool = False  # weights, gradients and optimiser lie in the host's memory; for models too large for the GPU
    # With verl sequences are packed with either. flash_attention_2 is faster at long ones, and needs the package
    # flash-attn, which no environment of ours holds.
    attention: Literal["sdpa", "flash_attention_2"] = "sdpa"

    @property
    def prompts_drawn(self) -> int:
        """Per rollout, before groups are filtered; filter `refill` draws more as it needs them."""
        # `mask` and `none` keep what is drawn, or less: more prompts would make the rollout larger
        factor = self.oversample if self.filter in ("oversample", "refill") else 1.0
        # 10 * 1.1 is 11.000000000000002: the small number keeps rounding errors from drawing a prompt too many.
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
    def _check_sizes(self) -> Training:
        if self.prompts_per_rollout % self.minibatches:
            raise KeyProblemError(
                "minibatches",
                f"{self.minibatches} does not divide prompts_per_rollout {self.prompts_per_rollout} "
                "(a minibatch holds whole prompt groups)",
            )
        if self.rows_per_minibatch % self.micro_batches:
            raise KeyProblemError(
                "micro_batches",
                f"{self.micro_batches} does not divide a minibatch of {self.rows_per_minibatch} sequences",
            )
        return self

    @model_validator(mode="after")
    def _check_hardware(self) -> Training:
        if self.precision == "bfloat16" and self.device != "cuda":
            raise KeyProblemError("precision", f"bfloat16 needs device cuda, got {self.device}")
        if self.gpus > 1 and self.device != "cuda":
            raise KeyProblemError(
                "nodes", f"{self.nodes} x {self.gpus_per_node} GPUs need device cuda, got {self.device}"
            )
        if self.gpus_per_node % self.tensor_parallel:
            raise KeyProblemError(
                "tensor_parallel",
                f"{self.tensor_parallel} does not divide the {self.gpus_per_node} GPUs of a node",
            )
        if self.rollout_memory >= 1:
            raise KeyProblemError("rollout_memory", f"{self.rollout_memory} is not a share of a GPU's memory below 1")
        return self


class Spec(Declared):
    """One run, as in docs/architecture.md."""

    scale: str
    model: str
    method: str
    seed: Annotated[int, Field(ge=0)]
    trainer: Trainer
    base: str
    prompts: str
    reward: str
    training: Training
    checkpoints: Tuple[int]  # rollouts after which weights are published for evaluation; sorted, each once
    variant: str | None = None  # name of the settings when they are not the scale's own; the folder carries it too
    # Dotted name of what makes the rewards that the method is given, from the true ones: see `evals.placebo`. The
    # curve's `reward` is the true one either way.
    placebo: str | None = None
    # Of the run's sampling and selection. Two streams of a seed have the same base, prompts and order of prompts, and
    # differ by chance alone.
    stream: Annotated[int, Field(ge=0)] = 0
    _document: dict[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def document(self) -> dict[str, Any]:
        """The JSON as it came, without our defaults: it goes into run.json and decides whether a run is the same."""
        return self._document

    @property
    def name(self) -> str:
        """How progress lines call the run."""
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
    def _check_checkpoints(self) -> Spec:
        rollouts = self.training.rollouts
        if not self.checkpoints:
            raise KeyProblemError("checkpoints", "names no rollout; the last one, at least, is to be evaluated")
        for step in self.checkpoints:
            if not 1 <= step <= rollouts:
                raise KeyProblemError("checkpoints", f"{step} is not a rollout of this run (1 to {rollouts})")
        return self


def read(text: str) -> Spec:
    """The specification in `text`: JSON, or the path of a file holding it. `ConfigError` names the first wrong key."""
    where = "spec"
    if not text.lstrip().startswith("{"):  # a JSON object begins with a brace; anything else is a path
        where = text
        text = read_text(text, "run specification", ConfigError)
    return check(parse_json(text, where, ConfigError), where)


def check(document: Mapping[str, Any], where: str = "spec") -> Spec:
    """`document` as a `Spec`, or `ConfigError` with one line: file, key, value, what is allowed."""
    spec = validated(Spec, document, where)
    spec._document = dict(document)
    return spec
