"""Is one checkpoint better than another? Paired by problem: both answered the same ones, so the problems' own
difficulty drops out and the interval is three to eight times narrower than that of either score.

The question answered is about these two checkpoints and other problems of this kind, not about the two methods:
another seed would give two other checkpoints (`evals.stats.seeds`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from evals.stats import intervals
from evals.stats.estimate import CONFIDENCE, Comparison
from evals.stats.power import detectable
from evals.stats.responses import Samples, same_problems
from records.errors import CorruptInputError


def compare(a: Samples, b: Samples, *, confidence: float = CONFIDENCE) -> Comparison:
    """a - b on the same problems; the two may have different k.

    d_i = y_i - y'_i; SE = sd(d)/sqrt(P); interval and p by Student-t with df that shrink when few problems differ.
    No two problems differ (usually: all differences are 0): se is None, the interval bounds what unseen problems could
    do, p is 1, or the sign test's 2^(1-P) when the common difference is not 0.
    """
    mean, n = _mean(a, b)
    difference = a.score - b.score
    if n < 2:
        return Comparison(difference, None, None, None, None, None, "problem", "one problem: no interval", n)
    low, high = intervals.difference_interval(mean, n, confidence)
    bounds = min(float(low), difference), max(float(high), difference)
    se, df = float(mean.se), float(mean.df)
    if se == 0:
        p = 1.0 if difference == 0 else 2.0 ** (1 - n)
        how = f"all {n} problems differ alike: bound by Clopper-Pearson"
        return Comparison(difference, None, *bounds, p, None, "problem", how, n)
    p, power = float(intervals.p_value(mean.value, se, df)), detectable(se, df, alpha=1 - confidence)
    return Comparison(difference, se, *bounds, p, power, "problem", f"paired t over {n} problems", n)


def compare_pooled(a: Mapping[str, Samples], b: Mapping[str, Samples], *, confidence: float = CONFIDENCE) -> Comparison:
    """Difference of the pooled averages, each benchmark weighted by its responses; give `pool` rows."""
    _same_benchmarks(a, b)
    asked = {key: samples.responses for key, samples in a.items()}
    total = sum(asked.values())
    return _combined(a, b, {key: n / total for key, n in asked.items()}, "pooled by responses", confidence)


def compare_macro(a: Mapping[str, Samples], b: Mapping[str, Samples], *, confidence: float = CONFIDENCE) -> Comparison:
    """Difference of the macro averages; give `column` rows."""
    _same_benchmarks(a, b)
    return _combined(a, b, {key: 1 / len(a) for key in a}, f"mean of {len(a)} benchmarks", confidence)


def _mean(a: Samples, b: Samples) -> tuple[intervals.Mean, int]:
    same_problems(a, b)
    difference_P = a.right_per_problem - b.right_per_problem
    difference_P[np.abs(difference_P) < 1e-12] = 0.0  # sums of the same shares in another order
    return intervals.clustered_mean(difference_P, a.rows_per_problem), len(a.rows_per_problem)


def _same_benchmarks(a: Mapping[str, Samples], b: Mapping[str, Samples]) -> None:
    if set(a) != set(b) or not a:
        only = ", ".join(sorted(set(a) ^ set(b))) or "none given"
        raise CorruptInputError(f"averages of different benchmarks cannot be compared: {only}")
    for key in a:
        if a[key].responses != b[key].responses:
            raise CorruptInputError(f"{key}: {a[key].responses} and {b[key].responses} responses: the pools differ")


def _combined(
    a: Mapping[str, Samples], b: Mapping[str, Samples], weights: Mapping[str, float], how: str, confidence: float
) -> Comparison:
    """Weighted sum of the benchmarks' differences; SE and df by Welch-Satterthwaite.

    A benchmark without spread enters with half its bound over 1.96, as if that were an interval by the normal law.
    """
    value = math.fsum(weights[key] * (a[key].score - b[key].score) for key in a)
    parts, dfs, n = [], [], 0
    for key in a:
        mean, problems = _mean(a[key], b[key])
        n += problems
        if problems < 2:
            how = f"{how}; no interval: {key}: one problem"
            return Comparison(value, None, None, None, None, None, "problem", how, n)
        bound = intervals.difference_interval(mean, problems, confidence)
        spread = float(mean.se) or float(bound.high - bound.low) / 2 / float(intervals.quantile(np.inf, confidence))
        parts.append(weights[key] * spread)
        dfs.append(float(mean.df))
    se, df = (float(x) for x in intervals.welch(parts, dfs))
    half = float(intervals.quantile(df, confidence)) * se
    bounds = max(-1.0, value - half), min(1.0, value + half)
    p, power = float(intervals.p_value(value, se, df)), detectable(se, df, alpha=1 - confidence)
    how = f"{how}; paired t over {len(parts)} strata, {n} problems"
    return Comparison(value, se, *bounds, p, power, "problem", how, n)
