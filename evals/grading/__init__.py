"""Define the verdicts. Only `correct` scores 1; every other verdict scores 0 and is counted under its own name."""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """The possible outcomes of grading a response."""

    CORRECT = "correct"  # the boxed answer equals the gold
    WRONG = "wrong"  # there is a boxed answer, and it does not equal the gold
    NO_ANSWER = "no_answer"  # the model stopped without a balanced, filled box
    TRUNCATED = "truncated"  # the token limit cut the response before a box was closed
    UNPARSED_GOLD = "unparsed_gold"  # no parser accepts the gold, and the strings differ
    TIMEOUT = "timeout"  # the comparison used up its CPU seconds
    ERROR = "error"  # grading ended otherwise (memory, signal, exception); the grade's `rule` has the reason


class Rule(StrEnum):
    """The stage that decided, from the cheapest to the most expensive."""

    NONE = "none"  # no answer to compare
    STRING = "string"  # equal, or different, as normalised text
    LENGTH = "length"  # longer, or nested deeper, than any possible gold
    NUMBER = "number"  # exact rational numbers
    TOLERANCE = "tolerance"  # within half a unit of the gold's last printed digit, or within the item's tolerance
    SYMBOLIC = "symbolic"  # math-verify, in a worker process


@dataclass(frozen=True)
class Grade:
    """The verdict on one response."""

    verdict: Verdict
    extracted: str | None  # content of the last box; None without one
    normalised: str | None  # the compared text
    rule: str  # a `Rule`; for the verdict `error`, the reason
    seconds: float = 0.0  # CPU time of the comparison; 0 when no worker was needed
