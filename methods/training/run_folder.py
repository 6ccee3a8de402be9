"""A run's folder: final files, states to resume from, and the identity of a run. No torch here.

    run.json, curve.csv, checkpoints/step<N>/    final; run.json is written last and marks the run as finished
    state/checkpoint-<update>/                   the trainer's state, with position.json and curve.csv
    state/{curve.csv, lock}                      the growing curve; the lock of the process that trains the run

A state is complete once SHA256SUMS, written last, lists the checksums of all its files. A run resumes from the newest
state that is complete, belongs to this specification, inputs and code, and whose earlier checkpoints are unchanged.
Only the code of a user's reward may have changed since: a corrected one resumes its run, whose record has a warning.
Other states are removed, with the reason printed in one line; without a state the run starts from the beginning. No
result is lost: outputs count only once run.json exists, and all of them are recomputed.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core import digests
from core.code import Code, function_name, warning_entry
from core.declared import Declared, Tuple, check, validated
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import read_json, write_json, write_text
from core.provenance import ROOT, environment, sha256_bytes, sha256_file
from methods import catalog
from methods.adapters import remove_events
from methods.parts import Part
from methods.training.curve import HEADER, Curve
from methods.training.rollouts import kl_targets
from methods.training.spec import Spec

SCHEMA = 1  # of run.json
AGAIN = "run the same command to have it made again"


class Position(Declared):
    """position.json: a state's position in the run, and the identity of the run."""

    update: int = 0
    rollout: int = 0
    refill_position: int = 0
    extremes: Tuple[float] = ()  # lowest and highest reward so far, for `rollouts.collapsed`
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    identity: Mapping[str, str] = {}
    trainer_code: str = ""  # hash of `code` without the user's rewards
    reward_changes: Tuple[int] = ()  # rollouts after which the code of those changed
    checkpoints: Mapping[str, str] = {}  # published before it: name -> digest over its files


