"""What a grade can say. Only `correct` scores 1; every other verdict scores 0 and is counted under its own name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from records.code_hashes import closure, code_hash
from records.provenance import version


class Verdict(StrEnum):
    """One word per way in which a response can end."""

    CORRECT = "correct"
    """The boxed answer equals the gold."""
    WRONG = "wrong"
    """There is a boxed answer and it does not equal the gold."""
    NO_ANSWER = "no_answer"
    """The model stopped by itself and left no balanced, filled box."""
    TRUNCATED = "truncated"
    """The token limit cut the response before a box was closed."""
    UNPARSED_GOLD = "unparsed_gold"
    """No reader makes an object of the gold, and the strings differ: the item decides nothing."""
    TIMEOUT = "timeout"
    """The comparison used up its CPU seconds, twice."""
    ERROR = "error"
    """The comparison died otherwise (memory, signal, exception); the grade's `rule` says of what."""


class Rule(StrEnum):
    """Which stage decided, from the cheapest to the dearest."""

    NONE = "none"
    """No answer to compare."""
    STRING = "string"
    """Equal, or different, as normalised text."""
    LENGTH = "length"
    """Longer than any gold can be."""
    NUMBER = "number"
    """Exact rational numbers."""
    TOLERANCE = "tolerance"
    """Within half a unit of the gold's last printed digit, or within the item's own tolerance."""
    SYMBOLIC = "symbolic"
    """math-verify, in a worker process."""


class Outcome(StrEnum):
    """What a comparison in a worker found."""

    EQUAL = "equal"
    DIFFERENT = "different"
    UNPARSED_GOLD = "unparsed_gold"


@dataclass(frozen=True)
class Grade:
    """The verdict on one response.

    extracted: content of the last box, None without one. normalised: what was compared. rule: a `Rule`, or for
    `error` the reason. seconds: CPU seconds the comparison took (0 when it was read from the cache).
    """

    verdict: Verdict
    extracted: str | None
    normalised: str | None
    rule: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Decision:
    """What a stage found out: whether the answer equals the gold, and by which rule."""

    equal: bool
    rule: Rule


# Which grader made a verdict: its own source and everything below it that can change a verdict.


PACKAGES = ("math-verify", "latex2sympy2-extended", "sympy", "mpmath", "antlr4-python3-runtime")


@cache
def versions() -> dict[str, str | None]:
    """Package versions; verdicts on percentages differ between antlr runtimes, so that one is in it too."""
    return {package: version(package) for package in PACKAGES}


@cache
def grader_version() -> str:
    """`g-` and 12 digits over the code behind a verdict and `versions()`."""
    facts = json.dumps([code_hash(closure("evals.grading.grader")), versions()], sort_keys=True)
    return "g-" + hashlib.sha256(facts.encode()).hexdigest()[:12]
