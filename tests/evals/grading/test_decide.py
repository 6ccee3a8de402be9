r"""What is decided in the calling process: the last box, kinds of golds, numbers, tolerances; and no text raises."""

import random
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from core.errors import ConfigError
from evals import placebo, reward
from evals.grading import Rule, Verdict
from evals.grading import grader as grader_module
from evals.grading.boxes import last_box
from evals.grading.decide import Decision, decide, gold
from evals.grading.grader import Grader, Question, cheap_grade
from evals.grading.normalise import normalise
from evals.grading.structure import DEEPEST, parse
from evals.reward import boxed
from methods.training.rollouts import derive
from tests.evals.grading.test_cases import FOLDER, rows


def test_the_last_balanced_box() -> None:
    """`boxes.tsv`: the box of a response; whether its members may be in several, with words between them."""
    found = rows(FOLDER / "boxes.tsv", ("members", "response", "box"))
    for row in found:
        box = last_box(row["response"], several=row["members"] == "list")
        assert ("(none)" if box is None else box) == row["box"], row
    assert last_box("\\boxed{\n 5\n}") == "5"
    assert last_box("- $\\boxed{1}$\n- $\\boxed{2}$", several=True) == r"1 \text{ and } 2"


SLOW = (
    "\\{\\mid " * 570,  # sets without an end
    "\\{" * 20 + "\\mid x" * 560,
    "1:" * 1990 + "1",
    "{" * 1990 + "5" + "}" * 1990,
)


def test_no_answer_takes_long_in_the_callers_process() -> None:
    """Each took from half a second to ten; a long text of quadratic time hours."""
    for text in SLOW:
        began = time.process_time()
        cheap_grade(Question(gold("7"), f"\\boxed{{{text}}}"))
        assert time.process_time() - began < 0.2, text[:20]
    for part in ("\\boxed{", "\\boxed ", "\\boxed{1}, ", "{"):
        last_box("\\boxed{" + part * 200_000 + "}" * 200_001)


def test_what_the_item_says() -> None:
    options: dict[str, Any]
    for options, stored, answer, right in (
        ({"tolerance": "0.001"}, "4.2", "4.24", False),
        ({"multiple": True}, "1,234", "234, 1", True),
        ({}, r"\frac{11}{2^{20}", r"\frac{11}{2^{20}", True),  # malformed: compared as text
    ):
        found = decide(gold(stored, **options), normalise(answer))
        assert (found and found.equal) == right, (options, answer)
    with pytest.raises(ConfigError):
        gold("4.2", tolerance="-1")


# Whatever is in a box, and however little stack the caller leaves.

GOLDS = ("5", "1,2", "(1,2)", r"\sqrt{2}x", r"\{1,2\}", "x<2", r"(0,1)\cup(1,2)", "f(x)=x", "4:30", r"120^\circ")
NESTED = (r"(1, )", "[ ]", r"\{x= \}", "{2+ }", r"\left(\pm \right)", r"\sqrt{ }", r"(1;( )")


def plain(text: str) -> list[object]:
    """Verdict, text and rule of the cheap stages for every gold; the task where they leave one."""
    return [cheap_grade(Question(gold(stored), f"\\boxed{{{text}}}")) for stored in GOLDS]


@pytest.mark.parametrize("brackets", NESTED)
def test_the_depth_left_to_recursion_decides_nothing(brackets: str) -> None:
    """The caches are emptied between the two, and the second has the least stack that a caller could leave."""
    opening, closing = brackets.split()
    for depth in (DEEPEST - 1, DEEPEST + 1, 100, 331, 600, 900):
        text = opening * depth + "1" + closing * depth
        first = plain(text)
        for cached in (parse, normalise, gold):
            cached.cache_clear()
        assert _at_depth(500, partial(plain, text)) == first
        if (opening, depth > DEEPEST) == ("(1,", True):
            assert decide(gold("(1,2)"), text) == Decision(False, Rule.LENGTH)


def _at_depth(frames: int, work: Callable[[], object]) -> object:
    return work() if frames == 0 else _at_depth(frames - 1, work)


