"""What one training run is: the JSON that `python -m methods.train --spec` takes, checked key by key. No torch here."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from records.errors import ConfigError, MissingInputError, nearest, unknown

TRAINERS = ("trl", "verl")
FILTERS = ("oversample", "mask", "refill", "none")
DEVICES = ("cpu", "cuda")
PRECISIONS = ("float32", "bfloat16")
ATTENTIONS = ("sdpa", "flash_attention_2")
COV_SCOPES = ("minibatch", "microbatch")
_WORDS = {
    "filter": FILTERS, "device": DEVICES, "precision": PRECISIONS, "attention": ATTENTIONS, "cov_scope": COV_SCOPES,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Training:
    """Sizes and optimiser of a run. `prompts_per_rollout` is what is trained on; more may be drawn, see `filter`."""

    rollouts: int
    prompts_per_rollout: int
    samples_per_prompt: int
    minibatches: int  # per pass; whole prompt groups each
    passes: int  # over the minibatches of a rollout
    learning_rate: float  # constant, no warm-up
    weight_decay: float
    gradient_clip: float
    temperature: float
    max_completion_tokens: int
    oversample: float = 1.0  # prompts drawn over prompts kept; read by filter `oversample` only
    filter: str = "oversample"  # of groups whose rewards are all equal; see `methods.training.rollouts`
    refill_rounds: int = 4  # extra draws per rollout that filter `refill` may make
    micro_batches: int = 1  # a minibatch is computed in so many parts (gradient accumulation)
    save_every: int = 4  # rollouts between two states to resume from
    device: str = "cpu"
    precision: str = "float32"  # bfloat16: autocast, on cuda only
    cov_scope: str = "minibatch"  # reading R15: over which tokens methods of scope batch take their statistics
    max_prompt_tokens: int = 2048  # reading R24
    nodes: int = 1
    gpus_per_node: int = 1
    tensor_parallel: int = 1  # GPUs that one inference engine spans
    rollout_memory: float = 0.6  # share of a GPU's memory that the inference engine may take
    max_tokens_per_gpu: int = 20480  # of one forward and backward pass
    attention: str = "sdpa"  # flash_attention_2 needs the package flash-attn, which no environment of ours holds

    @property
    def prompts_drawn(self) -> int:
        """Per rollout, before groups are filtered; filter `refill` draws more as it needs them."""
        factor = self.oversample if self.filter == "oversample" else 1.0
        return math.ceil(self.prompts_per_rollout * factor - 1e-9)

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def rows_per_minibatch(self) -> int:
        return self.prompts_per_rollout // self.minibatches * self.samples_per_prompt

    @property
    def updates_per_rollout(self) -> int:
        return self.minibatches * self.passes

    @property
    def updates(self) -> int:
        return self.rollouts * self.updates_per_rollout


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One run, as in docs/architecture.md. `given` is the JSON as it came, for `run.json`."""

    scale: str
    model: str
    method: str
    seed: int
    trainer: str
    base: str
    prompts: str
    reward: str
    training: Training
    checkpoints: tuple[int, ...]
    variant: str | None = None  # name of the settings when they are not the scale's own; the folder carries it too
    given: Mapping[str, Any] = field(compare=False, repr=False)

    @property
    def name(self) -> str:
        """How progress lines call the run."""
        variant = f"@{self.variant}" if self.variant else ""
        return f"{self.model}/{self.method}{variant}/seed{self.seed}"

    @property
    def digest(self) -> str:
        """sha256 of what was given, independent of key order and spacing."""
        return hashlib.sha256(json.dumps(self.given, sort_keys=True).encode()).hexdigest()


def read(text: str) -> Spec:
    """The specification in `text`: JSON, or the path of a file holding it. `ConfigError` names the first wrong key."""
    where = "spec"
    if not text.lstrip().startswith("{"):
        where, path = text, Path(text)
        if not path.is_file():
            raise MissingInputError(
                f"{text}: run specification is missing (give a JSON object or the path of a file with one)"
            )
        text = path.read_text(encoding="utf-8")
    try:
        given = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{where}: not valid JSON ({error})") from error
    if not isinstance(given, dict):
        raise ConfigError(f"{where}: must be a JSON object, got {type(given).__name__}")
    return check(given, where)


