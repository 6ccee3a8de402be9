r"""Short questions for a small pretrained model: generated, each with one right answer of a few tokens.

    largest: 40 9 73             73
    next number: 3 5 7 9         11
    second word: cat dog tree    dog

A question begins with the key of its family. The model's prompt begins with two solved questions of the same family, as
plain text (docs/notebook/smollm.md compares forms):

    largest: 12 80 31
    \boxed{80}<|im_end|>
    ..
    largest: 40 9 73

Each example ends with the end token, so that a response ends after its box. The held-out part is that of
`evals.arithmetic`: a fifth of all questions, by a hash, which training never uses.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from core.errors import ConfigError, unknown
from evals.arithmetic import Problem, box, is_test

FILE = "evals/questions.py"
END = "<|im_end|>"  # of SmolLM2 and other models with this chat template
MOST_DRAWS = 50  # for each requested problem: a family with fewer held-out questions is refused

_NUMBERS = range(1, 100)
_WORDS = (
    "cat", "dog", "sun", "tree", "book", "fish", "bird", "cup", "hat", "pen", "box", "car", "map", "key", "milk",
    "rain", "star", "moon", "house", "apple", "horse", "river", "bread", "stone", "chair", "table",
)  # fmt: skip
Asked = tuple[str, object]  # what follows the family's key, and the answer


@dataclass(frozen=True)
class Family:
    """A kind of question, identified by its first words."""

    ks: tuple[int, ...]  # difficulties, the easiest first
    ask: Callable[[random.Random, int], Asked]  # draws a question of difficulty k
    examples: tuple[tuple[str, str], ...]  # the examples before every question, with their answers


def _listed(values: Sequence[object]) -> str:
    return " ".join(map(str, values))


def _one_of(pool: Sequence[Any], choose: Callable[[list[Any]], object]) -> Callable[[random.Random, int], Asked]:
    """Draw questions that list k different members of a pool; the answer is the chosen one."""

    def ask(rng: random.Random, k: int) -> Asked:
        values = rng.sample(pool, k)
        return _listed(values), choose(values)

    return ask


_number, _word = partial(_one_of, _NUMBERS), partial(_one_of, _WORDS)


def _next(rng: random.Random, k: int) -> Asked:
    """Draw a sequence with steps of at most 3 k."""
    first, step = rng.randint(1, 40), rng.randint(1, 3 * k)
    return _listed([first + step * n for n in range(4)]), first + 4 * step


def _repeated(rng: random.Random, k: int) -> Asked:
    """Draw k numbers, one of them twice."""
    values = rng.sample(_NUMBERS, k - 1)
    return _listed(rng.sample([*values, values[0]], k)), values[0]


def _different(rng: random.Random, k: int) -> Asked:
    """Draw one number k - 1 times, and another one."""
    other, same = rng.sample(_NUMBERS, 2)
    values = [same] * (k - 1)
    values.insert(rng.randrange(k), other)
    return _listed(values), other


def _neighbour(step: int) -> Callable[[random.Random, int], Asked]:
    """Ask for the number next to one of k digits."""

    def ask(rng: random.Random, k: int) -> Asked:
        value = rng.randrange(10 ** (k - 1), 10**k - 1)
        return str(value), value + step

    return ask


FAMILIES = {
    "number after": Family((2,), _neighbour(1), (("12", "13"), ("64", "65"))),
    "number before": Family((2,), _neighbour(-1), (("13", "12"), ("65", "64"))),
    "largest": Family((3, 5), _number(max), (("12 80 31", "80"), ("7 25 64", "64"))),
    "smallest": Family((3, 5), _number(min), (("12 80 31", "12"), ("64 25 7", "7"))),
    "middle number": Family((3, 5), _number(lambda v: sorted(v)[len(v) // 2]), (("12 80 31", "31"), ("25 7 64", "25"))),
    "second number": Family((3, 5), _number(lambda v: v[1]), (("12 80 31", "80"), ("64 25 7", "25"))),
    "last number": Family((3, 5), _number(lambda v: v[-1]), (("12 80 31", "31"), ("64 25 7", "7"))),
    "repeated number": Family((4, 6), _repeated, (("12 80 31 80", "80"), ("7 7 25 64", "7"))),
    "different number": Family((4, 6), _different, (("12 80 80 80", "12"), ("7 7 25 7", "25"))),
    "next number": Family((1, 3), _next, (("3 5 7 9", "11"), ("4 5 6 7", "8"))),
    "second word": Family((3, 5), _word(lambda v: v[1]), (("dog cup tree", "cup"), ("book rain key", "rain"))),
    "last word": Family((3, 5), _word(lambda v: v[-1]), (("dog cup tree", "tree"), ("book rain key", "key"))),
}


def problem(rng: random.Random, key: str, k: int) -> Problem:
    """Draw a question, from either part; ConfigError for an unknown family or a difficulty that it lacks."""
    if key not in FAMILIES:
        raise unknown(FILE, "family", key, FAMILIES)
    if k not in FAMILIES[key].ks:
        raise ConfigError(f"{FILE}: k: family {key} has no difficulty {k}; allowed: {list(FAMILIES[key].ks)}")
    text, answer = FAMILIES[key].ask(rng, k)
    return Problem(f"{key}: {text}", str(answer), key, k)


def shown(question: Problem) -> bool:
    """Return whether the question's prompt would contain its answer."""
    return any(question.prompt == f"{question.family}: {text}" for text, _ in FAMILIES[question.family].examples)


def prompt_string(question: str) -> str:
    r"""Return the model input for a question; RL and evaluation both use this function.

    Raises ConfigError for a question of an unknown family.
    """
    key = question.partition(":")[0]
    if key not in FAMILIES:
        raise unknown("prompt questions", "family", key, FAMILIES)
    shown = "".join(f"{key}: {text}\n{box(answer)}{END}\n" for text, answer in FAMILIES[key].examples)
    return f"{shown}{question}\n"


def held_out(key: str, k: int, n: int, seed: int) -> list[Problem]:
    """Return `n` different test questions in a seeded order; ConfigError where the family has too few."""
    rng = random.Random(f"held-out {key} {k} {seed}")
    found: dict[str, Problem] = {}
    for _ in range(n * MOST_DRAWS):
        drawn = problem(rng, key, k)
        if is_test(drawn.prompt) and not shown(drawn):
            found.setdefault(drawn.prompt, drawn)
        if len(found) == n:
            return list(found.values())
    raise ConfigError(f"{FILE}: n: {key} k={k} has not {n} held-out questions")


# (family, k), drawn uniformly. No family of UNTAUGHT is among them: two benchmarks measure transfer.
UNTAUGHT = ("smallest", "last word")
LADDERS: dict[str, tuple[tuple[str, int], ...]] = {
    "mixed": tuple((key, family.ks[0]) for key, family in FAMILIES.items() if key not in UNTAUGHT),
}


def training_prompts(ladder: str, count: int, seed: int) -> list[Problem]:
    """Return `count` questions from the training part, in a fixed order, without the examples themselves.

    A longer list with the same seed begins with the shorter one. Raises ConfigError for an unknown ladder.
    """
    if ladder not in LADDERS:
        raise unknown(FILE, "ladder", ladder, LADDERS)
    rng = random.Random(f"training {ladder} {seed}")
    found: list[Problem] = []
    while len(found) < count:
        drawn = problem(rng, *rng.choice(LADDERS[ladder]))
        if not is_test(drawn.prompt) and not shown(drawn):
            found.append(drawn)
    return found
