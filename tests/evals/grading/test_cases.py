"""The hand-written cases: each is graded as it should be, or listed as a known error; and order does not matter."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from evals import data
from evals.benchmark import PAPER, benchmark
from evals.grading.grader import Grader, Task, cheap_grade
from evals.grading.pool import Pool
from evals.grading.verdict import Verdict
from evals.selfcheck import Case, Key, accuracy, cases, check_cases, grade, known_errors
from records.errors import CorruptInputError
from records.provenance import ROOT

DOCS = ROOT / "docs" / "notebook" / "grading.md"


def errors_of(found: list[Case], verdicts: list[bool]) -> set[Key]:
    return {case.key for case, verdict in zip(found, verdicts, strict=True) if verdict != case.right}


def test_there_are_enough_cases_of_both_kinds_in_every_set() -> None:
    found = cases()
    for right in (True, False):
        count = Counter(case.set for case in found if case.right == right)
        assert sum(count.values()) >= 300
        assert set(count) == set(PAPER)
        assert min(count.values()) >= 30
    assert len({case.key for case in found}) == len(found)  # an answer is not both right and wrong
    assert all(case.gold and case.answer and case.kind for case in found)


def test_every_gold_is_one_of_its_set(shared: Path) -> None:
    stored = {
        (key, " ".join(item.answer.split()), item.multiple, item.tolerance)
        for key in PAPER
        for item in data.load(benchmark(key), shared / "benchmarks")
    }
    assert [case for case in cases() if (case.set, case.gold, case.multiple, case.tolerance) not in stored] == []


def test_known_errors_are_cases_with_a_reason() -> None:
    known = known_errors()
    assert known.keys() <= {case.key for case in cases()}
    assert all(known.values())


def test_a_malformed_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "known_errors.tsv").write_text("set\tgold\tanswer\treason\naime24\t1\t2\n", encoding="utf-8")
    with pytest.raises(CorruptInputError, match=r"known_errors\.tsv: line 2: 3 columns, needed are 4"):
        known_errors(tmp_path)
    (tmp_path / "known_errors.tsv").write_text("set,gold,answer,reason\n", encoding="utf-8")
    with pytest.raises(CorruptInputError, match=r"known_errors\.tsv: line 1: the columns must be set, gold"):
        known_errors(tmp_path)


def test_cases_that_need_no_algebra() -> None:
    """The same as the slow test below for the cases that are decided in this process: about half of them."""
    graded = [(case, cheap_grade(case.question())) for case in cases()]
    decided = [(case, grade.verdict is Verdict.CORRECT) for case, grade in graded if not isinstance(grade, Task)]
    assert len(decided) > 500
    found = [case for case, _ in decided]
    known = known_errors().keys() & {case.key for case in found}
    assert errors_of(found, [right for _, right in decided]) == known


def test_a_sample_of_cases_in_two_orders(grader: Grader) -> None:
    sample = [case for case in cases() if isinstance(cheap_grade(case.question()), Task)][::16]
    verdicts = dict(zip(sample, grade(sample, grader), strict=True))
    random.Random(1).shuffle(sample)
    with Grader(pool=Pool(workers=1)) as other:  # one process that meets all of them
        assert [verdicts[case] for case in sample] == grade(sample, other)
    assert errors_of(list(verdicts), list(verdicts.values())) == known_errors().keys() & {case.key for case in verdicts}


@pytest.mark.slow
def test_all_cases(grader: Grader) -> None:
    """Exactly the known errors: a mended case leaves the list, and the figures in the documentation are today's."""
    found = cases()
    verdicts = grade(found, grader)
    assert errors_of(found, verdicts) == known_errors().keys()
    table = re.findall(r"^\| (\w+) \| (\d+)/(\d+) [^|]*\| (\d+)/(\d+) ", DOCS.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: tuple(map(int, counts)) for name, *counts in table} == accuracy(found, verdicts)


@pytest.mark.slow
def test_all_cases_in_another_order(grader: Grader) -> None:
    found = cases()
    verdicts = grade(found, grader)  # by now from the grader's memory
    order = random.Random(2).sample(range(len(found)), len(found))
    with Grader(pool=Pool(workers=1)) as other:
        assert [verdicts[index] for index in order] == grade([found[index] for index in order], other)


def test_the_command_says_what_differs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "set\tkind\tgold\tanswer\titem\tnote\n"
    (tmp_path / "equal.tsv").write_text(header + "amc\tdecimal\t4.0\t4\t\t\namc\twrong\t4.0\t5\t\t\n", encoding="utf-8")
    (tmp_path / "different.tsv").write_text(header + "amc\toff by one\t4.0\t3\t\t\n", encoding="utf-8")
    known = "set\tgold\tanswer\treason\n"
    (tmp_path / "known_errors.tsv").write_text(known + "amc\t4.0\t3\tno error\n", encoding="utf-8")
    assert check_cases(tmp_path) == 1
    printed = capsys.readouterr().out
    assert "amc 1/2 50.0% 1/1 100.0%" in " ".join(printed.split())
    assert "error: amc: gold 4.0: 5 is rejected" in printed
    assert "no error any more: amc: gold 4.0: 3" in printed
    (tmp_path / "known_errors.tsv").write_text(
        known + "amc\t4.0\t5\ta label that is wrong on purpose\n", encoding="utf-8"
    )
    assert check_cases(tmp_path) == 0
