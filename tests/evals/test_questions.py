"""Questions: right by another computation, never held out and trained on, read whole, and graded right."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable

import pytest

from core.errors import ConfigError
from evals import questions
from evals.arithmetic import is_test
from evals.questions import FAMILIES, LADDERS
from evals.reward import boxed

CELLS = [(family.key, k) for family in FAMILIES.values() for k in family.ks]


def terms(text: str) -> list[int]:
    return [int(part) for part in text.split()]


ANSWERS: dict[str, Callable[[str], object]] = {
    "largest": lambda text: sorted(terms(text))[-1],
    "smallest": lambda text: sorted(terms(text))[0],
    "middle number": lambda text: statistics.median(terms(text)),
    "second number": lambda text: text.split(" ")[1],
    "last number": lambda text: text.rpartition(" ")[2],
    "repeated number": lambda text: Counter(terms(text)).most_common(1)[0][0],
    "different number": lambda text: Counter(terms(text)).most_common()[-1][0],
    "number after": lambda text: len(range(int(text) + 1)),
    "number before": lambda text: range(int(text))[-1],
    "next number": lambda text: 2 * terms(text)[-1] - terms(text)[-2],
    "second word": lambda text: text.split(" ")[1],
    "last word": lambda text: text.rpartition(" ")[2],
}


@pytest.mark.parametrize(("key", "k"), CELLS)
def test_answers_are_those_of_another_computation_and_the_grader_accepts_them(key: str, k: int) -> None:
    drawn = [questions.problem(random.Random(seed), key, k) for seed in range(100)]
    shown = [(f"{key}: {text}", answer) for text, answer in FAMILIES[key].examples]
    pairs = [*((one.prompt, one.answer) for one in drawn), *shown]
    assert [answer for _, answer in pairs] == [str(ANSWERS[key](prompt.partition(": ")[2])) for prompt, _ in pairs]
    answers = [one.answer for one in drawn]
    responses = [rf"\boxed{{{answer}}}" for answer in answers]
    assert boxed(answers, responses, answers) == [1.0] * len(drawn)
    others = [rf"\boxed{{{answer}0}}" for answer in answers]
    assert boxed(answers, [*others], answers) == [0.0] * len(drawn)


@pytest.mark.parametrize("ladder", LADDERS)
def test_training_sees_no_held_out_question_and_none_whose_answer_its_prompt_shows(ladder: str) -> None:
    trained = questions.training_prompts(ladder, 2000, seed=0)
    assert trained[:50] == questions.training_prompts(ladder, 50, seed=0) != questions.training_prompts(ladder, 50, 1)
    assert {(one.family, one.k) for one in trained} == set(LADDERS[ladder])
    assert not any(is_test(one.prompt) for one in trained)
    assert not {one.family for one in trained} & set(questions.UNTAUGHT)
    for one in trained:
        assert questions.prompt_string(one.prompt).count(one.prompt + "\n") == 1


def test_held_out_questions_are_distinct_and_a_family_without_enough_is_refused() -> None:
    for key, k in CELLS:
        held = questions.held_out(key, k, 10, seed=0)
        assert held == questions.held_out(key, k, 10, seed=0)
        assert len({one.prompt for one in held}) == 10
        assert all(is_test(one.prompt) for one in held)
    with pytest.raises(ConfigError, match="next number k=1 has not 200 held-out questions"):
        questions.held_out("next number", 1, 200, seed=0)


def test_a_question_is_read_after_its_familys_examples() -> None:
    assert questions.prompt_string("largest: 40 9 73") == (
        "largest: 12 80 31\n\\boxed{80}<|im_end|>\nlargest: 7 25 64\n\\boxed{64}<|im_end|>\nlargest: 40 9 73\n"
    )
    for wrong, message in (("largst: 40 9 73", "nearest: largest"), ("What is 2+2?", "family")):
        with pytest.raises(ConfigError, match=message):
            questions.prompt_string(wrong)
    with pytest.raises(ConfigError, match=r"no difficulty 9; allowed: \[1, 3\]"):
        questions.held_out("next number", 9, 1, seed=0)
    with pytest.raises(ConfigError, match="ladder"):
        questions.training_prompts("mixd", 1, seed=0)
