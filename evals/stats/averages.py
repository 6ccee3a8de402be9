"""The two averages over benchmarks. pooled: every response weighs the same (the paper's "Avg."); macro: every column.

With the paper's seven sets the pool holds 8,844 responses, 62 % of them AMC and OMNI-MATH (`evals.stats.decode`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from evals.stats import intervals
from evals.stats.estimate import CONFIDENCE, Estimate
from evals.stats.problems import estimate
from evals.stats.responses import Samples
from records.errors import ConfigError


@dataclass(frozen=True)
class NotRun:
    """A benchmark that was not run, a "-" in the paper, and how many responses it would have had."""

    responses: int


def pooled(
    parts: Mapping[str, Samples | NotRun], *, missing_as_wrong: bool = False, confidence: float = CONFIDENCE
) -> Estimate:
    """Right responses over responses, strata by benchmark; give each benchmark's `pool` rows.

    Benchmarks not run are left out, or count as wrong in full (what the paper's Mistral rows do): reading E10.
    `how` says which. Interval: MOVER over the benchmarks' own intervals.
    """
    run, missing = _split(parts)
    asked = sum(s.responses for s in run.values())
    how = "pooled by responses"
    if missing:
        treated = "counted as wrong" if missing_as_wrong else "left out"
        how += f", {len(missing)} of {len(parts)} benchmarks not run: {treated}"
    if missing_as_wrong:
        asked += sum(n.responses for n in missing.values())
    return _weighted({key: s.responses / asked for key, s in run.items()}, run, how, confidence)


def macro(parts: Mapping[str, Samples | NotRun], *, confidence: float = CONFIDENCE) -> Estimate:
    """Mean of the benchmarks' scores; give each benchmark's `column` rows. None when one was not run."""
    run, missing = _split(parts)
    if missing:
        how = f"{len(missing)} of {len(parts)} benchmarks not run: no macro average"
        return Estimate(None, None, None, None, "problem", how, sum(len(s.rows_per_problem) for s in run.values()))
    return _weighted({key: 1 / len(run) for key in run}, run, f"mean of {len(run)} benchmarks", confidence)


def _split(parts: Mapping[str, Samples | NotRun]) -> tuple[dict[str, Samples], dict[str, NotRun]]:
    run = {key: part for key, part in parts.items() if isinstance(part, Samples)}
    if not run:
        raise ConfigError(f"an average needs at least one benchmark that was run; got {', '.join(parts) or 'none'}")
    return run, {key: part for key, part in parts.items() if isinstance(part, NotRun)}


def _weighted(weights: Mapping[str, float], run: Mapping[str, Samples], how: str, confidence: float) -> Estimate:
    one = {key: estimate(samples, confidence=confidence) for key, samples in run.items()}
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