def test_an_unexpected_exception_is_a_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(question: Question) -> Any:
        return 1 / 0 if "6" in question.response else cheap_grade(question)

    monkeypatch.setattr(grader_module, "cheap_grade", fail)
    with Grader() as grader:
        grades = grader.grade([Question(gold("5"), text) for text in (r"\boxed{5}", r"\boxed{6}", r"\boxed{7}")])
    assert [grade.verdict for grade in grades] == [Verdict.CORRECT, Verdict.ERROR, Verdict.WRONG]
    assert grades[1].rule == "ZeroDivisionError"


def test_integer_answers_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does anything that a model which cannot calculate yet writes into its box."""
    monkeypatch.setattr("evals.grading.pool.Pool._start", lambda pool: pytest.fail("a worker was started"))
    rng, signs = random.Random(1), [*"0123456789+-*=;?,x()#", "\\boxed{", "}", " "]
    scribbles = ["".join(rng.choices(signs, k=rng.randrange(12))) for _ in range(1000)]
    answers = [str(rng.randrange(200)) for _ in scribbles]
    assert set(boxed(answers, [f"so \\boxed{{{text}}}" for text in scribbles], answers)) <= {0.0, 1.0}


def test_what_numbers_cannot_decide_goes_to_a_worker_from_any_thread() -> None:
    def work() -> list[float | None]:
        return boxed(["", ""], [r"\boxed{\sqrt{8}}", r"\boxed{\sqrt{7}}"], [r"2\sqrt{2}"] * 2)

    with ThreadPoolExecutor(2) as threads:
        found = [thread.result() for thread in [threads.submit(work) for _ in range(2)]]
    assert found == [[1.0, 0.0]] * 2
    for grader in reward._GRADER.values():
        grader.close()


# Placebos


def test_what_each_placebo_makes_of_the_rewards() -> None:
    """A number for each response, which depends on nothing but the arguments; of the coin's, not on the rewards."""
    rng, size, drawn = random.Random(0), 8, []  # responses of a group
    for n in range(1000):
        rewards, texts, seed = rng.choices([0.0, 1.0], k=size), [r"\boxed{1}"] * size, derive(1, "placebo", n, 0)
        before, other = list(rewards), [1.0 - reward for reward in rewards]
        first = {name: function(rewards, texts, seed) for name, function in placebo.CATALOG.items()}
        random.seed(n)
        assert {name: function(rewards, texts, seed) for name, function in placebo.CATALOG.items()} == first
        assert rewards == before  # the true rewards, which the curve records
        assert placebo.coin(other, [""] * size, seed) == first["coin"]
        assert (first["inverted"], first["format"]) == (other, [1.0] * size)
        assert Counter(first["shuffled"]) == Counter(rewards)
        drawn.append(first["coin"])
    assert sum(len(set(group)) == 2 for group in drawn) > 950  # 2 of 256 groups are constant
    assert len(set(map(tuple, drawn))) > 200
    for place in zip(*drawn, strict=True):  # each a fair coin: four standard deviations, with fixed seeds
        assert abs(sum(place) - 500) < 4 * 250**0.5


def test_the_form_is_the_box_that_the_reward_requests_whatever_it_holds() -> None:
    """No response that the reward calls right lacks the form."""
    wanted = {
        r"so \boxed{4}": (1.0, 1.0), r"so 8-3=5;\boxed{5}": (1.0, 0.0), r"\boxed{4}\boxed{5}": (1.0, 0.0),
        r"\fbox{4}": (1.0, 1.0), "4": (0.0, 0.0), r"\boxed{}": (0.0, 0.0), r"\boxed{4} no, \boxed{": (0.0, 0.0),
    }  # fmt: skip
    forms = placebo.boxes([0.0] * len(wanted), [*wanted], 1)
    rewards = boxed(["2+2?"] * len(wanted), [*wanted], ["4"] * len(wanted))
    assert dict(zip(wanted, zip(forms, rewards, strict=True), strict=True)) == wanted
