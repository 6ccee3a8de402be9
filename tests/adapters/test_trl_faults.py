"""What happens to machines while a run trains: kills at any moment, a full disk, a state cut short. Same numbers still.

Processes are forked from this one, which has imported what training imports but computed nothing: a start costs
milliseconds instead of seconds.
"""

from __future__ import annotations

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

import pytest

from methods.train import STOPPED, StopRequest, execute
from records.digests import SUMS
from tests.adapters import worlds
from tests.adapters.test_trl_resume import events
from tests.adapters.test_trl_run import numbers, weights
from tests.records.test_digests import flip

pytestmark = pytest.mark.slow
SIZES = {"rollouts": 12, "checkpoints": (4, 8, 12), "save_every": 1}
KILLS = 20


def start(world: Path, out: Path) -> int:
    """The pid of a process that trains into `out`; it ends with the exit code of `python -m methods.train`."""
    sys.stdout.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])  # until the fork can answer it
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        return pid
    code = 70
    try:
        stop = StopRequest()
        stop.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
        log = open(out.parent / "log", "a", encoding="utf-8", buffering=1)  # noqa: SIM115  # until this process ends
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
        sys.stdout = sys.stderr = log  # pytest's are other files than 1 and 2
        code = execute(json.dumps(worlds.spec(world, "tepo", **SIZES)), out, stop)
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        code = 1
    finally:
        os._exit(code)


def wait(pid: int, seconds: float = 120) -> int:
    """Its exit code; negative: the signal that ended it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    raise TimeoutError(f"process {pid} still runs after {seconds} s")


@pytest.fixture(scope="module")
def straight(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The undisturbed run."""
    import methods.adapters.trl.trainer  # noqa: F401  # for the forks, before the first of them

    out = tmp_path_factory.mktemp("straight") / "run"
    assert wait(start(world, out)) == 0
    return out


def assert_same(out: Path, straight: Path) -> None:
    assert numbers(out) == numbers(straight)
    for step in SIZES["checkpoints"]:  # type: ignore[attr-defined]
        assert weights(out, step) == weights(straight, step)


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


def test_killed_at_twenty_moments_half_of_them_while_it_writes(world: Path, straight: Path, tmp_path: Path) -> None:
    out, draw = tmp_path / "run", random.Random(7)
    caught = 0
    for number in range(KILLS):
        if number % 2:
            hit = killed_at(out, world, after(draw.uniform(0.05, 1.5)))
        else:
            hit = killed_at(out, world, partial(writing, out))
            caught += hit and writing(out)
        if not hit:  # finished in between, all 12 rollouts: begin another run, the kills go on
            assert_same(out, straight)
            out = tmp_path / f"run{number}"
    assert wait(start(world, out)) == 0
    assert_same(out, straight)
    print(f"{KILLS} kills, {caught} of them with a half-written state or checkpoint on disk")
    assert caught >= 5


def test_sigterm_at_any_moment_saves_or_finds_what_was_saved(world: Path, straight: Path, tmp_path: Path) -> None:
    out, draw = tmp_path / "run", random.Random(8)
    for _ in range(6):
        pid = start(world, out)
        time.sleep(draw.uniform(0.05, 1.5))
        os.kill(pid, signal.SIGTERM)
        assert wait(pid) in (STOPPED, 0)
    assert wait(start(world, out)) == 0
    assert_same(out, straight)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
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
    assert_same(out, straight)


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "weights cut short": ("{newest}/model.safetensors", lambda path: os.truncate(path, path.stat().st_size // 2)),
    "weights emptied": ("{newest}/model.safetensors", lambda path: os.truncate(path, 0)),
    "a bit of the weights": ("{newest}/model.safetensors", partial(flip, share=0.7)),
    "a bit of the optimizer": ("{newest}/optimizer.pt", partial(flip, share=0.5)),
    "a bit of the trainer's counters": ("{newest}/trainer_state.json", partial(flip, share=0.1)),
    "a bit of the curve": ("state/curve.csv", partial(flip, share=0.2)),
    "a bit of a checkpoint": ("checkpoints/step4/model.safetensors", partial(flip, share=0.7)),
    "a checkpoint emptied": ("checkpoints/step4/model.safetensors", lambda path: os.truncate(path, 0)),
}


@pytest.mark.parametrize("case", DAMAGES)
def test_what_is_damaged_is_not_gone_on_from(case: str, world: Path, straight: Path, tmp_path: Path) -> None:
    """The state before it is, if it is whole; else the run starts from the beginning."""
    name, damage = DAMAGES[case]
    out = tmp_path / "run"
    assert killed_at(out, world, lambda: (out / "state/checkpoint-20" / SUMS).exists())
    newest = max((out / "state").glob(f"checkpoint-*/{SUMS}"), key=lambda p: int(p.parent.name[11:])).parent
    path = out / name.format(newest=newest.relative_to(out))
    damage(path)
    assert wait(start(world, out)) == 0
    assert "damaged" in events(out)
    said = (tmp_path / "log").read_text()
    assert f"{path}: " in said
    assert f"{newest}: not resumed from: " in said
    assert_same(out, straight)
