"""Did a number move beyond noise between two results trees? One cell for each figure that is not equal.

Which noise: training again with other arithmetic is like training with another seed, so a retrained method is held
against the differences between seeds, which are far larger than the sampling of problems explains. Two seeds are too
few for a t interval of one method, and methods spread too unequally for a pooled one. So one method has moved when
its difference exceeds 2 sqrt(2/S) times the largest difference between two seeds of any method in either tree. The
mean over a model's methods has a t interval from the spread of that mean between seeds, pooled over models. How
often each cries wolf was simulated: docs/provenance.md.

One checkpoint alone (equal weights graded anew, or a single seed everywhere) is held against the sampling of
problems, paired where both trees keep their grades. Holm's correction is over everything that has a p.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from records.layout import BASE, Checkpoint
from report import convergence
from report.overlap import Overlap
from report.results import Score, Tree

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison

ALPHA = 0.05
BAND = 2.0  # times the largest difference between seeds; at 1 every third comparison of equal code would move something
FEW = 20  # pairs of seeds below which the largest of them says little about how far seeds can differ
EQUAL = 1e-12  # scores are ratios of counts; a difference below this is the rounding of equal ones
ONE_SEED = "one seed in each: the spread between seeds is unknown"


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


class Arm(NamedTuple):
    """What is trained again when a seed is added. step is None for figures of the whole learning curve."""

    model: str
    method: str
    step: int | None

    def __str__(self) -> str:
        return f"{self.model}/{self.method}" + ("" if self.step is None else f"/step{self.step}")


Series = dict[Arm, dict[int, float]]
"""Values by seed."""

Interval = Callable[[float, int], "Comparison"]
"""(difference of means over S seeds, S) -> with its interval."""

Noise = Callable[[Sequence[Mapping[int, float]]], Interval | None]
"""From the values by seed of all methods."""


@dataclass(frozen=True)
class Cell:
    """One figure that differs: `a`, `b` in its own unit; `gain` is b - a, as a share of their mean size if `relative`.

    retrained: the weights behind it differ, so that two seeds could have differed as well.
    """

    where: str
    figure: str
    relative: bool
    a: float
    b: float
    gain: Comparison
    retrained: bool
    p_holm: float | None = None

    @property
    def tested(self) -> bool:
        return self.gain.low is not None

    @property
    def moved(self) -> bool:
        gain = self.gain
        outside = gain.low is not None and gain.high is not None and not gain.low <= 0 <= gain.high
        return outside and (self.p_holm is None or self.p_holm < ALPHA)


# Of the measures of a learning curve, those that every run has; True: told as a share of the mean, since
# gradients and clip fractions of methods differ tenfold, and so does their spread.
CURVE = {
    "area": False,
    "final": False,
    "grad_norm": True,
    "clip_tokens": True,
    "ratio_spread": True,
    "entropy_end": True,
}


def cells(common: Overlap) -> list[Cell]:
    """Every figure of both trees that differs, with Holm's correction over all that could be tested."""
    from evals.stats.holm import holm

    found = [*_scores(common), *_curves(common)]
    adjusted = holm([cell.gain.p for cell in found])
    return [replace(cell, p_holm=p) for cell, p in zip(found, adjusted, strict=True)]


def _scores(common: Overlap) -> Iterable[Cell]:
    changed = {_arm(c) for c in common.checkpoints if c.run.method != BASE and not common.same_weights(c)}
    paired = {}
    for key in dict.fromkeys(key for _, key in common.a.scores):
        a, b = (_by_arm(tree, common.checkpoints, key) for tree in common.trees)
        at_seeds = seed_cells(key, a, b, changed.__contains__, relative=False)
        yield from at_seeds.values()
        for checkpoint in common.checkpoints:
            arm, seed = _arm(checkpoint), checkpoint.run.seed
            if arm not in at_seeds and seed in a.get(arm, {}) and seed in b.get(arm, {}):
                x, y = a[arm][seed], b[arm][seed]
                if abs(x - y) > EQUAL:
                    if checkpoint not in paired:
                        paired[checkpoint] = _paired(common, checkpoint)
                    gain = paired[checkpoint]
                    by_problem = gain[key] if gain else _unpaired(*(t.scores[checkpoint, key] for t in common.trees))
                    yield Cell(checkpoint.path.as_posix(), key, False, x, y, by_problem, arm in changed)


