"""Two processes never write one run: the lock holds, waits, and is taken over only from owners that are gone."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from core import lock
from core.errors import BusyError, CorruptInputError
from core.provenance import ROOT

HERE = socket.gethostname()
BUSY = "run: another process holds this run"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thirty times faster than in earnest: a period of one second."""
    monkeypatch.setattr(lock, "PERIOD", 1.0)
    monkeypatch.setattr(lock, "STALE_AFTER", 10.0)
    monkeypatch.setattr(lock, "WATCH", 0.5)
    monkeypatch.setattr(lock, "POLL", 0.05)


def squeue(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """A Slurm client that answers as told."""
    program = folder / "bin" / "squeue"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def left(folder: Path, *, age: float = 0.0, **owner: object) -> Path:
    """A lock in `folder` that `owner` touched `age` seconds ago."""
    path = folder / "state" / "lock"
    path.parent.mkdir()
    path.write_text(json.dumps(owner))
    os.utime(path, (time.time() - age,) * 2)
    return path


def taken(path: Path) -> bool:
    """Whether the lock can be had at once (or after watching a suspect)."""
    with suppress(BusyError), lock.held(path, BUSY):
        return json.loads(path.read_text(encoding="utf-8"))["pid"] == os.getpid()
    return False


OWNERS = {  # owner, seconds since its touch, what squeue does, whether the lock is taken over
    "dead process here": ({"host": HERE, "pid": 2**22 + 1, "process_started": "1"}, 0, "", True),
    "reused pid here": ({"host": HERE, "pid": os.getpid(), "process_started": "1"}, 0, "", True),
    "elsewhere, fresh": ({"host": "elsewhere"}, 5, "", False),
    "elsewhere, untouched for ten periods": ({"host": "elsewhere"}, 20, "", True),
    "elsewhere, clock jumped back: touched in the future": ({"host": "elsewhere"}, -3600, "", True),
    "elsewhere, clock a little ahead": ({"host": "elsewhere"}, -0.5, "", False),
    "job gone from the queue": ({"host": "elsewhere", "slurm_job_id": "7"}, 5, "exit 0", True),
    "job forgotten": ({"host": "elsewhere", "slurm_job_id": "7"}, 5, "echo Invalid job id specified >&2; exit 1", True),
    "job running": ({"host": "elsewhere", "slurm_job_id": "7"}, 5, "echo RUNNING", False),
    "job pending again": ({"host": "elsewhere", "slurm_job_id": "7"}, 5, "echo PENDING", False),
    "controller does not answer": ({"host": "elsewhere", "slurm_job_id": "7"}, 5, "exit 1", False),
}


@pytest.mark.parametrize("case", OWNERS)
def test_taken_over_only_from_owners_that_are_gone(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, age, answer, expected = OWNERS[case]
    squeue(tmp_path, monkeypatch, answer or "exit 1")
    path = left(tmp_path, age=age, **owner)
    assert lock.is_held(path) == (not expected)
    assert taken(path) == expected


@pytest.mark.parametrize("content", [b"", b'{"host": "else', b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_lock_that_cannot_be_read_is_given_a_moment(
    content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = left(tmp_path)
    path.write_bytes(content)
    assert lock.is_held(path)
    pauses: list[float] = []
    sleep = time.sleep
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: (pauses.append(seconds), sleep(seconds)))
    assert taken(path)
    assert pauses, "it was taken over at the first look"


def test_it_is_exclusive_names_its_owner_and_waits_as_long_as_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "PERIOD", 60.0)  # an owner that looks and finds its lock gone would end pytest
    path = tmp_path / "run" / "state" / "lock"
    said = f"{BUSY}: pid {os.getpid()} on {HERE}"
    with lock.held(path, BUSY):
        for wait in (0.0, 0.3):
            with pytest.raises(BusyError, match=said), lock.held(path, BUSY, wait):
                pass
        assert capsys.readouterr().err.count("another process holds this run") == 1
        threading.Timer(0.3, path.unlink).start()  # as an owner that ends does
        with lock.held(path, BUSY, 10.0):
            assert path.exists()
        assert not path.exists()


def test_an_owner_whose_lock_was_taken_over_ends(tmp_path: Path) -> None:
    """Its machine slept: it must not write beside the process that went on in its place."""
    path = tmp_path / "state" / "lock"
    program = (
        "import sys, time; from pathlib import Path; from core import lock; lock.PERIOD = 0.1\n"
        "with lock.held(Path(sys.argv[1]), ''): print('held', flush=True); time.sleep(60)"
    )
    sleeper = subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert sleeper.stdout is not None
    assert sleeper.stdout.readline() == "held\n"
    path.write_text(json.dumps({"host": "elsewhere"}))
    _, said = sleeper.communicate(timeout=1800)
    assert sleeper.returncode == lock.LOST
    assert "taken over by another process" in said
    assert json.loads(path.read_text()) == {"host": "elsewhere"}


def test_many_processes_after_a_dead_owner_hold_it_one_at_a_time(tmp_path: Path) -> None:
    path = left(tmp_path, host=HERE, pid=2**22 + 1, process_started="1")
    program = (
        "import sys, os, time; from pathlib import Path; from core import lock; lock.POLL = 0.002\n"
        "path = Path(sys.argv[1]); inside = path.with_name('inside')\n"
        "for _ in range(20):\n"
        "    with lock.held(path, '', 60.0):\n"
        "        os.close(os.open(inside, os.O_CREAT | os.O_EXCL))\n"
        "        inside.unlink()"
    )
    line = [sys.executable, "-c", program, str(path)]
    crowd = [subprocess.Popen(line, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(6)]
    for one in crowd:
        said = one.communicate(timeout=1800)[1]
        assert one.returncode == 0, said


def test_a_folder_in_the_place_of_a_lock_is_named(tmp_path: Path) -> None:
    (tmp_path / "lock").mkdir()
    for look in (lock.is_held, taken):
        with pytest.raises(CorruptInputError, match="is a folder, a lock file is meant"):
            look(tmp_path / "lock")
