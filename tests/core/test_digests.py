"""What was written is what is read, also from packed files: any bit, cut, empty, missing or extra file is named."""

import os
import subprocess
from collections.abc import Callable
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
        f"{name.as_posix()}\0{provenance.sha256_file(folder / name)}\n" for name in names if "/." not in f"/{name}"
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


def test_a_whole_folder_passes_and_sha256sum_agrees(folder: Path) -> None:
    found = digests.check_folder(folder)
    assert found.keys() == {*FILES, digests.SUMS}
    done = subprocess.run(["sha256sum", "-c", "--strict", digests.SUMS], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stdout.count(": OK\n")) == (0, len(FILES)), done.stderr


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    assert str(path) in str(caught.value) or (cut and "SHA256SUMS" in str(caught.value))


def test_a_missing_and_an_extra_file_are_named_and_a_hidden_one_is_not(folder: Path) -> None:
    for name in (*FILES, digests.SUMS):
        before = (folder / name).read_bytes()
        (folder / name).unlink()
        with pytest.raises((CorruptInputError, MissingInputError)) as caught:
            digests.check_folder(folder)
        assert str(folder / name) in str(caught.value)
        (folder / name).write_bytes(before)
    (folder / ".cache").mkdir()
    (folder / ".cache/lock").touch()
    for pattern in ("*", "*.safetensors", "*.bin", "*.nothing"):
        assert digests.tree(digests.check_folder(folder), pattern) == sha256_tree(folder, pattern)
    (folder / "chat_template.jinja").write_text("{{ x }}")
    with pytest.raises(CorruptInputError, match=r"chat_template\.jinja: extra, "):
        digests.check_folder(folder)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.9999), which=st.sampled_from(["file", "hash"]))
def test_a_file_alone_and_its_hash_beside_it(
    share: float, which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "syn.jsonl"
    monkeypatch.setattr(os, "fsync", lambda _: None)  # sixty times
    digests.write(path, '{"problem": "1+1", "answer": "é"}\n')
    assert digests.check(path) == provenance.sha256_file(path)
    flip(path if which == "file" else digests.beside(path), share)
    with pytest.raises(CorruptInputError) as caught:
        digests.check(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_from_elsewhere_has_no_hash_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "theirs.jsonl"
    with pytest.raises(MissingInputError, match=r"theirs\.jsonl: missing"):
        digests.check(path)
    path.write_bytes(b"{}\n")
    assert digests.check(path) == provenance.sha256_file(path)


# --- A model folder and the record of who made it ---------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """A run folder with one checkpoint and the record that vouches for it."""
    folder = tmp_path / "checkpoints" / "step8"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"weights")
    write_json(tmp_path / "run.json", {"outputs": {"checkpoints/step8": sha256_tree(folder)}})
    return folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.safetensors").write_bytes(b"weight"), r"step8: differs from its sha256"),
        (
            lambda folder: folder.rename(folder.parent / "gone"),
            r"step8: model folder is missing; remove .*run\.json",
        ),
        (lambda folder: (folder.parents[1] / "run.json").unlink(), r"run\.json: record of the weights is missing"),
        (lambda folder: write_json(folder.parents[1] / "run.json", {}), r"run\.json: neither outputs nor sha256"),
        (lambda folder: write_json(folder.parents[1] / "run.json", {"outputs": {}}), r"step8 is not among"),
    ],
    ids=["truncated", "folder gone", "record gone", "not a record", "other run"],
)
def test_damaged_weights_are_named(trained: Path, damage: Callable[[Path], object], message: str) -> None:
    digests.check_model(trained, trained.parents[1] / "run.json")  # untouched
    damage(trained)
    with pytest.raises((MissingInputError, CorruptInputError), match=message):
        digests.check_model(trained, trained.parents[1] / "run.json")


RECORD = {"schema": 1, "rows": 640, "seconds": 1.5, "note": None, "of": {"a": [0.1, 2e-9], "2": "ä", "10": True}}


def test_a_record_reads_back_as_written_and_old_ones_have_no_hash(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, RECORD)
    assert digests.read_record(path, "run record") == RECORD
    write_json(path, digests.with_own(RECORD | {"by_step": {9: 1, 10: 2}}))  # keys that JSON turns into text
    assert digests.read_record(path, "run record")["by_step"] == {"9": 1, "10": 2}


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 0.9999))
def test_a_flipped_bit_of_a_record_is_named_or_changes_no_value(share: float, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_json(path, digests.with_own(RECORD))
    flip(path, share)
    said = ""
    try:
        value = digests.read_record(path, "run record")
    except CorruptInputError as error:
        said = str(error)
    if said:
        assert said.startswith(f"{path}: ")
        assert "\n" not in said
    else:  # a space, or the name of the hash itself
        assert {key: value[key] for key in RECORD} == RECORD
