"""A command in a child of a worker is the command by itself, for whoever started it; without a worker it is so too."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core import lock, used_code, worker
from core.provenance import ROOT

COMMAND = "tests.worker_command"
# Without what this process was told about the project: one test lists what a command sees of it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("TEPO_")}
ENVIRONMENT |= {"OMP_NUM_THREADS": "1", "FOR": "a test"}


def until(true: Callable[[], object], seconds: float = 1800.0) -> None:
    """Wait for `true()`; generous, because it is only waited out where the test fails."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    return lock.started(pid) is None


class Served:
    """A worker as Snakemake offers it; a process that does nothing is in Snakemake's place."""

    def __init__(self, log: Path, environment: dict[str, str] = ENVIRONMENT):
        self.owner = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        before = os.environ.pop(worker.VARIABLE, None)
        assert worker.offer(log)
        self.offered: dict[str, Any] = {**json.loads(os.environ.pop(worker.VARIABLE)), "owner": self.owner.pid}
        if before is not None:
            os.environ[worker.VARIABLE] = before
        self.log, self.folder = log, Path(self.offered["folder"])
        self.environment = {**environment, worker.VARIABLE: json.dumps(self.offered)}

    @property
    def pid(self) -> int:
        """Of the worker that was started last."""
        until(lambda: self.log.exists() and self.log.read_text(encoding="utf-8").endswith("\n"))
        return int(self.log.read_text(encoding="utf-8").splitlines()[-1].split()[1])

    def run(self, *arguments: str, command: str = COMMAND, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", command, *arguments], env={**self.environment, **environment}, cwd=ROOT,
            stdout=pipe, stderr=pipe, text=True, encoding="utf-8",
        )  # fmt: skip

    def close(self) -> None:
        self.owner.kill()
        self.owner.wait()
        if self.log.exists():
            until(lambda: gone(self.pid))
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    """A shell starts what it runs in the background with SIGINT ignored, and commands inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "logs" / "worker.log")
    yield made
    made.close()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=1800)
    return process.returncode, out, err


INSIDE = f"in {ROOT} for a test, worker: True\n"
ALONE = INSIDE.replace("True", "False")


def test_it_is_started_by_the_first_command_that_wants_it(served: Served) -> None:
    """An offer alone is no process and no folder: a call of Snakemake that trains nothing starts nothing."""
    assert not served.folder.exists()
    several = [served.run("end") for _ in range(3)]
    assert [ended(process) for process in several] == [(0, f"end {INSIDE}", "")] * 3
    assert len(served.log.read_text(encoding="utf-8").splitlines()) == 1, "one worker for all"
    assert (served.folder.stat().st_mode & 0o777, served.folder.stat().st_uid) == (0o700, os.getuid())


@pytest.mark.parametrize(("what", "code"), [("fail", 7), ("raise", 1), ("kill", -signal.SIGKILL)])
def test_it_ends_as_the_command_does_and_the_worker_lives_on(served: Served, what: str, code: int) -> None:
    found, out, err = ended(served.run(what))
    assert (found, out) == (code, f"{what} {INSIDE}")
    assert ("ValueError: of the command" in err) == (what == "raise")
    assert ended(served.run("end")) == (0, f"end {INSIDE}", "")
    assert len(served.log.read_text(encoding="utf-8").splitlines()) == 1


def test_it_ends_as_a_process_does(served: Served) -> None:
    """A child skips taking apart what the worker imported, and nothing else."""
    for environment in ({}, {worker.VARIABLE: ""}):
        inside = ALONE if environment else INSIDE
        told = "the end of the command\na thread\nwhat was registered\n"
        assert ended(served.run("leave", **environment)) == (0, f"leave {inside}{told}", "")
        assert ended(served.run("text", **environment)) == (1, f"text {inside}", "why it ends\n")


def written(path: Path, before: int = 0) -> int:
    """The number that a process writes into the file, another one than `before`."""
    until(lambda: path.exists() and path.read_text(encoding="utf-8") not in ("", str(before)))
    return int(path.read_text(encoding="utf-8"))


def waiting(served: Served, path: Path) -> tuple[subprocess.Popen[str], int]:
    process = served.run("wait", str(path))
    return process, written(path)


def test_commands_run_beside_each_other_and_signals_reach_their_own(served: Served, tmp_path: Path) -> None:
    (first, _), (second, _) = waiting(served, tmp_path / "first"), waiting(served, tmp_path / "second")
    first.send_signal(signal.SIGTERM)
    assert ended(first)[0] == 75
    assert second.poll() is None
    (tmp_path / "second.end").touch()
    assert ended(second)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGUSR1])
def test_a_signal_without_a_handler_ends_it_as_alone(served: Served, tmp_path: Path, number: int) -> None:
    process, child = waiting(served, tmp_path / "file")
    process.send_signal(number)
    assert ended(process)[0] == -number
    assert gone(child)


def test_a_child_sees_its_own_environment_and_nothing_of_others(served: Served, tmp_path: Path) -> None:
    """Neither another command's variables nor its connection nor the worker's; the offer is gone too."""
    beside, _ = waiting(served, tmp_path / "file")
    assert ended(served.run("show", SECRET_OF="another"))[1].endswith("['SECRET_OF']\n[]\n")
    assert ended(served.run("show"))[1].endswith("[]\n[]\n")
    (tmp_path / "file.end").touch()
    assert ended(beside)[0] == 0


def test_a_killed_worker_takes_its_children_and_commands_go_on_alone(served: Served, tmp_path: Path) -> None:
    process, child = waiting(served, tmp_path / "file")
    os.kill(served.pid, signal.SIGKILL)
    assert written(tmp_path / "file", child) == process.pid
    assert gone(child)
    (tmp_path / "file.end").touch()
    code, out, err = ended(process)
    assert (code, err) == (0, f"{COMMAND}: the worker is gone; going on by itself\n")
    assert out.count("worker: True") == out.count("worker: False") == 1
    assert ended(served.run("end")) == (0, f"end {INSIDE}", ""), "the next command starts another worker"
    assert len(served.log.read_text(encoding="utf-8").splitlines()) == 2


@pytest.mark.parametrize("who", ["command", "worker"])
def test_what_a_command_started_ends_with_it(served: Served, tmp_path: Path, who: str) -> None:
    path = tmp_path / "file"
    process = served.run("start", str(path))
    started = written(path)
    os.kill(process.pid if who == "command" else served.pid, signal.SIGKILL)
    until(lambda: gone(started))
    if who == "worker":  # the command goes on by itself
        os.kill(written(path, started), signal.SIGKILL)
    process.communicate()
    assert ended(served.run("end")) == (0, f"end {INSIDE}", "")


def test_a_stopped_worker_is_not_waited_for(served: Served, tmp_path: Path) -> None:
    """Neither for a new command nor for the end of one whose child has ended."""
    process, _ = waiting(served, tmp_path / "file")
    worker_pid = served.pid
    os.kill(worker_pid, signal.SIGSTOP)
    try:
        refused = f"{COMMAND}: the worker is stopped; going on by itself\n"
        assert ended(served.run("end")) == (0, f"end {ALONE}", refused)
        (tmp_path / "file.end").touch()
        code, _, err = ended(process)
        assert (code, err) == (0, f"{COMMAND}: the worker does not report the end of its child; going on by itself\n")
    finally:
        os.kill(worker_pid, signal.SIGCONT)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_process_that_offered_it(served: Served, tmp_path: Path, how: int) -> None:
    """However that ended. Commands that run end first, as jobs of a killed Snakemake do."""
    process, _ = waiting(served, tmp_path / "file")
    served.owner.send_signal(how)
    until(lambda: not served.folder.exists())
    assert not gone(served.pid)
    (tmp_path / "file.end").touch()
    assert ended(process)[0] == 0
    until(lambda: gone(served.pid))


def test_another_environment_is_refused_in_a_line_and_a_folder_that_others_can_enter_not_trusted(
    served: Served,
) -> None:
    assert ended(served.run("end"))[2] == ""
    refused = f"{COMMAND}: the worker refuses: it was started with another OMP_NUM_THREADS; going on by itself\n"
    assert ended(served.run("end", OMP_NUM_THREADS="2")) == (0, f"end {ALONE}", refused)
    served.folder.chmod(0o755)
    code, out, err = ended(served.run("end"))
    assert (code, out) == (0, f"end {ALONE}")
    assert "is not ours alone" in err


def test_nothing_is_offered_beside_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A child could not use what its parent has asked about."""
    monkeypatch.delenv(worker.VARIABLE, raising=False)
    monkeypatch.setattr(worker, "GPUS", (str(tmp_path),))
    assert not worker.offer(tmp_path / "log")
    assert worker.VARIABLE not in os.environ


def test_what_would_run_other_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = worker.Worker(socket.socket(socket.AF_UNIX), tmp_path)
    request = {"root": str(ROOT), "python": [sys.executable, sys.version], "environment": dict(os.environ)}
    assert one.refusal(request) is None
    assert "another checkout" in str(one.refusal(request | {"root": "/elsewhere"}))
    assert "another Python" in str(one.refusal(request | {"python": ["python", "2"]}))
    monkeypatch.setitem(used_code._used, str(ROOT / "core" / "worker.py"), (0, 0, 0))  # as if edited since
    assert one.refusal(request) == "core/worker.py was written since it was started"
    assert one.stopping, "it would serve nobody any more"
