"""The paper's two versions side by side: differences by hand, what a planted figure changes, what is unknown."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
import yaml

from paper import printed, sentences, versions
from paper.arithmetic import Finding
from paper.audit import audit, page
from paper.printed import with_cell
from paper.versions import UNKNOWN, VERSIONS
from records.errors import ConfigError
from tests.paper import synthetic

PAPER = printed.read()


def _edited(folder: Path, edit: Callable[[dict], object]) -> Path:
    content = yaml.safe_load(VERSIONS.read_text(encoding="utf-8"))
    edit(content)
    path = folder / "versions.yaml"
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


def _figure(content: dict, id: str) -> dict:
    return next(figure for figure in content["figures"] if figure["id"] == id)


def _by_id(path: Path | str = VERSIONS, paper: printed.Paper = PAPER) -> dict[str, Finding]:
    both = versions.read(path)
    return {f.id: found for f, found in zip(both.figures, versions.findings(paper, both), strict=True)}


def _difference(finding: Finding) -> str:
    return finding.note.split("; ")[0]


def test_what_is_known_by_hand() -> None:
    found = _by_id()
    assert {id: (f.printed, f.admissible, _difference(f)) for id, f in found.items() if f.printed != UNKNOWN} == {
        "average": ("32.04", "32.59", "+0.55"),
        "gain": ("1.74", "1.74", "+0.00"),
        "baseline": ("30.30", "30.85", "+0.55"),
        "math500": ("77.20", "77.40", "+0.20"),
        "average-without-kl": ("32.04", "32.21", "+0.17"),
        "math500-without-kl": ("77.20", "75.40", "-1.80"),
    }
    assert "the same in both versions" in found["gain"].note
    assert [id for id, f in found.items() if "the same in both" in f.note] == ["gain"]


def test_the_implied_baseline_is_a_printed_average_that_contradicts_its_cells() -> None:
    note = _by_id()["baseline"].note
    row = PAPER["T4.1"]
    assert str(row.avg) == "30.30"
    right = sum(printed.candidates(str(row.cells[key]), n)[0] for key, n in printed.COLUMN.items())
    low, high = (Decimal(right + copies) / Decimal("88.44") for copies in (0, 10))
    assert "T4.1" in note
    assert f"({float(low):.2f}..{float(high):.2f})" in note
    # 32.04 less each end
    assert re.search(r"the gain would be 1\.47 to 1\.58", note)


def test_a_figure_that_no_row_repeats_has_no_such_remark(tmp_path: Path) -> None:
    path = _edited(tmp_path, lambda c: _figure(c, "math500").update(earlier="77.25"))
    assert "T3.5" in _by_id()["math500"].note
    assert "prints" not in _by_id(path)["math500"].note


def test_an_average_that_follows_from_its_cells_is_no_contradiction() -> None:
    mended = with_cell(PAPER, "T4.1", "avg", Decimal("30.50"))
    assert "T4.1" not in _by_id(paper=mended)["baseline"].note


def test_unknown_stays_unknown(tmp_path: Path) -> None:
    found = _by_id(_edited(tmp_path, lambda c: _figure(c, "average").update(earlier=None)))
    for id in ("average", "baseline", "aime24"):
        assert (found[id].printed, _difference(found[id])) == (UNKNOWN, UNKNOWN)


def test_the_page_has_a_line_for_each_figure_and_other_tables_no_such_section(tmp_path: Path) -> None:
    both = versions.read()
    text = page(PAPER, audit(PAPER, sentences.read(), both), both)
    section = text.split("## What moved between versions")[1]
    assert section.count("\n| T") == len(both.figures)
    assert len({line.count(" | ") for line in section.splitlines() if line.startswith("|")}) == 1
    assert both.earlier.arxiv in section
    folder = synthetic.write(tmp_path)
    other = printed.read(folder)
    assert "between versions" not in page(other, audit(other, sentences.read(folder / "sentences.yaml")))


BROKEN: dict[str, tuple[Callable[[dict], object], tuple[str, ...]]] = {
    "id twice": (lambda c: c["figures"].append(c["figures"][0]), ("average", "twice")),
    "no number": (lambda c: _figure(c, "gain").update(earlier="about 2"), ("gain", "about 2", "12.34")),
    "unknown part": (lambda c: _figure(c, "baseline").update(implied=["averge", "gain"]), ("baseline", "averge")),
    "both ways": (lambda c: _figure(c, "baseline").update(earlier="30.30"), ("baseline", "implied")),
    "unknown key": (lambda c: c["earlier"].update(arxive="x"), ("arxive", "nearest: arxiv")),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, case: str) -> None:
    edit, words = BROKEN[case]
    with pytest.raises(ConfigError) as caught:
        versions.read(_edited(tmp_path, edit))
    for word in ("versions.yaml", *words):
        assert word in str(caught.value)


def test_an_unknown_cell_is_refused(tmp_path: Path) -> None:
    path = _edited(tmp_path, lambda c: _figure(c, "gain").update(later="T1.99.avg"))
    with pytest.raises(ConfigError, match=r"T1\.99"):
        versions.findings(PAPER, versions.read(path))
