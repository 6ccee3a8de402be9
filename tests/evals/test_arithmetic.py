"""Generated problems and questions against independent evaluators; nothing held out is trained on."""

import itertools
import random
import re
import statistics
from collections import Counter
from collections.abc import Callable
from functools import cache, reduce

from evals import arithmetic, questions
from evals.arithmetic import LADDERS, Problem, is_test
from evals.questions import FAMILIES
from evals.questions import LADDERS as QUESTION_LADDERS
from evals.reward import boxed

CELLS = sorted({cell for ladder in LADDERS.values() for cell in ladder})
LISTED = [cell for cell in CELLS if arithmetic.space(*cell) <= arithmetic.ENUMERATE_AT_MOST]
EXAMPLES = [line.split()[:3] for line in str(arithmetic.__doc__).splitlines() if "=" in line and "boxed" in line]


def fold(text: str) -> int:
    """Left to right without precedence and without reducing on the way: brackets, then Python's own integers."""
    first, *operations = re.findall(r"^\d+|[+*-]\d+", text)
    return eval("(" * len(operations) + first + "".join(operation + ")" for operation in operations))


def recompute(prompt: str, family: str) -> str:
    body = prompt.removesuffix("?")
    if family == "swap":  # a permutation matrix for each swap: which position does the ball's unit vector end in?
        balls = [int(body[1]) == cup for cup in range(1, 6)]
        for a, b in (map(int, pair) for pair in body[3:].split(",")):
            balls[a - 1], balls[b - 1] = balls[b - 1], balls[a - 1]
        return str(balls.index(True) + 1)
    if family == "sort":
        return "".join(digit * body[1:].count(digit) for digit in "123456789")
    if family == "iter":
        table = dict(enumerate(map(int, body[1:7]), 1))
        return str(reduce(lambda value, _: table[value], body.split(":")[1][1:], int(body[8])))
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


def test_documented_examples() -> None:
    assert [family for family, *_ in EXAMPLES] == ["as", "mul", "mix", "add2", "seq", "inv", "swap", "sort", "iter"]
    for family, prompt, worked in EXAMPLES:
        problem = arithmetic.read(prompt, family, 2)
        *steps, box = worked.split(";")
        assert arithmetic.solution(problem) == worked
        assert arithmetic.solution(problem, "direct") == arithmetic.box(problem.answer) == box
        assert arithmetic.solution(problem, "check") == "".join(f"{step};{step};" for step in steps) + box


def test_answers_agree_with_an_independent_evaluator_and_every_written_step_is_true() -> None:
    for family, k in CELLS:
        for problem in drawn(family, k):
            assert problem.answer == recompute(problem.prompt, family), problem
            *steps, box = arithmetic.solution(problem).split(";")
            assert box == arithmetic.box(problem.answer)
            if family not in ("swap", "sort", "iter"):  # steps of another form: EXAMPLES
                for left, right in (step.split("=") for step in steps):
                    assert int(right) == (fold(left) if family == "add2" else fold(left) % 10), problem


def test_every_prompt_is_listed_once_and_all_held_out_ones_can_be_drawn() -> None:
    """And the answers of a family, from which slips are drawn, are those that its problems have."""
    for family, k in LISTED:
        listed = list(arithmetic.prompts(family, k))
        assert len(listed) == len(set(listed)) == arithmetic.space(family, k), (family, k)
        test = sum(map(is_test, listed))
        assert len(arithmetic.held_out(family, k, test, seed=0)) == test
        possible = set(arithmetic.family(family, k).answers(k))
        assert {recompute(prompt, family) for prompt in listed[:: 1 + len(listed) // 9000]} == possible, (family, k)
    for ladder in LADDERS:
        assert not any(is_test(problem.prompt) for problem in arithmetic.training_prompts(ladder, 5_000, seed=1))


QUESTION_CELLS = [(key, k) for key, family in FAMILIES.items() for k in family.ks]


ANSWERS: dict[str, Callable[[str], object]] = {
    "largest": lambda text: sorted(map(int, text.split()))[-1],
    "smallest": lambda text: sorted(map(int, text.split()))[0],
    "middle number": lambda text: statistics.median(map(int, text.split())),
    "second number": lambda text: text.split(" ")[1],
    "last number": lambda text: text.rpartition(" ")[2],
    "repeated number": lambda text: Counter(text.split()).most_common(1)[0][0],
    "different number": lambda text: Counter(text.split()).most_common()[-1][0],
    "number after": lambda text: len(range(int(text) + 1)),
    "number before": lambda text: range(int(text))[-1],
    "next number": lambda text: 2 * int(text.split()[-1]) - int(text.split()[-2]),
    "second word": lambda text: text.split(" ")[1],
    "last word": lambda text: text.rpartition(" ")[2],
}


def test_answers_are_those_of_another_computation_and_the_grader_accepts_them() -> None:
    for key, k in QUESTION_CELLS:
        drawn = [questions.problem(random.Random(seed), key, k) for seed in range(100)]
        pairs = [(f"{key}: {text}", answer) for text, answer in FAMILIES[key].examples]
        pairs += [(one.prompt, one.answer) for one in drawn]
        assert [answer for _, answer in pairs] == [str(ANSWERS[key](prompt.partition(": ")[2])) for prompt, _ in pairs]
        answers = [one.answer for one in drawn]
        for more, reward in (("", 1.0), ("0", 0.0)):
            assert boxed(answers, [rf"\boxed{{{answer}{more}}}" for answer in answers], answers) == [reward] * 100


def test_no_held_out_question_is_trained_on_and_none_whose_answer_its_prompt_shows() -> None:
    for ladder, cells in QUESTION_LADDERS.items():
        trained = questions.training_prompts(ladder, 2000, seed=0)
        assert trained[:50] == questions.training_prompts(ladder, 50, seed=0)
        assert {(one.family, one.k) for one in trained} == set(cells)
        assert not {one.family for one in trained} & set(questions.UNTAUGHT)
        for one in trained:
            assert not is_test(one.prompt)
            assert questions.prompt_string(one.prompt).count(one.prompt + "\n") == 1
    for key, k in QUESTION_CELLS:
        held = questions.held_out(key, k, 10, seed=0)
        assert len({one.prompt for one in held}) == 10
        assert all(is_test(one.prompt) for one in held)
    assert questions.prompt_string("largest: 40 9 73") == (
        "largest: 12 80 31\n\\boxed{80}<|im_end|>\nlargest: 7 25 64\n\\boxed{64}<|im_end|>\nlargest: 40 9 73\n"
    )
