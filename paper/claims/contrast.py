"""What a test asks of the printed tables or of runs (`Source`): a `Contrast`, or a `Gap` that says why there is none.

A contrast is one tested quantity: its value, the null it is tested against, and how sure it is. Rows are ids of printed
rows (`paper/tables/rows.csv`); a list of rows is one row for each of several models, taken together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from evals.stats import compare, intervals
from evals.stats.compare import ALPHA, POWER, ROUNDING, detectable
from evals.stats.estimate import Comparison

# By model: which clean model each seed continues (`core.results_tree.Tree.clean_models`).
CleanModels = Callable[[str], Mapping[int, int] | None]
Rows = str | Sequence[str]
SCORE = "score"  # the measure that has a column: share of right responses
MODELS = "model and seed"  # level of a mean over models: other models of this kind, trained with other seeds


class Gap(Exception):  # noqa: N818 - nobody made an error
    """A claim's test has no figure. planned: the plan says that it will have one (a run or score is missing)."""

    def __init__(self, reason: str, *, planned: bool = True):
        super().__init__(reason)
        self.planned = planned


@dataclass(frozen=True)
class Contrast:
    """Unknown is None, and `how` says why."""

    what: str
    value: float | None
    null: float
    low: float | None  # 95 % interval of the value
    high: float | None
    p: float | None  # two-sided, raw
    unit: str
    level: str  # what is imagined drawn again
    how: str
    n: int  # units drawn
    runs: tuple[str, ...] = ()  # folders below the results folder, or printed rows
    farthest: float = math.inf  # how far from the null a value can lie at all
    at_least: bool = False  # the true value may be larger, never smaller
    margin: tuple[float, float] | None = None  # values that make no difference that matters; None: none is declared
    units: tuple[tuple[str, float], ...] = ()  # what was averaged, by seed or model
    # Smallest distance from the null found at 5 % in 80 % of repetitions, as one of so many tests that Holm's rule
    # corrects together (`evals.stats.compare.detectable`)
    detectable: Callable[[int], float | None] = field(default=lambda tests: None, compare=False)

    @property
    def equal(self) -> bool:
        """Whether the 95 % interval lies inside the margin: stricter than two one-sided tests at 5 %."""
        if self.margin is None or self.low is None or self.high is None or self.at_least:
            return False
        return self.margin[0] <= self.low and self.high <= self.margin[1]

    def map(self, function: Callable[[float], float], unit: str) -> Contrast:
        """The same evidence in another unit; `function` rises, and no value is too far from the null."""
        value, low, high = (None if x is None else function(x) for x in (self.value, self.low, self.high))
        of_many, start, null = self.detectable, self.null, function(self.null)

        def mapped(tests: int) -> float | None:
            distance = of_many(tests)
            return None if distance is None else function(start + distance) - null

        return replace(
            self,
            value=value,
            low=low,
            high=high,
            null=null,
            unit=unit,
            units=tuple((name, function(x)) for name, x in self.units),
            detectable=mapped,
        )


class Source:
    """Where numbers come from. Every method raises `contrast.Gap` when it has none."""

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        """left minus `times` right, held against `null`; several rows: the mean over models."""
        raise NotImplementedError

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """left over right."""
        raise Gap("learning curves are drawn, not printed as numbers")

    def value(self, rows: Rows, measure: str, null: float) -> Contrast:
        """The mean of the rows."""
        raise Gap(f"{measure.replace('_', ' ')} is not printed")

    def matched(self, left: str, right: str) -> Contrast:
        """Area under the reward curve of left minus that of right, where both moved the policy equally far."""
        raise Gap("no movement of a policy is printed")

    def bases(self, runs: Sequence[str]) -> str:
        """Which models are behind a contrast's `runs`, and of which family their bases are."""
        raise NotImplementedError

    def spread(self, steadier: Rows, than: Rows, column: str, measure: str = SCORE) -> Contrast:
        """Standard deviation over seeds, the first over the second, held against 1."""
        raise NotImplementedError

    def collapsed(self, row: str, by: int, below: float) -> Contrast:
        """What the run still gets right after `by` steps, held against `below`."""
        raise NotImplementedError


def listed(rows: Rows) -> list[str]:
    """A list of rows is one row per model."""
    return [rows] if isinstance(rows, str) else list(rows)


