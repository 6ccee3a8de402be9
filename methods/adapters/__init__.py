"""Trainer adapters: a trainer samples, scores and steps; the loss is always `Method.loss`, never written again here.

An adapter is a module `methods.adapters.<trainer>` with three functions:

    plan(training, method) -> Plan
        What the trainer will do, with every derived number. Refuses what the settings alone rule out: a method whose
        scope forbids the requested split, a setting that this trainer cannot follow. No torch, no file.
    preflight(spec) -> Plan
        The same for a run about to start. Also refuses what can be checked without loading a model: a wrong trainer
        version, missing or too few inputs. No torch.
    train(spec, run, stop) -> Outcome
        Train until the end, a collapse or `stop`; write every row to `run.curve`, every requested checkpoint to
        `run.checkpoint(step)`, and states to resume from to `run.state`. Going on after a kill at any moment gives the
        same rows and weights as if nothing had happened.

It may have a constant `LIBRARIES`, modules that `train` imports: its runs then share a worker (`core.worker`), which
imports them once. They must leave one thread, and `train` must work in a process that was forked afterwards.

Its tests add a conformance function: the loss of ready-made tensors, sent through the code that training runs and cut
into micro-batches, must be `Method.loss` (tests/adapters/trl_conformance.py, docs/extend.md).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from core.errors import ConfigError, CorruptInputError, unknown
from methods.training.spec import TRAINERS

if TYPE_CHECKING:
    from methods.method import Method
    from methods.training.run_folder import RunFolder
    from methods.training.spec import Spec, Training

# The adapters override private methods of exactly these versions; tests/adapters/test_canaries.py pin what they use.
TRL_VERSION = "1.16.0"
VERL_VERSION = "0.9.1"
LOGGERS = ("tensorboard", "wandb", "trackio")  # that both trainers have


@dataclass(frozen=True)
class Plan:
    """What a run will do: sizes in prompts, sequences and updates, and the trainer's own names for them."""

    prompts_drawn: int  # per rollout
    sequences_drawn: int  # per rollout
    sequences_per_minibatch: int
    updates_per_rollout: int
    updates: int
    trainer: Mapping[str, int]  # the trainer's own settings that follow from these

    def lines(self) -> list[str]:
        """One `name = value` per derived number, for people."""
        values = asdict(self)
        return [f"{name} = {value}" for name, value in (values | values.pop("trainer")).items()]


@dataclass(frozen=True)
class Outcome:
    """How training ended. `finished` is False after a stop request: the same command goes on from the last state."""

    updates: int
    finished: bool
    collapsed_at: int | None  # rollout
    unanswered: float | None = None  # share of the last responses that hold no answer at all; None: not known


def loggers(run: Path) -> list[str]:
    """The trainer's own loggers that TEPO_LOG names (`--config log=...`), which write into the run's folder log/.

    wandb stays offline unless WANDB_MODE says otherwise. Raises `ConfigError` for one that is unknown or not installed.
    """
    names = [name for name in os.environ.get("TEPO_LOG", "").split(",") if name]
    for name in names:
        if name not in LOGGERS:
            raise unknown("TEPO_LOG", "log", name, LOGGERS)
        if find_spec(name) is None:
            raise ConfigError(f"TEPO_LOG: log: {name} is not installed here: pip install {name}")
    if names:
        (run / "log").mkdir(parents=True, exist_ok=True)
        for variable in ("TENSORBOARD_LOGGING_DIR", "TENSORBOARD_DIR", "WANDB_DIR", "TRACKIO_DIR"):  # TRL's, verl's
            os.environ[variable] = str(run / "log")
        os.environ.setdefault("WANDB_MODE", "offline")
    return names


class Adapter(Protocol):
    def plan(self, training: Training, method: Method) -> Plan: ...

    def preflight(self, spec: Spec) -> Plan: ...

    def train(self, spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome: ...


def adapter(trainer: str) -> Adapter:
    """The adapter of that name; `ConfigError` for a trainer that has none.

    Imported by name, and not at the top of this module: neither trainer's package needs the other's to be installed.
    """
    if trainer not in TRAINERS:
        raise unknown("adapters", "trainer", trainer, TRAINERS)
    module: Any = import_module(f"methods.adapters.{trainer}")
    return cast(Adapter, module)


Reward = Callable[..., Sequence[float | None]]  # prompts, responses, answers


def resolved(dotted: str, key: str = "reward") -> Any:
    """The function `package.module:function`. key: of the specification, for errors."""
    module, colon, name = dotted.partition(":")
    if not (module and colon and name):
        raise ConfigError(f"spec: {key}: {dotted!r} is not of the form package.module:function")
    try:
        function = getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(f"spec: {key}: {dotted!r} cannot be imported ({error})") from error
    if not callable(function):
        raise ConfigError(f"spec: {key}: {dotted!r} is a {type(function).__name__}, not a function")
    return function


def checked(
    where: str, values: Sequence[float | None], responses: Sequence[str], missing: bool = False
) -> list[float | None]:
    """A finite number for each response, with `missing` also None, or `CorruptInputError`."""
    if len(values) != len(responses):
        raise CorruptInputError(f"{where}: returned {len(values)} values for {len(responses)} responses")
    for index, value in enumerate(values):
        if not (missing if value is None else math.isfinite(value)):
            raise CorruptInputError(f"{where}: returned {value!r} for response {index}: {responses[index][:60]!r}")
    return [None if value is None else float(value) for value in values]
