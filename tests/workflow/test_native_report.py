"""`snakemake --report`: one file that opens without a network and holds tables, figures and claims with their words."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from report import captions
from tests.report.conftest import make
from tests.workflow.conftest import copy_of, run_snakemake

pytestmark = pytest.mark.slow


def words(text: str) -> str:
    """Letters only: the report turns markup and quotes into its own."""
    return " ".join(re.findall(r"[A-Za-z]{3,}", re.sub(r"<[^>]+>|\\u[0-9a-f]{4}|&[a-z]+;", " ", text)))


def test_it_holds_the_results_and_their_captions(tmp_path: Path) -> None:
    """Of an invented tree: Snakemake asks for the outputs and not for how they came to be."""
    copy = copy_of(tmp_path / "clone")
    make(copy / "results/quick", (1,))
    done = run_snakemake(copy, "--configfile", "config/quick.yaml", "--report", "results/quick/snakemake.html")
    assert done.returncode == 0, done.stderr
    native = (copy / "results/quick/snakemake.html").read_text(encoding="utf-8")
    for name in ("table1.csv", "figure2.svg", "figure3.svg", "claims.csv"):
        assert f'"name": "{name}"' in native, name
    said = words(native)
    for name in ("table1", "figure2", "figure3", "claims"):
        assert captions.paragraphs(name)
        assert [text for text in captions.paragraphs(name) if words(text) not in said] == [], name
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?https?:", native), "loaded from elsewhere"
