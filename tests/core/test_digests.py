"""What was written is what is read, also from packed files: any bit, cut, empty, missing or extra file is named."""

import json
import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core import digests, packed, provenance
from core.errors import CorruptInputError, MissingInputError
from core.files import content, read_csv, read_json, stored, write_json
from core.provenance import sha256_file

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


HEADER = "rollout,update,loss,entropy,clip,nothing"
NAMES = [f"tiny/tepo@hot/seed{seed}" for seed in (1, 2, 11)] + ["tiny/grpo+beta=0.1/seed1"]


def curve(name: str, rows: int = 40) -> bytes:
    """Numbers in any form, a fraction that repeats, and cells that are empty."""
    draw = random.Random(name)
    lines = [HEADER]
    for row in range(rows):
        cells = (row // 8 + 1, row, draw.choice([-0.0, 1e-45, "3.00"]), draw.choice([draw.random(), 5e-324, "inf", ""]))
        lines.append(",".join(map(str, (*cells, draw.randint(0, 3) / 3, ""))))
    return ("\n".join(lines) + "\n").encode()


def listed(root: Path) -> Path:
    """`root` with a manifest of the files of all runs."""
    files = {
        p.relative_to(root).as_posix(): {"sha256": sha256_file(p)} for p in (root / "runs").iterdir() if p.is_file()
    }
    (root / packed.MANIFEST).write_text(json.dumps({"files": files}), encoding="utf-8")
    return root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    return tmp_path


def test_curves_come_back_byte_for_byte(root: Path) -> None:
    curves = {name: curve(name, rows) for name, rows in zip(NAMES, (40, 8, 1, 24), strict=True)}
    assert packed.write_curves(root / "runs", curves) == []
    listed(root)
    for name, data in curves.items():
        path = root / "runs" / name / "curve.csv"
        assert stored(path) == root / "runs" / packed.ROLLOUTS
        assert content(path) == data
        cell = next(row["loss"] for row in read_csv(path, "curve", ("loss",)))
        assert cell == data.split(b"\n")[1].split(b",")[2].decode()
    before = (root / "runs" / packed.ROLLOUTS).read_bytes()
    packed.write_curves(root / "runs", dict(reversed(curves.items())))
    assert (root / "runs" / packed.ROLLOUTS).read_bytes() == before, "equal curves give an equal file"
    own = root / "runs" / NAMES[0] / "curve.csv"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine\n")
    assert (stored(own), content(own)) == (own, b"mine\n"), "a run's own file comes first"


ODD = {
    "another column": lambda data: data.replace(b"nothing", b"more"),
    "no end of the last line": lambda data: data[:-1],
    "line ends of another system": lambda data: data.replace(b"\n", b"\r\n"),
    "a cell too many": lambda data: data.replace(b"\n1,0,", b"\n1,0,0,", 1),
    "not UTF-8": lambda data: data.replace(b"\n1,0,", b"\n1,\xff,", 1),
    "no rows": lambda data: data.partition(b"\n")[0] + b"\n",
    "nothing": lambda data: b"",
}


@pytest.mark.parametrize("what", ODD)
def test_what_would_not_come_back_as_it_is_is_left_out(what: str, root: Path) -> None:
    for odd in (min(NAMES), max(NAMES)):  # the first name, or the last: neither decides for the others
        curves = {name: curve(name) for name in sorted(NAMES)}
        curves[odd] = ODD[what](curves[odd])
        assert packed.write_curves(root / "runs", curves) == [odd]
        listed(root)
        assert stored(root / "runs" / odd / "curve.csv") is None
        for name in set(NAMES) - {odd}:
            assert content(root / "runs" / name / "curve.csv") == curves[name]


def test_records_come_back_with_every_value(root: Path) -> None:
    records = {
        name: {"seed": 1, "seconds": 0.1 + 0.2, "none": None, "words": "größer", "on": [True, {}]} for name in NAMES
    }
    packed.write_records(root / "runs", records)
    listed(root)
    assert packed.runs(root) == sorted(NAMES)
    for name in NAMES:
        assert read_json(root / "runs" / name / "run.json") == records[name]
    with pytest.raises(MissingInputError, match=r"seed3/run\.json: file is missing"):
        read_json(root / "runs/tiny/tepo/seed3/run.json")


def test_nothing_is_looked_for_where_no_reference_is(tmp_path: Path) -> None:
    assert packed.runs(tmp_path) == []
    for name in ("run.json", "runs/a/b/seed1/run.json", "runs/a/b/seed1/curve.csv", "curve.csv"):
        assert stored(tmp_path / name) is None
        assert stored(name) is None
        with pytest.raises(MissingInputError, match=name):
            content(tmp_path / name)


def test_a_file_that_the_manifest_does_not_know_is_not_read(root: Path) -> None:
    packed.write_records(root / "runs", {NAMES[0]: {}})
    with pytest.raises(CorruptInputError, match=r"manifest\.json: does not give the sha256 of runs/records"):
        packed.runs(root)
    listed(root)
    (root / "runs" / packed.RECORDS).write_bytes(b"?")
    with pytest.raises(CorruptInputError, match=r"records\.json\.gz: damaged"):
        packed.runs(root)
    listed(root)
    with pytest.raises(CorruptInputError, match=r"records\.json\.gz: not what a reference keeps"):
        packed.runs(root)
