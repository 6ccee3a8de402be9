"""Methods over training seeds. The unit is the seed: runs that differ in it only differ by more than chance answers.

One seed gives no method-level interval, however many responses it has; the functions say so instead of a number.
`over_seeds`, `compare_seeds`: these very problems, other seeds. `two_level`: other seeds and other problems.
`summary` and `comparisons` turn `scores.csv` into tidy rows for the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evals.stats import intervals
from evals.stats.estimate import CONFIDENCE, Comparison, Estimate
from evals.stats.holm import holm
from evals.stats.power import detectable
from evals.stats.responses import Samples, same_problems
from records.errors import CorruptInputError, MissingInputError

if TYPE_CHECKING:
    import pandas as pd

ONE_SEED = "one seed: no method-level interval"
NO_SEED = "no seed in common: not compared"
EQUAL_SEEDS = "seeds agree exactly: their spread is unknown"
_ROUNDING = 1e-12
"""Scores are ratios of counts; a spread below this is the rounding of equal ones."""


def over_seeds(
    score_by_seed: Mapping[int, float], *, confidence: float = CONFIDENCE, bounds: tuple[float, float] = (0.0, 1.0)
) -> Estimate:
    """A method's score: mean over seeds, SE = sd/sqrt(S), Student-t with S - 1 degrees of freedom, cut to `bounds`.

    bounds: between which a figure that is not a score can lie (`math.inf` for no bound).
    """
    value_S = _values(score_by_seed)
    n, value = len(value_S), float(value_S.mean())
    if n < 2:
        return Estimate(value, None, None, None, "seed", ONE_SEED, n)
    mean = intervals.seed_mean(value_S)
    if mean.se < _ROUNDING:
        return Estimate(value, None, None, None, "seed", EQUAL_SEEDS, n)
    half = float(intervals.quantile(mean.df, confidence) * mean.se)
    low, high = max(bounds[0], value - half), min(bounds[1], value + half)
    return Estimate(value, float(mean.se), low, high, "seed", f"Student-t over {n} seeds", n)


def compare_seeds(
    a_by_seed: Mapping[int, float],
    b_by_seed: Mapping[int, float],
    *,
    confidence: float = CONFIDENCE,
    bounds: tuple[float, float] = (-1.0, 1.0),
) -> Comparison:
    """Method a minus method b, paired by seed: equal seeds share initial weights, prompts and their order.

    Only seeds that both have are used; `n` says how many. bounds: as in `over_seeds`, of the difference.
    """
    common = sorted(set(a_by_seed) & set(b_by_seed))
    if not common:
        return Comparison(None, None, None, None, None, None, "seed", NO_SEED, 0)
    difference_S = _values({s: a_by_seed[s] for s in common}) - _values({s: b_by_seed[s] for s in common})
    n, difference = len(common), float(difference_S.mean())
    if n < 2:
        return Comparison(difference, None, None, None, None, None, "seed", ONE_SEED, n)
    mean = intervals.seed_mean(difference_S)
    if mean.se < _ROUNDING:
        return Comparison(difference, None, None, None, None, None, "seed", EQUAL_SEEDS, n)
    se, df = float(mean.se), float(mean.df)
    half = float(intervals.quantile(df, confidence)) * se
    low, high = max(bounds[0], difference - half), min(bounds[1], difference + half)
    p, power = float(intervals.p_value(difference, se, df)), detectable(se, df, alpha=1 - confidence)
    return Comparison(difference, se, low, high, p, power, "seed", f"paired t over {n} seeds", n)


def two_level(samples_by_seed: Mapping[int, Samples], *, confidence: float = CONFIDENCE) -> Estimate:
    """A method's score on one benchmark, for other seeds and other problems: all seeds answer the same problems.

    Variance by `intervals.two_way_mean`, interval by Wilson with the effective number of answers.
    """
    samples = [samples_by_seed[seed] for seed in sorted(samples_by_seed)]
    for other in samples[1:]:
        same_problems(samples[0], other)
    if not samples:
        raise MissingInputError("two_level: no seed given")
    if any(s.rows_per_problem.max() > 1 for s in samples):
        raise CorruptInputError("two_level: holds copies of a problem; use Samples.column('paper' or 'unique')")
    score_SP = np.stack([s.right_per_problem for s in samples])
    (n, problems), value = score_SP.shape, float(score_SP.mean())
    if n < 2:
        return Estimate(value, None, None, None, "seed and problem", ONE_SEED, n)
    if problems < 2:
        return Estimate(value, None, None, None, "seed and problem", "one problem: no interval", n)
    low, high, se = (float(x) for x in two_level_interval(score_SP, sum(s.responses for s in samples), confidence))
    how = f"Wilson-t over {n} seeds x {problems} problems"
    return Estimate(value, se or None, min(low, value), max(high, value), "seed and problem", how, n)


def two_level_interval(
    score_SP: intervals.Array, responses: int, confidence: float
) -> tuple[intervals.Array, intervals.Array, intervals.Array]:
    """(low, high, se) for (..., S, P) scores, vectorised: what `two_level` and its simulation call."""
    mean = intervals.two_way_mean(score_SP)
    low, high = intervals.score_interval(mean, score_SP.shape[-1], responses, confidence)
    return low, high, mean.se


def _values(score_by_seed: Mapping[int, float]) -> intervals.Array:
    if not score_by_seed:
        raise MissingInputError("seeds: no score given")
    value_S = np.array([score_by_seed[seed] for seed in sorted(score_by_seed)], float)
    if not np.isfinite(value_S).all():
        raise CorruptInputError(f"seeds: scores must be numbers, got {dict(score_by_seed)}")
    return value_S


class Arm(NamedTuple):
    """One side of a comparison: a method on a model after `step` rollouts; its seeds are the replicates."""

    model: str
    method: str
    step: int


SUMMARY_COLUMNS = ("model", "method", "step", "benchmark", "seeds", "score", "se", "low", "high", "level", "how")
COMPARISON_COLUMNS = (
    "model", "method", "step", "versus_model", "versus_method", "versus_step", "benchmark", "seeds", "difference", "se",
    "low", "high", "p", "p_holm", "tests", "detectable", "level", "how",
)  # fmt: skip


def summary(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per model, method, step, benchmark of `scores.csv`: mean over seeds with its interval."""
    import pandas as pd

    rows = []
    for (model, method, step, benchmark), by_seed in _by_seed(scores).items():
        e = over_seeds(by_seed)
        rows.append((model, method, step, benchmark, e.n, e.value, e.se, e.low, e.high, e.level, e.how))
    return pd.DataFrame(rows, columns=list(SUMMARY_COLUMNS))


