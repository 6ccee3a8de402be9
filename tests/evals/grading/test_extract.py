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
    "none": ("There are 3 cases.", None),
    "unbalanced": (r"\boxed{5", None),
    "unbalanced last": (r"\boxed{5} no, \boxed{6", None),
    "word alone": (r"\boxed", None),
    "other command": (r"\boxedsum{5}", None),
}


@pytest.mark.parametrize(("text", "answer"), CASES.values(), ids=CASES)
def test_last_box(text: str, answer: str | None) -> None:
    assert last_box(text) == answer


@pytest.mark.parametrize(
    "text",
    ["\\boxed{" * 200_000, "\\boxed " * 200_000, "\\boxed{1}" * 100_000, "\\boxed{" + "{" * 500_000 + "}" * 500_001],
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
