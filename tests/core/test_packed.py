"""Records and curves of all runs in one file each: what comes back is what went in."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from core import packed
from core.errors import CorruptInputError, MissingInputError
from core.files import content, read_csv, read_json, stored
from core.provenance import sha256_file

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


def test_numbers_as_older_references_have_them_come_back_as_the_trainer_wrote_them(root: Path) -> None:
    loss, entropy = [np.float32(0.1), np.float32(1e-3)], [0.1, None]
    table = {"run": [NAMES[0]] * 2, "rollout": [1, 2], "loss": pa.array(loss, pa.float32()), "entropy": entropy}
    (root / "runs" / packed.CURVES).write_bytes(packed.parquet(pa.table(table)))
    text = b"rollout,loss,entropy\n1,0.10000000149011612,0.1\n2,0.0010000000474974513,\n"
    assert content(listed(root) / "runs" / NAMES[0] / "curve.csv") == text


def test_equal_curves_give_an_equal_file(root: Path) -> None:
    curves = {name: curve(name) for name in NAMES}
    packed.write_curves(root / "runs", curves)
    before = (root / "runs" / packed.ROLLOUTS).read_bytes()
    packed.write_curves(root / "runs", dict(reversed(curves.items())))
    assert (root / "runs" / packed.ROLLOUTS).read_bytes() == before


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


def test_a_runs_own_file_comes_first(root: Path) -> None:
    packed.write_curves(root / "runs", {name: curve(name) for name in NAMES})
    own = listed(root) / "runs" / NAMES[0] / "curve.csv"
    own.parent.mkdir(parents=True)
    own.write_bytes(b"mine\n")
    assert (stored(own), content(own)) == (own, b"mine\n")


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