def check(given: Mapping[str, Any], where: str = "spec") -> Spec:
    """`given` as a `Spec`, or `ConfigError` with one line: file, key, value, what is allowed."""
    values = _values(Spec, given, where, "", skip=("given",))
    training = values["training"]
    if not isinstance(training, Mapping):
        raise ConfigError(f"{where}: training: must be an object, got {training!r}")
    values["training"] = _training(training, where)
    if values["trainer"] not in TRAINERS:
        raise unknown(where, "trainer", values["trainer"], TRAINERS)
    if values["seed"] < 0:
        raise ConfigError(f"{where}: seed: {values['seed']} is negative")
    values["checkpoints"] = _checkpoints(values["checkpoints"], values["training"].rollouts, where)
    return Spec(**values, given=dict(given))


def _training(given: Mapping[str, Any], where: str) -> Training:
    values = _values(Training, given, where, "training.")
    for key, allowed in _WORDS.items():
        if values.get(key, allowed[0]) not in allowed:
            raise unknown(where, f"training.{key}", values[key], allowed)
    for key, value in values.items():
        least = {"samples_per_prompt": 2, "weight_decay": 0, "refill_rounds": 0, "oversample": 1}.get(key)
        if least is not None and value < least:
            raise ConfigError(f"{where}: training.{key}: {value!r} is less than {least}")
        if least is None and not isinstance(value, str) and value <= 0:
            raise ConfigError(f"{where}: training.{key}: {value!r} is not positive")
    t = Training(**values)
    if t.prompts_per_rollout % t.minibatches:
        raise ConfigError(
            f"{where}: training.minibatches: {t.minibatches} does not divide prompts_per_rollout "
            f"{t.prompts_per_rollout} (a minibatch holds whole prompt groups)"
        )
    if t.rows_per_minibatch % t.micro_batches:
        raise ConfigError(
            f"{where}: training.micro_batches: {t.micro_batches} does not divide a minibatch of "
            f"{t.rows_per_minibatch} sequences"
        )
    _check_hardware(t, where)
    return t


def _check_hardware(t: Training, where: str) -> None:
    if t.precision == "bfloat16" and t.device != "cuda":
        raise ConfigError(f"{where}: training.precision: bfloat16 needs device cuda, got {t.device}")
    if t.gpus > 1 and t.device != "cuda":
        raise ConfigError(
            f"{where}: training.nodes: {t.nodes} x {t.gpus_per_node} GPUs need device cuda, got {t.device}"
        )
    if t.gpus_per_node % t.tensor_parallel:
        raise ConfigError(
            f"{where}: training.tensor_parallel: {t.tensor_parallel} does not divide the {t.gpus_per_node} GPUs of a "
            "node"
        )
    if t.rollout_memory >= 1:
        raise ConfigError(
            f"{where}: training.rollout_memory: {t.rollout_memory} is not a share of a GPU's memory below 1"
        )


def _checkpoints(given: Any, rollouts: int, where: str) -> tuple[int, ...]:
    if not isinstance(given, list) or not given or not all(type(step) is int for step in given):
        raise ConfigError(f"{where}: checkpoints: must be a list of rollouts, got {given!r}")
    for step in given:
        if not 1 <= step <= rollouts:
            raise ConfigError(f"{where}: checkpoints: {step} is not a rollout of this run (1 to {rollouts})")
    return tuple(sorted(set(given)))


_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "str | None": (str, type(None)),
}


def _values(
    record: type, given: Mapping[str, Any], where: str, prefix: str, skip: tuple[str, ...] = ()
) -> dict[str, Any]:
    """`given` checked against the fields of a dataclass: no unknown key, none missing, types as declared."""
    from dataclasses import MISSING

    known = {f.name: f for f in fields(record) if f.name not in skip}
    for key in given:
        if key not in known:
            hit = nearest(key, known)
            raise ConfigError(
                f"{where}: {prefix}{key}: unknown key; allowed: {', '.join(sorted(known))}"
                + (f"; nearest: {hit}" if hit else "")
            )
    for name, f in known.items():
        if name not in given:
            if f.default is MISSING:
                raise ConfigError(f"{where}: {prefix}{name}: is missing")
            continue
        kinds = _KINDS.get(str(f.type))
        if kinds and (not isinstance(given[name], kinds) or isinstance(given[name], bool)):
            raise ConfigError(f"{where}: {prefix}{name}: must be {f.type}, got {given[name]!r}")
    return dict(given)