def _curves(common: Overlap) -> Iterable[Cell]:
    changed = {Arm(run.model, run.method, None) for run in common.runs if not common.same_curve(run)}
    done = [convergence.measures(tree) if changed else [] for tree in common.trees]
    for key, relative in CURVE.items():
        title = convergence.MEASURES[key].title
        a, b = (_by_run([one for one in side if one.run in common.runs], key) for side in done)
        found = seed_cells(title, a, b, changed.__contains__, relative=relative)
        yield from found.values()
        for arm in a:
            x, y = a[arm], b.get(arm, {})
            if arm not in found and any(abs(x[seed] - y[seed]) > EQUAL for seed in set(x) & set(y)):
                one, two = _mean(list(x.values())), _mean(list(y.values()))
                yield Cell(str(arm), title, relative, one, two, _untested(one, two, relative), True)


def seed_cells(figure: str, a: Series, b: Series, changed: Callable[[Arm], bool], *, relative: bool) -> dict[Arm, Cell]:
    """Retrained methods against the differences between seeds, and each model's mean over them against its own.

    Methods at one seed share prompts and first weights, so their mean is a figure of its own with a spread of its own.
    Empty where no method has two seeds in either tree.
    """
    a, b = ({arm: by for arm, by in side.items() if arm in a and arm in b} for side in (a, b))
    retrained = [arm for arm in a if changed(arm)]
    one, two = (_mean_over_methods(side, retrained) for side in (a, b))
    found = dict(_against(_largest, figure, a, b, retrained, relative=relative))
    return found | dict(_against(_spread, figure, one, two, list(one), relative=relative))


def _against(
    noise: Noise, figure: str, a: Series, b: Series, arms: Sequence[Arm], *, relative: bool
) -> Iterator[tuple[Arm, Cell]]:
    scale = {arm: _size(a[arm], b[arm]) if relative else 1.0 for arm in a}
    shares = [{arm: {s: v / scale[arm] for s, v in by.items()} for arm, by in side.items()} for side in (a, b)]
    # what was not trained again stands in both trees and counts once
    interval = noise([*shares[0].values(), *(shares[1][arm] for arm in arms)])
    if interval is None:
        return
    for arm in arms:
        seeds = sorted(set(a[arm]) & set(b[arm]))
        if any(abs(a[arm][s] - b[arm][s]) > EQUAL for s in seeds):
            x, y = (_mean([side[arm][s] for s in seeds]) for side in (a, b))
            gain = interval((y - x) / scale[arm], len(seeds))
            if not relative and gain.low is not None and gain.high is not None:  # shares of 1 differ by at most 1
                gain = replace(gain, low=max(-1.0, gain.low), high=min(1.0, gain.high))
            yield arm, Cell(f"{arm}, {len(seeds)} seeds", figure, relative, x, y, gain, True)


def _largest(methods: Sequence[Mapping[int, float]]) -> Interval | None:
    """Difference +- BAND sqrt(2/S) times the largest difference between two seeds; None where no two seeds differ.

    No distribution is assumed and every method may spread as it likes, as long as one of them showed it.
    """
    from evals.stats.estimate import Comparison

    several = [list(by_seed.values()) for by_seed in methods if len(by_seed) > 1]
    largest = max((max(values) - min(values) for values in several), default=0.0)
    if largest <= EQUAL:
        return None
    how = f"{BAND:g} x the largest of {len(several)} differences between seeds of one method"
    if len(several) < FEW:
        how += ": few, so seeds may differ by more"

    def interval(difference: float, seeds: int) -> Comparison:
        half = BAND * math.sqrt(2 / seeds) * largest
        return Comparison(difference, None, difference - half, difference + half, None, None, "seed", how, seeds)

    return interval


