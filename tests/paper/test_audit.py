"""The audit finds planted defects by itself, each as what it is, and leaves a clean table clean."""

from __future__ import annotations

from pathlib import Path

from paper import arithmetic, printed
from paper.arithmetic import CLEAN, Finding, as_csv
from paper.audit import KEPT, audit
from paper.printed import printed as prints
from tests.paper import synthetic

ROOT = Path(__file__).resolve().parents[2]


def _audit(folder: Path) -> list[Finding]:
    paper = printed.read(folder)
    return [*arithmetic.cells(paper), *arithmetic.averages(paper)]


def _open(findings: list[Finding]) -> set[tuple[str, str, str, str]]:
    return {(f.check, f.row, f.cell, f.status) for f in findings if f.status not in CLEAN}


def test_clean_tables_stay_clean(tmp_path: Path) -> None:
    assert not _open(_audit(synthetic.write(tmp_path)))


PLANTED = {
    "average five points off": ("T1.3", "Avg.", "38.60", {("average", "T1.3", "Avg.", "outside")}),
    "cell that no count gives": ("T1.3", "OlympiadBench", "38.90", {("count", "T1.3", "OlympiadBench", "undecodable")}),
}


def test_planted_defect_is_found_and_nothing_else(tmp_path: Path) -> None:
    for case, (row, heading, text, expected) in PLANTED.items():
        assert _open(_audit(synthetic.write(tmp_path, {(row, heading): text}))) == expected, case


def test_unlike_number_of_right_copies_is_unlikely(tmp_path: Path) -> None:
    total = sum(synthetic.COUNTS["T1.4"]) + 10
    average = prints(total, synthetic.RESPONSES)[0]
    found = [f for f in _audit(synthetic.write(tmp_path, {("T1.4", "Avg."): average})) if f.check == "average"]
    assert {f.row: f.status for f in found if f.status != "ok"} == {"T1.4": "unlikely"}


def test_not_run_counts_as_zero_in_the_average(tmp_path: Path) -> None:
    counts = synthetic.COUNTS["T1.3"]
    average = prints(sum(counts[2:]) + 4, synthetic.RESPONSES)[0]
    folder = synthetic.write(tmp_path, {("T1.3", "AIME24"): "-", ("T1.3", "AIME25"): "-", ("T1.3", "Avg."): average})
    assert 4 in arithmetic.copies(printed.read(folder)["T1.3"])


def test_known_row_of_the_paper_follows() -> None:
    """Table 1, TEPO 7B: 121, 84, 1155, 387, 764, 273, 95 right, 2,879 together, 3 or 4 of the copies."""
    row = printed.read()["T1.8"]
    assert arithmetic.right(row) == (2879, 2879)
    assert arithmetic.copies(row) == [3, 4]


def test_the_kept_audit_is_what_the_command_writes() -> None:
    assert as_csv(audit(printed.read())) == KEPT.read_text(encoding="utf-8"), "run: python -m paper.audit"
