"""A run's folder: what is final, what is only there to resume from, and how they are told apart. No torch here.

run.json, curve.csv, checkpoints/step<N>/    final; run.json is written last, its presence means finished
state/identity.json                          hashes of specification, inputs and code that the state belongs to
state/{checkpoint-<update>/, curve.csv}      to resume from, until the end; valid once it holds `complete.json`
state/{events.jsonl, lock}                   what happened to the processes that ran here; who runs now
state/run.json                               a copy of the final one: the outputs can be restored without training
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from methods import catalog
from methods.diagnostics import NAMES
from methods.training.spec import Spec
from records.code_hashes import closure, code_hash
from records.errors import ConfigError, CorruptInputError, MissingInputError
from records.files import atomic, read_growing_csv, read_json, write_json
from records.provenance import ROOT, environment, sha256_file, sha256_tree

# --- curve.csv: one row per update, numbers written so that they read back to the same bits ---------------------------

Figure = float | int | None

COLUMNS = (
    "rollout", "update", "minibatch", "reward", "reward_kept", "groups_sampled", "groups_kept", "groups_discarded",
    "response_tokens", "truncated_fraction", "loss", "grad_norm", "learning_rate", *NAMES, "tokens", "sequences",
    "seconds_update", "seconds_rollout",
)  # fmt: skip


class Curve:
    """The curve of a run in progress: `rows` rows are kept from an earlier process, later ones are appended."""

    def __init__(self, path: Path, rows: int):
        self.path = path
        # Rows after the state to resume from will be computed again, so they are cut off.
        kept = read_growing_csv(path)[:rows]
        if len(kept) < rows:
            raise CorruptInputError(
                f"{path}: holds {len(kept)} rows, the state to resume from says {rows}; remove {path.parent}"
            )
        if kept and tuple(kept[0]) != COLUMNS:
            raise CorruptInputError(f"{path}: columns {', '.join(kept[0])} are not those of a curve")
        self.rewards = {int(row["rollout"]): float(row["reward"]) for row in kept}  # mean reward by rollout
        # Written anew: a killed process may have left half a line at the end.
        with atomic(path) as temporary, open(temporary, "w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(kept)
        self._stream = open(path, "a", encoding="utf-8", newline="")  # noqa: SIM115  open as long as the run
        self._writer = csv.DictWriter(self._stream, COLUMNS, lineterminator="\n")
        self.rows = rows

    def append(self, row: Mapping[str, Figure]) -> None:
        """Add one row; every column must be there, None is written as an empty cell."""
        if row.keys() != set(COLUMNS):
            raise CorruptInputError(f"{self.path}: a row with columns {sorted(row)}, expected {sorted(COLUMNS)}")
        # repr, because it is the shortest text that reads back to the same bits
        self._writer.writerow({name: "" if value is None else repr(value) for name, value in row.items()})
        self._stream.flush()
        self.rows += 1
        self.rewards[int(row["rollout"] or 0)] = float(row["reward"] or 0.0)

    def sync(self) -> None:
        """Make sure that the rows so far survive a crash of the machine."""
        self._stream.flush()
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        """Sync and close; may be called twice."""
        if not self._stream.closed:
            self.sync()
            self._stream.close()


# --- The folder -------------------------------------------------------------------------------------------------------

SCHEMA = 1  # of run.json
MARK = "complete.json"


@dataclass(frozen=True)
class Mark:
    """What a resumable state knows beyond the trainer's own files. Written last into its folder."""

    update: int
    rollout: int
    refill_position: int
    wall_seconds: float
    cpu_seconds: float
    files: Mapping[str, int]  # sizes in bytes: a full disk or a bad copy may cut a file short without an error