def _spread(methods: Sequence[Mapping[int, float]]) -> Interval | None:
    """Student-t with the standard deviation between seeds pooled over `methods`; None where no two seeds differ.

    A difference of two means over S seeds has SE sqrt(2/S) sd: the noise of the two trees taken as independent, which
    overstates it when equal seeds still move together.
    """
    from evals.stats import intervals
    from evals.stats.estimate import CONFIDENCE, Comparison
    from evals.stats.power import detectable

    every = [list(by_seed.values()) for by_seed in methods]
    squares = math.fsum((value - _mean(values)) ** 2 for values in every for value in values)
    df = sum(len(values) - 1 for values in every)
    if not df or squares <= EQUAL:
        return None
    factor = float(intervals.quantile(df, CONFIDENCE))

    def interval(difference: float, seeds: int) -> Comparison:
        se = math.sqrt(2 / seeds * squares / df)
        p = float(intervals.p_value(difference, se, df))
        bounds = difference - factor * se, difference + factor * se
        how = f"t over the spread between seeds, {df} degrees of freedom"
        return Comparison(difference, se, *bounds, p, detectable(se, df), "seed", how, seeds)

    return interval


def _paired(common: Overlap, checkpoint: Checkpoint) -> Mapping[str, Comparison] | None:
    """b - a for one checkpoint on the same problems; None unless both trees keep grades and samples."""
    from evals.score import paired

    keys = [str(benchmark["key"]) for benchmark in common.a.benchmarks]
    folders = [folder(checkpoint) for tree in common.trees for folder in (tree.layout.grades, tree.layout.samples)]
    if not all((folder / f"{key}.parquet").is_file() for folder in folders for key in keys):
        return None
    return paired(common.b.layout, checkpoint, checkpoint, keys, versus=common.a.layout)


def _unpaired(a: Score, b: Score) -> Comparison:
    """Two scores on the same problems taken as independent: wider than paired by problem, never narrower.

    MOVER of the two intervals (as in `evals.stats.intervals.combine`); p by the normal law from the nearer end.
    """
    from evals.stats import intervals
    from evals.stats.estimate import CONFIDENCE, Comparison

    assert a.value is not None
    assert b.value is not None
    difference = b.value - a.value
    if a.low is None or a.high is None or b.low is None or b.high is None:
        return Comparison(difference, None, None, None, None, None, "problem", "a score without interval", 0)
    below = math.hypot(b.value - b.low, a.high - a.value)
    above = math.hypot(b.high - b.value, a.value - a.low)
    factor = float(intervals.quantile(math.inf, CONFIDENCE))
    se = (below if difference > 0 else above) / factor
    p = float(intervals.p_value(difference, se, math.inf))
    how = "not paired (no grades): from the two scores' intervals"
    return Comparison(difference, se, difference - below, difference + above, p, None, "problem", how, a.items or 0)


def _untested(a: float, b: float, relative: bool) -> Comparison:
    from evals.stats.estimate import Comparison

    scale = (abs(a) + abs(b)) / 2 if relative else 1.0
    return Comparison((b - a) / scale, None, None, None, None, None, "seed", ONE_SEED, 1)


def _arm(checkpoint: Checkpoint) -> Arm:
    return Arm(checkpoint.run.model, checkpoint.run.method, checkpoint.step)


def _by_arm(tree: Tree, checkpoints: Iterable[Checkpoint], key: str) -> Series:
    found: Series = defaultdict(dict)
    for checkpoint in checkpoints:
        score = tree.scores.get((checkpoint, key))
        if score is not None and score.value is not None:
            found[_arm(checkpoint)][checkpoint.run.seed] = score.value
    return dict(found)


def _by_run(done: Iterable[convergence.RunMeasures], key: str) -> Series:
    found: Series = defaultdict(dict)
    for one in done:
        if (value := one.values[key]) is not None:
            found[Arm(one.run.model, one.run.method, None)][one.run.seed] = value
    return dict(found)


def _mean_over_methods(side: Series, arms: Iterable[Arm]) -> Series:
    """One series per model and step: the mean of its methods at the seeds that all have; two methods at least."""
    groups: dict[tuple[str, int | None], list[Arm]] = defaultdict(list)
    for arm in arms:
        groups[arm.model, arm.step].append(arm)
    found: Series = {}
    for (model, step), members in groups.items():
        seeds = set.intersection(*(set(side[arm]) for arm in members))
        if len(members) > 1 and seeds:
            name = Arm(model, f"mean of {len(members)} methods", step)
            found[name] = {seed: _mean([side[arm][seed] for arm in members]) for seed in sorted(seeds)}
    return found


def _size(one: Mapping[int, float], two: Mapping[int, float]) -> float:
    """Mean size over both trees, in shares of which a relative figure is told; 1 where all are 0."""
    return _mean([abs(value) for value in (*one.values(), *two.values())]) or 1.0
