"""`python -m evals.grade` on invented samples of a generated benchmark: files, errors, going on, determinism."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.errors import ConfigError
from core.provenance import ROOT
from evals import data
from evals.benchmark import benchmark
from evals.grade import grade
from evals.grading import Verdict

KEY = "syn_mix3"
K = 2


Rows = dict[str, list[Any]]


def _rows(folder: Path, *, symbolic: bool = False) -> Rows:
    found: Rows = {"item_id": [], "sample": [], "prompt": [], "prompt_sha256": [], "response": [], "stop": []}
    for item in data.load(benchmark(KEY), folder):
        for sample in range(K):
            right = (len(item.item_id) + sample) % 2 == 0
            found["item_id"].append(item.item_id)
            found["sample"].append(sample)
            found["prompt"].append(item.problem)
            found["prompt_sha256"].append(hashlib.sha256(item.problem.encode()).hexdigest())
            found["response"].append(f"so \\boxed{{{item.answer if right else item.answer + '1'}}}")
            found["stop"].append("stop")
    found["response"][0] = "It is 5."
    found["response"][1], found["stop"][1] = r"so \boxed{", "length"
    found["response"][2] = r"\boxed{\sqrt{4}\cdot y}" if symbolic else r"\boxed{y}"
    return found


def _write(folder: Path, rows: Rows) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{KEY}.parquet"
    pq.write_table(pa.table(rows), path)
    entry = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rows": len(rows["item_id"])}
    (folder / "samples.json").write_text(json.dumps({"benchmarks": {KEY: entry}}))
    return folder


@pytest.fixture
def samples(tmp_path: Path, quick_data: Path) -> Path:
    return _write(tmp_path / "samples", _rows(quick_data))


def test_one_verdict_per_response(samples: Path, quick_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "grades"
    grade(samples, quick_data, out)
    table = pq.read_table(out / f"{KEY}.parquet").to_pydict()
    asked = pq.read_table(samples / f"{KEY}.parquet").to_pydict()
    assert (table["item_id"], table["sample"]) == (asked["item_id"], asked["sample"])
    assert table["verdict"][:4] == ["no_answer", "truncated", "wrong", "wrong"]
    assert table["verdict"].count("correct") == len(table["verdict"]) // 2 - 2
    assert table["extracted"][:2] == [None, None]
    entry = json.loads((out / "grades.json").read_text())["benchmarks"][KEY]
    assert entry["rows"] == len(table["verdict"])
    assert entry["sha256"] == hashlib.sha256((out / f"{KEY}.parquet").read_bytes()).hexdigest()
    assert entry["samples_sha256"] == hashlib.sha256((samples / f"{KEY}.parquet").read_bytes()).hexdigest()
    assert entry["verdicts"] == {str(v): table["verdict"].count(str(v)) for v in Verdict}


def test_grades_that_are_there_are_left_alone_until_the_samples_change(
    samples: Path, quick_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grades"
    grade(samples, quick_data, out)
    capsys.readouterr()
    grade(samples, quick_data, out)
    assert "grades are there" in capsys.readouterr().out
    rows = _rows(quick_data)
    rows["response"][0] = r"\boxed{0}"
    _write(samples, rows)
    grade(samples, quick_data, out)
    assert "grades are there" not in capsys.readouterr().out
    (out / f"{KEY}.parquet").write_bytes(b"PAR1")
    grade(samples, quick_data, out)
    assert pq.read_table(out / f"{KEY}.parquet").num_rows == len(rows["item_id"])


def test_broken_text_is_graded_not_refused(quick_data: Path, tmp_path: Path) -> None:
    rows = _rows(quick_data)
    raw = [text.encode() for text in rows["response"]]
    raw[4] = b"\xff\xfe \x00 \\boxed{\xc3}"
    broken = pa.array(raw, pa.binary())
    text = pa.Array.from_buffers(pa.string(), len(raw), broken.buffers())
    out = tmp_path / "grades"
    grade(_write(tmp_path / "samples", {**rows, "response": text}), quick_data, out)
    assert pq.read_table(out / f"{KEY}.parquet")["verdict"].to_pylist()[4] == "wrong"


def test_the_command_grades(samples: Path, quick_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "grades"
    done = subprocess.run(
        [sys.executable, "-m", "evals.grade", "--samples", samples, "--data", quick_data, "--out", out],
        cwd=ROOT, capture_output=True, text=True, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"{KEY}: correct 18" in done.stdout
    assert "40/40" in done.stderr


def test_an_item_with_a_meaningless_tolerance_is_named(
    samples: Path, quick_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    loaded = data.load(benchmark(KEY), quick_data)
    monkeypatch.setattr(data, "load", lambda *_: [replace(item, tolerance="wide") for item in loaded])
    with pytest.raises(ConfigError, match=rf"{KEY}: item {loaded[0].item_id}: .*'wide'"):
        grade(samples, quick_data, tmp_path / "grades")
