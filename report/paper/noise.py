"""How far apart two equally good checkpoints come out on the same problems, by chance of generation alone.

A problem is solved with its own probability p_i, Beta-distributed over problems with a + b = SPREAD (the AIME-like
profile of `docs/statistics.md`). Then mean p_i(1 - p_i) = p(1 - p) SPREAD/(1 + SPREAD), and the difference of two
scores over N responses has twice that variance over N. Greedy answers are treated as one draw: two trainings answer a
problem differently as often as two draws would. Training noise comes on top, so real pairs should lie further apart.
"""

from __future__ import annotations

from math import erf, sqrt

SPREAD = 0.73


def sd(share: float, n: int) -> float:
    """Standard deviation of the difference of two scores, as a fraction. share: the common score, n: responses."""
    return sqrt(2 * share * (1 - share) * SPREAD / (1 + SPREAD) / n)


def within(counts: float, share: float, n: int) -> float:
    """Chance that two such checkpoints differ by at most `counts` right responses (normal, continuity-corrected)."""
    spread = n * sd(share, n)
    return 1.0 if spread == 0 else erf((counts + 0.5) / spread / sqrt(2))


def beyond(counts: float, share: float, n: int) -> float:
    """Chance that they differ by at least `counts`."""
    spread = n * sd(share, n)
    if counts <= 0:
        return 1.0
    return 0.0 if spread == 0 else 1 - erf((counts - 0.5) / spread / sqrt(2))


def tie(share: float, n: int) -> float:
    """Chance that two such checkpoints have the same count."""
    return within(0, share, n)
