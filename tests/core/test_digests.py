"""Checksums of a state of a run and of a model folder, and the lock by which two processes never write one run."""

import subprocess
import sys
from pathlib import Path

import pytest

from core import digests
from core.errors import BusyError, CorruptInputError, MissingInputError
from core.files import is_locked, locked, write_json
from core.provenance import ROOT

FILES = {"model.safetensors": bytes(range(256)) * 8, "config.json": b"{}\n", "sub/part one.bin": b"\0", "empty": b""}
# As records have them: sha256 of the lines `<name>\\0<sha256>`, sorted by the parts of the name.
TREES = {
    "*": "b43dcebfe2d3639b92bc195bda0d45fbeeb5b1d45918461407494e70133e7f57",
    "*.safetensors": "2d70cde30b174fa5e43df1bfb6dbb33ecd3387e55d2dd01c1bb3918450908139",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, data in FILES.items():
        path = tmp_path / "folder" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    digests.write_folder(tmp_path / "folder")
    return tmp_path / "folder"


def flip(path: Path, share: float) -> None:
    """Change the one bit of a file that lies so far into it."""
    data = bytearray(path.read_bytes())
    bit = int(share * 8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(bytes(data))


def test_a_whole_folder_passes_and_a_missing_extra_or_changed_file_is_named(folder: Path) -> None:
    done = subprocess.run(["sha256sum", "-c", "--strict", digests.SUMS], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(": OK\n")) == (0, len(FILES)), done.stderr
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").touch()  # hidden files do not count
    digests.check_folder(folder)
    assert {pattern: digests.tree(digests.of_folder(folder), pattern) for pattern in TREES} == TREES
    for name in (*FILES, digests.SUMS, "chat_template.jinja"):
        path = folder / name
        before = path.read_bytes() if path.exists() else None
        path.write_text("{{ x }}") if before is None else path.unlink()
        with pytest.raises((CorruptInputError, MissingInputError), match=str(path)):
            digests.check_folder(folder)
        path.unlink() if before is None else path.write_bytes(before)
        if before:
            for share in (0.0, 0.5, 0.999):
                flip(path, share)
                with pytest.raises(CorruptInputError, match=rf"^({path}|.*SHA256SUMS).*$"):
                    digests.check_folder(folder)
                path.write_bytes(before)


def test_a_model_folder_is_what_its_record_has(tmp_path: Path) -> None:
    folder, record = tmp_path / "checkpoints" / "step8", tmp_path / "run.json"
    folder.mkdir(parents=True)
    files = {"model.safetensors": bytes(200), "config.json": b"{}"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    found = digests.of_folder(folder)
    write_json(record, {"outputs": {"checkpoints/step8": digests.tree(found)}})
    assert digests.check_model(folder, record) == found == digests.check_model(folder)
    for name, data in files.items():
        for damage in (b"", b"x" + data[1:], None):
            (folder / name).unlink() if damage is None else (folder / name).write_bytes(damage)
            with pytest.raises(CorruptInputError, match=r"remove .*run\.json to have it made again"):
                digests.check_model(folder, record)
        (folder / name).write_bytes(data)
    write_json(record, {})
    with pytest.raises(CorruptInputError, match="not a record of weights"):
        digests.check_model(folder, record)
    with pytest.raises(MissingInputError, match="model folder is missing"):
        digests.check_model(tmp_path / "none", record)


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


def test_another_process_is_refused_or_waits_and_a_killed_one_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "state" / "lock"
    process = owner(path, 5)
    assert is_locked(path)
    with pytest.raises(BusyError, match="this run is busy"), locked(path, "this run is busy"):
        pass
    with locked(path, "busy", wait=600):
        assert process.wait() == 0
    killed = owner(path, 600)
    killed.kill()
    killed.wait()
    with pytest.raises(ValueError, match="mine"), locked(path, "busy"):
        raise ValueError("mine")
    assert not is_locked(path)
