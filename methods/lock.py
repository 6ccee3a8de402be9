"""One process per run folder: a lock file that names its owner and is touched while the owner lives."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from records.errors import BusyError

PERIOD = 30.0  # seconds between touches
STALE_AFTER = 10 * PERIOD


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold `path` exclusively. Raises `BusyError` naming the owner; takes over a lock whose owner is gone."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mine = json.dumps(_owner(os.getpid()))
    while not _create(path, mine):
        _remove_stale(path)
    over = threading.Event()
    thread = threading.Thread(target=_touch, args=(path, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        if _read(path) == mine:
            path.unlink(missing_ok=True)


def stale(owner: dict[str, Any], age_seconds: float) -> bool:
    """Whether the owner is gone: no such process on this host, or nobody touched the file for ten periods."""
    if owner.get("host") == socket.gethostname():
        pid = owner.get("pid")
        return not isinstance(pid, int) or _started(pid) is None or _started(pid) != owner.get("process_started")
    return age_seconds > STALE_AFTER


def _owner(pid: int) -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": pid,
        "process_started": _started(pid),
        "slurm_job_id": os.environ.get("SLURM_JOB_ID"),
        "since": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _started(pid: int) -> str | None:
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


def _create(path: Path, text: str) -> bool:
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(handle, "w", encoding="utf-8") as stream:
        stream.write(text)
    return True


def _remove_stale(path: Path) -> None:
    text = _read(path)
    if text is None:
        return  # released meanwhile
    try:
        owner = json.loads(text)
        age = time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return
    except json.JSONDecodeError:  # its writer is between creating and writing, or died there
        owner, age = {}, time.time() - path.stat().st_mtime
        if age < 5:
            time.sleep(0.2)
            return
        age = STALE_AFTER + age
    if not stale(owner, age):
        raise BusyError(
            f"{path.parent.parent}: another process holds this run: pid {owner.get('pid')} on {owner.get('host')}, job "
            f"{owner.get('slurm_job_id')}, since {owner.get('since')}; wait for it or remove {path}"
        )
    aside = path.with_name(f"{path.name}.stale.{os.getpid()}")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    if _read(aside) != text:  # somebody else took over between our look and our rename: give it back
        os.link(aside, path)
    aside.unlink()


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None


def _touch(path: Path, over: threading.Event) -> None:
    while not over.wait(PERIOD):
        if path.exists():
            os.utime(path)
