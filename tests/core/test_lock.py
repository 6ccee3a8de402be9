"""Two processes never write one run: the lock holds, waits, and ends with its owner."""

import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import BusyError
from core.files import is_locked, locked
from core.provenance import ROOT

OWNER = """
import sys, time
from pathlib import Path
from core.files import locked
with locked(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(float(sys.argv[2]))
"""


def owner(path: Path, seconds: float) -> subprocess.Popen[str]:
    """Another process that holds the lock for so long."""
    command = [sys.executable, "-c", OWNER, str(path), str(seconds)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_another_process_is_refused_with_the_owner_or_waits_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    assert not is_locked(path)
    process = owner(path, 5)
    assert is_locked(path)
    refused = pytest.raises(BusyError, match=rf'this run is busy \(.*"pid": {process.pid}')
    with refused, locked(path, "this run is busy"):
        pass
    with locked(path, "busy", wait=600):
        assert process.wait() == 0
    killed = owner(path, 600)
    killed.kill()
    killed.wait()
    assert not is_locked(path)
    with pytest.raises(ValueError, match="mine"), locked(path, "busy"):
        raise ValueError("mine")
    assert not is_locked(path)
