"""From a printed percentage back to the count behind it: which k of n prints as 19.16?

The denominators are those of the evaluation that the paper describes (samples x problems; AMC has 83 problems; 2811 of
OMNI-MATH's 2821 rows are problems that occur once, the ten others count in the pool only). Printed cells are truncated
or rounded, both occur in one table.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import cache

from records.errors import ConfigError

COLUMN = {
    "aime24": 960,
    "aime25": 960,
    "amc": 2656,
    "math500": 500,
    "omni_math": 2811,
    "olympiadbench": 675,
    "minerva": 272,
}
"""Responses behind each column."""

COPIES = 10
"""Rows of OMNI-MATH that hold a problem twice: in the pool, in no column."""

POOL = {**COLUMN, "omni_math": COLUMN["omni_math"] + COPIES}
"""Responses of each benchmark in "Avg."; together 8,844."""


def weights() -> dict[str, float]:
    """Share of each benchmark in the pooled average."""
    total = sum(POOL.values())
    return {key: count / total for key, count in POOL.items()}


def hundredths(percent: str | float) -> int:
    """A printed percentage as an integer number of hundredths of a percent; two decimals at most.

    >>> hundredths("19.16")
    1916
    """
    try:
        exact = Decimal(str(percent)) * 100
    except InvalidOperation as error:
        raise ConfigError(f"percentage: {percent!r} is no number") from error
    if not exact.is_finite() or exact != exact.to_integral_value() or not 0 <= exact <= 10000:
        raise ConfigError(f"percentage: {percent!r} is not of the form 12.34 between 0 and 100")
    return int(exact)


def printed(k: int, n: int) -> tuple[str, str]:
    """k of n in percent with two decimals: truncated and rounded (a half goes up).

    >>> printed(184, 960)
    ('19.16', '19.17')
    """
    if not 0 <= k <= n or n < 1:
        raise ConfigError(f"count: {k} of {n} is impossible")
    down, up = 10000 * k // n, (20000 * k + n) // (2 * n)
    return f"{down // 100}.{down % 100:02d}", f"{up // 100}.{up % 100:02d}"


@cache
def candidates(percent: str | float, n: int) -> tuple[int, ...]:
    """All counts k with k/n printed as `percent`, truncated or rounded (either way at an exact half); () if none.

    Exact integer arithmetic: floor(10^4 k/n) = c or |10^4 k/n - c| <= 1/2.

    >>> candidates("12.60", 960), candidates("19.17", 675)
    ((121,), ())
    """
    if n < 1:
        raise ConfigError(f"percentage: a denominator of {n}")
    c = hundredths(percent)
    around = range(max(0, (c - 1) * n // 10000), min(n, (c + 1) * n // 10000 + 1) + 1)
    return tuple(k for k in around if 10000 * k // n == c or abs(2 * (10000 * k - c * n)) <= n)
