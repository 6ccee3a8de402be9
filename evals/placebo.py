"""Placebo rewards: training sees numbers that say less about the answers than the true reward does, or the opposite.

A run's specification names one beside its reward: `"reward": "evals.reward:boxed", "placebo": "evals.placebo:coin"`.
Each response still gets its true reward, which the curve records; the method trains on what the placebo makes of it.
What a method gains under a placebo is no effect of the reward.

A placebo sees one draw of a rollout: all its responses, group by group, and their true rewards. It is a pure function
of these and of a seed that is derived from the run's seed, the rollout and the draw, so a resumed run gets the same.
"""

import random
from collections.abc import Callable, Sequence
from typing import Literal

from evals.grading.normalise import last_box

Placebo = Callable[[Sequence[float], Sequence[str], int], list[float]]
Name = Literal["coin", "format", "inverted", "shuffled"]  # as a variant of the configuration names it

# The largest variance, and hardly a group of 8 with equal rewards: nearly all that is sampled may be trained on.
HEADS = 0.5


def coin(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """1.0 with probability `HEADS`, else 0.0, drawn for each response by its place: equal responses may differ.

    >>> coin([1.0, 1.0, 0.0, 0.0], ["a", "a", "b", "b"], seed=1)
    [1.0, 0.0, 0.0, 1.0]
    """
    draw = random.Random(seed)
    return [float(draw.random() < HEADS) for _ in rewards]


def boxes(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    r"""1.0 for each response with a box that holds anything, right or wrong: the form that is asked for, and no more.

    >>> boxes([0.0, 0.0], [r"so \boxed{5}", "5"], seed=1)
    [1.0, 0.0]
    """
    return [float(bool(last_box(response))) for response in responses]


def inverted(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """1 - reward: a right answer is punished as much as the true reward praises it."""
    return [1.0 - reward for reward in rewards]


def shuffled(rewards: Sequence[float], responses: Sequence[str], seed: int) -> list[float]:
    """The draw's true rewards, permuted over all its groups: the same mean, given to responses by chance."""
    given = list(rewards)
    random.Random(seed).shuffle(given)
    return given


CATALOG: dict[Name, Placebo] = {"coin": coin, "format": boxes, "inverted": inverted, "shuffled": shuffled}


def dotted(name: Name) -> str:
    """How a run's specification names that placebo.

    >>> dotted("format")
    'evals.placebo:boxes'
    """
    return f"evals.placebo:{CATALOG[name].__name__}"
