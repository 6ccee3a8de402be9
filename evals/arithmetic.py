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
test different abilities: following a state (`swap`; chance 0.20), changing a list (`sort`; below 0.02), looking up
in a table (`iter`; 0.17). Each written step of any family is one fact with a short result, so that a model of 0.2 M
parameters can learn the facts.

Whether a prompt belongs to the test part depends only on its hash, not on the family, because an `as` prompt is also a
`mix` prompt. Base training and RL draw only from the other four fifths, benchmarks only from the test part.
"""

import hashlib
import itertools
import math
import random
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass

from core.errors import ConfigError, unknown

FILE = "evals/arithmetic.py"
BOS = "<bos>"
STYLES = ("worked", "direct", "check")
CHECK_AT_MOST = 4  # steps; longer solutions in style `check` would exceed 64 tokens and fall back to `worked`
ENUMERATE_AT_MOST = 100_000  # prompts; larger spaces are sampled, never listed

_DIGITS = tuple("0123456789")
_PLUS_MINUS = tuple(f"{sign}{digit}" for sign in "+-" for digit in range(1, 10))
_TIMES = ("*3", "*7", "*9")
_CUPS = "12345"
_PAIRS = tuple(f"{a}{b}" for a, b in itertools.combinations(_CUPS, 2))
_POINTS = "123456"  # what the function of `iter` maps; 6! functions are too many to memorise
_FUNCTIONS = tuple("".join(images) for images in itertools.permutations(_POINTS))

Work = Generator[tuple[str, str, Sequence[str]], str, str]
"""Steps of a solution: (expression, result, what a slip may write) -> the result as written. Returns the answer."""


@dataclass(frozen=True)
class Problem:
    """One problem of a family."""

    prompt: str  # the bare text; the model input is `prompt_string(prompt)`
    answer: str
    family: str
    k: int  # difficulty: operations, swaps, digits to sort; for `seq` and `iter` the commas


@dataclass(frozen=True)
class Family:
    """Independent choices for each part of a prompt, the text composed of them, and a solver of that text."""

    slots: Callable[[int], Sequence[Sequence[str]]]  # difficulty -> the choices for each part
    work: Callable[[str], Work]  # solves a prompt
    answers: Callable[[int], Sequence[str]] = lambda k: _DIGITS  # difficulty -> every text that can be an answer
    write: Callable[[Sequence[str]], str] = lambda parts: "".join(parts) + "?"  # chosen parts -> prompt
    only_k: int | None = None  # the only difficulty; None: 1 and more


def _apply(left: str, sign: str, right: str) -> str:
    a, b = int(left), int(right)
    return str({"+": a + b, "-": a - b, "*": a * b}[sign] % 10)


def _step(left: str, sign: str, right: str) -> Work:
    return (yield f"{left}{sign}{right}", _apply(left, sign, right), _DIGITS)


def _write_sequence(parts: Sequence[str]) -> str:
    first, d, e, commas = parts
    second = _apply(first, "+", d)
    return f"{first},{second},{_apply(second, '+', e)}{commas}?"


def _left_to_right(prompt: str) -> Work:
    value = prompt[0]
    for sign, digit in zip(prompt[1:-1:2], prompt[2:-1:2], strict=True):
        value = yield from _step(value, sign, digit)
    return value


def _add_two_digits(prompt: str) -> Work:
    a, b, _, c, d, _ = list(prompt)
    units = int((yield f"{b}+{d}", str(int(b) + int(d)), _DIGITS))
    tens = yield f"{units // 10}+{a}+{c}", str(units // 10 + int(a) + int(c)), _DIGITS
    return f"{int(tens)}{units % 10}"


def _continue_sequence(prompt: str) -> Work:
    first, second, value = list(prompt[:5:2])
    differences = (yield from _step(second, "-", first)), (yield from _step(value, "-", second))
    for index in range(len(prompt) - len("0,0,0?")):
        value = yield from _step(value, "+", differences[index % 2])
    return value


def _undo_from_the_back(prompt: str) -> Work:
    text, value = prompt[:-1].split("=")
    for at in range(len(text) - 2, 0, -2):
        value = yield from _step(value, {"+": "-", "-": "+"}[text[at]], text[at + 1])
    return value


def _follow_the_ball(prompt: str) -> Work:
    cup = prompt[1]
    for pair in prompt[3:-1].split(","):
        cup = yield pair, pair.replace(cup, "") if cup in pair else cup, _CUPS
    return cup


def _insert_one_by_one(prompt: str) -> Work:
    done = ""
    for digit in prompt[1:-1]:
        places = [done[:at] + digit + done[at:] for at in range(len(done) + 1)]
        right = next((at for at, other in enumerate(done) if other > digit), len(done))
        done = yield digit, places[right], places
    return done


def _look_up(prompt: str) -> Work:
    images, tail = prompt[1:-1].split(":")
    value = tail[0]
    for _ in tail[1:]:
        value = yield value, images[_POINTS.index(value)], _POINTS
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
        raise unknown(FILE, "family", key, _FAMILIES)
    only = _FAMILIES[key].only_k
    if k < 1 or only not in (None, k):
        allowed = only or "1 and more"
        raise ConfigError(f"{FILE}: k: family {key} has no difficulty {k}; allowed: {allowed}")
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
    return Problem(prompt, _solved(prompt, family(key, k))[1], key, k)


def _solved(prompt: str, of: Family, noise: float = 0.0, rng: random.Random | None = None) -> tuple[list[str], str]:
    """Return the written steps and the answer; noise: probability per step of a slip, from which the work continues."""
    steps, work = list[str](), of.work(prompt)
    step = next(work)
    while True:
        expression, result, slips = step
        if rng is not None and rng.random() < noise:
            result = rng.choice(slips)
        steps.append(f"{expression}={result}")
        try:
            step = work.send(result)
        except StopIteration as end:
            return steps, end.value


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
        raise unknown(FILE, "style", style, STYLES)
    if noise and rng is None:
        raise ConfigError(f"{FILE}: noise: needs `rng`, because wrong digits are drawn")
    of = family(problem.family, problem.k)
    if style == "direct":
        slip = rng is not None and rng.random() < noise
        return box(rng.choice(of.answers(problem.k)) if rng and slip else problem.answer)
    steps, answer = _solved(problem.prompt, of, noise, rng)
    times = 2 if style == "check" and len(steps) <= CHECK_AT_MOST else 1
    return "".join(f"{step};" * times for step in steps) + box(answer)


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
    """Return `n` different test problems in a seeded order; ConfigError where the family has too few."""
    # A string as seed: Python hashes it with SHA-512, so that it gives the same numbers in every process.
    rng = random.Random(f"held-out {key} {k} {seed}")
    if space(key, k) <= ENUMERATE_AT_MOST:
        test = [prompt for prompt in prompts(key, k) if is_test(prompt)]
        if n > len(test):
            raise ConfigError(f"{FILE}: n: {key} k={k} has {len(test)} held-out problems, asked for {n}")
        return [read(prompt, key, k) for prompt in rng.sample(test, n)]
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
        raise unknown(FILE, "ladder", ladder, LADDERS)
    key, k = rng.choice(LADDERS[ladder])
    while True:
        drawn = problem(rng, key, k)
        if not is_test(drawn.prompt):
            return drawn


def training_prompts(ladder: str, count: int, seed: int) -> list[Problem]:
    """Return `count` training problems in a fixed order; a longer list from the same seed extends the shorter one."""
    rng = random.Random(f"training {ladder} {seed}")
    return [training_problem(rng, ladder) for _ in range(count)]
