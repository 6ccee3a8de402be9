"""Comparisons made before: kept across processes, never across graders, never when they say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.grading import grader as grader_module
from evals.grading.decide import gold
from evals.grading.grader import Cache, Grader, Question
from evals.grading.pool import Answer, Pool, Task
from records.errors import CorruptInputError

TASK = Task(gold(r"\sqrt{8}"), r"2\sqrt{2}")
EQUAL = Answer("equal", 0.25)


def _written(folder: Path, answer: Answer = EQUAL) -> Path:
    cache = Cache(folder)
    cache.put(TASK, answer)
    cache.close()
    return next(iter(folder.glob("*/*.jsonl")), folder)


def test_an_answer_survives_the_process(tmp_path: Path) -> None:
    _written(tmp_path)
    assert Cache(tmp_path).get(TASK) == EQUAL


@pytest.mark.parametrize(
    "other",
    [
        Task(gold(r"\sqrt{8}"), r"2\sqrt{3}"),
        Task(gold(r"\sqrt{9}"), r"2\sqrt{2}"),
        Task(gold(r"\sqrt{8}", tolerance="0.1"), r"2\sqrt{2}"),
        Task(gold(r"\sqrt{8}", multiple=True), r"2\sqrt{2}"),
        Task(gold(r"\sqrt{8}"), r"2\sqrt{2}", grader="lineage"),
    ],
    ids=["answer", "gold", "tolerance", "multiple", "grader"],
)
def test_everything_that_can_change_a_verdict_is_in_the_key(tmp_path: Path, other: Task) -> None:
    _written(tmp_path)
    assert Cache(tmp_path).get(other) is None


def test_another_grader_version_starts_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _written(tmp_path)
    monkeypatch.setattr(grader_module, "grader_version", lambda: "g-other")
    assert Cache(tmp_path).get(TASK) is None


def test_an_error_is_not_kept(tmp_path: Path) -> None:
    _written(tmp_path, Answer("error", 0.0, "killed by SIGKILL"))
    assert Cache(tmp_path).get(TASK) is None


def test_a_line_cut_off_by_a_kill_is_ignored(tmp_path: Path) -> None:
    path = _written(tmp_path)
    path.write_text(path.read_text() + '{"key": "half')
    assert Cache(tmp_path).get(TASK) == EQUAL


def test_a_line_that_is_no_comparison_is_an_error(tmp_path: Path) -> None:
    path = _written(tmp_path)
    path.write_text('{"key": "whole"}\n')
    with pytest.raises(CorruptInputError, match="line 1"):
        Cache(tmp_path)


def test_the_folder_stays_out_of_version_control(tmp_path: Path) -> None:
    _written(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(("limit", "asked_again"), [(0.2, False), (0.1, False), (0.4, True)])
def test_a_timeout_counts_only_if_it_had_as_much_time(tmp_path: Path, limit: float, asked_again: bool) -> None:
    _written(tmp_path, Answer("timeout", 0.2, "CPU seconds"))
    with Grader(cache=tmp_path, pool=Pool(cpu_seconds=limit, module="tests.evals.grading.fragile_worker")) as grader:
        grade = grader.grade([Question(TASK.gold, f"\\boxed{{{TASK.answer}}}")])[0]
        assert bool(grader.pool.workers) == asked_again
    assert grade.verdict == ("correct" if asked_again else "timeout")
