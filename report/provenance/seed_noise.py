"""The noise of training with another seed, estimated from two results trees, and figures tested against it.

Two seeds are too few for a t interval of one method, and methods spread too unequally for a pooled one. So one method
has moved when its difference exceeds 2 sqrt(2/S) times the largest difference between two seeds of any method in
either tree. The mean over a model's methods has a t interval from the spread of that mean between seeds, pooled over
models. Their false-alarm rates: docs/provenance.md.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import NamedTuple, TypeAlias

from evals.stats import intervals
from evals.stats.compare import detectable, holm
from evals.stats.estimate import Comparison

ALPHA = 0.05
BAND = 2.0  # times the largest difference between seeds; at 1 every third comparison of equal code would move something
FEW = 20  # pairs of seeds below which the largest of them says little about how far seeds can differ
EQUAL = 1e-12  # scores are ratios of counts; a difference below this is the rounding of equal ones


class Arm(NamedTuple):
    """What is trained again when a seed is added. step is None for figures of the whole learning curve."""

    model: str
    method: str
    step: int | None

    def __str__(self) -> str:
        return f"{self.model}/{self.method}" + ("" if self.step is None else f"/step{self.step}")


Series: TypeAlias = dict[Arm, dict[int, float]]  # values by seed
Interval: TypeAlias = Callable[[float, int], Comparison]  # (difference of means over S seeds, S) -> with its interval
Noise: TypeAlias = Callable[[Sequence[Mapping[int, float]]], Interval | None]  # from the values by seed of all methods


@dataclass(frozen=True)
class Cell:
    """One figure that differs between two trees."""

    where: str
    figure: str
    relative: bool  # `gain` is a share of the mean size of a and b
    a: float
    b: float
    gain: Comparison  # b - a
    retrained: bool  # the weights behind it differ, so two seeds could have differed as well
    p_holm: float | None = None

    @property
    def tested(self) -> bool:
        return self.gain.low is not None

    @property
    def moved(self) -> bool:
        gain = self.gain
        outside = gain.low is not None and gain.high is not None and not gain.low <= 0 <= gain.high
        return outside and (self.p_holm is None or self.p_holm < ALPHA)


def corrected(cells: Sequence[Cell]) -> list[Cell]:
    """The cells with Holm's correction over all that have a p."""
    adjusted = holm([cell.gain.p for cell in cells])
    return [replace(cell, p_holm=p) for cell, p in zip(cells, adjusted, strict=True)]


def seed_cells(figure: str, a: Series, b: Series, changed: Collection[Arm], *, relative: bool) -> dict[Arm, Cell]:
    """Retrained methods against the differences between seeds, and each model's mean over them against its own.

    Methods at one seed share prompts and first weights, so their mean is a figure of its own with a spread of its own.
    Empty where no method has two seeds in either tree.
    """
    retrained = [arm for arm in a if arm in b and arm in changed]
    cells = against(band(BAND), figure, a, b, retrained, relative=relative)
    mean_a, mean_b = (_mean_over_methods(side, retrained) for side in (a, b))
    return cells | against(pooled_t, figure, mean_a, mean_b, list(mean_a), relative=relative)


def against(noise: Noise, figure: str, a: Series, b: Series, arms: Sequence[Arm], *, relative: bool) -> dict[Arm, Cell]:
    """A cell for each of `arms` that both have and that differs; the noise is that of all methods of `a`, and of `arms`
    of `b`. Methods that lack a figure may leave one side without a mean over them."""
    a, b = ({arm: by for arm, by in side.items() if arm in a and arm in b} for side in (a, b))
    arms = [arm for arm in arms if arm in a]
    scale = dict.fromkeys(a, 1.0)
    if relative:
        sizes = {arm: fmean([abs(value) for value in (*a[arm].values(), *b[arm].values())]) for arm in a}
        scale = {arm: size or 1.0 for arm, size in sizes.items()}
    shares = [{arm: {s: v / scale[arm] for s, v in by.items()} for arm, by in side.items()} for side in (a, b)]
    # What was not trained again is in both trees and counts once.
    interval = noise([*shares[0].values(), *(shares[1][arm] for arm in arms)])
    cells: dict[Arm, Cell] = {}
    if interval is None:
        return cells
    for arm in arms:
        seeds = sorted(set(a[arm]) & set(b[arm]))
        if any(abs(a[arm][s] - b[arm][s]) > EQUAL for s in seeds):
            x, y = (fmean([side[arm][s] for s in seeds]) for side in (a, b))
            gain = interval((y - x) / scale[arm], len(seeds))
            if not relative and gain.low is not None and gain.high is not None:  # scores differ by at most 1
                gain = replace(gain, low=max(-1.0, gain.low), high=min(1.0, gain.high))
            cells[arm] = Cell(f"{arm}, {len(seeds)} seeds", figure, relative, x, y, gain, True)
    return cells


def band(factor: float) -> Noise:
    """Difference +- factor sqrt(2/S) times the largest difference between two seeds; None where no two seeds differ.

    No distribution is assumed and every method may spread as it likes, as long as one of them showed it.
    """

    def noise(methods: Sequence[Mapping[int, float]]) -> Interval | None:
        several = [list(by_seed.values()) for by_seed in methods if len(by_seed) > 1]
        largest = max((max(values) - min(values) for values in several), default=0.0)
        how = f"{factor:g} x the largest of {len(several)} differences between seeds of one method"
        if len(several) < FEW:
            how += ": few, so seeds may differ by more"

        def interval(difference: float, seeds: int) -> Comparison:
            half = factor * math.sqrt(2 / seeds) * largest
            return Comparison(difference, None, difference - half, difference + half, None, None, "seed", how, seeds)

        return interval if largest > EQUAL else None

    return noise


def pooled_t(methods: Sequence[Mapping[int, float]]) -> Interval | None:
    """Student-t with the standard deviation between seeds pooled over `methods`; None where no two seeds differ.

    A difference of two means over S seeds has SE sqrt(2/S) sd: the noise of the two trees taken as independent, which
    overstates it when equal seeds still move together.
    """
    every = [list(by_seed.values()) for by_seed in methods]
    squares = math.fsum((value - fmean(values)) ** 2 for values in every for value in values)
    df = sum(len(values) - 1 for values in every)
    if not df or squares <= EQUAL:
        return None
    factor = float(intervals.quantile(df))

    def interval(difference: float, seeds: int) -> Comparison:
        se = math.sqrt(2 / seeds * squares / df)
        p = float(intervals.p_value(difference, se, df))
        bounds = difference - factor * se, difference + factor * se
        how = f"t over the spread between seeds, {df} degrees of freedom"
        return Comparison(difference, se, *bounds, p, detectable(se, df), "seed", how, seeds)

    return interval


def _mean_over_methods(side: Series, arms: Iterable[Arm]) -> Series:
    """One series per model and step: the mean of its methods at the seeds that all have; two methods at least."""
    groups: dict[tuple[str, int | None], list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.model, arm.step].append(arm)
    means: Series = {}
    for (model, step), members in groups.items():
        seeds = set.intersection(*(set(side[arm]) for arm in members))
        if len(members) > 1 and seeds:
            name = Arm(model, f"mean of {len(members)} methods", step)
            means[name] = {seed: fmean([side[arm][seed] for arm in members]) for seed in sorted(seeds)}
    return means
