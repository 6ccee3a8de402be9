"""Trainer adapters: a trainer samples, scores and steps; the loss is always `Method.loss`, never reimplemented here.

An adapter is a module `methods.adapters.<trainer>` with three functions:

    check(training, method)
        Raise for settings that are impossible: a method whose scope forbids the requested split, a setting that this
        trainer does not support. No torch, no files.
    preflight(spec)
        Raise the same for a run about to start, and for what can be checked without loading a model: a wrong trainer
        version, missing or too few inputs. No torch.
    train(spec, run, stop) -> Outcome
        Train until the end, a collapse or `stop`; write every row to `run.curve`, every requested checkpoint to
        `run.checkpoint(step)`, and states to resume from to `run.state`. Resuming after a kill at any moment gives the
        same rows and weights as an uninterrupted run.

It may define a constant `LIBRARIES`, modules that `train` imports: its runs then share a worker (`core.worker`) that
imports them once. The imports must leave no threads running, and `train` must work in a process forked afterwards.

Its tests add a conformance function: the loss of given tensors, computed by the training code and split into
micro-batches, must equal `Method.loss` (tests/adapters/trl_conformance.py, docs/extend.md).
"""

from __future__ import annotations

import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, CorruptInputError, unknown
from core.files import write_text
from core.provenance import sha256_bytes

if TYPE_CHECKING:
    from methods.training.spec import Spec

# The adapters override private methods of exactly these versions; tests/adapters/test_canaries.py pins them.
TRL_VERSION = "1.16.0"
VERL_VERSION = "0.9.1"
LOGGERS = ("tensorboard", "wandb", "trackio")  # supported by both trainers
COLUMN = "curve/{}"  # name of a curve's column in a logger
PROJECT = "tepo-bench"  # of wandb and trackio, unless WANDB_PROJECT is set
SHORT = Path("/tmp")  # for folders of sockets, whose paths are limited to 107 characters


@dataclass(frozen=True)
class Outcome:
    """How training ended. `finished` is False after a stop request: the same command resumes from the last state."""

    updates: int
    finished: bool
    collapsed_at: int | None  # rollout
    unanswered: float | None = None  # share of the last responses without any answer; None: unknown


def loggers(run: Path, spec: Spec, names: Sequence[str] | None = None) -> list[str]:
    """Prepare a trainer's loggers, which write to log/ in the run's folder; return their names.

    names: None for those in TEPO_LOG (`--config log=...`). Sets wandb's own variables unless the user has: the group is
    the tree, the name is the run's path. Without a key of wandb here, its runs stay offline in log/. Raises
    `ConfigError` for a logger that is unknown or not installed.
    """
    chosen = [name for name in os.environ.get("TEPO_LOG", "").split(",") if name] if names is None else list(names)
    for name in chosen:
        if name not in LOGGERS:
            raise unknown("TEPO_LOG", "log", name, LOGGERS)
        if find_spec(name) is None:
            raise ConfigError(f"TEPO_LOG: log: {name} is not installed here: pip install {name}")
    if chosen:
        (run / "log").mkdir(parents=True, exist_ok=True)
        for variable in ("TENSORBOARD_LOGGING_DIR", "TENSORBOARD_DIR", "WANDB_DIR"):  # TRL's, verl's
            os.environ[variable] = str(run / "log")
        # trackio continues a run of an equal name in its project: each tree has a project of its own there.
        project = f"{PROJECT}-{spec.scale}" if "trackio" in chosen else PROJECT
        ours = {"WANDB_PROJECT": project, "WANDB_RUN_GROUP": spec.scale, "WANDB_NAME": spec.name}
        if "wandb" in chosen and not _has_wandb_key():
            ours["WANDB_MODE"] = "offline"
        for variable, value in ours.items():
            os.environ.setdefault(variable, value)
    return chosen


def mark_logged(run: Path, names: Iterable[str], curve: str) -> None:
    """Record that these loggers have the run's curve: `methods.training.log` need not write it."""
    for name in names:
        write_text(logged(run, name), sha256_bytes(curve.encode()))


def logged(run: Path, logger: str) -> Path:
    """Return the file with the sha256 of the curve that a logger has."""
    return run / "log" / f"{logger}.sha256"


