"""Holm's correction for many comparisons in one table."""

from __future__ import annotations

import math
from collections.abc import Sequence

from records.errors import ConfigError


def holm(p: Sequence[float | None]) -> list[float | None]:
    """Adjusted p values in the given order (S. Holm, Scandinavian Journal of Statistics 1979).

    Sorted upwards, the i-th of m is multiplied by m - i + 1, never falls below an earlier one and stops at 1. None
    stays None and does not count into m: a comparison that could not be tested tested nothing.

    >>> holm([0.01, 0.04, 0.03, None])
    [0.03, 0.06, 0.06, None]
    """
    tested = sorted((value, place) for place, value in enumerate(p) if value is not None)
    adjusted: list[float | None] = [None] * len(p)
    worst = 0.0
    for rank, (value, place) in enumerate(tested):
        if math.isnan(value) or not 0 <= value <= 1:
            raise ConfigError(f"holm: p[{place}] = {value} is no probability; None stands for untested")
        worst = max(worst, min(1.0, (len(tested) - rank) * value))
        adjusted[place] = worst
    return adjusted
