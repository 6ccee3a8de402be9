"""Is one group of runs steadier between seeds than another? Ratio of standard deviations, by Fisher's F."""

from __future__ import annotations

import math
from collections.abc import Sequence

from report.claims.contrast import Contrast, Gap

POWER, ALPHA = 0.8, 0.05


def ratio_of_sds(
    what: str, left: Sequence[Sequence[float]], right: Sequence[Sequence[float]], *, runs: Sequence[str]
) -> Contrast:
    """left, right: scores by seed, one group per method and model; the variance within groups is pooled.

    Interval and p by F with the two sides' degrees of freedom; scores taken as normal. Null: 1.
    """
    from scipy.special import fdtr, fdtri

    (a, n), (b, m) = (_within(side) for side in (left, right))
    if not (n and m):
        raise Gap("one seed: no spread between seeds")
    if not (a and b):
        raise Gap("seeds agree exactly: their spread is unknown")
    f = a / b
    low, high = (math.sqrt(f / fdtri(n, m, x)) for x in (1 - ALPHA / 2, ALPHA / 2))
    below = float(fdtr(n, m, f))
    # the ratio r < 1 that is seen with 80 %: F < crit where F/r^2 ~ F(n, m)
    seen = math.sqrt(float(fdtri(n, m, ALPHA / 2)) / float(fdtri(n, m, POWER)))
    how = f"F with {n} and {m} degrees of freedom"
    p, seen_runs = min(1.0, 2 * min(below, 1 - below)), n + m + len(left) + len(right)
    return Contrast(
        what, math.sqrt(f), 1.0, low, high, p, 1 - seen, "ratio", "seed", how, seen_runs, tuple(runs)
    )  # fmt: skip


def _within(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Pooled variance within groups and its degrees of freedom; 0 degrees: unknown."""
    squares, df = 0.0, 0
    for values in groups:
        mean = math.fsum(values) / len(values)
        squares += math.fsum((x - mean) ** 2 for x in values)
        df += len(values) - 1
    return (squares / df if df else math.nan), df
