"""No text raises in the calling process, and no verdict depends on what was graded before, or in which process."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evals.grading import grader as grader_module
from evals.grading.decide import decide, gold
from evals.grading.grader import Grade, Grader, Question, cheap_grade
from evals.grading.normalise import normalise
from evals.grading.pool import Pool
from evals.grading.structure import DEEPEST, parse
from evals.grading.verdict import Rule, Verdict
from evals.reward import boxed

GOLDS = ("5", "1,2", "(1,2)", r"\sqrt{2}x", r"\{1,2\}", "x<2", r"(0,1)\cup(1,2)", "f(x)=x", "4:30", r"120^\circ")
PAIRS = [
    ("(", ")"),
    ("[", "]"),
    (r"\{", r"\}"),
    ("{", "}"),
    (r"\left(", r"\right)"),
    (r"\sqrt{", "}"),
    (r"\frac{1}{", "}"),
]
INNER = ("1,", "", "x=", "1;", "2+", r"\cup", r"\pm", "-")


@st.composite
def nested(draw: st.DrawFn) -> str:
    """Brackets in brackets, up to the longest answer, closed or not."""
    depth = draw(st.integers(1, 900))
    layers = draw(st.lists(st.tuples(st.sampled_from(PAIRS), st.sampled_from(INNER)), min_size=1, max_size=3))
    opening = "".join(pair[0] + inner for pair, inner in layers)
    closing = "".join(pair[1] for pair, _ in reversed(layers))
    return opening * depth + "1" + closing * draw(st.sampled_from([depth, depth // 2]))


def plain(text: str) -> object:
    """Verdict, text and rule of the cheap stages for every gold; the task where they leave one."""
    return [cheap_grade(Question(gold(stored), f"\\boxed{{{text}}}")) for stored in GOLDS]


@given(text=nested())
@settings(max_examples=60, deadline=None)
def test_nested_texts_raise_nothing_in_the_calling_process(text: str) -> None:
    assert plain(text) == plain(text)


@given(text=nested())
@settings(max_examples=25, deadline=None)
def test_the_depth_left_to_recursion_decides_nothing(text: str) -> None:
    """The caches are emptied between the two, and the second has the least stack that a caller could leave."""
    first = plain(text)
    for cached in (parse, normalise, gold):
        cached.cache_clear()
    assert _at_depth(500, lambda: plain(text)) == first


def _at_depth(frames: int, work: Callable[[], object]) -> object:
    return work() if frames == 0 else _at_depth(frames - 1, work)


def test_lists_nested_too_deeply_are_one_object() -> None:
    deep, shallow = "(1," * (DEEPEST + 1) + "1" + ")" * (DEEPEST + 1), "(1," * DEEPEST + "1" + ")" * DEEPEST
    assert not parse(deep).form
    assert parse(shallow).form
    found = decide(gold("(1,2)"), deep)
    assert found is not None
    assert (found.equal, found.rule) == (False, Rule.LENGTH)


@pytest.mark.parametrize("depth", [100, 331, 332, 400, 600, 1000])
def test_nested_lists_are_no_crash_of_a_training(depth: int) -> None:
    text = "\\boxed{" + "(1," * depth + "1" + ")" * depth + "}"
    assert boxed([""] * 3, [text] * 3, ["7", "(1,2)", r"\{1\}"]) == [0.0] * 3


def test_what_nobody_foresaw_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(question: Question) -> Grade:
        if "6" in question.response:
            raise ZeroDivisionError
        return cheap_grade(question)  # type: ignore[return-value]

    monkeypatch.setattr(grader_module, "cheap_grade", fail)
    with Grader() as grader:
        grades = grader.grade([Question(gold("5"), text) for text in (r"\boxed{5}", r"\boxed{6}", r"\boxed{7}")])
    assert [(grade.verdict, grade.rule) for grade in grades] == [
        (Verdict.CORRECT, Rule.STRING),
        (Verdict.ERROR, "ZeroDivisionError"),
        (Verdict.WRONG, Rule.NUMBER),
    ]


TEXTS = (
    *(r"\sqrt{" * n + "x" + "}" * n for n in (1, 3, 10, 20, 21, 300)),
    *("+".join(["x"] * n) for n in (2, 50, 290, 400, 1500)),
    *(r"\sin " * n + "x" for n in (1, 5, 60, 300)),
    *("-" * n + "x" for n in (2, 300, 590, 1500)),
    *("x" + "^{2" * n + "}" * n for n in (1, 4, 15)),
    *(f"(1,{'(1,' * n}x{')' * n})" for n in (1, 5, 18, 19, 330, 331)),
    r"\sqrt{8}x", r"2x\sqrt{2}", r"x+1", r"\frac{x^2}{x}", r"\ln x \cdot 2", r"x'", r"\lfloor x\rfloor", r"1/0",
)  # fmt: skip


@pytest.mark.slow
def test_a_shuffled_set_has_the_same_verdicts_texts_and_rules_in_every_order_and_process() -> None:
    questions = [
        Question(gold(stored), f"\\boxed{{{text}}}") for text in TEXTS for stored in ("5", r"\sqrt{2}x", "(1,x)")
    ]

    def graded(order: list[int], used: Grader) -> list[tuple[str, str | None, str]]:
        grades = used.grade([questions[index] for index in order])
        found = {index: (str(g.verdict), g.normalised, str(g.rule)) for index, g in zip(order, grades, strict=True)}
        return [found[index] for index in range(len(questions))]

    order = list(range(len(questions)))
    results = []
    for seed, workers in ((0, 1), (1, 2)):
        random.Random(seed).shuffle(order)
        with Grader(pool=Pool(workers=workers)) as one:
            results.append(graded(order, one))
            one.known.clear()  # so that the same processes, now used, compare again
            results.append(graded(order[::-1], one))
    for result in results:
        assert [pair for pair in zip(results[0], result, questions, strict=True) if pair[0] != pair[1]] == []
    alone = random.Random(3).sample(range(len(questions)), 3)
    for index in alone:
        with Grader(pool=Pool(workers=1)) as fresh:
            grade = fresh.grade([questions[index]])[0]
        assert (str(grade.verdict), grade.normalised, str(grade.rule)) == results[0][index]


def test_a_thread_with_little_stack_grades_the_same() -> None:
    found: list[object] = []
    text = r"\sqrt{" * 300 + "(1," * 300
    before = threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=lambda: found.append(plain(text)))
        thread.start()
        thread.join()
    finally:
        threading.stack_size(before)
    assert found == [plain(text)]
    assert sys.getrecursionlimit() >= 1000
