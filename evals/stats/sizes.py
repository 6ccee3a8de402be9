"""Two scores over problems: their difference, its detectable size, and the problems needed to decide it.

A checkpoint solves problem i with chance p_i. The difference of two scores over n problems has the variance of
p_i - q_i between problems, which only more problems reduce, and on each side the mean of p_i(1 - p_i) over k samples.
A score without its problems' answers leaves both unknown: they lie between bounds that follow from the scores.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from scipy.special import ndtri

from core.errors import CorruptInputError
from evals.stats import ALPHA, compare
from evals.stats.estimate import Comparison


class Score(NamedTuple):
    """One side on one benchmark."""

    value: float  # in [0, 1]
    problems: int
    samples: float  # of each problem; their harmonic mean
    rows: pd.DataFrame | None = None  # by problem: share right, samples of a row, copies; None for a printed score

    def parts(self, spread: float) -> tuple[float, float]:
        """Return the variance of p_i over problems, and the mean of p_i(1 - p_i)/k.

        From answers, unbiased: s^2/k = mean y(1 - y)/(k - 1). Else for difficulties that are Beta-distributed with
        a + b = `spread`; a small one is all-or-nothing.
        """
        if self.rows is not None and len(self.rows) > 1 and self.rows["samples"].min() > 1:
            y, k = self.rows["share"], self.rows["samples"]
            sampled = float((y * (1 - y) / (k - 1)).mean())
            return max(0.0, float(y.var()) - sampled), sampled
        whole = self.value * (1 - self.value) / (1 + spread)
        return whole, whole * spread / self.samples


def of_answers(rows: pd.DataFrame) -> Score:
    """Return the score of problems with their answers: columns share, samples, copies."""
    value = float((rows["copies"] * rows["share"]).sum() / rows["copies"].sum())
    return Score(value, len(rows), float(len(rows) / (1 / rows["samples"]).sum()), rows)


def compare_scores(
    a: Score, b: Score, spread: float, correlation: float
) -> tuple[tuple[Score, Score], list[Comparison]]:
    """Compare a - b on the problems that count: one comparison where both have their problems' answers, else the
    smallest possible, the assumed and the largest possible variance (`score_errors`). Also return both scores.

    Raises CorruptInputError for answers to other problems.
    """
    if a.rows is None or b.rows is None:
        n, gap = min(a.problems, b.problems), a.value - b.value
        errors = score_errors(a, b, spread, correlation)
        return (a, b), [compare.of_problems(gap, math.sqrt(e), n - 1.0, n, "printed scores") for e in errors]
    rows_a, rows_b = a.rows.sort_index().align(b.rows, join="inner", axis=0)
    if rows_a.empty:
        raise CorruptInputError(f"no problem in common: the first are {a.rows.index[0]!r} and {b.rows.index[0]!r}")
    copies = rows_a["copies"]
    if (other := copies != rows_b["copies"]).any():
        raise CorruptInputError(f"{other.idxmax()!r} has copies on one side only")
    comparison = compare.of_gaps((rows_a["share"] - rows_b["share"]) * copies, copies)
    return (of_answers(rows_a), of_answers(rows_b)), [comparison]


def together(weights: Mapping[str, float], found: Mapping[str, Sequence[Comparison]]) -> list[Comparison]:
    """Return the comparisons over several benchmarks, weighted: one for each variance."""
    return [
        compare.combined(weights, {key: each[which % len(each)] for key, each in found.items()}, "all responses")
        for which in range(max(map(len, found.values())))
    ]


def needed(c: Comparison) -> int | None:
    """Return the units that find the observed difference in 80 % of repetitions; None without a t test."""
    return None if c.se is None else units_needed(c.se * math.sqrt(c.n), c.difference or 0.0)


def units_needed(sd: float, effect: float) -> int | None:
    """Return the fewest units (problems, or pairs of seeds) of this sd that make `effect` detectable; None: impossible.

    Student's quantiles exceed the normal ones, so the search begins at the number by the normal law.

    >>> units_needed(0.03, 0.05)
    6
    """
    if effect == 0:
        return None
    n = max(2, math.ceil(((ndtri(1 - ALPHA / 2) + ndtri(compare.POWER)) * sd / effect) ** 2))
    while n < 10_000 and (compare.detectable(sd / math.sqrt(n), n - 1) or 0.0) > abs(effect):
        n += 1
    return n


def score_errors(a: Score, b: Score, spread: float, correlation: float) -> list[float]:
    """Return least, assumed and greatest possible squared SE of a - b.

    Equal numbers of problems are taken as the same problems; `correlation` is then that of p_i and q_i, and else 0.
    The bounds hold for all p_i, q_i in [0, 1] with means p, q. On the same problems
    f = (p_i - q_i)^2 + p_i(1 - p_i)/k + q_i(1 - q_i)/k is concave along equal gaps, so that with a gap g it is least
    where one of the two is 0 or 1: g^2 + g(1 - g)/k, which is convex; by Jensen's inequality the least variance is
    g(1 - g)/k at g = |p - q|. The most is at k = 1, where f = p_i + q_i - 2 p_i q_i, with problems that one always and
    the other never solves: min(p + q, 2 - p - q) - g^2. Otherwise each side has p(1 - p)/k (all problems alike) to
    p(1 - p) (all or nothing).
    """
    p, q, n, m = a.value, b.value, a.problems, b.problems
    (between_a, sampled_a), (between_b, sampled_b) = (side.parts(spread) for side in (a, b))
    if n == m:
        gap, both = abs(p - q), 2 * correlation * math.sqrt(between_a * between_b)
        floor = max(0.0, between_a + between_b - both) / n
        least = gap * (1 - gap) / max(a.samples, b.samples) / n
        most = (min(p + q, 2 - p - q) - gap**2) / n
    else:
        floor = between_a / n + between_b / m
        least = p * (1 - p) / n / a.samples + q * (1 - q) / m / b.samples
        most = p * (1 - p) / n + q * (1 - q) / m
    # Not every correlation is possible: the sum is clipped to the bound that it exceeds.
    total = min(max(floor + sampled_a / n + sampled_b / m, least), most)
    return [least, total, most]


def contrast(
    values: Mapping[int, tuple[float, float]], clusters: Mapping[int, Any] | None, top: float
) -> dict[str, Any]:
    """Return a - b paired by seed (`compare_seeds`) and its columns, with the means of both sides over clean models and
    the number of clean models that the difference needs. values: both sides by seed, between -top and top."""
    sides = [{seed: both[side] for seed, both in values.items()} for side in (0, 1)]
    c = compare.compare_seeds(*sides, bounds=(-top, top), clusters=clusters)
    row = {"comparison": c} | {name: getattr(c, name) for name in ("difference", "low", "high", "p", "detectable")}
    row["gains"] = tuple(a - b for _, (a, b) in sorted(values.items()))  # by seed
    row |= {"units": c.n, "needed": needed(c)}
    for name, side in zip("ab", sides, strict=True):
        means = compare.by_clean_model(side, clusters).values()
        row[f"mean_{name}"] = sum(means) / len(means)
    return row
