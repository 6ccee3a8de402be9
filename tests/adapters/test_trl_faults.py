"""What happens to machines while a run trains: kills at any moment, a full disk. The numbers stay the same.

Damaged states: test_run_folder.py, and one of TRL's in test_trl_run.py.

Processes are forked from this one, which has imported what training imports but computed nothing: a start costs
milliseconds instead of seconds.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.digests import SUMS
from methods.train import STOPPED, StopRequest, execute
from tests.adapters import worlds
from tests.adapters.worlds import assert_same

pytestmark = pytest.mark.slow
SIZES: dict[str, Any] = {"rollouts": 6, "checkpoints": (2, 6), "save_every": 1}
KILLS = 6


def start(world: Path, out: Path) -> int:
    """The pid of a process that trains into `out`; it ends with the exit code of `python -m methods.train`."""
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the fork can answer it
    pid, code = os.fork(), 1
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return pid
    try:
        stop = StopRequest()
        stop.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        log = open(out.parent / "log", "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # until this process ends
        sys.stdout = sys.stderr = log
        code = execute(json.dumps(worlds.spec(world, "tepo", **SIZES)), out, stop)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(code)


def wait(pid: int) -> int:
    """Its exit code; negative: the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(scope="module")
def straight(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    import methods.adapters.trl.trainer  # noqa: F401  # for the forks, before the first of them

    out = tmp_path_factory.mktemp("straight") / "run"
    assert wait(start(world, out)) == 0
    return out


def writing(out: Path) -> bool:
    """Whether a state or a checkpoint lies half written in `out`."""
    states = (path for path in (out / "state").glob("checkpoint-*") if not (path / SUMS).exists())
    return any(states) or any((out / "checkpoints").glob(".step*.tmp"))


def killed_at(out: Path, world: Path, moment: Callable[[], bool]) -> bool:
    """Start, kill -9 as soon as `moment()` is true; False if the run ended before."""
    pid = start(world, out)
    while not moment():
        if os.waitpid(pid, os.WNOHANG)[0]:
            return False
        time.sleep(0.0005)
    os.kill(pid, signal.SIGKILL)
    assert wait(pid) == -signal.SIGKILL
    return True


def after(seconds: float) -> Callable[[], bool]:
    deadline = time.monotonic() + seconds
    return lambda: time.monotonic() > deadline


def test_killed_while_it_writes_or_at_any_moment_and_stopped(world: Path, straight: Path, tmp_path: Path) -> None:
    """kill -9 in turn while a state or a checkpoint is half written, and after a random time; then a SIGTERM."""
    out, draw, caught = tmp_path / "run", random.Random(7), 0
    for number in range(KILLS):
        moment = after(draw.uniform(0.05, 1.0)) if number % 2 else partial(writing, out)
        hit = killed_at(out, world, moment)
        caught += hit and writing(out)
        if not hit:  # finished in between, all rollouts: begin another run, the kills go on
            assert_same(out, straight, *SIZES["checkpoints"])
            out = tmp_path / f"run{number}"
    pid = start(world, out)
    time.sleep(draw.uniform(0.05, 0.5))
    os.kill(pid, signal.SIGTERM)
    assert wait(pid) in (STOPPED, 0)
    assert wait(start(world, out)) == 0
    assert_same(out, straight, *SIZES["checkpoints"])
    assert caught >= 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_the_run_and_room_lets_it_go_on(world: Path, straight: Path, disk: Path) -> None:
    out = disk / "run"
    assert wait(start(world, out)) == 1
    assert "NoSpaceError" in (disk / "log").read_text()
    assert "its disk is full (0." in (disk / "log").read_text()
    assert not (out / "run.json").exists()
    subprocess.run(["mount", "-o", "remount,size=128m", str(disk)], check=True)
    assert wait(start(world, out)) == 0
    assert_same(out, straight, *SIZES["checkpoints"])
