"""A command in a child of a worker is the command alone, for whoever started it; without a worker it is so too."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core import worker
from core.provenance import ROOT

COMMAND = "tests.worker_command"
# In Snakemake's place: it starts a worker, prints where it listens and waits.
OWNER = """
import os, sys
from pathlib import Path
from core import worker
worker.start(Path(sys.argv[1]), {"OMP_NUM_THREADS": "1"})
print(os.environ.get(worker.VARIABLE, ""), flush=True)
sys.stdin.read()
"""


def until(true: Callable[[], object], seconds: float = 600.0) -> None:
    """Wait for `true()`; generous, because it is only waited out where the test fails."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Served:
    def __init__(self, log: Path):
        pipe = subprocess.PIPE
        self.owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(log)], cwd=ROOT, stdin=pipe, stdout=pipe, text=True
        )
        assert self.owner.stdout is not None
        self.socket = self.owner.stdout.readline().strip()

    def run(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(
            [sys.executable, "-m", COMMAND, *arguments], cwd=ROOT, stdout=pipe, stderr=pipe, text=True,
            env={**os.environ, worker.VARIABLE: self.socket, "FOR": "a test", **environment},
        )  # fmt: skip

    def waiting(self, path: Path) -> tuple[subprocess.Popen[str], int, int, int]:
        """A command that waits, and the numbers of the process that it started, of its own and of the worker."""
        process = self.run("wait", str(path))
        until(lambda: path.exists() and path.read_text(encoding="utf-8"))
        started, child, parent = map(int, path.read_text(encoding="utf-8").split())
        return process, started, child, parent


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
    made.owner.kill()
    made.owner.communicate()


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=600)
    return process.returncode, out, err


INSIDE = f"in {ROOT} for a test, worker: True\n"
ALONE = INSIDE.replace("worker: True", "worker: False")


def test_it_ends_as_the_command_alone_does(served: Served) -> None:
    """Eight at once; the worker goes on after each of them."""
    expected = {
        "end": (0, ""), "fail": (7, ""), "raise": (1, "ValueError: of the command"), "kill": (137, ""),
        "text": (1, "why it ends\n"), "leave": (0, ""), "unshared": (0, ""),
    }  # fmt: skip
    processes = {what: served.run(what) for what in expected}
    for what, (code, error) in expected.items():
        found, out, err = ended(processes[what])
        rest = "the end of the command\na thread\nwhat was registered\n" if what == "leave" else ""
        inside = ALONE if what == "unshared" else INSIDE  # its library cannot be imported
        assert (found, out) == (code, f"{what} {inside}{rest}"), what
        assert error in err, what
    assert ended(served.run("end", **{worker.VARIABLE: ""})) == (0, f"end {ALONE}", "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGINT, 130), (signal.SIGUSR1, 138)])
def test_signals_reach_the_child_and_no_other(served: Served, tmp_path: Path, number: int, code: int) -> None:
    first, started, child, _ = served.waiting(tmp_path / "first")
    second, *_ = served.waiting(tmp_path / "second")
    first.send_signal(number)
    # by default an interrupt is an exception, and shown as one
    assert ended(first)[0] in ({code, 1} if number == signal.SIGINT else {code})
    assert gone(child)
    os.kill(started, signal.SIGKILL)
    assert second.poll() is None
    # A command has its environment and nothing of others: neither variables nor connections; the offer is gone too.
    assert ended(served.run("show", SECRET_OF="another"))[1].endswith("['SECRET_OF']\n[]\n")
    assert ended(served.run("show"))[1].endswith("[]\n[]\n")
    (tmp_path / "second.end").touch()
    assert ended(second)[0] == 0


@pytest.mark.parametrize("who", ["command", "worker", "owner"])
def test_whoever_is_killed_takes_the_others_along(served: Served, tmp_path: Path, who: str) -> None:
    """But commands that run outlive the owner, as jobs of a killed Snakemake do."""
    process, started, child, parent = served.waiting(tmp_path / "file")
    os.kill({"command": process.pid, "worker": parent, "owner": served.owner.pid}[who], signal.SIGKILL)
    if who == "owner":
        served.owner.wait()
        (tmp_path / "file.end").touch()
        assert ended(process)[0] == 0
        until(lambda: gone(parent))
        return
    until(lambda: gone(started) and gone(child))
    code, _, err = ended(process)
    if who == "worker":
        assert (code, err) == (75, f"{COMMAND}: the worker was killed; run the same command again\n")
    inside = ALONE if who == "worker" else INSIDE
    assert ended(served.run("end")) == (0, f"end {inside}", ""), "the next command runs alone, or in the worker"
