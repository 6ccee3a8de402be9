"""One tested quantity: its value, the value it is held against, and how sure it is. Or a `Gap`: why there is none."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

MODELS = "model and seed"
"""Level of a mean over models: other models of this kind, trained with other seeds."""


class Gap(Exception):  # noqa: N818 - nobody made an error
    """A claim's test has no figure. planned: the plan says that it will have one (a run or score is missing)."""

    def __init__(self, reason: str, *, planned: bool = True):
        super().__init__(reason)
        self.planned = planned


@dataclass(frozen=True)
class Contrast:
    """value: held against `null`. p: two-sided, raw. detectable: the smallest distance from `null` that would be found
    significant at 5 % in 80 % of repetitions. level: what is imagined drawn again. n: units drawn. runs: folders below
    the results folder, or printed rows. farthest: how far from `null` a value can lie at all. at_least: the true value
    may be larger, never smaller. units: what was averaged, by seed or model. Unknown is None, and `how` says why."""

    what: str
    value: float | None
    null: float
    low: float | None
    high: float | None
    p: float | None
    detectable: float | None
    unit: str
    level: str
    how: str
    n: int
    runs: tuple[str, ...] = ()
    farthest: float = math.inf
    at_least: bool = False
    units: tuple[tuple[str, float], ...] = ()

    def map(self, function: Callable[[float], float], unit: str) -> Contrast:
        """The same evidence in another unit; `function` rises, and nothing is the farthest."""
        value, low, high = (None if x is None else function(x) for x in (self.value, self.low, self.high))
        far = None if self.detectable is None else function(self.null + self.detectable) - function(self.null)
        units = tuple((name, function(x)) for name, x in self.units)
        return replace(
            self, value=value, low=low, high=high, null=function(self.null), detectable=far, unit=unit, units=units
        )


def over_runs(
    what: str,
    by_model: Mapping[str, Mapping[int, float]],
    *,
    null: float,
    unit: str,
    bounds: tuple[float, float],
    runs: Sequence[str],
) -> Contrast:
    """Values by model and seed against `null`: Student-t over the seeds of one model, or over the models' means.

    Several models: the unit is the model, its seeds are averaged first, so that the interval covers other models too.
    bounds: between which value - null can lie.
    """
    from evals.stats import compare

    units = _units(by_model)
    found = compare.compare_seeds(units, dict.fromkeys(units, null), bounds=bounds)
    value, low, high = (None if x is None else x + null for x in (found.difference, found.low, found.high))
    made = Contrast(
        what, value, null, low, high, found.p, found.detectable, unit, "seed", found.how, found.n, tuple(runs),
        max(map(abs, bounds)), units=tuple((f"seed {seed}", x) for seed, x in units.items()),
    )  # fmt: skip
    if len(by_model) == 1:
        return made
    several = f"{len(by_model)} models, {sum(map(len, by_model.values()))} runs or pairs of runs"
    how = f"Student-t over {several}" if found.p is not None else f"{several} agree exactly: their spread is unknown"
    return replace(made, level=MODELS, how=how, units=tuple(zip(by_model, units.values(), strict=True)))


def _units(by_model: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
    if len(by_model) == 1:
        return dict(next(iter(by_model.values())))
    return {place: sum(values.values()) / len(values) for place, values in enumerate(by_model.values())}


# Is one group of runs steadier between seeds than another? Ratio of standard deviations, by Fisher's F.


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