def of_t(comparison: Comparison, what: str, *, null: float, unit: str, reach: float, runs: Iterable[str]) -> Contrast:
    """A t test of a difference from `null`. reach: how far from the null a value can lie."""
    value, low, high = (
        None if x is None else x + null for x in (comparison.difference, comparison.low, comparison.high)
    )
    return Contrast(
        what=what,
        value=value,
        null=null,
        low=low,
        high=high,
        p=comparison.p,
        unit=unit,
        level=comparison.level,
        how=comparison.how,
        n=comparison.n,
        runs=tuple(runs),
        farthest=reach,
        detectable=partial(compare.detectable_in_family, comparison),
    )


def over_runs(
    what: str,
    by_model: Mapping[str, Mapping[int, float]],
    *,
    null: float,
    unit: str,
    bounds: tuple[float, float],
    runs: Sequence[str],
    clean_models: CleanModels = lambda model: None,
) -> Contrast:
    """Values by model and seed against `null`, by Student's t over the clean models of one model, or the models' means.

    Several models: the unit is the model. Its seeds are averaged first, so that the interval covers other models too;
    all seeds as one sample would only support a claim about these models. bounds: between which value - null lies.
    """
    clusters = None
    if len(by_model) == 1:
        ((model, values),) = by_model.items()
        units, clusters = dict(values), clean_models(model)
    else:
        own = [compare.by_clean_model(values, clean_models(model)) for model, values in by_model.items()]
        units = {place: sum(values.values()) / len(values) for place, values in enumerate(own)}
    comparison = compare.compare_seeds(units, dict.fromkeys(units, null), bounds=bounds, clusters=clusters)
    contrast = of_t(comparison, what, null=null, unit=unit, reach=max(map(abs, bounds)), runs=runs)
    if len(by_model) == 1:
        return replace(contrast, units=tuple((f"seed {seed}", x) for seed, x in units.items()))
    several = f"{len(by_model)} models, {sum(map(len, by_model.values()))} runs or pairs of runs"
    how = f"{several} agree exactly: their spread is unknown" if comparison.p is None else f"Student-t over {several}"
    return replace(contrast, level=MODELS, how=how, units=tuple(zip(by_model, units.values(), strict=True)))


def of_two_samples(
    what: str,
    left: Mapping[int, float],
    right: Mapping[int, float],
    *,
    unit: str,
    reach: float,
    runs: Sequence[str],
    clusters: Mapping[int, int] | None = None,
) -> Contrast:
    """Mean of `left` minus mean of `right`, values by seed, against 0, by Welch's t.

    Seeds that both have are not paired: where a seed does the same to both, the interval is too wide. reach: how large
    the difference can be. clusters: which clean model each seed continues.
    """
    how = f"Welch's t over {compare.units(left, clusters)} and {compare.units(right, clusters)}"
    left, right = compare.by_clean_model(left, clusters), compare.by_clean_model(right, clusters)
    value = math.fsum(left.values()) / len(left) - math.fsum(right.values()) / len(right)
    n = min(len(left), len(right))
    unknown = Comparison(value, None, None, None, None, None, "seed", f"{how}: the spread of one seed is unknown", n)
    if n < 2:
        return of_t(unknown, what, null=0.0, unit=unit, reach=reach, runs=runs)
    (_, a, df_a), (_, b, df_b) = (intervals.seed_variance(list(of.values())) for of in (left, right))
    total, degrees = intervals.welch([(a / len(left)) ** 0.5, (b / len(right)) ** 0.5], [df_a, df_b])
    se, df = float(total), float(degrees)
    if se < ROUNDING:
        unknown = replace(unknown, how=f"{how}: all agree, their spread is unknown")
        return of_t(unknown, what, null=0.0, unit=unit, reach=reach, runs=runs)
    found = compare.t_test(value, se, df, bounds=(-reach, reach), level="seed", how=how, n=n)
    return of_t(found, what, null=0.0, unit=unit, reach=reach, runs=runs)


def of_share(what: str, hits: int, n: int, *, null: float, how: str) -> Contrast:
    """A share of n policies: Clopper-Pearson's interval and the exact binomial test against `null`."""
    from scipy.special import bdtr, betaincinv

    low = float(betaincinv(hits, n - hits + 1, 0.025)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 0.975)) if hits < n else 1.0
    tails = float(bdtr(hits, n, null)), 1.0 - float(bdtr(hits - 1, n, null)) if hits else 1.0
    p = min(1.0, 2 * min(tails))
    return Contrast(what, hits / n, null, low, high, p, "share", "policy", how, n)


