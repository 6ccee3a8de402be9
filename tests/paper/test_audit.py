"""The audit finds planted defects by itself, each as what it is, and leaves a clean table clean."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from core.errors import ConfigError
from paper import arithmetic, printed, sentences
from paper.arithmetic import CLEAN, Finding
from paper.audit import KEPT, KEPT_PAGE, audit, main
from paper.printed import printed as prints
from tests.paper import synthetic

ROOT = Path(__file__).resolve().parents[2]


def _audit(folder: Path) -> list[Finding]:
    return audit(printed.read(folder), sentences.read(folder / "sentences.yaml"))


def _open(findings: list[Finding]) -> set[tuple[str, str, str, str]]:
    """What does not follow; seeds are left to their own test, they are about chance."""
    return {(f.check, f.row, f.cell, f.status) for f in findings if f.status not in CLEAN and f.check != "seeds"}


def test_clean_tables_stay_clean(tmp_path: Path) -> None:
    findings = _audit(synthetic.write(tmp_path))
    assert not _open(findings)
    assert not [f for f in findings if f.check == "consequence"]


PLANTED = {
    "average five points off": ("T1.3", "Avg.", "38.60", {("average", "T1.3", "Avg.", "outside")}),
    "cell that no count gives": ("T1.3", "OlympiadBench", "38.90", {("count", "T1.3", "OlympiadBench", "undecodable")}),
    "delta of no row": ("T1.5", "MATH-500", "9.00", {("delta", "T1.5", "MATH-500", "no_baseline")}),
    "delta to another row": ("T1.5", "MATH-500", "3.20", {("delta", "T1.5", "MATH-500", "other_baseline")}),
    "mean of other numbers": ("T2.3", "AMC", "41.90", {("mean", "T2.3", "AMC", "outside")}),
}


def test_planted_defect_is_found_and_nothing_else(tmp_path: Path) -> None:
    for case, (row, heading, text, expected) in PLANTED.items():
        assert _open(_audit(synthetic.write(tmp_path, {(row, heading): text}))) == expected, case


def test_broken_repeat_is_found(tmp_path: Path) -> None:
    was = synthetic.cells()["T2.1"][3]
    findings = _audit(synthetic.write(tmp_path, {("T2.1", "MATH-500"): "70.60"}))
    broken = [f for f in findings if f.check == "repeat" and f.status == "differs"]
    assert [(f.row, f.cell, f.printed, f.admissible) for f in broken] == [("T2.1", "MATH-500", "70.60", was)]


def test_delta_names_the_row_that_fits(tmp_path: Path) -> None:
    findings = _audit(synthetic.write(tmp_path, {("T1.5", "MATH-500"): "3.20"}))
    note = next(f.note for f in findings if f.status == "other_baseline")
    assert "minus T1.3" in note


def test_sentence_that_says_another_number_is_found(tmp_path: Path) -> None:
    findings = _audit(synthetic.write(tmp_path, gain="9.99"))
    assert _open(findings) == {("sentence", "T1.4", "Avg.", "differs")}


def test_consequences_follow_the_implied_average(tmp_path: Path) -> None:
    """T1.2 printed far too low: the gain over it that the sentence states would shrink to the real one."""
    real = synthetic.cells()["T1.5"][-1]
    planted = {("T1.2", "Avg."): "20.00", ("T2.1", "Avg."): "20.00"}
    findings = _audit(synthetic.write(tmp_path, planted))
    notes = [f.note for f in findings if f.check == "consequence" and "gain" in f.note]
    assert len(notes) == 1
    ends = [float(x) for x in notes[0].rsplit("would be ", 1)[1].split(" to ")]
    assert min(ends) <= float(real) <= max(ends)


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


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("difference:", "diference:", ("gain", "diference", "nearest: difference")),
        ("T1.4.amc", "T1.9.amc", ("gain", "T1.9")),
        ("T1.4.amc", "T1.4.amcc", ("gain", "amcc", "nearest: amc")),
        ("quote:", "quotes:", ("quotes", "nearest: quote")),
        ("says: \"1\"", "sayz: \"1\"", ("gain", "rank", "sayz")),
        ("id: gain", "id: ''", ("sentences.0.id", "not empty")),
    ],
)  # fmt: skip
def test_bad_sentence_is_named(tmp_path: Path, old: str, new: str, words: tuple[str, ...]) -> None:
    folder = synthetic.write(tmp_path)
    path = folder / "sentences.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigError) as error:
        _audit(folder)
    for word in words:
        assert word in str(error.value)


def test_every_weighting_but_the_pool_fails_on_the_paper() -> None:
    found = {f.printed: int(f.admissible.split()[0]) for f in arithmetic.controls(printed.read())}
    pool = found.pop("pooled")
    del found["pooled, OlympiadBench 674"]  # one response less of 8,844: print cannot tell the two apart
    assert pool > 30 > 5 > max(found.values())


def test_known_row_of_the_paper_follows() -> None:
    """Table 1, TEPO 7B: 121, 84, 1155, 387, 764, 273, 95 right, 2,879 together, 3 or 4 of the copies."""
    row = printed.read()["T1.8"]
    assert arithmetic.right(row) == (2879, 2879)
    assert arithmetic.copies(row) == [3, 4]


def test_the_kept_audit_is_what_the_command_writes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, page = tmp_path / "audit.csv", tmp_path / "audit.md"
    main(["--out", str(out), "--page", str(page)])
    assert str(out) in capsys.readouterr().out
    for made, kept in ((out, KEPT), (page, KEPT_PAGE)):
        assert made.read_text(encoding="utf-8") == kept.read_text(encoding="utf-8"), "run: python -m paper.audit"


def test_settings_of_the_sources_are_the_catalogs() -> None:
    """The sentence about adopted settings compares what the catalog says that the paper and the source have."""
    from methods import catalog

    keys = {"GRPO/DAPO": "grpo", "Clip-Cov": "clip_cov", "KL-Cov": "kl_cov", "entropy-based term": "entropy_adv"}
    (sentence,) = (s for s in sentences.read() if s.declared.id == "setup-baselines")
    (check,) = sentence.checks
    number = re.compile(r"(?<![\w.])\d*\.?\d+(?:e-\d+)?")
    for name, (here, there) in check.arguments["settings"].items():
        option, _, method = name.partition(", ")
        (declared,) = (o for o in catalog.entries()[keys[method]].options if o.name == option)
        for value, text in ((here, declared.printed), (there, declared.original)):
            first = number.search(text)
            assert first, (name, text)
            assert float(first[0]) == float(value), (name, text)


@pytest.mark.parametrize(
    ("values", "agrees", "words"), [(["2", "2.0"], True, ""), (["4e-4", ".4"], False, "x: 4e-4, its source .4")]
)
def test_an_adopted_setting_is_compared_as_a_number(values: list[str], agrees: bool, words: str) -> None:
    answer = sentences.adopted({}, settings={"x": values, "y": ["1", "1"]}, says="2")
    assert (answer.agrees, answer.note) == (agrees, words)


@pytest.mark.parametrize(
    ("planted", "status"),
    [({}, "ok"), ({"T2.2": "41.49"}, "close"), ({"T2.2": "47.02"}, "far")],
    ids=["as seeds differ", "equal", "six points apart"],
)
def test_seed_pairs_are_judged_by_generation_noise(tmp_path: Path, planted: dict[str, str], status: str) -> None:
    folder = synthetic.write(tmp_path, {(row, "AMC"): text for row, text in planted.items()})
    found = [f for f in _audit(folder) if f.check == "seeds" and f.cell == "AMC"]
    assert [(f.row, f.status) for f in found] == [("T2.1 T2.2", status)]


def test_examples_in_docstrings() -> None:
    assert doctest.testmod(arithmetic) == (0, 1)
