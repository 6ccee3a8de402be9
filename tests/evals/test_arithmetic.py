"""The arithmetic generator against an independent evaluator, and the held-out rule by enumeration."""

from __future__ import annotations

import itertools
import random
import re
from functools import cache

import pytest

from evals import arithmetic
from evals.arithmetic import LADDERS, STYLES, Problem
from records.errors import ConfigError

CELLS = sorted({cell for ladder in LADDERS.values() for cell in ladder})
LISTED = [cell for cell in CELLS if arithmetic.space(*cell) <= arithmetic.ENUMERATE_AT_MOST]
EXAMPLES = [
    ("as", 3, "3-2-8+2?", "3-2=1;1-8=3;3+2=5;\\boxed{5}"),
    ("mul", 2, "7*3*9?", "7*3=1;1*9=9;\\boxed{9}"),
    ("mix", 3, "6+8-9*9?", "6+8=4;4-9=5;5*9=5;\\boxed{5}"),
    ("add2", 2, "42+19?", "2+9=11;1+4+1=6;\\boxed{61}"),
    ("seq", 2, "4,1,4,,?", "1-4=7;4-1=3;4+7=1;1+3=4;\\boxed{4}"),
    ("inv", 3, "x-8+8+2=3?", "3-2=1;1-8=3;3+8=1;\\boxed{1}"),
]


def fold(text: str) -> int:
    """Left to right without precedence and without reducing on the way: brackets, then Python's own integers."""
    first, *operations = re.findall(r"^\d+|[+*-]\d+", text)
    return eval("(" * len(operations) + first + "".join(operation + ")" for operation in operations))


def recompute(prompt: str, family: str) -> str:
    body = prompt.removesuffix("?")
    if family == "add2":
        return str(sum(int(part) for part in body.split("+")))
    if family == "inv":
        left, right = body.split("=")
        (x,) = [x for x in range(10) if (fold(left.replace("x", str(x))) - int(right)) % 10 == 0]
        return str(x)
    if family == "seq":
        a, b, c = (int(term) for term in body.rstrip(",").split(","))
        commas = len(body) - len(body.rstrip(","))
        steps = itertools.islice(itertools.cycle([b - a, c - b]), commas)
        return str((c + sum(steps)) % 10)
    return str(fold(body) % 10)


@cache
def drawn(family: str, k: int, count: int = 200) -> list[Problem]:
    rng = random.Random(f"{family} {k}")
    return [arithmetic.problem(rng, family, k) for _ in range(count)]


@pytest.mark.parametrize(("family", "k", "prompt", "worked"), EXAMPLES)
def test_documented_examples(family: str, k: int, prompt: str, worked: str) -> None:
    problem = arithmetic.read(prompt, family, k)
    assert arithmetic.solution(problem) == worked
    assert (
        arithmetic.solution(problem, "direct") == arithmetic.box(problem.answer) == "\\boxed" + worked.split("boxed")[1]
    )
    steps = worked.split("\\")[0].split(";")[:-1]
    doubled = "".join(f"{step};{step};" for step in steps)
    assert arithmetic.solution(problem, "check") == doubled + arithmetic.box(problem.answer)


@pytest.mark.parametrize(("family", "k"), CELLS)
def test_answers_agree_with_an_independent_evaluator(family: str, k: int) -> None:
    for problem in drawn(family, k):
        assert problem.answer == recompute(problem.prompt, family), problem


@pytest.mark.parametrize(("family", "k"), CELLS)
def test_every_written_step_is_true_and_the_box_repeats_the_answer(family: str, k: int) -> None:
    for problem in drawn(family, k):
        *steps, box = arithmetic.solution(problem).split(";")
        assert box == arithmetic.box(problem.answer)
        for step in steps:
            left, right = step.split("=")
            value = fold(left)
            assert int(right) == (value if family == "add2" else value % 10), step


@pytest.mark.parametrize(
    ("family", "k", "size", "test"),
    [
        ("as", 2, 3240, 639),
        ("as", 3, 58320, 11595),
        ("mul", 3, 243, 40),
        ("mul", 4, 729, 135),
        ("mul", 5, 2187, 430),
        ("mul", 6, 6561, 1381),
        ("mix", 2, 4410, 890),
        ("mix", 3, 92610, 18610),
        ("add2", 2, 1600, 312),
        ("seq", 1, 810, 159),
        ("seq", 2, 810, 194),
        ("inv", 2, 3240, 635),
    ],
)
def test_prompt_spaces(family: str, k: int, size: int, test: int) -> None:
    listed = list(arithmetic.prompts(family, k))
    assert len(listed) == len(set(listed)) == arithmetic.space(family, k) == size
    assert sum(map(arithmetic.is_test, listed)) == test
    assert len(arithmetic.held_out(family, k, test, seed=0)) == test


@pytest.mark.parametrize(("family", "k"), [cell for cell in LISTED if arithmetic.space(*cell) < 10_000])
def test_no_constant_answer_pays(family: str, k: int) -> None:
    """Zero absorbing under free multiplication would give a constant answer half of the problems."""
    counts: dict[str, int] = {}
    for prompt in arithmetic.prompts(family, k):
        answer = arithmetic.read(prompt, family, k).answer
        counts[answer] = counts.get(answer, 0) + 1
    limit = 0.03 if family == "add2" else 0.115
    assert max(counts.values()) / sum(counts.values()) <= limit


