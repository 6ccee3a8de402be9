"""docs/results.md names every column that the code writes, in the code's order, and no other."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pyarrow.parquet as pq

from core import digests
from core.files import read_json
from core.scores import AVERAGES
from evals.grading import Grade, Rule, Verdict
from evals.store import SampleFile, write_grades
from tests.evals.stats.fixtures import GRADE_COLUMNS

DOCS = Path(__file__).resolve().parents[3] / "docs"
OWNERS = {
    "samples": ("tests.evals.stats.fixtures", "SAMPLE_COLUMNS"),
    "grades": ("tests.evals.stats.fixtures", "GRADE_COLUMNS"),
    "scores.csv": ("core.scores", "COLUMNS"),
    "curve.csv": ("methods.training.curve", "COLUMNS"),
    "tidy.csv": ("report.tables.tidy", "TIDY"),
    "robust.csv": ("report.rliable", "HEADER"),
    "figures/&lt;figure&gt;.csv": ("report.figures.drawing", "HEADER"),
    "convergence.csv": ("evals.learning_curves", "RUN_HEADER"),
    "convergence_methods.csv": ("evals.learning_curves", "METHOD_HEADER"),
}


def documented(word: str) -> list[str]:
    """Names in the first cells of the table under the heading that contains `word`; a cell may hold several."""
    sections = re.split(r"^## ", (DOCS / "results.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    (section,) = (s for s in sections if word in s.splitlines()[0])
    cells = re.findall(r"^\| (`[^|]+`) \|", section, flags=re.MULTILINE)
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_columns_are_those_of_the_code() -> None:
    for word, (module, constant) in OWNERS.items():
        assert documented(word) == list(getattr(importlib.import_module(module), constant)), word


def test_the_grades_columns_are_those_that_are_written(tmp_path: Path) -> None:
    samples = SampleFile(tmp_path, "0" * 64, ("a",), (0,), ("1",), ("stop",))
    write_grades(tmp_path / "grades.parquet", samples, [Grade(Verdict.CORRECT, "1", "1", Rule.STRING, 0.0)], "1")
    assert tuple(pq.read_schema(tmp_path / "grades.parquet").names) == GRADE_COLUMNS


def test_run_record_keys_are_those_of_a_run() -> None:
    record = read_json(DOCS.parent / "results/reference/embedded/runs/tiny_qwen2/tepo/seed1/run.json")
    # the kept reference is older than these
    assert set(documented("run.json")) == {*record, digests.OWN, "no_update"}


def test_the_page_names_every_average() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in AVERAGES)