def comparisons(
    scores: pd.DataFrame, pairs: Sequence[tuple[Arm, Arm]], *, benchmarks: Sequence[str] | None = None
) -> pd.DataFrame:
    """One row per pair (arm, versus) and benchmark, paired by seed; Holm over every test of this call.

    Call it once per table: the family of tests is the table. `tests` is the number Holm corrected for.
    Raises MissingInputError for an arm or benchmark that `scores` does not hold.
    """
    import pandas as pd

    table = _by_seed(scores)
    keys = list(benchmarks) if benchmarks is not None else list(dict.fromkeys(scores["benchmark"]))
    rows, results = [], []
    for arm, versus in pairs:
        for key in keys:
            a, b = (_cell(table, side, key) for side in (arm, versus))
            results.append(compare_seeds(a, b))
            rows.append((*arm, *versus, key))
    adjusted = holm([c.p for c in results])
    tests = sum(p is not None for p in adjusted)
    full = [
        (*row, c.n, c.difference, c.se, c.low, c.high, c.p, p, tests, c.detectable, c.level, c.how)
        for row, c, p in zip(rows, results, adjusted, strict=True)
    ]
    return pd.DataFrame(full, columns=list(COMPARISON_COLUMNS))


def _by_seed(scores: pd.DataFrame) -> dict[tuple[str, str, int, str], dict[int, float]]:
    """Scores by (model, method, step, benchmark) and seed; rows without a score (not run) are left out."""
    table: dict[tuple[str, str, int, str], dict[int, float]] = {}
    for row in scores[scores["score"].notna()].itertuples(index=False):
        cell = table.setdefault((row.model, row.method, int(row.step), row.benchmark), {})  # type: ignore
        if int(row.seed) in cell:  # type: ignore
            raise CorruptInputError(
                f"scores: {row.model}/{row.method}/seed{row.seed}/step{row.step} has two {row.benchmark}"
            )
        cell[int(row.seed)] = float(row.score)  # type: ignore
    return table


def _cell(table: Mapping[tuple[str, str, int, str], dict[int, float]], arm: Arm, key: str) -> dict[int, float]:
    if (*arm, key) not in table:
        raise MissingInputError(f"scores: no score of {arm.model}/{arm.method} at step {arm.step} on {key}")
    return table[(*arm, key)]