class RunFolder:
    """One run's folder. `identity` is computed once: hashing the inputs dominates the check of a finished run."""

    def __init__(self, folder: Path, spec: Spec):
        self.folder, self.spec = folder, spec
        self.state = folder / "state"
        self.identity = identity(spec)
        self.began = time.monotonic()
        self.curve: Curve  # set by `open`
        self.workers_cpu_seconds = 0.0  # of worker processes; set by an adapter that starts some
        self.start = Position()  # of the state that this process resumed from
        self.extremes: tuple[float, ...] = ()  # lowest and highest reward so far
        self.environment: dict[str, Any] = {}  # when this process began to train; set by `open`
        self.trainer_code = ""  # hash of `code` without the user's rewards; set by `open`
        self._unfinished = ""  # why an existing run.json is not accepted
        self._checkpoints: dict[str, str] = {}  # published so far: name -> digest over its files

    def checkpoint(self, step: int) -> Path:
        """Return the folder of the final weights after `step` rollouts."""
        return self.folder / "checkpoints" / f"step{step}"

    def finished(self, force: bool = False) -> bool:
        """Return whether run.json exists for this run and everything it lists is unchanged.

        Raises `ConfigError`, without `force`, for a finished run of another specification: training would remove it.
        """
        path = self.folder / "run.json"
        if not path.is_file():
            return False
        restore_curve(self.folder)
        try:
            record = read_json(path, "run record")
            check(record, {"spec": {}}, str(path))
            if other := _difference(record["spec"], dict(self.spec.document)):
                what = f"{self.folder}: holds a finished run of another specification ({other})"
                if not force:
                    raise ConfigError(f"{what}; name another folder with --out, or train over it with --force")
                raise CorruptInputError(what)
            if record.get("inputs") != self.identity:
                raise CorruptInputError(f"{path}: inputs: is of another run")
            recorded = record.get("outputs") or {}
            for name, digest in self._outputs().items():
                if recorded.get(name) != digest:
                    raise CorruptInputError(f"{self.folder / name}: differs from its sha256 in {path}")
        except (CorruptInputError, MissingInputError) as error:
            self._unfinished = str(error)
            return False
        return True

    def open(self) -> Path | None:
        """Prepare the folder for training; return the state to resume from, or None to start from the beginning."""
        if self._unfinished:
            print(f"{self._unfinished}; training again", flush=True)
        # while this run trains, an earlier run.json must not mark the folder as finished
        (self.folder / "run.json").unlink(missing_ok=True)
        self.state.mkdir(parents=True, exist_ok=True)
        ours = [name for name in self.spec.rewards if name.startswith("evals.")]
        self.trainer_code = code_of_spec(self.spec, ours)["code"].hash
        newest, rows = None, HEADER
        while newest is None and (states := self._states()):
            try:
                self.start = self._position(states[-1])
                newest, rows = states[-1], (states[-1] / "curve.csv").read_text(encoding="utf-8")
            except BenchError as error:
                print(f"{states[-1]}: not resumed from: {error}", flush=True)
                _remove(states[-1])
        if newest is None:
            remove_events(self.folder / "log")
        how = "starting from the beginning" if newest is None else f"resuming from {newest}"
        job = f", Slurm job {number}" if (number := os.environ.get("SLURM_JOB_ID")) else ""
        print(f"{self.folder}: {how} ({socket.gethostname()}, pid {os.getpid()}{job})", flush=True)
        if self.start.rollout in self.start.reward_changes:
            print(f"{self.folder}: {self._changed_rewards()}; the run goes on with the new code", flush=True)
        self._checkpoints, self.extremes = dict(self.start.checkpoints), self.start.extremes
        self.environment = environment()
        self.curve = Curve(self.state / "curve.csv", rows, self.spec.training.sampler_check)
        return newest

    def save(self, state: Path, *, update: int, rollout: int, refill_position: int) -> None:
        """Complete `state`, after the trainer has written its files there; remove all but the last `kept_states`."""
        position = Position(
            update=update,
            rollout=rollout,
            refill_position=refill_position,
            extremes=self.extremes,
            wall_seconds=self.wall_seconds(),
            cpu_seconds=self.cpu_seconds(),
            identity=self.identity,
            trainer_code=self.trainer_code,
            reward_changes=self.start.reward_changes,
            checkpoints=self._checkpoints,
        )
        write_text(state / "curve.csv", self.curve.text)
        write_json(state / "position.json", position.model_dump())
        _sync(state)  # the files listed in SHA256SUMS must be on disk before it
        digests.write_folder(state)
        for old in self._states()[: -self.spec.training.kept_states]:
            _remove(old)

    def publish(self, step: int, write: Callable[[Path], None]) -> None:
        """Let `write` fill a temporary folder, then rename it to checkpoints/step<N>, so that this is never partial."""
        final = self.checkpoint(step)
        # in the same folder, because a rename is atomic only within one file system
        temporary = final.with_name(f".{final.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        _sync(temporary)
        if final.is_symlink():
            final.unlink()
        elif final.exists():  # from a process whose state was not accepted, or from another run in this folder
            shutil.rmtree(final)
        os.rename(temporary, final)
        self._checkpoints[final.name] = _digest(final)

    def finish(
        self, method: dict[str, Any], updates: int, collapsed_at: int | None, unanswered: float | None = None
    ) -> str | None:
        """Write curve.csv, then run.json, which marks the run as finished; return the reason if weights never changed.

        `environment` is that of the run's last process when it began: a checkout that was edited or moved since is not
        the code that ran, and is reported. Raises CorruptInputError for an output that differs from what was written;
        a restarted run recomputes it.
        """
        write_text(self.folder / "curve.csv", self.curve.text)
        outputs = self._outputs()
        written = {f"checkpoints/{name}": digest for name, digest in self._checkpoints.items()}
        written["curve.csv"] = hashlib.sha256(self.curve.text.encode()).hexdigest()
        for name, digest in written.items():
            if outputs.get(name, digest) != digest:
                raise CorruptInputError(f"{self.folder / name}: is not what was written into it; {AGAIN}")
        now = environment()
        for name in ("commit", "dirty"):
            if (before := self.environment[name]) != now[name] and None not in (before, now[name]):  # None: unknown
                print(
                    f"{self.folder}: the checkout changed while the run trained: {name} was {before}, now {now[name]}; "
                    "run.json has the former",
                    file=sys.stderr,
                )
        codes = ((code, self.identity[name]) for name, code in code_of_spec(self.spec).items())
        warnings = [self._changed_rewards()] if self.start.reward_changes else []
        warnings += warning_entry(*codes).values()
        record = {
            "schema": SCHEMA,
            "spec": dict(self.spec.document),
            "method": method,
            "environment": self.environment,
            "inputs": self.identity,
            **({"code_warning": "; ".join(warnings)} if warnings else {}),
            "outputs": outputs,
            "updates": updates,
            "collapsed_at": collapsed_at,
            # of each checkpoint: those after a collapse have the weights of its rollout
            "rollouts": {f"checkpoints/step{step}": min(step, collapsed_at or step) for step in self.spec.checkpoints},
            "no_update": (idle := self._idle(unanswered)),
            "wall_seconds": self.wall_seconds(),
            "cpu_seconds": self.cpu_seconds(),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_json(self.folder / "run.json", record)
        for state in self._states():  # optimiser states are large and no longer needed
            _remove(state)
        return idle

    def _idle(self, unanswered: float | None) -> str | None:
        """Return why a run left the weights unchanged; None: it had a gradient. unanswered: from `Outcome`."""
        rows = self.curve.rows
        if any(float(row["grad_norm"] or 0) for row in rows):
            return None
        kept = any(int(row["groups_kept"]) for row in rows)
        truncated = sum(float(row["truncated_fraction"]) for row in rows) / len(rows)
        why = "every gradient was zero" if kept else "every group had equal rewards"
        # `unanswered` is that of the last rollout, which represents all others because the policy never moved.
        boxes = "" if unanswered is None else f", {100 * unanswered:.0f} % without a box"
        return f"no update: {why}; {100 * truncated:.0f} % truncated{boxes}"

    def _changed_rewards(self) -> str:
        rollouts = ", ".join(map(str, self.start.reward_changes))
        return f"reward {', '.join(self.spec.rewards)}: its code changed after rollout {rollouts}"

    def wall_seconds(self) -> float:
        """Return the wall time of all processes whose work is in the result, this one included."""
        return self.start.wall_seconds + time.monotonic() - self.began

    def cpu_seconds(self) -> float:
        """Return the CPU time of the same processes, and of workers on this machine that an adapter has counted."""
        return self.start.cpu_seconds + time.process_time() + self.workers_cpu_seconds

    def _outputs(self) -> dict[str, str]:
        """Return the sha256 of each output; raise `BenchError` for one that is missing or damaged."""
        steps = {f"checkpoints/step{step}": _digest(self.checkpoint(step)) for step in self.spec.checkpoints}
        return {"curve.csv": sha256_file(self.folder / "curve.csv"), **steps}

    def _states(self) -> list[Path]:
        """Return folders of states, complete or not, by number of updates. Matched strictly: some will be deleted."""
        found = [path for path in self.state.glob("checkpoint-*") if path.is_dir() and not path.is_symlink()]
        named = {int(m[1]): path for path in found if (m := re.fullmatch(r"checkpoint-(0|[1-9][0-9]*)", path.name))}
        return [named[number] for number in sorted(named)]

    def _position(self, state: Path) -> Position:
        """Return the position of a state; raise `BenchError` with the reason if the run cannot resume from it."""
        if not (state / digests.SUMS).is_file():
            raise MissingInputError("its process ended before it was complete")
        digests.check_folder(state)
        path = state / "position.json"
        found = validated(Position, read_json(path, "position"), str(path), error=CorruptInputError)
        changed = [name for name, now in self.identity.items() if found.identity.get(name) != now]
        # A run that had finished is trained again from its beginning: its results would mix two rewards unnoticed.
        if changed == ["code"] and found.trainer_code == self.trainer_code and not self._unfinished:
            changed, found = [], found.model_copy(update={"reward_changes": (*found.reward_changes, found.rollout)})
        if changed:
            raise CorruptInputError(f"belongs to a run with other {', '.join(changed)}")
        for name, digest in found.checkpoints.items():
            if _digest(self.folder / "checkpoints" / name) != digest:
                raise CorruptInputError(f"checkpoints/{name} is not the one that was published before it")
        return found


def restore_curve(folder: Path) -> None:
    """Restore curve.csv of a finished run if it is damaged and the copy in state/ has the sha256 in run.json."""
    curve, copy = folder / "curve.csv", folder / "state" / "curve.csv"
    try:
        digest = read_json(folder / "run.json", "run record")["outputs"]["curve.csv"]
        if copy.is_file() and sha256_file(copy) == digest and not (curve.is_file() and sha256_file(curve) == digest):
            write_text(curve, copy.read_bytes())
            print(f"{curve}: was damaged; restored from {copy}", flush=True)
    except (BenchError, KeyError, TypeError):
        return  # without a record there is nothing to compare with


def _difference(theirs: Any, ours: Any, at: str = "") -> str | None:
    """Return the first key whose values differ, and both values; None if they are equal."""
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        return None if theirs == ours else f"{at}: {theirs!r} there, {ours!r} here"
    for key in sorted(theirs.keys() | ours.keys()):
        there, here = (side.get(key, "nothing") for side in (theirs, ours))
        if other := _difference(there, here, f"{at}.{key}".lstrip(".")):
            return other
    return None


def _digest(checkpoint: Path) -> str:
    """Return one digest over the files of a checkpoint; raise MissingInputError if it does not exist."""
    if not checkpoint.is_dir():
        raise MissingInputError(f"{checkpoint}: is missing")
    return digests.tree(digests.of_folder(checkpoint))


def _sync(folder: Path) -> None:
    """Flush all files of a folder to disk, so that a power cut after the last write or rename truncates none."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


def _remove(state: Path) -> None:
    """Remove a state; its checksums go first, so that a partly removed state does not count as complete."""
    (state / digests.SUMS).unlink(missing_ok=True)
    shutil.rmtree(state)


# --- What a run's numbers depend on -----------------------------------------------------------------------------------


def identity(spec: Spec) -> dict[str, str]:
    """Return hashes of all that a run's numbers depend on: specification, base (weights; configuration and tokenizer),
    prompts, movement that is followed, code. Raises CorruptInputError if the base differs from its record."""
    base, prompts = Path(spec.base), Path(spec.prompts)
    if not (base / "config.json").is_file() or not list(base.glob("*.safetensors")):
        raise MissingInputError(f"{base}: base model is missing (needs config.json and *.safetensors)")
    if not prompts.is_file():
        raise MissingInputError(f"{prompts}: training prompts are missing")
    record = base / "base.json"
    found = digests.check_model(base, record if record.is_file() else None)
    return {
        "spec": spec.digest,
        "base": digests.tree(found, "*.safetensors"),
        "base_files": digests.beside_weights(found),
        "prompts": sha256_file(prompts),
        # the numbers alone: the curve that they come from has seconds too
        **({"yoke": sha256_bytes(repr(kl_targets(spec)).encode())} if spec.yoke else {}),
        **{name: code.hash for name, code in code_of_spec(spec).items()},
    }


def code_of_spec(spec: Spec, rewards: Sequence[str] | None = None) -> dict[str, Code]:
    """Return `code_of` for the run of a specification. rewards: None for all of them."""
    counted = spec.rewards if rewards is None else rewards
    return code_of(spec.method, spec.trainer, *counted, *filter(None, [spec.placebo]))


def code_of(method: str, trainer: str, *rewards: str) -> dict[str, Code]:
    """Return `code` (what all methods share with this trainer, and the rewards) and `method_code` (the method's parts).

    The method's composition is hashed by value, not by the text of its catalog file: titles and the parsing of keys
    do not count. rewards: dotted names of the reward and, if there is one, of the placebo. Raises ConfigError for
    a reward that cannot be imported.
    """
    installed = []  # rewards that are not files of this project
    for module in sorted({reward.partition(":")[0] for reward in rewards}):
        try:
            found, why = find_spec(module), "no such module"
        except (Exception, SystemExit) as error:  # a package's __init__ is a user's code
            found, why = None, f"{type(error).__name__}: {' '.join(str(error).split())}"
        if found is None:
            raise ConfigError(f"spec: reward: {module!r} cannot be imported ({why})")
        if found.origin and found.has_location and not Path(found.origin).is_relative_to(ROOT):
            installed.append(f"{module} {sha256_file(found.origin)}")
    functions: set[str] = set()
    composition = [f"{slot}: {_text(part, functions)}" for slot, part in catalog.parse(method).parts.filled().items()]
    return {
        "code": Code("train", trainer, tuple(sorted(set(rewards))), tuple(installed)),
        "method_code": Code("method", functions=tuple(sorted(functions)), values=tuple(composition)),
    }


def _text(value: Any, functions: set[str]) -> str:
    """Return a part or a setting as text with every digit; add the functions behind it to `functions`."""
    if isinstance(value, Part):
        settings = {name: value.settings[name] for name in sorted(value.settings)}
        return f"{_text(value.function, functions)}({_text(settings, functions)})"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_text(entry, functions)}" for name, entry in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return f"{type(value).__name__}[{', '.join(_text(entry, functions) for entry in value)}]"
    if callable(value):
        functions.add(function_name(value))
        return function_name(value)
    return repr(value.tolist() if hasattr(value, "tolist") else value)  # repr shortens a long tensor
