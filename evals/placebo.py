"""Placebo rewards: less informative about the answers than the true reward, or the opposite of it.

A run's specification names one next to its reward: `"reward": "evals.reward:boxed", "placebo": "evals.placebo:coin"`.
Each response still gets its true reward, which the curve records; the method trains on the placebo's value.
A gain of a method under a placebo is not an effect of the reward.

A placebo receives one draw of a rollout: all its responses, group by group, and their true rewards. It is a pure
function of these and of a seed derived from the run's seed, the rollout and the draw, so a resumed run gets the same.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal

from evals.grading.boxes import last_box

Placebo = Callable[[Sequence[float], Sequence[str], int], list[float]]
Name = Literal["coin", "format", "inverted", "shuffled"]  # as a variant of the configuration names it

# The largest variance, and hardly a group of 8 with equal rewards: nearly all samples may be trained on.
HEADS = 0.5


def coin(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """Return 1.0 with probability `HEADS`, else 0.0, drawn by place of the response: equal responses may differ.

    >>> coin([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"], seed=1)
    [1.0, 0.0, 0.0, 1.0]
    """
    draw = random.Random(seed)
    return [float(draw.random() < HEADS) for _ in rewards]


def boxes(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    r"""Return 1.0 for each response with a non-empty box, right or wrong: only the required form counts.

    >>> boxes([0.0, 0.0], [r"so \boxed{5}", "5"], seed=1)
    [1.0, 0.0]
    """
    return [float(bool(last_box(response))) for response in responses]


def inverted(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """Return 1 - reward: a right answer is penalised as much as the true reward rewards it."""
    return [1.0 - reward for reward in rewards]


def shuffled(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """Return the draw's true rewards, permuted over all its groups: the same mean, assigned to responses by chance."""
    given = list(rewards)
    random.Random(seed).shuffle(given)
    return given


CATALOG: dict[Name, Placebo] = {"coin": coin, "format": boxes, "inverted": inverted, "shuffled": shuffled}


def dotted(name: Name) -> str:
    """Return the name of that placebo in a run's specification.

    >>> dotted("format")
    'evals.placebo:boxes'
    """
    return f"evals.placebo:{CATALOG[name].__name__}"
