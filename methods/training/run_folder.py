"""A run's folder: what is final, what is only there to resume from, and how they are told apart. No torch here.

    run.json, curve.csv, checkpoints/step<N>/    final; run.json is written last, its presence means finished
    state/identity.json                          hashes of specification, inputs and code that the state belongs to
    state/{checkpoint-<update>/, curve.csv}      to resume from, until the end; valid once it holds SHA256SUMS
    state/{events.jsonl, lock}                   what happened to the processes that ran here; who runs now
    state/run.json                               a copy of the final one: the outputs can be restored without training

The states of a folder:

    empty        -- open ------------------------------------------------------> training
    training     -- publish, save_mark, at the end of a rollout ----------------> training
    training     -- a kill, or a stop request ----------------------------------> interrupted
    interrupted  -- open: the last whole state, or the beginning if none is ----> training
    training     -- finish -----------------------------------------------------> finished
    finished     -- run.json or curve.csv is deleted or damaged; restore -------> finished
    finished     -- another output is; open ------------------------------------> training

A folder of another specification, input or code: `open` moves its state to state/aside-<n>/ and starts anew.

Every file is hashed when it is written and compared with that hash before it is used (`core.digests`): a state and a
checkpoint by the SHA256SUMS in them, curve rows and checkpoints by the state that was saved after them. A state that
differs is removed, with one line that gives the reason, and the state before it is resumed from; without one, the run
starts from the beginning. Nothing final is lost by that: outputs count once run.json is there, and all come again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from core import digests, used_code
from core.code_hashes import Code, closure, file_of
from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import atomic, read_growing_csv, read_json, write_json
from core.provenance import environment, sha256_bytes, sha256_file
from methods import catalog
from methods.training.curve import Curve, first_rows
from methods.training.spec import Spec

SCHEMA = 1  # of run.json
GRADER = ("evals.grading",)  # what a reward may use without being hashed
MARK = "complete.json"


@dataclass(frozen=True)
class Mark:
    """What a resumable state knows beyond the trainer's own files."""

    update: int
    rollout: int
    refill_position: int
    wall_seconds: float
    cpu_seconds: float
    curve: str  # sha256 of the header and the first `update` rows of curve.csv
    checkpoints: Mapping[str, str]  # published before it; of each the sha256 of its SHA256SUMS
    identity: Mapping[str, str]  # of the run


