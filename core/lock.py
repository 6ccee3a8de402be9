"""Lock a folder for one process; the operating system releases the lock when the process ends, however it ends."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from core.errors import BusyError


@contextmanager
def held(path: Path, busy: str, wait: float = 0.0) -> Iterator[None]:
    """Hold `path` exclusively, after up to `wait` seconds if another process holds it.

    Raises `BusyError` with the message `busy` and the owner, which is recorded next to the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    owner = path.with_name(f"{path.name}.owner")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        who = owner.read_text(encoding="utf-8", errors="replace") if owner.is_file() else "unknown"
        raise BusyError(f"{busy} ({who.strip()[:200]})") from None
    try:
        facts = {"host": socket.gethostname(), "pid": os.getpid(), "slurm_job_id": os.environ.get("SLURM_JOB_ID")}
        owner.write_text(json.dumps(facts) + "\n", encoding="utf-8")
        yield
    finally:
        owner.unlink(missing_ok=True)
        lock.release()


def is_held(path: Path) -> bool:
    """Return whether a process holds `path`."""
    if not path.is_file():
        return False
    lock = FileLock(path)
    with suppress(Timeout, PermissionError):
        lock.acquire(timeout=0)
        lock.release()
        return False
    return True
