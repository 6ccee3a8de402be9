"""The printed tables as data: typed twice, checked against the paper's text; the kept audit follows from them."""

# ruff: noqa: E501

import re
import shutil
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from core.errors import BenchError
from paper import printed
from paper.audit import KEPT, as_csv, audit, copies
from paper.printed import HEADINGS, TABLES, Row

TEXT = Path(__file__).resolve().parents[2].parent / "shared" / "paper" / "tepo.md"

# Tables 1-4 typed a second time, down the columns instead of along the rows: a slip in one copy is not in the other.
# Table -> heading -> the cells from top to bottom.
COLUMNS = {
    "1": {
        "AIME24": "0.94 11.25 10.83 12.29 11.35 13.54 11.77 12.60 1.35 19.16 22.08 22.70 23.85 24.27 23.85 23.85 24.37 5.21",
        "AIME25": "0.94 5.00 7.40 8.23 6.15 6.04 6.04 8.75 3.75 16.77 19.06 20.10 19.06 18.54 19.89 20.41 23.75 4.69",
        "AMC": "14.34 42.80 42.84 42.77 43.18 43.29 42.77 43.48 5.68 51.01 55.94 54.96 56.47 55.87 57.34 56.58 58.96 3.02",
        "MATH-500": "43.20 76.60 75.60 75.60 74.80 75.00 75.80 77.40 0.80 82.80 85.60 86.00 86.40 85.20 84.40 86.00 86.40 0.80",
        "OMNI-MATH": "13.73 25.00 26.11 25.64 26.14 26.28 25.72 27.17 2.17 30.27 33.01 32.94 32.87 33.04 32.22 33.54 35.11 2.10",
        "OlympiadBench": "16.74 37.92 39.40 39.11 40.14 40.44 38.37 40.44 2.52 43.40 44.00 43.55 43.85 42.37 43.55 44.44 46.37 2.37",
        "Minerva": "21.69 33.08 37.86 34.92 36.02 34.55 35.66 34.92 1.84 45.95 47.79 45.58 47.79 48.52 47.05 48.52 49.26 1.47",
        "Avg.": "13.30 30.85 31.64 31.60 31.62 31.91 31.33 32.59 1.74 38.34 41.51 41.29 41.85 41.56 42.16 42.28 44.02 2.51",
    },
    "2": {
        "AIME24": "12.70 27.50 25.72 - - - 29.89 32.08 32.70",
        "AIME25": "13.33 18.43 18.85 - - - 20.93 23.33 24.58",
        "AMC": "46.49 61.89 60.84 2.18 3.13 3.58 59.48 66.10 66.41",
        "MATH-500": "70.40 78.40 79.60 9.80 10.80 12.80 83.40 87.80 87.80",
        "OMNI-MATH": "25.50 32.97 33.11 3.98 4.27 4.59 33.86 38.42 39.55",
        "OlympiadBench": "36.88 41.62 43.55 1.19 2.37 1.93 42.66 47.70 49.92",
        "Minerva": "23.52 26.10 29.77 5.88 8.09 8.09 34.19 40.44 40.80",
        "Avg.": "32.46 42.23 42.76 2.77 3.37 3.65 43.23 45.99 48.60",
    },
    "3": {
        "AIME24": "12.70 0.00 5.52 11.45 12.29 11.45 13.02 11.97 12.70 10.83 12.29 11.35 11.25 13.54 11.04 11.08 11.77 12.50 12.70 11.35 13.43 12.60",
        "AIME25": "6.35 0.00 3.96 7.40 8.96 5.63 5.94 5.63 5.63 7.40 8.23 6.15 5.00 6.04 6.77 6.67 6.04 5.52 6.35 4.37 5.73 8.75",
        "AMC": "43.56 0.00 42.84 42.24 42.24 43.18 42.80 41.94 41.64 42.84 42.77 43.18 42.80 43.29 42.80 42.44 42.77 43.18 43.56 42.62 44.05 43.48",
        "MATH-500": "75.40 0.00 75.60 76.20 77.20 76.20 76.60 72.40 76.00 75.60 75.60 74.80 76.60 75.00 74.80 73.40 75.80 76.00 75.40 76.40 75.60 77.40",
        "OMNI-MATH": "27.00 0.00 22.41 26.32 25.89 26.53 26.85 25.75 26.82 26.11 25.64 26.14 25.00 26.28 26.96 25.11 25.72 26.57 27.00 26.11 26.25 27.17",
        "OlympiadBench": "39.55 0.00 32.74 40.59 40.11 37.33 38.37 36.29 37.03 39.40 39.11 40.14 37.92 40.44 38.51 39.11 38.37 38.96 39.55 39.25 38.81 40.44",
        "Minerva": "37.50 0.00 30.88 33.82 36.39 37.50 37.13 35.29 36.39 37.86 34.92 36.02 33.08 34.55 32.72 35.66 35.66 36.39 37.50 35.66 35.66 34.92",
        "Avg.": "32.21 0.00 26.25 31.64 31.81 31.61 31.65 30.68 31.30 31.64 31.60 31.62 30.85 31.91 31.58 30.95 31.33 31.80 32.21 31.47 32.03 32.59",
    },
    "4": {
        "AIME24": "11.56 11.25 12.08 12.08 12.50 12.60 11.41 12.08 12.55",
        "AIME25": "6.25 5.00 7.08 6.98 7.60 8.75 5.63 7.03 8.18",
        "AMC": "40.47 42.80 42.65 41.67 45.18 43.48 41.64 42.16 44.33",
        "MATH-500": "72.40 76.60 76.20 74.20 77.80 77.40 74.50 75.20 77.60",
        "OMNI-MATH": "26.00 25.00 26.07 27.42 26.78 27.17 25.50 26.75 26.98",
        "OlympiadBench": "37.77 37.92 39.85 39.85 41.03 40.44 37.85 39.85 40.74",
        "Minerva": "36.76 33.08 37.86 36.76 38.97 34.92 34.92 37.31 36.95",
        "Avg.": "30.30 30.85 31.73 31.69 32.62 32.59 30.58 31.71 32.61",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def paper() -> dict[str, Row]:
    return printed.read()


@pytest.fixture(scope="module")
def text() -> str:
    if not TEXT.is_file():
        pytest.skip(f"the paper's text is not at {TEXT}")
    return TEXT.read_text(encoding="utf-8")


@pytest.mark.parametrize("table", sorted(COLUMNS))
def test_rows_equal_the_second_transcription(paper: dict[str, Row], table: str) -> None:
    rows = [row for row in paper.values() if row.table == table]
    for key, heading in HEADINGS.items():
        assert [row.text(key) for row in rows] == COLUMNS[table][heading].split(), f"Table {table}, {heading}"


@pytest.mark.parametrize("table", sorted(COLUMNS))
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
    assert as_csv(audit(printed.read())) == KEPT.read_text(encoding="utf-8"), "run: python -m paper.audit"
