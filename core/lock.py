"""One process per folder: a lock file that names its owner and is touched while the owner lives.

It is taken over when its owner is gone for certain: no such process on this host, or its Slurm job is over. Else times
decide, and the clocks of several machines cannot be trusted: a lock whose time of touch is implausible (ten periods
old, or in the future) is watched for three periods, and taken over if nobody touches it. An owner that finds its lock
taken over (its machine slept) ends at once.

Not the library `filelock`: its flock does not hold on every network file system, and its `SoftFileLease` takes over
with renameat2, which NFS refuses: after a lost node the lock would have to be removed by hand.
"""

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from core.errors import BusyError, CorruptInputError

PERIOD = 30.0  # seconds between touches
STALE_AFTER = 10 * PERIOD
WATCH = 3 * PERIOD
POLL = 1.0  # seconds between two looks at a lock that somebody holds
LOST = 75  # exit code of an owner whose lock was taken over: sysexits' EX_TEMPFAIL


@contextmanager
def held(path: Path, busy: str, wait: float = 0.0) -> Iterator[None]:
    """Hold `path` exclusively, after up to `wait` seconds if another process holds it.

    Takes over a lock whose owner is gone. Raises `BusyError`: the sentence `busy`, then the owner.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "process_started": started(os.getpid()),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }
    mine = json.dumps(owner)
    _acquire(path, mine, busy, wait)
    over = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, mine, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if _read(path) == mine:
            path.unlink(missing_ok=True)


def is_held(path: Path) -> bool:
    """Whether a process seems to hold `path`. For people: it compares the last touch with this machine's clock."""
    found = _look(path)
    if found is None:
        return False
    owner = _parse(found[0])  # empty: its writer is between creating and writing it
    return not owner or not (_gone(owner) or _implausible(time.time() - found[1]))


def _gone(owner: dict[str, Any]) -> bool:
    """Whether the owner is gone for certain: no such process on this host, or its job has left Slurm's queue."""
    if _is_here(owner):
        pid = owner.get("pid")
        return not isinstance(pid, int) or started(pid) is None or started(pid) != owner.get("process_started")
    job = owner.get("slurm_job_id")
    return job is not None and _job_over(str(job))


def _implausible(age_seconds: float) -> bool:
    """Whether a living owner would not leave its lock untouched so long, or touched so far in the future."""
    return not -PERIOD <= age_seconds <= STALE_AFTER


def _acquire(path: Path, mine: str, busy: str, wait: float) -> None:
    began = time.monotonic()
    seen, since = None, began  # the lock as it stands, and since when
    asked, told = -math.inf, False  # when we last asked Slurm after its owner; whether the user knows that we wait
    while not _create(path, mine):
        found = _look(path)
        if found is None:
            continue  # released meanwhile
        text, touched = found
        now, owner = time.monotonic(), _parse(text)
        if seen != found:
            seen, since = found, now
        if _is_here(owner) or now - asked >= PERIOD:  # Slurm's controller is not to be asked every second
            asked = now
            if _gone(owner):
                _remove(path, text)
                continue
        if not owner:  # between creating and writing its file, or died there
            watch = 5 * POLL
        elif _implausible(_now(path) - touched):
            watch = WATCH
        else:
            watch = math.inf
        pid, host, job, start = map(owner.get, ("pid", "host", "slurm_job_id", "since"))
        message = f"{busy}: pid {pid} on {host}, job {job}, since {start}"
        if now - since > watch:
            _remove(path, text)
        elif watch == math.inf and now - began >= wait:
            raise BusyError(f"{message}; wait for it or remove {path}")
        else:
            if not told:
                print(f"{message}; waiting up to {max(wait, WATCH):.0f} s", file=sys.stderr, flush=True)
            told = True
            time.sleep(POLL)


def _is_here(owner: dict[str, Any]) -> bool:
    return owner.get("host") == socket.gethostname()


def _parse(text: str) -> dict[str, Any]:
    """The owner that a lock names; empty if it cannot be read."""
    with suppress(ValueError, RecursionError):
        if isinstance(owner := json.loads(text), dict):
            return owner
    return {}


def started(pid: int) -> str | None:
    """When the process started, in the kernel's ticks, so that a reused pid is told apart; None if it is not there."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
        try:  # a system without /proc
            os.kill(pid, 0)
        except OSError:
            return None
        return "unknown"
    return None if fields[0] == "Z" else fields[19]  # a zombie writes nothing any more


def _job_over(job: str) -> bool:
    """Whether Slurm says that the job is neither waiting nor running. No Slurm or no answer: not known to be over."""
    try:
        answer = subprocess.run(
            ["squeue", "--noheader", "--jobs", job, "--format=%T"],
            capture_output=True, text=True, encoding="utf-8", timeout=30, check=False,
        )  # fmt: skip
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    if answer.returncode != 0:
        return "Invalid job id" in answer.stderr  # forgotten; anything else is a controller that does not answer
    return not answer.stdout.strip()


def _now(path: Path) -> float:
    """The time by the clock that stamps files beside `path`: on a network file system it is the server's, not ours."""
    probe = path.with_name(f".{path.name}.{socket.gethostname()}.{os.getpid()}")
    probe.touch()
    try:
        return probe.stat().st_mtime
    finally:
        probe.unlink()


def _create(path: Path, text: str) -> bool:
    try:
        with open(path, "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        return False
    return True


def _remove(path: Path, text: str) -> None:
    """Remove the lock if it still says `text`: of several processes that saw a dead owner, one may have a new one."""
    aside = path.with_name(f"{path.name}.stale.{socket.gethostname()}.{os.getpid()}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    if _read(aside) != text:  # somebody else took over between our look and our rename: give it back
        with suppress(FileExistsError):  # a third one was quicker; the second sees it at its next touch, and ends
            os.link(aside, path)
    aside.unlink()


def _read(path: Path) -> str | None:
    """What a lock says; None: it is not there. Bytes that are no UTF-8 are no owner's, and are replaced."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return None
    except IsADirectoryError:
        raise CorruptInputError(f"{path}: is a folder, a lock file is meant; remove it") from None


def _look(path: Path) -> tuple[str, float] | None:
    """What a lock says, and when it was touched; None: it is not there."""
    text = _read(path)
    try:
        return None if text is None else (text, path.stat().st_mtime)
    except FileNotFoundError:
        return None


def _touch(path: Path, mine: str, over: threading.Event) -> None:
    while not over.wait(PERIOD):
        try:
            if _read(path) == mine:
                os.utime(path)
                continue
        except OSError:
            continue  # a file system that does not answer now may answer at the next touch
        print(f"error: {path}: taken over by another process; this one ends", file=sys.stderr, flush=True)
        os._exit(LOST)
