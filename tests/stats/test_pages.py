"""docs/results.md names every column that the code writes, in the code's order, and no other."""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from evals.stats.scorefile import AVERAGES

DOCS = Path(__file__).resolve().parents[2] / "docs"
OWNERS = {
    "samples": ("evals.stats.responses", "SAMPLE_COLUMNS"),
    "grades": ("evals.stats.responses", "GRADE_COLUMNS"),
    "scores.csv": ("evals.score", "COLUMNS"),
    "curve.csv": ("methods.training.run_folder", "COLUMNS"),
    "tidy.csv": ("report.tables.render", "TIDY"),
    "figures/&lt;figure&gt;.csv": ("report.figures.fill", "HEADER"),
    "seeds.csv": ("report.figures.fill", "SEED_HEADER"),
    "convergence.csv": ("report.convergence", "RUN_HEADER"),
    "convergence_methods.csv": ("report.convergence", "METHOD_HEADER"),
}


def documented(word: str) -> list[str]:
    """First cells of the table under the heading that contains `word`."""
    sections = re.split(r"^## ", (DOCS / "results.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    (section,) = (s for s in sections if word in s.splitlines()[0])
    return re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)


@pytest.mark.parametrize("word", OWNERS)
def test_columns_are_those_of_the_code(word: str) -> None:
    module, constant = OWNERS[word]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not there")
    assert documented(word) == list(getattr(importlib.import_module(module), constant))


def test_run_record_keys_are_those_of_the_architecture() -> None:
    text = (DOCS / "architecture.md").read_text(encoding="utf-8")
    paragraph = text[text.index("`run.json` (written last") :].split("\n\n")[0]
    named = re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", paragraph.replace("`run.json`", "")))
    assert set(documented("run.json")) == set(named)


def test_the_page_names_every_average() -> None:
    text = (DOCS / "results.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in AVERAGES)