@pytest.mark.parametrize("ladder", LADDERS)
def test_training_never_draws_a_held_out_prompt_of_any_family(ladder: str) -> None:
    seen = {problem.prompt for problem in arithmetic.training_prompts(ladder, 20_000, seed=1)}
    held = {prompt for cell in LISTED for prompt in arithmetic.prompts(*cell) if arithmetic.is_test(prompt)}
    assert len(held) > 30_000
    assert not seen & held
    assert not any(arithmetic.is_test(prompt) for prompt in seen)


@pytest.mark.parametrize(("family", "k", "n"), [("mul", 3, 40), ("seq", 2, 150), ("mix", 6, 30), ("as", 4, 400)])
def test_held_out_problems_are_test_different_and_repeatable(family: str, k: int, n: int) -> None:
    problems = arithmetic.held_out(family, k, n, seed=7)
    texts = [problem.prompt for problem in problems]
    assert len(set(texts)) == n
    assert all(arithmetic.is_test(text) for text in texts)
    assert problems == arithmetic.held_out(family, k, n, seed=7)
    assert set(texts) != {p.prompt for p in arithmetic.held_out(family, k, n, seed=8)} or n == 40


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: arithmetic.held_out("mul", 3, 41, seed=0), r"n: mul k=3 has 40 held-out problems, asked for 41"),
        (lambda: arithmetic.held_out("as", 4, 200_000, seed=0), r"n: as k=4 has 1049760 prompts, asked for 200000"),
        (lambda: arithmetic.family("mull", 3), r"family: unknown value 'mull'.*nearest: mul"),
        (lambda: arithmetic.family("add2", 3), r"k: family add2 has no difficulty 3; allowed: 2"),
        (lambda: arithmetic.family("as", 0), r"k: family as has no difficulty 0; allowed: 1 and more"),
        (lambda: arithmetic.training_prompts("quik", 1, 0), r"ladder: unknown value 'quik'.*nearest: quick"),
        (lambda: arithmetic.solution(drawn("as", 2)[0], "work"), r"style: unknown value 'work'.*nearest: worked"),
        (lambda: arithmetic.solution(drawn("as", 2)[0], noise=0.1), r"noise: needs `rng`"),
    ],
)
def test_errors_name_what_is_wrong(call: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        call()  # type: ignore[operator]


@pytest.mark.parametrize("ladder", LADDERS)
def test_a_longer_prompt_list_begins_with_the_shorter(ladder: str) -> None:
    assert arithmetic.training_prompts(ladder, 50, seed=3) == arithmetic.training_prompts(ladder, 80, seed=3)[:50]
    assert arithmetic.training_prompts(ladder, 50, seed=3) != arithmetic.training_prompts(ladder, 50, seed=4)


@pytest.mark.parametrize("ladder", LADDERS)
def test_cells_of_a_ladder_are_equally_likely(ladder: str) -> None:
    problems = arithmetic.training_prompts(ladder, 9000, seed=0)
    for cell in set(LADDERS[ladder]):
        share = LADDERS[ladder].count(cell) / len(LADDERS[ladder])
        found = sum((p.family, p.k) == cell for p in problems) / len(problems)
        assert abs(found - share) < 5 * (share * (1 - share) / len(problems)) ** 0.5


def test_slips_are_carried_and_as_frequent_as_asked() -> None:
    rng = random.Random(5)
    slips = steps = 0
    for problem in drawn("as", 3, 2000):
        *lines, box = arithmetic.solution(problem, "worked", 0.3, rng).split(";")
        written = [line.split("=") for line in lines]
        for (_, result), (left, _) in itertools.pairwise(written):
            assert left.startswith(result), "the next step must go on from what was written"
        assert box == arithmetic.box(written[-1][1])
        slips += sum(fold(left) % 10 != int(right) for left, right in written)
        steps += len(written)
    expected = 0.3 * 0.9  # one random digit in ten is right by chance
    assert abs(slips / steps - expected) < 5 * (expected * (1 - expected) / steps) ** 0.5


@pytest.mark.parametrize("style", STYLES)
def test_no_noise_means_right_whatever_the_generator(style: str) -> None:
    for problem in drawn("mix", 3):
        assert arithmetic.solution(problem, style, 0.0, random.Random(1)) == arithmetic.solution(problem, style)


def test_a_direct_slip_is_a_random_answer_of_the_family() -> None:
    rng = random.Random(2)
    answers = {arithmetic.solution(p, "direct", 1.0, rng)[7:-1] for p in drawn("add2", 2, 500)}
    assert all(20 <= int(answer) <= 98 for answer in answers)
    assert len(answers) > 60


def test_a_check_of_more_than_four_steps_falls_back_to_worked() -> None:
    long = drawn("as", 5, 1)[0]
    assert arithmetic.solution(long, "check") == arithmetic.solution(long)
