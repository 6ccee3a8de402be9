"""What a statistic may look like: a value with an interval and the level at which it holds, or the reason for none.

Unlike most libraries' results these refuse the misleading forms: an SE of 0, an interval collapsed to its point, an
interval without a level. What is unknown is None and `how` says why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

Level = Literal["problem", "seed", "seed and problem"]
"""What is imagined drawn again: other problems of this kind for one checkpoint; another training seed on these very
problems; both."""

LEVELS: tuple[Level, ...] = get_args(Level)
CONFIDENCE = 0.95


def known(value: object) -> float | None:
    """A Python float, or None for nan: arrays mark the unknown with nan, results with None."""
    number = float(value)  # type: ignore[arg-type]
    return None if math.isnan(number) else number


@dataclass(frozen=True)
class Estimate:
    """A score in [0, 1], or another figure of a run, and how sure it is.

    value: None only when a part is missing. se: standard error, None when it cannot be estimated. low, high: 95 %
    interval, both or neither. level: what was drawn at random. how: method and sample in words, or why there is no
    interval. n: number of drawn units (problems, or seeds).
    """

    value: float | None
    se: float | None
    low: float | None
    high: float | None
    level: Level
    how: str
    n: int

    def __post_init__(self) -> None:
        _check(self.value, self.se, self.low, self.high, self.level, self.how)


@dataclass(frozen=True)
class Comparison:
    """A paired difference `a - b` (of scores: in [-1, 1]) and how sure it is.

    p: two-sided, raw (correct a table of them with `holm`). detectable: the smallest true difference that this
    comparison finds significant at 5 % in 80 % of repetitions, given its SE. Other fields as in `Estimate`.
    """

    difference: float | None
    se: float | None
    low: float | None
    high: float | None
    p: float | None
    detectable: float | None
    level: Level
    how: str
    n: int

    def __post_init__(self) -> None:
        _check(self.difference, self.se, self.low, self.high, self.level, self.how)
        if self.p is not None and not 0 <= self.p <= 1:
            raise ValueError(f"p = {self.p} lies outside [0, 1]")


def _check(value: float | None, se: float | None, low: float | None, high: float | None, level: str, how: str) -> None:
    if level not in LEVELS:
        raise ValueError(f"level {level!r} is none of {', '.join(LEVELS)}")
    if not how:
        raise ValueError("an estimate must say how it was made")
    for name, number in (("value", value), ("se", se), ("low", low), ("high", high)):
        if number is not None and not math.isfinite(number):
            raise ValueError(f"{name} = {number}: unknown is None")
    if se is not None and se <= 0:
        raise ValueError(f"se = {se}: a standard error that cannot be estimated is None, never 0")
    if (low is None) != (high is None):
        raise ValueError("an interval has two ends or none")
    if low is not None and high is not None:
        if value is None:
            raise ValueError("an interval needs a value")
        if not low <= value <= high or low == high:
            raise ValueError(f"interval [{low}, {high}] does not hold {value} or is a point")
