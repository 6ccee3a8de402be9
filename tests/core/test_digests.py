"""Checksums: of a state of a run, and of a model folder against the record of who made it."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import digests, provenance
from core.errors import CorruptInputError, MissingInputError
from core.files import write_json

FILES = {"model.safetensors": bytes(range(256)) * 8, "config.json": b"{}\n", "sub/part one.bin": b"\0", "empty": b""}


def sha256_tree(folder: Path, pattern: str = "*") -> str:
    """As `digests.tree`, written again."""
    names = sorted(path.relative_to(folder) for path in folder.rglob(pattern) if path.is_file())
    lines = [
        f"{name.as_posix()}\0{provenance.sha256_file(folder / name)}\n"
        for name in names
        if "/." not in f"/{name}" and name.name != digests.SUMS
    ]
    return provenance.sha256_bytes("".join(lines).encode())


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


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from([*(name for name in FILES if FILES[name]), digests.SUMS]),
    share=st.floats(0, 0.999),
    cut=st.booleans(),
)
def test_a_flipped_bit_or_a_cut_of_any_file_is_named(name: str, share: float, cut: bool, folder: Path) -> None:
    path = folder / name
    before = path.read_bytes()
    path.write_bytes(before[: int(share * len(before))]) if cut else flip(path, share)
    try:
        with pytest.raises((CorruptInputError, MissingInputError)) as caught:
            digests.check_folder(folder)
    finally:
        path.write_bytes(before)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value) or "SHA256SUMS" in str(caught.value)


def test_a_whole_folder_passes_and_a_missing_or_extra_file_is_named(folder: Path) -> None:
    digests.check_folder(folder)
    done = subprocess.run(["sha256sum", "-c", "--strict", digests.SUMS], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(": OK\n")) == (0, len(FILES)), done.stderr
    for name in (*FILES, digests.SUMS):
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises((CorruptInputError, MissingInputError)) as caught:
            digests.check_folder(folder)
        assert str(folder / name) in str(caught.value)
        (folder / name).write_bytes(before)
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").touch()  # hidden files do not count
    digests.check_folder(folder)
    for pattern in ("*", "*.safetensors", "*.bin", "*.nothing"):
        assert digests.tree(digests.of_folder(folder), pattern) == sha256_tree(folder, pattern)
    (folder / "chat_template.jinja").write_text("{{ x }}")
    with pytest.raises(CorruptInputError, match=r"chat_template\.jinja: extra "):
        digests.check_folder(folder)


@pytest.mark.parametrize("by", ["run", "base"])
def test_a_model_folder_is_what_its_record_has(by: str, tmp_path: Path) -> None:
    folder, record = tmp_path / "checkpoints" / "step8", tmp_path / f"{by}.json"
    folder.mkdir(parents=True)
    files = {"model.safetensors": bytes(200), "config.json": b"{}"}
    for name, data in files.items():
        (folder / name).write_bytes(data)
    found = digests.of_folder(folder)
    write_json(record, {"outputs": {"checkpoints/step8": digests.tree(found)}} if by == "run" else {"sha256": found})
    assert digests.check_model(folder, record) == found == digests.check_model(folder)
    for name, data in files.items():
        for damage in (b"", b"x" + data[1:], None):
            (folder / name).unlink() if damage is None else (folder / name).write_bytes(damage)
            with pytest.raises(CorruptInputError, match=rf"remove .*{by}\.json to have it made again"):
                digests.check_model(folder, record)
        (folder / name).write_bytes(data)
    write_json(record, {})
    with pytest.raises(CorruptInputError, match="not a record of weights"):
        digests.check_model(folder, record)
    with pytest.raises(MissingInputError, match="model folder is missing"):
        digests.check_model(tmp_path / "none", record)
