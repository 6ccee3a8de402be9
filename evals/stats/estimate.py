"""What a statistic may look like: a value with an interval and the level at which it holds, or the reason for none.

Unlike most libraries' results these refuse the misleading forms: an SE of 0, an interval collapsed to its point, an
interval without a level. What is unknown is None and `how` says why.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import ConfigError
from evals.stats import intervals
from evals.stats.responses import Samples

# What is imagined drawn again. problem: other problems of this kind, for one checkpoint. seed: other training seeds, on
# these very problems. Both at once is not offered: nothing here reports it, and a table would have to say which it is.
Level = Literal["problem", "seed"]
LEVELS: tuple[Level, ...] = get_args(Level)


@dataclass(frozen=True)
class Estimate:
    """A score in [0, 1], or another figure of a run, and how sure it is. Raises ValueError for a misleading form."""

    value: float | None  # None only when a part is missing
    se: float | None  # standard error; None when it cannot be estimated
    low: float | None  # 95 % interval: both ends or neither
    high: float | None
    level: Level  # what is imagined drawn again
    how: str  # method and sample in words, or why there is no interval
    n: int  # drawn units: problems, or seeds

    def __post_init__(self) -> None:
        _check(self.value, self.se, self.low, self.high, self.level, self.how)


@dataclass(frozen=True)
class Comparison:
    """A paired difference `a - b` (of scores: in [-1, 1]) and how sure it is. Fields and errors as in `Estimate`."""

    difference: float | None
    se: float | None
    low: float | None
    high: float | None
    p: float | None  # two-sided, raw: correct a table of them with `holm`
    detectable: float | None  # smallest true difference found significant at 5 % in 80 % of repetitions, given the SE
    level: Level
    how: str
    n: int
    df: float | None = None  # degrees of freedom of `se` in the t test; None: no t test

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


def maj_at_k(answers_PK: Sequence[Sequence[str | None]], right_PK: ArrayLike) -> NDArray[np.float64]:
    """(P,) whether the most frequent of K answers is right; ties score the share of tied answers that is right.

    answers: the normalised answer of each sample, None without one. Samples without an answer do not vote; a problem
    without any vote scores 0. Two spellings that the normaliser keeps apart are two answers. Should the grader have
    judged one answer differently in two samples (a timeout), that answer counts the share of its samples judged right.

    >>> maj_at_k([["4", "4", "5", None]], [[True, True, False, False]]).tolist()
    [1.0]
    >>> maj_at_k([["4", "5"]], [[True, False]]).tolist()
    [0.5]
    """
    right = np.asarray(right_PK, bool).tolist()
    scores = np.zeros(len(answers_PK))
    for problem, answers in enumerate(answers_PK):
        votes = Counter(answers)
        del votes[None]
        hits = Counter(answer for answer, is_right in zip(answers, right[problem], strict=True) if is_right)
        if votes:
            most = max(votes.values())
            tied = [answer for answer, count in votes.items() if count == most]
            scores[problem] = sum(hits[answer] / most for answer in tied) / len(tied)
    return scores


# One checkpoint on one benchmark: what would it score on other problems of this kind? The unit is the problem, because
# the samples of one problem are not independent: 32 answers to a problem that is too hard are one piece of evidence.


def estimate(samples: Samples) -> Estimate:
    """avg@k with an interval clustered by problem.

    y_i = mean over the samples of problem i; SE = sd(y)/sqrt(P); interval: Wilson's with the effective number of
    answers p(1-p)/SE^2 (`intervals.score_interval`). All right or all wrong: se is None. One problem: no interval.
    """
    problems = len(samples.rows_per_problem)
    mean = intervals.clustered_mean(samples.right_per_problem, samples.rows_per_problem)
    value = samples.score
    if problems < 2:
        return Estimate(value, None, None, None, "problem", "one problem: no interval", problems)
    low, high = intervals.score_interval(samples.right_per_problem, samples.rows_per_problem, samples.responses)
    se = float(mean.se) or None
    how = f"Wilson-t over {problems} problems"
    if value in (0.0, 1.0):
        how += f", all {'right' if value else 'wrong'}"
    elif se is None:
        how += ", all alike"
    return Estimate(value, se, min(float(low), value), max(float(high), value), "problem", how, problems)


def generation_se(samples: Samples) -> float | None:
    """Standard error from generation alone: sqrt(sum p_i (1 - p_i) / (k - 1)) / rows. None at k = 1, and
    when no problem was answered both ways.

    How far the score would move if the same checkpoint answered the same problems again: another question than
    `estimate` answers, hence no Estimate and no interval. It is 2.5 to 4.5 times smaller than the SE over problems and
    must not be printed in its place.
    """
    if samples.k < 2:
        return None
    p_I = samples.right.mean(1)
    return float(np.sqrt((p_I * (1 - p_I) / (samples.k - 1)).sum()) / len(p_I)) or None


# The two averages over benchmarks. pooled: every response weighs the same (the paper's "Avg."); macro: every column.
#
# With the paper's seven sets the pool holds 8,844 responses, 62 % of them AMC and OMNI-MATH (`paper.printed`).


def pooled(parts: Mapping[str, Samples | int], *, missing_as_wrong: bool = False) -> Estimate:
    """Right responses over responses, strata by benchmark; give each benchmark's `pool` rows.

    A benchmark that was not run, a "-" in the paper, is the number of responses that it would have had.
    Benchmarks not run are left out, or count as wrong in full (what the paper's Mistral rows do): reading E10.
    `how` says which. Interval: MOVER over the benchmarks' own intervals, because Wilson's are lopsided near 0 and 1 and
    one SE for both sides would lose that.
    """
    run, missing = _split(parts)
    asked = sum(s.responses for s in run.values())
    how = "pooled by responses"
    if missing:
        treated = "counted as wrong" if missing_as_wrong else "left out"
        how += f", {len(missing)} of {len(parts)} benchmarks not run: {treated}"
    if missing_as_wrong:
        asked += sum(missing.values())
    return _weighted({key: s.responses / asked for key, s in run.items()}, run, how)


def macro(parts: Mapping[str, Samples | int]) -> Estimate:
    """Mean of the benchmarks' scores; give each benchmark's `column` rows. None when one was not run."""
    run, missing = _split(parts)
    if missing:
        how = f"{len(missing)} of {len(parts)} benchmarks not run: no macro average"
        return Estimate(None, None, None, None, "problem", how, sum(len(s.rows_per_problem) for s in run.values()))
    return _weighted({key: 1 / len(run) for key in run}, run, f"mean of {len(run)} benchmarks")


def _split(parts: Mapping[str, Samples | int]) -> tuple[dict[str, Samples], dict[str, int]]:
    run = {key: part for key, part in parts.items() if isinstance(part, Samples)}
    if not run:
        raise ConfigError(f"an average needs at least one benchmark that was run; got {', '.join(parts) or 'none'}")
    return run, {key: part for key, part in parts.items() if isinstance(part, int)}


def _weighted(weights: Mapping[str, float], run: Mapping[str, Samples], how: str) -> Estimate:
    one = {key: estimate(samples) for key, samples in run.items()}
    n = sum(e.n for e in one.values())
    value = math.fsum(weights[key] * run[key].score for key in run)
    parts: list[tuple[float, float, float, float, float]] = []
    for key, e in one.items():
        if e.low is None or e.high is None:
            how = f"{how}; no interval: {key}: {e.how}"
            return Estimate(value, None, None, None, "problem", how, n)
        # a benchmark all right or all wrong has no SE of its own: a quarter of its interval stands for it
        se = e.se if e.se is not None else (e.high - e.low) / 4
        parts.append((weights[key], run[key].score, e.low, e.high, se))
    w, v, low_B, high_B, se_B = zip(*parts, strict=True)
    _, (low, high) = intervals.combine(w, v, low_B, high_B)
    total = math.hypot(*(weight * se for weight, se in zip(w, se_B, strict=True)))
    bounds = max(0.0, min(float(low), value)), min(1.0, max(float(high), value))
    return Estimate(value, total, *bounds, "problem", f"{how}; MOVER over {len(run)} strata, {n} problems", n)
