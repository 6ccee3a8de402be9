"""The printed tables as data: those of the paper's text, and what the kept audit was computed from."""

import re
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from core.errors import BenchError
from core.files import to_csv
from paper import printed
from paper.audit import COLUMNS, KEPT, audit, copies
from paper.printed import HEADINGS, TABLES, Row

TEXT = Path(__file__).resolve().parents[2].parent / "shared" / "paper" / "tepo.md"


@pytest.fixture(scope="module")
def paper() -> dict[str, Row]:
    return printed.read()


@pytest.fixture(scope="module")
def text() -> str:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    return TEXT.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", ["1", "2", "3", "4"])
def test_cells_and_labels_equal_the_text_of_the_paper(paper: dict[str, Row], text: str, table: str) -> None:
    rows = [row for row in paper.values() if row.table == table]
    start = text.index(f"Table {table}: ")
    lines = [line.split("\t") for line in text[start:].splitlines()]
    body = [line for line in lines if len(line) == 9 and line[-1] not in ("Avg.", "")][: len(rows)]
    assert [line[0] for line in body] == [row.label for row in rows]
    for line, row in zip(body, rows, strict=True):
        assert line[1:] == [row.text(key) for key in HEADINGS], row.id


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("**", ""))


def test_row_counts_are_those_of_the_run_list(paper: dict[str, Row]) -> None:
    kinds = [row.kind for row in paper.values()]
    assert (len(kinds), kinds.count("delta"), kinds.count("mean"), kinds.count("base")) == (58, 2, 3, 5)
    trained = [row.run for row in paper.values() if row.kind == "run"]
    assert (len(trained), len(set(trained))) == (48, 38)


def test_rows_name_methods_of_the_catalog_and_methods_that_claim_a_row_have_one(paper: dict[str, Row]) -> None:
    from methods import catalog

    trained = {row.id: row.run.method for row in paper.values() if row.kind == "run" and row.run}
    assert {row: catalog.parse(text).key for row, text in trained.items()} == trained
    in_rows = {text.split("+")[0] for text in trained.values()}
    assert {key for key, entry in catalog.entries().items() if entry.paper_rows} == in_rows
    for alias, (key, settings) in catalog.aliases().items():
        spelt = "+".join([key, *(f"{name}={value}" for name, value in settings.items())])
        assert catalog.parse(alias).key == catalog.parse(spelt).key, alias


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("table1.csv", "AIME25", "AIME26", ("table1.csv", "AIME25", "nearest")),
        ("table1.csv", "row,label", "row,label,extra", ("line 2",)),
        ("table3.csv", "T3.8,w. Min-Entropy,11.97,5.63,41.94,72.40,25.75,36.29,35.29,30.68\n", "", ("T3.8",)),
        ("table3.csv", "41.94", "41.9", ("table3.csv", "'41.9'")),
        ("rows.csv", "T1.9,,delta,q7,,,,T1.8 T1.2", "T1.9,,delta,q7,,,,T1.8 T1.11.2", ("rows.csv", "T1.11.2")),
        ("rows.csv", "q7,gpg,2,72", "q7,gpg,two,72", ("rows.csv", "two")),
    ],
)  # fmt: skip
def test_bad_input_is_named(tmp_path: Path, name: str, old: str, new: str, words: tuple[str, ...]) -> None:
    folder = shutil.copytree(TABLES, tmp_path / "tables")
    content = (folder / name).read_text(encoding="utf-8")
    assert old in content
    (folder / name).write_text(content.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BenchError) as error:
        printed.read(folder)
    for word in words:
        assert word in str(error.value)


def test_candidates() -> None:
    for percent, n, counts in (
        ("19.16", 960, (184,)),  # truncated
        ("19.17", 960, (184,)),  # rounded
        ("1.19", 675, (8,)),  # rounded up from 1.185
        ("0.94", 960, (9,)),
        ("0.00", 960, (0,)),
        ("100.00", 272, (272,)),
        ("21.69", 272, (59,)),
        ("37.10", 272, ()),  # between 100/272 = 36.76 and 101/272 = 37.13
        ("2.77", 8844, (245,)),
    ):
        assert printed.candidates(percent, n) == counts
    for n in (272, 500, 675, 960, 2656):
        assert all(k in printed.candidates(text, n) for k in range(n + 1) for text in printed.printed(k, n))
    assert printed.candidates("27.17", 28110) == tuple(k for k in range(28111) if "27.17" in printed.printed(k, 28110))


def test_all_ten_copies_may_be_right(paper: dict[str, Row]) -> None:
    """2,879 responses of TEPO 7B (Table 1) are right in the columns."""
    row = paper["T1.8"]
    average = Decimal(printed.printed(2879 + 10, 8844)[0])
    assert copies(replace(row, cells={**row.cells, "avg": average})) == [10]


def test_the_kept_audit_is_what_the_command_writes() -> None:
    assert to_csv(COLUMNS, audit(printed.read())) == KEPT.read_text(encoding="utf-8"), "run: python -m paper.audit"
