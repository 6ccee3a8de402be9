"""Figures at equal movement: two methods compared where both moved the policy equally far.

A method's frontier is its figure (area, score) against the log of its movement, one point for each step size, both
averaged over seeds. Between points it is interpolated by monotone cubics, which do not overshoot (Fritsch and Carlson,
SIAM Journal on Numerical Analysis 17, 1980); beyond its end points it is unknown. Two methods are compared over the
range between their movements at the scale's own step size, as far as both frontiers reach: by the mean difference of
the two.

Axes: R step size (arm), S seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from core.errors import CorruptInputError
from evals.stats.compare import DIFFERENCE, EQUAL_SEEDS, ROUNDING, counted, t_test
from evals.stats.estimate import Comparison
from evals.stats.intervals import Array

CLUSTERS = 3  # at least: two leave one degree of freedom and an interval without information
ARMS = 3  # at least: between two a frontier is a straight line, whose error the jackknife does not detect (simulated)


@dataclass(frozen=True)
class Frontier:
    """A method at several step sizes on the same seeds; raises CorruptInputError for a movement that has no log."""

    movement: Array  # (R, S) KL, nats a token, above 0
    figure: Array  # (R, S)
    own: int  # row of the scale's own step size

    def __post_init__(self) -> None:
        if self.movement.shape != self.figure.shape or not 0 <= self.own < len(self.movement):
            raise CorruptInputError("frontier: movement and figure need one row a step size and one column a seed")
        if not (np.isfinite(self.figure).all() and (self.movement > 0).all()):
            raise CorruptInputError("frontier: movement must be above 0 and figures finite: leave such an arm out")

    def without(self, seeds: NDArray[np.bool_]) -> Frontier:
        """Return the frontier without the seeds (S,) that are True."""
        return Frontier(self.movement[:, ~seeds], self.figure[:, ~seeds], self.own)

    def points(self) -> tuple[Array, Array]:
        """Return (R,) log movement and (R,) figure, means over seeds, in the order of the arms."""
        return np.log(self.movement).mean(1), self.figure.mean(1)

    def means(self, low: float, high: float) -> float | None:
        """Return the mean of the interpolated figure over log movement from `low` to `high`; at a point if these are
        equal. None outside the frontier."""
        x_R, y_R = self.points()
        x_R, place = np.unique(x_R, return_inverse=True)
        y_R = np.bincount(place, y_R) / np.bincount(place)  # arms with equal movement are one point
        if low < x_R[0] - ROUNDING or high > x_R[-1] + ROUNDING:
            return None
        if len(x_R) == 1:
            return float(y_R[0])
        curve = PchipInterpolator(x_R, y_R)
        return float(curve(low)) if high - low < ROUNDING else float(curve.integrate(low, high)) / (high - low)


class Matched(NamedTuple):
    """Two methods at equal movement. low, high: the range compared, in nats a token; None: no common movement."""

    comparison: Comparison
    low: float | None = None
    high: float | None = None


def gap(a: Frontier, b: Frontier) -> tuple[float, float, float] | None:
    """Return the mean difference a - b over the range of log movement between both methods' own arms, cut to the
    common range of the frontiers, and the ends of that range; None where that is empty."""
    x_a, x_b = a.points()[0], b.points()[0]
    between = sorted((float(x_a[a.own]), float(x_b[b.own])))
    low, high = float(max(between[0], x_a.min(), x_b.min())), float(min(between[1], x_a.max(), x_b.max()))
    if low > high or (mean_a := a.means(low, high)) is None or (mean_b := b.means(low, high)) is None:
        return None
    return mean_a - mean_b, low, high


def compare(a: Frontier, b: Frontier, clusters: Sequence[object]) -> Matched:
    """Compare method a minus method b at equal movement, with Student's t over clusters of seeds.

    clusters: (S,) the group of a seed, its clean model or the seed. The standard error is the jackknife's
    (Tukey's pseudo-values; B. Efron, The Jackknife, 1982), which leaves out one cluster at a time and recomputes
    frontiers, range and difference; it covers the movements' error too. Simulated: tests/evals/stats/test_coverage.py.
    """
    n = a.movement.shape[1]
    if b.movement.shape[1] != n or len(clusters) != n:
        raise CorruptInputError(f"frontier: {n}, {b.movement.shape[1]} seeds and {len(clusters)} clusters differ")
    fewest = min(len(a.movement), len(b.movement))
    if fewest < ARMS:
        return Matched(Comparison(how=f"a frontier of {fewest} step sizes: at least {ARMS} are needed", n=n))
    if (found := gap(a, b)) is None:
        return Matched(Comparison(how="no movement in common", n=n))
    value, ends = found[0], (math.exp(found[1]), math.exp(found[2]))
    groups, left_G = list(dict.fromkeys(clusters)), []
    g = len(groups)
    if g < CLUSTERS:
        return Matched(Comparison(difference=value, how=f"{g} independent seeds: no interval", n=n), *ends)
    for group in groups:
        out = np.array([cluster == group for cluster in clusters])
        if (without := gap(a.without(out), b.without(out))) is None:
            return Matched(Comparison(difference=value, how=f"no movement in common without {group}", n=n), *ends)
        left_G.append(without[0])
    pseudo_G = g * value - (g - 1) * np.array(left_G)
    se, df = float(pseudo_G.std(ddof=1)) / math.sqrt(g), float(g - 1)
    if se < ROUNDING:
        return Matched(Comparison(difference=value, how=EQUAL_SEEDS, n=n), *ends)
    how = f"jackknife over {counted(g, n)}"
    return Matched(t_test(value, se, df, bounds=DIFFERENCE, level="seed", how=how, n=n), *ends)


def of_arms(movement: Sequence[Mapping[int, float]], figure: Sequence[Mapping[int, float]], own: int) -> Frontier:
    """Return the frontier of arms given by seed; raise CorruptInputError where arms have different seeds."""
    seeds = sorted(movement[own])
    if any(sorted(by_seed) != seeds for by_seed in (*movement, *figure)):
        raise CorruptInputError("frontier: every step size of a method needs the same seeds")
    table = [np.array([[by_seed[seed] for seed in seeds] for by_seed in side], float) for side in (movement, figure)]
    return Frontier(table[0], table[1], own)
