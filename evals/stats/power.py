"""How large a difference must be to be found, and how many seeds find it. Exact by the noncentral t distribution."""

from __future__ import annotations

import math

from scipy.special import nctdtr, nctdtrinc, stdtrit

from records.errors import ConfigError

POWER = 0.8
ALPHA = 0.05


def detectable(se: float, df: float, *, power: float = POWER, alpha: float = ALPHA) -> float:
    """The smallest true difference that a two-sided t test with this SE and df calls significant with chance `power`.

    Solves P(T > t_crit) = power for T noncentral t; the chance of significance in the wrong direction is neglected.
    """
    return float(se * nctdtrinc(df, 1.0 - power, stdtrit(df, 1.0 - alpha / 2.0)))


def power_of(difference: float, se: float, df: float, *, alpha: float = ALPHA) -> float:
    """The chance that a true `difference` becomes significant (in its own direction)."""
    return float(1.0 - nctdtr(df, abs(difference) / se, stdtrit(df, 1.0 - alpha / 2.0)))


def seeds_needed(
    difference: float, sd: float, *, paired: bool, power: float = POWER, alpha: float = ALPHA, most: int = 1000
) -> int | None:
    """Seeds per method to find `difference` with chance `power`; None when even `most` do not suffice.

    sd: of one method's score over seeds. Unpaired: SE = sd sqrt(2/S), df = 2(S-1). paired: `sd` is that of the
    differences of runs with equal seeds, SE = sd/sqrt(S), df = S-1.
    """
    if difference == 0 or not sd > 0:
        raise ConfigError(f"seeds needed: a difference other than 0 and an sd above 0, got {difference} and {sd}")
    for seeds in range(2, most + 1):
        se = sd * math.sqrt((1.0 if paired else 2.0) / seeds)
        df = seeds - 1 if paired else 2 * (seeds - 1)
        if power_of(difference, se, df, alpha=alpha) >= power:
            return seeds
    return None
