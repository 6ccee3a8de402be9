"""The last balanced box, and nothing else."""

from __future__ import annotations

import time

import pytest

from evals.grading.normalise import last_box

CASES = {
    "one": (r"so \boxed{42}.", "42"),
    "last of two": (r"\boxed{1} then \boxed{2}", "2"),
    "nested braces": (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
    "inner of nested boxes": (r"\boxed{x=\boxed{5}}", "5"),
    "fbox": (r"\fbox{7}", "7"),
    "last of box and fbox": (r"\fbox{7} \boxed{8}", "8"),
    "space before the brace": (r"\boxed {9}", "9"),
    "escaped braces": (r"\boxed{\{1,2\}}", r"\{1,2\}"),
    "escaped brace alone": (r"\boxed{\left\{ 3 \right.}", r"\left\{ 3 \right."),
    "line break before the end": (r"\boxed{a \\}", r"a \\"),
    "across lines": ("\\boxed{\n 5\n}", "5"),
    "bare word after a box": (r"\boxed{5} as a \boxed answer", "5"),
    "empty": (r"\boxed{}", ""),
    "empty ones last": (r"\boxed{5}. I fill \boxed{} and \boxed{ }", "5"),
    "no braces": (r"so $\boxed 42$.", "42"),
    "no braces, fraction": (r"$\boxed-\frac{1}{2}$", r"-\frac{1}{2}"),
    "joined by a word": (r"$\boxed{(2,2)}$ and $\boxed{(6,2)}$.", r"(2,2) \text{ and } (6,2)"),
    "joined by a word in text": (r"\boxed{1} \quad \text{or} \quad \boxed{2}", r"1 \text{ or } 2"),
    "joined by commas": (r"\boxed{2}, \boxed{3}, and \boxed{5}", r"2 \text{ and } 3 \text{ and } 5"),
    "two values of one letter": (r"$x=\boxed{1}$ or $x=\boxed{2}$", r"x=1 \text{ or } x=2"),
    "another quantity before": (r"$x=\boxed{1}$ and $y=\boxed{2}$", "2"),
    "a sentence between": (r"\boxed{1}. Twice that is \boxed{2}", "2"),
    "words between": (r"\boxed{1}, so the sum is \boxed{2}", "2"),
    "a long way between": (r"\boxed{1}" + " " * 90 + r"and \boxed{2}", "2"),
    "unbalanced before": (r"\boxed{1 and \boxed{2}", "2"),
    "a thought before": (r"<think>\boxed{1}</think> \boxed{2}", "2"),
    "a thought alone": (r"<think>\boxed{1}</think> It is one.", None),
    "a thought without an end": (r"<think>\boxed{1}, but", None),
    "the end of a thought": (r"so \boxed{1}.</think> \boxed{2}", "2"),
    "none": ("There are 3 cases.", None),
    "unbalanced": (r"\boxed{5", None),
    "unbalanced last": (r"\boxed{5} no, \boxed{6", None),
    "word alone": (r"\boxed", None),
    "other command": (r"\boxedsum{5}", None),
}


@pytest.mark.parametrize(("text", "answer"), CASES.values(), ids=CASES)
def test_last_box(text: str, answer: str | None) -> None:
    assert last_box(text) == answer


LISTS = {
    "nothing between": (r"\boxed{1}\boxed{2}", r"1 \text{ and } 2"),
    "list marks": ("- $\\boxed{1}$\n- $\\boxed{2}$", r"1 \text{ and } 2"),
    "names": (r"$x=\boxed{1}$, $y=\boxed{2}$", r"x=1 \text{ and } y=2"),
    "words before the comma": (r"\boxed{1} for part (a), and \boxed{2}", r"1 \text{ and } 2"),
    "the list again": (r"\boxed{1} and \boxed{2}, in short \boxed{1,2}", "1,2"),
    "a sentence between": (r"\boxed{1}. And then \boxed{2}", "2"),
}


@pytest.mark.parametrize(("text", "answer"), LISTS.values(), ids=LISTS)
def test_boxes_of_a_list(text: str, answer: str) -> None:
    assert last_box(text, several=True) == answer


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 200_000, "\\boxed " * 200_000, "\\boxed{1}, " * 100_000, "\\boxed{" + "{" * 500_000 + "}" * 500_001],
    ids=["open boxes", "bare words", "many boxes", "deep braces"],
)
def test_time_grows_with_the_text_and_no_faster(text: str) -> None:
    def seconds(part: str) -> float:
        began = time.process_time()
        last_box(part)
        return time.process_time() - began

    small, whole = min(seconds(text[: len(text) // 8]) for _ in range(3)), min(seconds(text) for _ in range(3))
    assert whole < 1.0
    assert whole < 40 * max(small, 0.002)