def remove_events(folder: Path) -> None:
    """Remove TensorBoard's files below `folder`, beside which a training that begins again would write its own."""
    for path in folder.rglob("events.out.tfevents.*"):
        path.unlink(missing_ok=True)


def _has_wandb_key() -> bool:
    """Return whether wandb would find a key: in WANDB_API_KEY, or in the .netrc that `wandb login` writes."""
    from requests.utils import get_netrc_auth  # wandb needs requests too

    server = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    return bool(os.environ.get("WANDB_API_KEY") or get_netrc_auth(server))


@contextmanager
def temporary_folder(state: Path, place: Path | None = None) -> Iterator[Path]:
    """Yield a folder, closed to other users, for temporary files of the trainer's libraries; remove it at the end.

    state: the run's folder of states. Its file `temporary` holds the folder's name: a killed process leaves both, and
    the next start of the run removes them. place: where the folder is made; None: Python's place (TMPDIR).
    """
    place = place or Path(tempfile.gettempdir())
    record, before = state / "temporary", tempfile.tempdir
    name = record.read_text(encoding="utf-8", errors="replace") if record.is_file() else ""
    # Match strictly, because the folder gets deleted. A copied run names its original's, which may be alive.
    if (found := re.fullmatch(r"tepo-(\d+)-\w+", name)) and not Path(f"/proc/{found[1]}").exists():
        shutil.rmtree(place / name, ignore_errors=True)
    prefix = f"tepo-{os.getpid()}-"
    try:
        with tempfile.TemporaryDirectory(prefix=prefix, dir=place, ignore_cleanup_errors=True) as folder:
            write_text(record, Path(folder).name)
            tempfile.tempdir = folder  # importing wandb, which TRL does, makes two folders there
            try:
                yield Path(folder)
            finally:
                tempfile.tempdir = before
    finally:
        record.unlink(missing_ok=True)  # after the folder: a removal that is killed is completed at the next start


def adapter(trainer: str) -> Any:
    """Return the adapter of a trainer, a module, imported here: each must work without the other's packages."""
    return import_module(f"methods.adapters.{trainer}")


def resolved(dotted: str, key: str = "reward") -> Any:
    """Return the function `package.module:function`. key: key of the specification, for errors."""
    module, colon, name = dotted.partition(":")
    if not (module and colon and name):
        raise ConfigError(
            f"spec: {key}: {dotted!r} is not of the form package.module:function, such as mine:score of mine.py"
        )
    try:
        function = getattr(import_module(module), name)
    except (Exception, SystemExit) as error:  # the module is a user's
        why = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ConfigError(
            f"spec: {key}: {dotted!r} cannot be imported ({why}); correct the name, the module or PYTHONPATH"
        ) from error
    if not callable(function):
        kind = type(function).__name__
        raise ConfigError(f"spec: {key}: {dotted!r} is a {kind}, not a function; name one of that module")
    return function


def _is_finite(value: Any) -> bool:
    """Return whether it is a finite number; scalars of numpy and torch count, arrays do not."""
    with suppress(TypeError, ValueError, OverflowError):
        return hasattr(value, "__float__") and math.isfinite(value)
    return False


def checked(
    where: str, values: Sequence[float | None], responses: Sequence[str], missing: bool = False
) -> list[float | None]:
    """Return one finite number per response (with `missing` also None), or raise `CorruptInputError`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise CorruptInputError(f"{where}: returned {type(values).__name__}; must return a list of numbers")
    values = list(values)
    if len(values) != len(responses):
        raise CorruptInputError(
            f"{where}: returned {len(values)} values for {len(responses)} responses; return one for each"
        )
    for index, value in enumerate(values):
        if not (missing if value is None else _is_finite(value)):
            raise CorruptInputError(
                f"{where}: returned {value!r} for response {index}: {responses[index][:60]!r}; return a finite number"
            )
    return [None if value is None else float(value) for value in values]


def late(names: Sequence[str], seconds: float, responses: Sequence[str]) -> str:
    """Return the error of a reward that took longer than its limit."""
    # Here, because this module is in no hash of code, so that a changed wording does not cause retraining.
    return (
        f"reward {', '.join(names)}: did not return within {seconds:g} s (first of {len(responses)} responses "
        f"{responses[0][:60]!r}); correct it or set reward_timeout (TEPO_REWARD_TIMEOUT), and run the same command"
    )
