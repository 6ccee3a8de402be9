"""The training prompts as a file: what RL reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from evals import arithmetic
from models.prompts import arithmetic_rows
from records.files import read_jsonl
from records.provenance import ROOT


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "models.prompts", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_file_holds_the_training_problems_as_the_model_reads_them(tmp_path: Path) -> None:
    out = tmp_path / "prompts.jsonl"
    done = command("--ladder", "quick", "--count", "60", "--seed", "4", "--out", str(out))
    assert done.returncode == 0, done.stderr
    written = read_jsonl(out)
    assert written == arithmetic_rows("quick", 60, 4)
    for row, problem in zip(written, arithmetic.training_prompts("quick", 60, 4), strict=True):
        assert row["prompt"] == arithmetic.prompt_string(problem.prompt)
        assert row["answer"] == problem.answer
        assert (row["family"], row["k"]) == (problem.family, problem.k)
        assert not arithmetic.is_test(problem.prompt)


def test_errors_are_one_line(tmp_path: Path) -> None:
    done = command("--ladder", "quik", "--count", "5", "--out", str(tmp_path / "x"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nearest: quick" in done.stderr
    assert (
        "--count: must be a whole number"
        in command("--ladder", "quick", "--count", "0", "--out", str(tmp_path / "x")).stderr
    )
