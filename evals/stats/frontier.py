"""Figures at equal movement: two methods compared where both moved the policy equally far.

A method's frontier is its figure (area, score) against the log of its movement, one point for each step size, both
averaged over seeds. Between points it is interpolated by monotone cubics, which do not overshoot (Fritsch and Carlson,
SIAM Journal on Numerical Analysis 17, 1980); beyond its end points it is unknown. Axes: R step size (arm), S seed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy.interpolate import PchipInterpolator

from evals.stats.compare import EQUAL_SEEDS, ROUNDING, Clusters, by_first, t_test, units
from evals.stats.estimate import Comparison
from evals.stats.intervals import Array

CLUSTERS = 3  # at least: two leave one degree of freedom and an interval without information
ARMS = 3  # at least: between two a frontier is a straight line, whose error the jackknife does not detect (simulated)

BySeed = Mapping[int, float]


class Frontier(NamedTuple):
    """A method at several step sizes on the same seeds."""

    movement: Array  # (R, S) log of KL, nats a token
    figure: Array  # (R, S)
    own: int  # row of the scale's own step size
    seeds: Sequence[int]

    def without(self, seeds: Sequence[int]) -> "Frontier":
        kept = [place for place, seed in enumerate(self.seeds) if seed not in seeds]
        return self._replace(movement=self.movement[:, kept], figure=self.figure[:, kept])

    def mean(self, low: float, high: float) -> float:
        """Return the mean of the interpolated figure over log movement from `low` to `high`, both on the frontier."""
        x_R, place = np.unique(self.movement.mean(1), return_inverse=True)
        y_R = np.bincount(place, self.figure.mean(1)) / np.bincount(place)  # arms with equal movement are one point
        if len(x_R) == 1:
            return float(y_R[0])
        curve = PchipInterpolator(x_R, y_R)
        return float(curve(low)) if high - low < ROUNDING else float(curve.integrate(low, high)) / (high - low)


def of_arms(movement: Sequence[BySeed], figure: Sequence[BySeed], own: int) -> Frontier:
    """Return the frontier of arms given by seed, all on the same ones; movement in nats a token, above 0."""
    seeds = sorted(movement[own])
    movement_RS, figure_RS = (np.array([[arm[seed] for seed in seeds] for arm in side]) for side in (movement, figure))
    return Frontier(np.log(movement_RS), figure_RS, own, seeds)


def gap(a: Frontier, b: Frontier) -> tuple[float, float, float] | None:
    """Return the mean difference a - b over the range of log movement between both methods' own arms, cut to the
    common range of the frontiers, and the ends of that range; None where that is empty."""
    x_a, x_b = a.movement.mean(1), b.movement.mean(1)
    between = sorted((x_a[a.own], x_b[b.own]))
    low, high = float(max(between[0], x_a.min(), x_b.min())), float(min(between[1], x_a.max(), x_b.max()))
    return None if low > high else (a.mean(low, high) - b.mean(low, high), low, high)


def compare(a: Frontier, b: Frontier, clusters: Clusters = None) -> tuple[Comparison, float | None, float | None]:
    """Compare method a minus method b at equal movement, with Student's t over clean models (`compare.by_first`); both
    are on the same seeds. Return also the range compared, in nats a token; None: no common movement.

    The standard error is the jackknife's (Tukey's pseudo-values; B. Efron, The Jackknife, 1982), which leaves out one
    clean model at a time and recomputes frontiers, range and difference; it covers the movements' error too.
    """
    n, fewest = len(a.seeds), min(len(a.movement), len(b.movement))
    found = gap(a, b)
    if fewest < ARMS or found is None:
        few = f"a frontier of {fewest} step sizes: at least {ARMS} are needed"
        return Comparison(how=few if fewest < ARMS else "no movement in common", n=n), None, None
    groups = list(by_first(a.seeds, clusters).values())
    left = [gap(a.without(group), b.without(group)) for group in groups]
    value, g, ends = found[0], len(groups), (math.exp(found[1]), math.exp(found[2]))
    how, left_G = f"jackknife over {units(a.seeds, clusters)}", [one[0] for one in left if one is not None]
    if g < CLUSTERS:
        return Comparison(difference=value, how=f"{g} independent seeds: no interval", n=n), *ends
    if len(left_G) < g:
        how = f"no movement in common without seed {groups[left.index(None)][0]}"
        return Comparison(difference=value, how=how, n=n), *ends
    pseudo_G = g * value - (g - 1) * np.array(left_G)
    se = float(pseudo_G.std(ddof=1)) / math.sqrt(g)
    if se < ROUNDING:
        return Comparison(difference=value, how=EQUAL_SEEDS, n=n), *ends
    return t_test(value, se, g - 1.0, level="seed", how=how, n=n), *ends