class RunFolder:
    """One run's folder. `identity` is computed once: hashing the inputs is most of what a finished run costs."""

    def __init__(self, folder: Path, spec: Spec):
        self.folder, self.spec = folder, spec
        self.state = folder / "state"
        # First: what is finished already counts only if the command is the one that was planned.
        self.used = used_code.start(code_of_spec(spec), inputs=(spec.base, spec.prompts))
        self.identity = identity(spec)
        self.began = time.monotonic()
        self.curve: Curve  # from `open` on
        self.workers_cpu_seconds = 0.0  # of other processes; an adapter that starts some counts them
        self.mark = Mark(0, 0, 0, 0.0, 0.0, "", {}, self.identity)  # of the last state
        self.earlier = self.mark  # of the state that this process resumed from
        self._unfinished: str | None = None  # why a run.json that is there does not count

    def checkpoint(self, step: int) -> Path:
        """The final weights folder after `step` rollouts."""
        return self.folder / "checkpoints" / f"step{step}"

    def finished(self) -> bool:
        """Whether run.json is there for this very run and everything it lists is unchanged."""
        path, copy = self.folder / "run.json", digests.beside(self.state / "run.json")
        if not path.is_file():
            return False
        try:
            if copy.is_file() and sha256_file(path) != digests.read(copy).get("run.json"):
                raise CorruptInputError(f"{path}: differs from its sha256 in {copy}")
            self._check(read_json(path, "run record"))
        except BenchError as error:
            self._unfinished = str(error)
            return False
        return True

    def restore(self) -> bool:
        """Write run.json and curve.csv again from the state if that is all that is missing or damaged."""
        # Snakemake deletes a rule's outputs before it runs the rule again; the checkpoints may have survived.
        copy = self.state / "run.json"
        if not copy.is_file() or not (self.state / "curve.csv").is_file():
            return False
        try:
            digests.check(copy)
            record = read_json(copy, "run record")
            if record["outputs"].get("curve.csv") != sha256_file(self.state / "curve.csv"):
                raise CorruptInputError(f"{self.state / 'curve.csv'}: differs from its sha256 in {copy}")
            _copy(self.state / "curve.csv", self.folder / "curve.csv")
            self._check(record)
        except BenchError as error:
            self._unfinished = str(error)
            return False
        if self._unfinished:
            self._say(f"{self._unfinished}; written again from {self.state}", "restored")
        _copy(copy, self.folder / "run.json")
        return True

    def open(self) -> Path | None:
        """Prepare the folder for training; the trainer's state to resume from, or None to start from the beginning."""
        if self._unfinished:
            self._say(f"{self._unfinished}; training again", "damaged")
        # first: while this run trains, no run.json of an earlier one may say that the folder is finished
        for path in (self.folder / "run.json", self.state / "run.json"):
            path.unlink(missing_ok=True)
        self._match_identity()
        start = self._latest()
        if start is not None:
            self.mark = self.earlier = _mark(start)
        self.curve = Curve(self.state / "curve.csv", self.mark.update, self.spec.training.sampler_check)
        self.event("resume" if start else "start", update=self.mark.update)
        return start

    def save_mark(self, state: Path, **position: int) -> None:
        """Declare `state` complete, then remove all but the last `kept_states`.

        Its SHA256SUMS is written last: what that declares must be on disk before it.
        """
        self.used.check(last=False)  # or a state would carry another code's numbers into the process that resumes
        self.curve.sync()
        published = {step: self.checkpoint(step) for step in self.spec.checkpoints if step <= position["rollout"]}
        self.mark = Mark(
            **position,
            wall_seconds=self.wall_seconds(),
            cpu_seconds=self.cpu_seconds(),
            curve=self.curve.sha256(),
            checkpoints={folder.name: sha256_file(folder / digests.SUMS) for folder in published.values()},
            identity=self.identity,
        )
        write_json(state / MARK, asdict(self.mark))
        _sync(state)
        digests.write_folder(state)
        self.event("save", update=self.mark.update)
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
        digests.write_folder(temporary)
        ours = {path.relative_to(temporary) for path in temporary.rglob("*")}
        if final.is_dir() and not final.is_symlink() and {path.relative_to(final) for path in final.rglob("*")} <= ours:
            shutil.rmtree(final)  # of a process whose state did not count, or of another run in this folder
        elif final.exists() or final.is_symlink():  # with files that no run publishes
            aside = Path(tempfile.mkdtemp(prefix=f"{final.name}.aside-", dir=final.parent))
            os.rename(final, aside / final.name)
            self._say(f"{final}: holds other things than a checkpoint; moved to {aside}", "aside", folder=aside.name)
        os.rename(temporary, final)

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
        again = "run the same command to have it made again"
        self.used.check()
        _copy(self.state / "curve.csv", self.folder / "curve.csv")
        outputs = {"curve.csv": sha256_file(self.folder / "curve.csv")}
        if outputs["curve.csv"] != self.curve.sha256():
            raise CorruptInputError(f"{self.state / 'curve.csv'}: is not what was written into it; {again}")
        for step in self.spec.checkpoints:
            outputs[f"checkpoints/step{step}"] = digests.tree(digests.check_folder(self.checkpoint(step), advice=again))
        record = {
            "schema": SCHEMA,
            "spec": dict(self.spec.document),
            "method": method,
            "environment": environment(),
            "inputs": self.identity,
            "outputs": outputs,
            "updates": updates,
            "collapsed_at": collapsed_at,
            "no_update": no_update,
            "wall_seconds": self.wall_seconds(),
            "cpu_seconds": self.cpu_seconds(),
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
        digests.write_json(
            self.state / "run.json", digests.with_own(record)
        )  # first, so that `restore` can make the other again
        _copy(self.state / "run.json", self.folder / "run.json")
        for state in self._states():  # optimiser states are large, and nothing resumes from them now
            _remove(state)
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

    def _check(self, record: dict[str, Any]) -> None:
        """Raise unless `record` is of this very run, and the outputs it lists are there and unchanged."""
        where = self.folder / "run.json"
        for name, now in (("spec", dict(self.spec.document)), ("inputs", self.identity)):
            if record.get(name) != now:
                raise CorruptInputError(f"{where}: {name}: is of another run")
        outputs = record["outputs"]
        names = {"curve.csv", *(f"checkpoints/step{step}" for step in self.spec.checkpoints)}
        if outputs.keys() != names:
            raise CorruptInputError(f"{where}: outputs: {', '.join(sorted(outputs))} are not those of this run")
        for name, digest in outputs.items():
            path = self.folder / name
            if not path.exists():
                raise MissingInputError(f"{path}: missing, though {where} lists it")
            if digest != (sha256_file(path) if path.is_file() else digests.tree(digests.check_folder(path))):
                raise CorruptInputError(f"{path}: differs from its sha256 in {where}")

    def _match_identity(self) -> None:
        """Move a state that belongs to another specification, input or code aside, and say so."""
        path = self.state / "identity.json"
        if path.is_file():
            try:
                digests.check(path)
                before = read_json(path, "state identity")
                if not isinstance(before, dict):
                    raise CorruptInputError(f"{path}: expected an object, got {type(before).__name__}")
            except BenchError as error:
                # Not a reason to give the states up: each says itself which run it belongs to.
                self._say(f"{error}; written again", "damaged", file=path.name)
                before = self.identity
            if before == self.identity:
                digests.write_json(path, self.identity)
                return
            changed = sorted(key for key in self.identity if before.get(key) != self.identity[key])
            number = len(list(self.state.glob("aside-*"))) + 1
            aside = self.state / f"aside-{number}"
            aside.mkdir()
            for item in self.state.iterdir():
                # events cover all runs of the folder, and this process holds the lock
                if item.name != "events.jsonl" and not item.name.startswith(("lock", "aside-")):
                    item.rename(aside / item.name)
            self._say(
                f"{self.state}: belongs to a run with other {', '.join(changed)}; moved to {aside}, starting anew",
                "aside",
                folder=aside.name,
                changed=changed,
            )
        digests.write_json(path, self.identity)

    def _states(self) -> list[Path]:
        """Folders of states, whole or not, by their number of updates.

        They are removed sooner or later, so nothing else may count as one: no link, no `checkpoint-8.copy`.
        """
        numbers = {
            int(path.name.removeprefix("checkpoint-")): path
            for path in self.state.glob("checkpoint-*")
            if re.fullmatch(r"checkpoint-(0|[1-9][0-9]*)", path.name) and path.is_dir() and not path.is_symlink()
        }
        return [numbers[number] for number in sorted(numbers)]

    def _latest(self) -> Path | None:
        """The last state that is whole, with curve rows and checkpoints as they were when it was saved.

        All later ones are removed: half written, damaged, or after something that has to be made again.
        """
        published = {step: self._sums(self.checkpoint(step)) for step in self.spec.checkpoints}
        refused = 0
        for state in reversed(self._states()):
            try:
                self._check_state(state, published)
            except BenchError as error:
                event = "damaged" if (state / digests.SUMS).is_file() else "unfinished"
                self._say(f"{state}: not resumed from: {error}", event, folder=state.name)
                _remove(state)
                refused += 1
                continue
            if refused:
                print(f"{self.folder}: resuming from {state}", flush=True)
            return state
        if refused or (self.state / "curve.csv").is_file():
            print(f"{self.folder}: no whole state to resume from, starting from the beginning", flush=True)
        return None

    def _check_state(self, state: Path, published: Mapping[int, str | None]) -> None:
        """Raise unless the run can be resumed from a state; published: SHA256SUMS' digests of whole checkpoints."""
        if not (state / digests.SUMS).is_file():
            raise MissingInputError("its process ended before it was complete")
        digests.check_folder(state)
        mark = _mark(state)
        if mark.identity != self.identity:
            raise CorruptInputError("belongs to another run")
        curve = self.state / "curve.csv"
        if sha256_bytes(first_rows(curve, mark.update)) != mark.curve:
            raise CorruptInputError(f"{curve}: its first {mark.update} rows are not those that were written")
        for step, found in published.items():
            # None: of later steps a checkpoint is published once more anyway, of earlier ones it must be the same
            if step <= mark.rollout and found is None:
                raise CorruptInputError(f"{self.checkpoint(step)} has to be made again before it")
            if step <= mark.rollout and found != mark.checkpoints.get(self.checkpoint(step).name):
                raise CorruptInputError(f"{self.checkpoint(step)} is not the one that was published before it")

    def _sums(self, checkpoint: Path) -> str | None:
        """The sha256 of the SHA256SUMS of a checkpoint; None where there is none, or a damaged one, which is named."""
        if not checkpoint.is_dir():
            return None
        try:
            return digests.check_folder(checkpoint)[digests.SUMS]
        except BenchError as error:
            self._say(f"{error}; it is made again", "damaged", folder=checkpoint.name)
            return None

    def _say(self, line: str, event: str, **details: Any) -> None:
        """One line for whoever reads the log, and the same in state/events.jsonl."""
        print(line, flush=True)
        self.event(event, why=line, **details)


def identity(spec: Spec) -> dict[str, str]:
    """Hashes of all that decides a run's numbers: specification, base (weights; configuration and tokenizer), prompts,
    code. Raises CorruptInputError when the base or the prompts are not what their maker wrote."""
    base, prompts = Path(spec.base), Path(spec.prompts)
    if not (base / "config.json").is_file() or not list(base.glob("*.safetensors")):
        raise MissingInputError(f"{base}: base model is missing (needs config.json and *.safetensors)")
    if not prompts.is_file():
        raise MissingInputError(f"{prompts}: training prompts are missing")
    found = digests.check_model(base)
    return {
        "spec": spec.digest,
        "base": digests.tree(found, "*.safetensors"),
        "base_files": digests.beside_weights(found),
        "prompts": digests.check(prompts, advice=f"remove {prompts} to have it made again"),
        **dict(zip(("code", "method_code"), code_of_spec(spec).hashes, strict=True)),
    }


def code_of_spec(spec: Spec) -> Code:
    """`code_of` the run of a specification."""
    return code_of(spec.method, spec.trainer, *filter(None, (spec.reward, spec.placebo)))


def code_of(method: str, trainer: str, *rewards: str) -> Code:
    """The code that decides a run's numbers; its hash joins that of every method with the trainer and that of the
    method's own catalog file with the modules that it imports.

    rewards: dotted names, of the reward and, if there is one, of the placebo. The grader behind a reward does not
    count: a correction of how one odd answer is read must grade again, not train again. Which commit rewarded a run is
    in its record.
    """
    shared = closure("methods.train", f"methods.adapters.{trainer}")
    modules = [reward.partition(":")[0] for reward in rewards]
    for module in modules:
        try:
            found = find_spec(module)
        except (ImportError, ValueError) as error:
            raise ConfigError(f"spec: reward: {module!r} cannot be imported ({error})") from error
        if found is None:
            raise ConfigError(f"spec: reward: {module!r} cannot be imported (no such module)")
    reward_files = closure(*filter(file_of, modules), without=GRADER)
    method_files = closure(*catalog.modules_of(catalog.parse(method).key.split("+")[0]))
    own = {*method_files, *reward_files} - set(shared)
    return Code("methods.train", ((*shared, *reward_files), method_files), unhashed=GRADER, own=frozenset(own))


def _sync(folder: Path) -> None:
    """Flush all files of a folder to disk: a power cut after its mark or its rename leaves none of them short."""
    for path in folder.rglob("*"):
        if path.is_file():
            with open(path, "rb") as stream:
                os.fsync(stream.fileno())


def _mark(state: Path) -> Mark:
    try:
        return Mark(**read_json(state / MARK, "state mark"))
    except TypeError as error:
        raise CorruptInputError(f"{state / MARK}: not the mark of a state ({error})") from error


def _remove(state: Path) -> None:
    """Remove a state; from the first moment on it no longer counts as complete."""
    (state / digests.SUMS).unlink(missing_ok=True)
    shutil.rmtree(state)


def _copy(source: Path, target: Path) -> None:
    with atomic(target) as temporary:
        shutil.copyfile(source, temporary)
