"""`snakemake --report`: one file that opens without a network and holds tables, figures and claims with their words."""

from __future__ import annotations

import re

import pytest

from report import captions
from tests.report.conftest import make
from tests.workflow.conftest import copy_of, run_snakemake

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an invented tree: Snakemake asks for the outputs and not for how they came to be."""
    copy = copy_of(tmp_path_factory.mktemp("copy") / "clone")
    make(copy / "results/quick", (1,))
    done = run_snakemake(copy, "--configfile", "config/quick.yaml", "--report", "results/quick/snakemake.html")
    assert done.returncode == 0, done.stderr
    return (copy / "results/quick/snakemake.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["table1.html", "table1.csv", "figure2.svg", "figure3.svg", "claims.csv"])
def test_it_holds_the_results(name: str, native: str) -> None:
    assert f'"name": "{name}"' in native


def words(text: str) -> list[str]:
    """Letters only: the report turns markup and quotes into its own."""
    return re.findall(r"[A-Za-z]{3,}", re.sub(r"<[^>]+>|\\u[0-9a-f]{4}|&[a-z]+;", " ", text))


@pytest.mark.parametrize("name", ["table1", "figure2", "figure3", "claims"])
def test_each_has_its_caption(name: str, native: str) -> None:
    said = " ".join(words(native))
    assert captions.paragraphs(name)
    for paragraph in captions.paragraphs(name):
        assert " ".join(words(paragraph)) in said


def test_nothing_of_it_is_loaded_from_elsewhere(native: str) -> None:
    assert not re.search(r"<(?:script|link|img)[^>]+(?:src|href)=[\"']?https?:", native)
