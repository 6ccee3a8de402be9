"""The problems of the embedded experiment, their written-out solutions, and the held-out part.

    as    3-2-8+2?      3-2=1;1-8=3;3+2=5;\\boxed{5}
    mul   7*3*9?        7*3=1;1*9=9;\\boxed{9}
    mix   6+8-9*9?      6+8=4;4-9=5;5*9=5;\\boxed{5}
    add2  42+19?        2+9=11;1+4+1=6;\\boxed{61}
    seq   4,1,4,,?      1-4=7;4-1=3;4+7=1;1+3=4;\\boxed{4}
    inv   x-8+8+2=3?    3-2=1;1-8=3;3+8=1;\\boxed{1}
    swap  w2:25,13,54?  25=5;13=5;54=4;\\boxed{4}         where is the ball that was under cup 2 of 5?
    sort  s4192?        4=4;1=14;9=149;2=1249;\\boxed{1249}
    iter  p314526:2,,?  2=1;1=3;\\boxed{3}                f(1)=3, f(2)=1, ..: apply f to 2, once per comma

The first six are arithmetic. All of it but `add2` is modulo 10, left to right, without precedence. Operands of `*` are
3, 7 and 9, the units modulo 10: with free digits zero absorbs, and a constant answer scores 0.47; with units every step
is a bijection, and chance is 0.10 (`add2`: about 0.03). The last three are of a different kind, so that benchmarks
test different abilities: to follow a state (`swap`; chance 0.20), to change a list (`sort`; below 0.02), to look up
in a table (`iter`; 0.17). Each written step of any family is one fact with a short result, so that a model of 0.2 M
parameters can learn the facts.

Whether a prompt belongs to the test part depends only on its hash, not on the family, because an `as` prompt is also a
`mix` prompt. Base training and RL draw only from the other four fifths, benchmarks only from the test part.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from core.errors import ConfigError, unknown

BOS = "<bos>"
STYLES = ("worked", "direct", "check")
CHECK_AT_MOST = 4  # steps; longer solutions in style `check` would exceed 64 tokens and fall back to `worked`
ENUMERATE_AT_MOST = 100_000  # prompts; larger spaces are sampled, never listed

_DIGITS = tuple("0123456789")
_PLUS_MINUS = tuple(f"{sign}{digit}" for sign in "+-" for digit in range(1, 10))
_TIMES = ("*3", "*7", "*9")
_APPLY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: (a + b) % 10,
    "-": lambda a, b: (a - b) % 10,
    "*": lambda a, b: (a * b) % 10,
}
_UNDO = {"+": "-", "-": "+"}
_CUPS = "12345"
_PAIRS = tuple(f"{a}{b}" for a, b in itertools.combinations(_CUPS, 2))
_POINTS = "123456"  # what the function of `iter` maps; 6! functions are too many to memorise
_FUNCTIONS = tuple("".join(images) for images in itertools.permutations(_POINTS))


@dataclass(frozen=True)
class Problem:
    """One problem of a family."""

    prompt: str  # the bare text; the model input is `prompt_string(prompt)`
    answer: str
    family: str
    k: int  # difficulty: operations, swaps, digits to sort; for `seq` and `iter` the commas


@dataclass
class Paper:
    """The steps written while solving."""

    noise: float = 0.0  # probability per step of a random result, with which the solution continues
    rng: random.Random | None = None
    steps: list[str] = field(default_factory=list)

    def write(self, expression: str, result: str, slips: Sequence[str]) -> str:
        """Write `expression=result`, or one of `slips` as the result, and return the result as written."""
        if self.rng is not None and self.rng.random() < self.noise:
            result = self.rng.choice(slips)
        self.steps.append(f"{expression}={result}")
        return result

    def step(self, expression: str, result: int) -> int:
        """Write a number with `write`; a slip is a digit."""
        return int(self.write(expression, str(result), _DIGITS))

    def apply(self, left: int, sign: str, right: int) -> int:
        return self.step(f"{left}{sign}{right}", _APPLY[sign](left, right))


@dataclass(frozen=True)
class Family:
    """Independent choices for each part of a prompt, the text composed of them, and a solver of that text."""

    slots: Callable[[int], Sequence[Sequence[str]]]  # difficulty -> the choices for each part
    work: Callable[[str, Paper], str]  # writes the steps for a prompt, returns the answer
    answers: Callable[[int], Sequence[str]] = lambda k: _DIGITS  # difficulty -> every text that can be an answer
    write: Callable[[Sequence[str]], str] = lambda parts: "".join(parts) + "?"  # chosen parts -> prompt
    only_k: int | None = None  # the only difficulty; None: 1 and more


def _write_sequence(parts: Sequence[str]) -> str:
    first, d, e, commas = parts
    second = _APPLY["+"](int(first), int(d))
    return f"{first},{second},{_APPLY['+'](second, int(e))}{commas}?"


def _left_to_right(prompt: str, paper: Paper) -> str:
    value = int(prompt[0])
    for sign, digit in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
        value = paper.apply(value, sign, int(digit))
    return str(value)


def _add_two_digits(prompt: str, paper: Paper) -> str:
    (a, b), (c, d) = (divmod(int(number), 10) for number in prompt[:-1].split("+"))
    units = paper.step(f"{b}+{d}", b + d)
    carry = units // 10
    tens = paper.step(f"{carry}+{a}+{c}", carry + a + c)
    return f"{tens}{units % 10}"


def _continue_sequence(prompt: str, paper: Paper) -> str:
    first, second, value = (int(digit) for digit in prompt[:5:2])
    differences = paper.apply(second, "-", first), paper.apply(value, "-", second)
    for index in range(len(prompt) - len("0,0,0?")):
        value = paper.apply(value, "+", differences[index % 2])
    return str(value)


def _undo_from_the_back(prompt: str, paper: Paper) -> str:
    text, result = prompt[:-1].split("=")
    value = int(result)
    for at in range(len(text) - 2, 0, -2):
        value = paper.apply(value, _UNDO[text[at]], int(text[at + 1]))
    return str(value)


def _follow_the_ball(prompt: str, paper: Paper) -> str:
    cup, pairs = prompt[1], prompt[3:-1].split(",")
    for pair in pairs:
        other = pair.replace(cup, "")
        cup = paper.write(pair, other if cup in pair else cup, _CUPS)
    return cup


def _insert_one_by_one(prompt: str, paper: Paper) -> str:
    done = ""
    for digit in prompt[1:-1]:
        places = [done[:at] + digit + done[at:] for at in range(len(done) + 1)]
        right = next((at for at, other in enumerate(done) if other > digit), len(done))
        done = paper.write(digit, places[right], places)
    return done


def _look_up(prompt: str, paper: Paper) -> str:
    images, tail = prompt[1:-1].split(":")
    value, commas = tail[0], tail[1:]
    for _ in commas:
        value = paper.write(value, images[_POINTS.index(value)], _POINTS)
    return value


_FAMILIES = {
    "as": Family(lambda k: [_DIGITS, *[_PLUS_MINUS] * k], _left_to_right),
    # `mul` starts at 1: from 0 every product is 0
    "mul": Family(lambda k: [_DIGITS[1:], *[_TIMES] * k], _left_to_right, lambda k: _DIGITS[1:]),
    "mix": Family(lambda k: [_DIGITS, *[_PLUS_MINUS + _TIMES] * k], _left_to_right),
    "add2": Family(
        lambda k: [[str(n) for n in range(10, 50)], [f"+{n}" for n in range(10, 50)]],
        _add_two_digits,
        lambda k: [str(n) for n in range(20, 99)],  # 10 + 10 to 49 + 49
        only_k=2,  # always two written steps: units, then tens with the carry
    ),
    "seq": Family(lambda k: [_DIGITS, _DIGITS[1:], _DIGITS[1:], ["," * k]], _continue_sequence, write=_write_sequence),
    "inv": Family(lambda k: [["x"], *[_PLUS_MINUS] * k, [f"={digit}" for digit in _DIGITS]], _undo_from_the_back),
    "swap": Family(
        lambda k: [["w"], _CUPS, [":"], _PAIRS, *[[f",{pair}" for pair in _PAIRS]] * (k - 1)],
        _follow_the_ball,
        lambda k: _CUPS,
    ),
    "sort": Family(
        lambda k: [["s"], *[_DIGITS[1:]] * k],
        _insert_one_by_one,
        lambda k: ["".join(digits) for digits in itertools.combinations_with_replacement("123456789", k)],
    ),
    "iter": Family(lambda k: [["p"], _FUNCTIONS, [":"], _POINTS, ["," * k]], _look_up, lambda k: _POINTS),
}


def family(key: str, k: int) -> Family:
    """Return the family `key`; ConfigError for an unknown key or a difficulty that the family does not have."""
    if key not in _FAMILIES:
        raise unknown("evals/arithmetic.py", "family", key, _FAMILIES)
    only = _FAMILIES[key].only_k
    if k < 1 or only not in (None, k):
        allowed = only or "1 and more"
        raise ConfigError(f"evals/arithmetic.py: k: family {key} has no difficulty {k}; allowed: {allowed}")
    return _FAMILIES[key]


def space(key: str, k: int) -> int:
    """Return how many prompts the family has at difficulty `k`, including the test part."""
    return math.prod(len(slot) for slot in family(key, k).slots(k))


def prompts(key: str, k: int) -> Iterator[str]:
    """Return every prompt of the family at difficulty `k`, in a fixed order."""
    entry = family(key, k)
    return (entry.write(parts) for parts in itertools.product(*entry.slots(k)))


def read(prompt: str, key: str, k: int) -> Problem:
    """Return the problem whose text is `prompt`."""
    return Problem(prompt, family(key, k).work(prompt, Paper()), key, k)


def problem(rng: random.Random, key: str, k: int) -> Problem:
    """Draw a problem uniformly, from either part."""
    entry = family(key, k)
    return read(entry.write([rng.choice(slot) for slot in entry.slots(k)]), key, k)


def solution(problem: Problem, style: str = "worked", noise: float = 0.0, rng: random.Random | None = None) -> str:
    """Return the answer text, without the end token.

    style: `worked`, `check` (each step written twice; at most 4 steps, else worked) or `direct` (only the box).
    noise: probability per written step of a random result, with which the solution continues; for `direct`, of a
    random answer. Needs `rng`.
    """
    if style not in STYLES:
        raise unknown("evals/arithmetic.py", "style", style, STYLES)
    if noise and rng is None:
        raise ConfigError("evals/arithmetic.py: noise: needs `rng`, because wrong digits are drawn")
    if style == "direct":
        slip = rng is not None and rng.random() < noise
        return box(rng.choice(family(problem.family, problem.k).answers(problem.k)) if rng and slip else problem.answer)
    paper = Paper(noise, rng)
    answer = family(problem.family, problem.k).work(problem.prompt, paper)
    times = 2 if style == "check" and len(paper.steps) <= CHECK_AT_MOST else 1
    return "".join(f"{step};" * times for step in paper.steps) + box(answer)


def box(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


def prompt_string(prompt: str) -> str:
    """Return the model input for a prompt; base training, RL and evaluation all use this function.

    >>> prompt_string("7*3?")
    '<bos>7*3?'
    """
    return BOS + prompt


def is_test(prompt: str) -> bool:
    """Return whether the bare prompt belongs to the held-out fifth of all texts."""
    return int.from_bytes(hashlib.sha256(prompt.encode()).digest()[:4], "big") % 5 == 0


def held_out(key: str, k: int, n: int, seed: int) -> list[Problem]:
    """Return `n` different test problems in a seeded order.

    Raises ConfigError when the test part is smaller than `n`, or, in a space too large to list, when `n` is more than a
    tenth of the whole space, because drawing until nearly all of the test part has come up would take too long.
    """
    # A string as seed: Python hashes it with SHA-512, so that it gives the same numbers in every process.
    rng = random.Random(f"held-out {key} {k} {seed}")
    if space(key, k) <= ENUMERATE_AT_MOST:
        test = [prompt for prompt in prompts(key, k) if is_test(prompt)]
        if n > len(test):
            raise ConfigError(f"evals/arithmetic.py: n: {key} k={k} has {len(test)} held-out problems, asked for {n}")
        return [read(prompt, key, k) for prompt in rng.sample(test, n)]
    if n > space(key, k) // 10:
        raise ConfigError(f"evals/arithmetic.py: n: {key} k={k} has {space(key, k)} prompts, asked for {n} held out")
    chosen: dict[str, Problem] = {}
    while len(chosen) < n:
        drawn = problem(rng, key, k)
        if is_test(drawn.prompt):
            chosen.setdefault(drawn.prompt, drawn)
    return list(chosen.values())


# (family, k), drawn uniformly; add2 is twice in `wide` because it is the only family of its kind there.
# The lengths reach the benchmarks' longest: models this small do not extrapolate in length (measured).
_WIDE = (
    ("as", 3), ("as", 4), ("mix", 3), ("mix", 4), ("mix", 5), ("add2", 2), ("add2", 2), ("inv", 2),
    ("seq", 1), ("seq", 2), ("swap", 2), ("swap", 3), ("swap", 4), ("sort", 2), ("sort", 3), ("sort", 4), ("iter", 1),
    ("iter", 2), ("iter", 3),
)  # fmt: skip
UNTAUGHT = ("seq", "iter")  # families of `wide` that are not in `taught`

LADDERS: dict[str, tuple[tuple[str, int], ...]] = {
    "quick": (
        ("as", 2), ("as", 3), ("mul", 3), ("mul", 4), ("mix", 2), ("mix", 3), ("add2", 2), ("inv", 2), ("seq", 1),
    ),
    "wide": _WIDE,
    # Table look-up is learnt last or not at all; drawn three times as often, it is learnt with the rest.
    "lookups": (*_WIDE, *[entry for entry in _WIDE if entry[0] == "iter"] * 2),
    # RL on it leaves two families of a `wide` base untrained: their benchmarks measure transfer.
    "taught": tuple((key, k) for key, k in _WIDE if key not in UNTAUGHT),
}  # fmt: skip


def training_problem(rng: random.Random, ladder: str) -> Problem:
    """Draw a problem of the ladder from the training part."""
    if ladder not in LADDERS:
        raise unknown("evals/arithmetic.py", "ladder", ladder, LADDERS)
    key, k = rng.choice(LADDERS[ladder])
    while True:
        drawn = problem(rng, key, k)
        if not is_test(drawn.prompt):
            return drawn


def training_prompts(ladder: str, count: int, seed: int) -> list[Problem]:
    """Return `count` training problems in a fixed order; a longer list from the same seed extends the shorter one."""
    rng = random.Random(f"training {ladder} {seed}")
    return [training_problem(rng, ladder) for _ in range(count)]
