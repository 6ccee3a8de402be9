"""A run's folder: what is final, what is only there to resume from, and how they are told apart. No torch here.

    run.json, curve.csv, checkpoints/step<N>/    final; run.json is written last, its presence means finished
    state/checkpoint-<update>/                   the trainer's own state, with position.json and curve.csv
    state/{curve.csv, lock}                      the curve as it grows; held by the process that trains the run

A state is whole once SHA256SUMS, written last, lists the checksums of all its files. A run resumes from the newest
state that is whole, of this specification, inputs and code, and whose earlier checkpoints are as they were published.
States that are not are removed, with the reason in one line; without one the run starts from the beginning. No result
is lost by that: outputs count once run.json is there, and all are made again.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from core import digests
from core.code import warning_entry
from core.declared import Declared, validated
from core.errors import BenchError, CorruptInputError, MissingInputError
from core.files import atomic, read_growing_csv, read_json, write_json
from core.provenance import environment, sha256_file
from methods.training.code import code_of_spec
from methods.training.curve import Curve
from methods.training.spec import Spec

SCHEMA = 1  # of run.json
AGAIN = "run the same command to have it made again"


class Position(Declared):
    """position.json: where in the run its state is, and what the state belongs to."""

    update: int = 0
    rollout: int = 0
    refill_position: int = 0
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    identity: Mapping[str, str] = {}
    checkpoints: Mapping[str, str] = {}  # published before it: name -> digest over its files


class RunFolder:
    """One run's folder. `identity` is computed once: hashing the inputs is most of what a finished run costs."""

    def __init__(self, folder: Path, spec: Spec):
        self.folder, self.spec = folder, spec
        self.state = folder / "state"
        self.identity = identity(spec)
        self.began = time.monotonic()
        self.curve: Curve  # from `open` on
        self.workers_cpu_seconds = 0.0  # of other processes; an adapter that starts some counts them
        self.start = Position()  # of the state that this process resumed from
        self._unfinished = ""  # why a run.json that is there does not count
        self._checkpoints: dict[str, str] = {}  # published so far: name -> digest over its files

    def checkpoint(self, step: int) -> Path:
        """The final weights folder after `step` rollouts."""
        return self.folder / "checkpoints" / f"step{step}"

    def finished(self) -> bool:
        """Whether run.json is there for this very run and everything it lists is unchanged."""
        path = self.folder / "run.json"
        if not path.is_file():
            return False
        try:
            record = read_json(path, "run record")
            for name, now in (("spec", dict(self.spec.document)), ("inputs", self.identity)):
                if record.get(name) != now:
                    raise CorruptInputError(f"{path}: {name}: is of another run")
            if record.get("outputs") != (found := self._outputs()):
                changed = sorted(name for name in found if found[name] != (record.get("outputs") or {}).get(name))
                raise CorruptInputError(f"{self.folder / changed[0]}: differs from its sha256 in {path}")
        except BenchError as error:
            self._unfinished = str(error)
            return False
        return True

    def open(self) -> Path | None:
        """Prepare the folder for training; the trainer's state to resume from, or None to start from the beginning."""
        if self._unfinished:
            print(f"{self._unfinished}; training again", flush=True)
        # while this run trains, no run.json of an earlier one may say that the folder is finished
        (self.folder / "run.json").unlink(missing_ok=True)
        self.state.mkdir(parents=True, exist_ok=True)
        newest = None
        while newest is None and (states := self._states()):
            try:
                self.start = self._position(states[-1])
                newest = states[-1]
            except BenchError as error:
                print(f"{states[-1]}: not resumed from: {error}", flush=True)
                _remove(states[-1])
        (self.state / "curve.csv").unlink(missing_ok=True)
        if newest is not None:
            _copy(newest / "curve.csv", self.state / "curve.csv")  # rows after it are computed again
        how = "starting from the beginning" if newest is None else f"resuming from {newest}"
        job = f", Slurm job {number}" if (number := os.environ.get("SLURM_JOB_ID")) else ""
        print(f"{self.folder}: {how} ({socket.gethostname()}, pid {os.getpid()}{job})", flush=True)
        self._checkpoints = dict(self.start.checkpoints)
        self.curve = Curve(self.state / "curve.csv", self.spec.training.sampler_check)
        return newest

    def save(self, state: Path, *, update: int, rollout: int, refill_position: int) -> None:
        """Complete `state`, into which the trainer has written its own files; remove all but the last `kept_states`."""
        position = Position(
            update=update,
            rollout=rollout,
            refill_position=refill_position,
            wall_seconds=self.wall_seconds(),
            cpu_seconds=self.cpu_seconds(),
            identity=self.identity,
            checkpoints=self._checkpoints,
        )
        self.curve.sync()
        _copy(self.state / "curve.csv", state / "curve.csv")
        write_json(state / "position.json", position.model_dump())
        _sync(state)  # what SHA256SUMS declares must be on disk before it
        digests.write_folder(state)
        for old in self._states()[: -self.spec.training.kept_states]:
            _remove(old)

    def publish(self, step: int, write: Callable[[Path], None]) -> None:
        """Have `write` fill a folder and rename it to checkpoints/step<N>: never half a checkpoint under that name."""
        final = self.checkpoint(step)
        # in the same folder, because a rename is atomic only within one file system
        temporary = final.with_name(f".{final.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        _sync(temporary)
        if final.is_symlink():
            final.unlink()
        elif final.exists():  # of a process whose state did not count, or of another run in this folder
            shutil.rmtree(final)
        os.rename(temporary, final)
        self._checkpoints[final.name] = _digest(final)

    def idle(self, unanswered: float | None) -> str | None:
        """Why a run that is over left the weights as they were; None: it had a gradient. unanswered: of `Outcome`."""
        rows = read_growing_csv(self.state / "curve.csv")
        if any(float(row["grad_norm"] or 0) for row in rows):
            return None
        kept = any(int(row["groups_kept"]) for row in rows)
        why = "every gradient was zero" if kept else "every group had equal rewards"
        truncated = sum(float(row["truncated_fraction"]) for row in rows) / len(rows)
        text = f"no update: {why}; {100 * truncated:.0f} % truncated"
        # Of the last rollout, which is like every other: the policy never moved.
        return text if unanswered is None else f"{text}, {100 * unanswered:.0f} % without a box"

    def finish(
        self, method: dict[str, Any], updates: int, collapsed_at: int | None, no_update: str | None = None
    ) -> None:
        """Write curve.csv, then run.json, whose presence means finished.

        Raises CorruptInputError for an output that is not what was written; started again, the run makes it anew.
        """
        _copy(self.state / "curve.csv", self.folder / "curve.csv")
        outputs = self._outputs()
        written = {"curve.csv": self.curve.sha256()}
        written |= {f"checkpoints/{name}": digest for name, digest in self._checkpoints.items()}
        for name, digest in written.items():
            if name in outputs and outputs[name] != digest:
                raise CorruptInputError(f"{self.folder / name}: is not what was written into it; {AGAIN}")
        record = {
            "schema": SCHEMA,
            "spec": dict(self.spec.document),
            "method": method,
            "environment": environment(),
            "inputs": self.identity,
            **warning_entry(*((code, self.identity[name]) for name, code in code_of_spec(self.spec).items())),
            "outputs": outputs,
            "updates": updates,
            "collapsed_at": collapsed_at,
            "no_update": no_update,
            "wall_seconds": self.wall_seconds(),
            "cpu_seconds": self.cpu_seconds(),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_json(self.folder / "run.json", record)
        for state in self._states():  # optimiser states are large, and nothing resumes from them now
            _remove(state)

    def wall_seconds(self) -> float:
        """Of all processes whose work is in the result, this one included."""
        return self.start.wall_seconds + time.monotonic() - self.began

    def cpu_seconds(self) -> float:
        """Likewise, with the workers that an adapter started on this machine, as far as it has counted them."""
        return self.start.cpu_seconds + time.process_time() + self.workers_cpu_seconds

    def _outputs(self) -> dict[str, str]:
        """The sha256 of each output; `BenchError` for one that is missing or damaged."""
        if not (curve := self.folder / "curve.csv").is_file():
            raise MissingInputError(f"{curve}: is missing")
        steps = {f"checkpoints/step{step}": _digest(self.checkpoint(step)) for step in self.spec.checkpoints}
        return {"curve.csv": sha256_file(curve), **steps}

    def _states(self) -> list[Path]:
        """Folders of states, whole or not, by their number of updates. Matched strictly: some will be deleted."""
        found = [path for path in self.state.glob("checkpoint-*") if path.is_dir() and not path.is_symlink()]
        named = {int(m[1]): path for path in found if (m := re.fullmatch(r"checkpoint-(0|[1-9][0-9]*)", path.name))}
        return [named[number] for number in sorted(named)]

    def _position(self, state: Path) -> Position:
        """Where the run is in this state; `BenchError` with the reason unless it can be resumed from."""
        if not (state / digests.SUMS).is_file():
            raise MissingInputError("its process ended before it was complete")
        digests.check_folder(state)
        path = state / "position.json"
        found = validated(Position, read_json(path, "position"), str(path), error=CorruptInputError)
        if found.identity != self.identity:
            changed = [name for name, now in self.identity.items() if found.identity.get(name) != now]
            raise CorruptInputError(f"belongs to a run with other {', '.join(changed)}")
        for name, digest in found.checkpoints.items():
            if _digest(self.folder / "checkpoints" / name) != digest:
                raise CorruptInputError(f"checkpoints/{name} is not the one that was published before it")
        return found


def identity(spec: Spec) -> dict[str, str]:
    """Hashes of all that decides a run's numbers: specification, base (weights; configuration and tokenizer), prompts,
    code. Raises CorruptInputError when the base or the prompts are not what their maker wrote."""
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
        **{name: code.hash for name, code in code_of_spec(spec).items()},
    }


def _digest(checkpoint: Path) -> str:
    """One digest over the files of a checkpoint; MissingInputError where it is not."""
    if not checkpoint.is_dir():
        raise MissingInputError(f"{checkpoint}: is missing")
    return digests.tree(digests.of_folder(checkpoint))


def _sync(folder: Path) -> None:
    """Flush all files of a folder to disk: a power cut after its last file or its rename leaves none of them short."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


def _remove(state: Path) -> None:
    """Remove a state; from the first moment on it no longer counts as complete."""
    (state / digests.SUMS).unlink(missing_ok=True)
    shutil.rmtree(state)


def _copy(source: Path, target: Path) -> None:
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)