def ratio_of_sds(
    what: str, left: Sequence[Sequence[float]], right: Sequence[Sequence[float]], *, runs: Sequence[str]
) -> Contrast:
    """Is one side steadier between seeds than the other? Ratio of standard deviations by Fisher's F. Null: 1.

    left, right: scores by seed, one group per method and model. The variance within groups is pooled, so that different
    levels of the groups do not count as spread. Scores are taken as normal.
    """
    from scipy.special import fdtr, fdtri

    (variance_a, df_a), (variance_b, df_b) = _within(left), _within(right)
    # F and not a permutation of seeds: with two or three seeds a side, no permutation reaches p < .05.
    if not (df_a and df_b):
        raise Gap("one seed: no spread between seeds")
    if not (variance_a and variance_b):
        raise Gap("seeds agree exactly: their spread is unknown")
    f = variance_a / variance_b
    below = float(fdtr(df_a, df_b, f))

    def found(tests: int) -> float:
        # the ratio r < 1 that is found in 80 %: F < critical value, where F/r^2 is distributed as F(df_a, df_b)
        return 1 - math.sqrt(float(fdtri(df_a, df_b, ALPHA / 2 / tests)) / float(fdtri(df_a, df_b, POWER)))

    return Contrast(
        what=what,
        value=math.sqrt(f),
        null=1.0,
        low=math.sqrt(f / fdtri(df_a, df_b, 1 - ALPHA / 2)),
        high=math.sqrt(f / fdtri(df_a, df_b, ALPHA / 2)),
        p=min(1.0, 2 * min(below, 1 - below)),
        unit="ratio",
        level="seed",
        how=f"F with {df_a} and {df_b} degrees of freedom",
        n=df_a + df_b + len(left) + len(right),
        runs=tuple(runs),
        detectable=found,
    )


def ratio_of_paired_sds(what: str, groups: Sequence[Sequence[tuple[float, float]]], *, runs: Sequence[str]) -> Contrast:
    """The same of two methods that share seeds: Pitman and Morgan's test (Biometrika 31, 1939), which allows for that.

    groups: by model, one pair of figures for each seed. a + b and a - b are uncorrelated exactly when the variances are
    equal. Seeds are centred model by model. Figures are taken as normal. Null: 1.
    """
    variance_a, df = _within([[a for a, _ in group] for group in groups])
    variance_b, _ = _within([[b for _, b in group] for group in groups])
    if df < 2:
        raise Gap("fewer than three seeds: no spread between seeds")
    if math.sqrt(min(variance_a, variance_b)) < ROUNDING:
        raise Gap("seeds agree exactly: their spread is unknown")
    sums, _ = _within([[a + b for a, b in group] for group in groups])
    covariance = (sums - variance_a - variance_b) / 2
    free = df - 1  # one more is spent on the correlation
    unshared = max(0.0, 1 - covariance**2 / (variance_a * variance_b))
    if unshared < 1e-9:
        raise Gap("the two methods move together exactly from seed to seed: no test of their spread")
    f = variance_a / variance_b
    # The correlation of sum and difference is t distributed under the null; its interval turns into one for f.
    tilt = (f - 1) / math.sqrt((f + 1) ** 2 - 4 * (1 - unshared) * f)
    se = math.sqrt((1 - tilt**2) / free)
    k = 1 + 2 * unshared * float(intervals.quantile(free)) ** 2 / free
    low, high = (math.sqrt(f * (k + side * math.sqrt(k * k - 1))) for side in (-1, 1))
    seeds = sum(map(len, groups))
    return Contrast(
        what=what,
        value=math.sqrt(f),
        null=1.0,
        low=low,
        high=high,
        p=float(intervals.p_value(tilt, se, free)),
        unit="ratio",
        level="seed",
        how=f"Pitman-Morgan over {seeds} paired seeds of {len(groups)} model{'s' if len(groups) > 1 else ''}",
        n=seeds,
        runs=tuple(runs),
        # log(sd ratio) has about this standard error near equal variances
        detectable=lambda tests: 1 - math.exp(-detectable(math.sqrt(unshared / free), free, tests)),
    )


def _within(groups: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Pooled variance within groups and its degrees of freedom; 0 degrees: unknown."""
    squares, df = 0.0, 0
    for values in groups:
        mean = math.fsum(values) / len(values)
        squares += math.fsum((x - mean) ** 2 for x in values)
        df += len(values) - 1
    return (squares / df if df else math.nan), df