class RunFolder:
    """One run's folder. `identity` is computed once: hashing the inputs is most of what a finished run costs."""

    def __init__(self, folder: Path, spec: Spec):
        self.folder, self.spec = folder, spec
        self.state = folder / "state"
        self.identity = identity(spec)
        self.began = time.monotonic()
        self.curve: Curve  # from `open` on
        self.workers_cpu_seconds = 0.0  # of other processes; an adapter that starts some counts them
        self.mark = Mark(0, 0, 0, 0.0, 0.0, {})  # of the last state
        self.earlier = self.mark  # of the state that this process resumed from

    def checkpoint(self, step: int) -> Path:
        """The final weights folder after `step` rollouts."""
        return self.folder / "checkpoints" / f"step{step}"

    def finished(self) -> bool:
        """Whether run.json is there for this very run and everything it lists is unchanged."""
        return (self.folder / "run.json").is_file() and self._stands(read_json(self.folder / "run.json", "run record"))

    def restore(self) -> bool:
        """Write run.json and curve.csv again from the state if that is all that is missing."""
        # Snakemake deletes a rule's outputs before it runs the rule again; the checkpoints may have survived.
        copy = self.state / "run.json"
        if not copy.is_file() or not (self.state / "curve.csv").is_file():
            return False
        record = read_json(copy, "run record")
        if record["outputs"].get("curve.csv") != sha256_file(self.state / "curve.csv"):
            return False
        _copy(self.state / "curve.csv", self.folder / "curve.csv")
        if not self._stands(record):
            return False
        write_json(self.folder / "run.json", record)
        return True

    def open(self) -> Path | None:
        """Prepare the folder for training; the trainer's state to resume from, or None to start from the beginning."""
        # first: while this run trains, no run.json of an earlier one may say that the folder is finished
        (self.folder / "run.json").unlink(missing_ok=True)
        self._match_identity()
        start = self._latest()
        if start is not None:
            self.mark = self.earlier = Mark(**read_json(start / MARK, "state mark"))
        self.curve = Curve(self.state / "curve.csv", self.mark.update)
        self.event("resume" if start else "start", update=self.mark.update)
        return start

    def save_mark(self, state: Path, **position: int) -> None:
        """Declare `state` complete. The mark is written last: what it declares must be on disk before it."""
        self.curve.sync()
        _sync(state)
        self.mark = Mark(
            **position, wall_seconds=self.wall_seconds(), cpu_seconds=self.cpu_seconds(), files=_sizes(state)
        )
        write_json(state / MARK, asdict(self.mark))
        self.event("save", update=self.mark.update)

    def publish(self, step: int, write: Callable[[Path], None]) -> None:
        """Have `write` fill a folder and rename it to checkpoints/step<N>: never half a checkpoint under that name."""
        final = self.checkpoint(step)
        # in the same folder, because a rename is atomic only within one file system
        temporary = final.with_name(f".{final.name}.tmp")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        write(temporary)
        _sync(temporary)
        if final.exists():  # of a process whose state did not count, or of another run in this folder
            shutil.rmtree(final)
        os.rename(temporary, final)

    def finish(self, method: dict[str, Any], updates: int, collapsed_at: int | None) -> None:
        """Write curve.csv, then run.json, whose presence means finished."""
        _copy(self.state / "curve.csv", self.folder / "curve.csv")
        outputs = {f"checkpoints/step{step}": sha256_tree(self.checkpoint(step)) for step in self.spec.checkpoints}
        record = {
            "schema": SCHEMA,
            "spec": dict(self.spec.document),
            "method": method,
            "environment": environment(),
            "inputs": self.identity,
            "outputs": {"curve.csv": sha256_file(self.folder / "curve.csv"), **outputs},
            "updates": updates,
            "collapsed_at": collapsed_at,
            "wall_seconds": self.wall_seconds(),
            "cpu_seconds": self.cpu_seconds(),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        write_json(self.state / "run.json", record)  # first, so that `restore` can make the other again
        write_json(self.folder / "run.json", record)
        for state in self.state.glob("checkpoint-*"):  # optimiser states are large, and nothing resumes from them now
            shutil.rmtree(state)
        self.event("end", update=updates)

    def event(self, what: str, **details: Any) -> None:
        """One line in state/events.jsonl."""
        self.state.mkdir(parents=True, exist_ok=True)
        line = {
            "event": what,
            "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
            **details,
        }
        with open(self.state / "events.jsonl", "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    def wall_seconds(self) -> float:
        """Of all processes whose work is in the result, this one included."""
        return self.earlier.wall_seconds + time.monotonic() - self.began

    def cpu_seconds(self) -> float:
        """Likewise, with the workers that an adapter started on this machine, as far as it has counted them."""
        return self.earlier.cpu_seconds + time.process_time() + self.workers_cpu_seconds

    def _stands(self, record: dict[str, Any]) -> bool:
        """Whether `record` is of this very run, and the outputs it lists are there and unchanged."""
        if record.get("spec") != dict(self.spec.document) or record.get("inputs") != self.identity:
            return False
        outputs = record["outputs"]
        if outputs.keys() != {"curve.csv", *(f"checkpoints/step{step}" for step in self.spec.checkpoints)}:
            return False
        for name, digest in outputs.items():
            path = self.folder / name
            if not path.exists() or digest != (sha256_file(path) if path.is_file() else sha256_tree(path)):
                return False
        return True

    def _match_identity(self) -> None:
        """Move a state that belongs to another specification, input or code aside, and say so."""
        path = self.state / "identity.json"
        if path.is_file():
            before = read_json(path, "state identity")
            if before == self.identity:
                return
            changed = sorted(key for key in self.identity if before.get(key) != self.identity[key])
            number = len(list(self.state.glob("aside-*"))) + 1
            aside = self.state / f"aside-{number}"
            aside.mkdir()
            for item in self.state.iterdir():
                # events cover all runs of the folder, and this process holds the lock
                if item.name != "events.jsonl" and not item.name.startswith(("lock", "aside-")):
                    item.rename(aside / item.name)
            print(
                f"{self.state}: belongs to a run with other {', '.join(changed)}; moved to {aside}, starting anew",
                flush=True,
            )
            self.event("aside", folder=aside.name, changed=changed)
        write_json(path, self.identity)

    def _latest(self) -> Path | None:
        """The last complete state from which every checkpoint not yet published can still be produced."""
        missing = [step for step in self.spec.checkpoints if not self.checkpoint(step).is_dir()]
        states = {}
        for folder in self.state.glob("checkpoint-*"):
            if (folder / MARK).is_file():
                mark = Mark(**read_json(folder / MARK, "state mark"))
                if _sizes(folder) != mark.files:
                    print(f"{folder}: is not as it was saved; resuming from an earlier state", flush=True)
                    self.event("damaged", folder=folder.name)
                elif all(mark.rollout < step for step in missing):
                    states[mark.update] = folder
                    continue
            shutil.rmtree(folder)  # half written, damaged, or too late to be of use
        return states[max(states)] if states else None


def identity(spec: Spec) -> dict[str, str]:
    """Hashes of all that decides a run's numbers: the specification, the base's weights, the prompts, our code."""
    base, prompts = Path(spec.base), Path(spec.prompts)
    weights = sorted(base.glob("*.safetensors"))
    if not (base / "config.json").is_file() or not weights:
        raise MissingInputError(f"{base}: base model is missing (needs config.json and *.safetensors)")
    if not prompts.is_file():
        raise MissingInputError(f"{prompts}: training prompts are missing")
    return {
        "spec": spec.digest,
        "base": sha256_tree(base, "*.safetensors"),
        "prompts": sha256_file(prompts),
        **code_identity(spec.method, spec.trainer, spec.reward),
    }


def code_identity(method: str, trainer: str, reward: str) -> dict[str, str]:
    """Hashes of the code that decides a run's numbers: `code` of every method with that trainer, `method_code`
    of the method's own catalog file and the modules it imports.

    Of the reward only its own file counts, not the grader behind it: a correction of how one odd answer is read must
    grade again, not train again. Which commit rewarded a run is in its record.
    """
    catalog_file = catalog.entries()[catalog.parse(method).key.split("+")[0]].parts.__module__
    shared = closure("methods.train", f"methods.adapters.{trainer}")
    reward_file = _reward_file(reward)
    return {
        "code": code_hash([*shared, *([reward_file] if reward_file else [])]),
        "method_code": code_hash(closure(catalog_file)),
    }


def _reward_file(reward: str) -> str | None:
    """The file that defines the reward, relative to the root, when it is one of ours."""
    try:
        module = find_spec(reward.partition(":")[0])
    except (ImportError, ValueError) as error:
        raise ConfigError(f"spec: reward: {reward!r} cannot be imported ({error})") from error
    origin = Path(module.origin) if module is not None and module.origin else None
    return origin.relative_to(ROOT).as_posix() if origin is not None and origin.is_relative_to(ROOT) else None


def _sync(folder: Path) -> None:
    """Flush all files of a folder to disk: a power cut after its mark or its rename leaves none of them short."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


def _sizes(state: Path) -> dict[str, int]:
    """Bytes of each file of a state, except its mark."""
    files = (path for path in state.rglob("*") if path.is_file() and path.name != MARK)
    return {path.relative_to(state).as_posix(): path.stat().st_size for path in files}


def _copy(source: Path, target: Path) -> None:
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)
