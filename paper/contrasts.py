"""Evaluate claims on the runs of a results tree: a measure, and `a - b` by model and seed."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from core.files import read_csv
from core.layout import Checkpoint, Run
from evals import learning_curves
from evals.learning_curves import Curve, read_curve, running_mean
from evals.stats import intervals
from evals.stats.compare import EQUAL_SEEDS, ONE_SEED, ROUNDING, by_clean_model, compare_seeds, judge, t_test
from evals.stats.estimate import Comparison
from evals.tree import Tree
from paper.printed import LONG_STEPS, MODELS
from paper.verdicts import LEAST_ROLLOUTS, RULE

MATCHED = "sweep/matched.csv"  # a sweep's results at equal movement
RATIO = (
    "ratio"  # unit of measures that are compared as a / b, by their logarithms: twice and half are equally far from 1
)


class Measure(NamedTuple):
    unit: str
    low: float = -math.inf
    top: float = math.inf
    learnt: bool = False  # taught by the reward: a placebo reward must show less of it
    of: Callable[[Curve], float | None] | None = None  # None: a score, or a measure of `evals.learning_curves`


def _known(curve: Curve, column: str, aggregate: str = "mean") -> list[float]:
    return [value for value in curve.series([column], aggregate) if value is not None]


def entropy_fall(curve: Curve) -> float | None:
    """Return the mean entropy of the first rollout minus that of the last, nats per token."""
    entropy = _known(curve, "entropy")
    return entropy[0] - entropy[-1] if entropy else None


def reward_falls(curve: Curve) -> float | None:
    """Return the mean loss of reward from one rollout to the next, over all steps (0 where it rose)."""
    falls = [max(0.0, before - after) for before, after in pairwise(_known(curve, "reward", "first"))]
    return math.fsum(falls) / len(falls) if falls else None


def reward_at_24(curve: Curve) -> float | None:
    """Return the running mean at rollout 24, or at the end of a shorter run: a collapse ends a run."""
    means = running_mean(_known(curve, "reward", "first")[:24])
    return means[-1] if means else None


def sign_agreement(curve: Curve) -> float | None:
    """Return the share of tokens on which entropy moves against the sign of the advantage."""
    shares = _known(curve, "theorem_sign_agreement")
    return math.fsum(shares) / len(shares) if shares else None


MEASURES = {
    "score": Measure("points", 0.0, 1.0, learnt=True),
    "area": Measure("reward", 0.0, 1.0, learnt=True),
    "to_grpo": Measure(RATIO, learnt=True),
    "grad_norm": Measure(RATIO),
    "clip_tokens": Measure("fraction of tokens", 0.0, 1.0),
    "entropy_end": Measure("nats per token", 0.0),
    "entropy_fall": Measure("nats per token", of=entropy_fall),
    "reward_falls": Measure("reward", 0.0, 1.0, learnt=True, of=reward_falls),
    "reward_at_24": Measure("reward", 0.0, 1.0, of=reward_at_24),
    "sign_agreement": Measure("share", 0.0, 1.0, of=sign_agreement),
    "equal_movement": Measure("reward", 0.0, 1.0),  # area, at equal movement of the policy
    "holds": Measure("share", 0.0, 1.0),  # of random policies on which a formula holds
}


class Arm(NamedTuple):
    """One side of a contrast on one model."""

    model: str  # a key of `printed.MODELS`
    method: str
    steps: int
    row: str  # the printed row; "" where no row has this method


Pair = tuple[Arm, Arm | None]


class Found(NamedTuple):
    """One contrast: its difference from the null, on a log scale for a ratio."""

    difference: Comparison
    runs: Sequence[Run] = ()
    at_least: bool = False  # a run of a never reached it: the true value may be larger, never smaller
    corrected: tuple[float | None, int] | None = None  # p after Holm over this many tests, where a file has it


class Gap(Exception):  # noqa: N818 - not an error
    """Raised, with a reason, where a value does not exist. planned: the plan includes one."""

    def __init__(self, reason: str, *, planned: bool = True):
        super().__init__(reason)
        self.planned = planned


ByModel = dict[str, dict[int, float]]


class Runs(NamedTuple):
    """Runs of a tree under the scale's settings, or those of a variant. Methods raise `Gap`."""

    tree: Tree
    variant: str | None = None

    def contrast(self, pairs: Sequence[Pair], measure: str, null: float) -> Found:
        """Compare a - b with the null: by seed on one model, by the models' means on several."""
        if measure == "equal_movement":
            if not self.tree.matrix["training"].get("kl_target"):
                return self._matched(pairs)
            measure = "area"  # every rollout of this scale moves the policy equally far
        found, runs, at_least = self.differences(pairs, measure)
        _, low, top, *_ = MEASURES[measure]
        low, top = (low, top) if pairs[0][1] is None else (low - top, top - low)
        nulls = {model: dict.fromkeys(by_seed, null) for model, by_seed in found.items()}
        return Found(self.compare(found, nulls, (low - null, top - null)), runs, at_least)

    def compare(self, a: ByModel, b: ByModel, bounds: tuple[float, float] = (-math.inf, math.inf)) -> Comparison:
        """Compare two sides. The unit is the clean model or seed on one model, the model on several."""
        if len(a) == 1:
            ((model, by_seed),) = a.items()
            return compare_seeds(by_seed, b[model], bounds=bounds, clusters=self.tree.clean_models(model))
        left, right = ({n: self._mean(side, model) for n, model in enumerate(a)} for side in (a, b))
        found = compare_seeds(left, right, bounds=bounds)
        return replace(found, how=found.how.replace("seed", "model"))

    def excess(self, true: ByModel, under: ByModel) -> Comparison:
        """Compare the contrast under the true reward with that under a placebo; Welch's t where one has more seeds."""
        ((model, *others), clusters) = under, self.tree.clean_models
        if others or true[model].keys() == under[model].keys():
            return self.compare(true, under)
        sides = [list(by_clean_model(side[model], clusters(model)).values()) for side in (true, under)]
        (mean, *a), (other, *b) = map(intervals.seed_variance, sides)
        n, value = min(map(len, sides)), float(mean - other)
        se, df = intervals.welch([(a[0] / len(sides[0])) ** 0.5, (b[0] / len(sides[1])) ** 0.5], [a[1], b[1]])
        if n < 2 or se < ROUNDING:
            return Comparison(difference=value, how=ONE_SEED if n < 2 else EQUAL_SEEDS, n=n)
        bounds = (-math.inf, math.inf)
        return t_test(value, float(se), float(df), bounds=bounds, level="seed", how="Welch's t over seeds", n=n)

    def _mean(self, side: ByModel, model: str) -> float:
        values = by_clean_model(side[model], self.tree.clean_models(model)).values()
        return math.fsum(values) / len(values)

    def differences(self, pairs: Sequence[Pair], measure: str) -> tuple[ByModel, list[Run], bool]:
        """Return a - b by model and seed (b None: the mean over the pairs' a), its runs, and whether one is a bound."""
        found: dict[str, dict[int, list[float]]] = {}
        used: dict[Run, bool] = {}
        for a, b in pairs:
            runs_a, runs_b = self.planned(a), {run.seed: run for run in self.planned(b)} if b else None
            common = [run for run in runs_a if runs_b is None or run.seed in runs_b]
            if runs_a and runs_b and not common:
                raise Gap(f"no seed in common: {runs_a[0].path} and {next(iter(runs_b.values())).path}")
            for run in common:
                value, used[run] = self._figure(run, a, measure)
                if b is not None and runs_b is not None:
                    other, used[runs_b[run.seed]] = self._figure(runs_b[run.seed], b, measure)
                    value -= other
                found.setdefault(run.model, {}).setdefault(run.seed, []).append(value)
        if not found:
            absent = [arm.method for pair in pairs for arm in pair if arm and not self.planned(arm)]
            raise Gap(f"not part of this scale: {', '.join(dict.fromkeys(absent))}", planned=False)
        means = {m: {s: math.fsum(v) / len(v) for s, v in by_seed.items()} for m, by_seed in found.items()}
        return means, list(used), any(used.values())

    def planned(self, arm: Arm) -> list[Run]:
        """Return the runs of an arm; empty where the scale has no such model or method."""
        model = self.tree.model_for(arm.model, MODELS[arm.model])
        method = self.tree.method_for(arm.method + (f"@{self.variant}" if self.variant else ""))
        if model is None or method is None:
            return []
        runs = [run for run in self.tree.averaged if (run.model, run.method) == (model["key"], method)]
        rollouts = self.tree.matrix.get("training", {}).get("rollouts")  # None: up to the last checkpoint
        if runs and (rollouts or min(max(self.tree.runs[run]["steps"]) for run in runs)) < LEAST_ROLLOUTS:
            raise Gap(RULE)
        return runs

    def _figure(self, run: Run, arm: Arm, measure: str) -> tuple[float, bool]:
        """Return a run's value (for a ratio its logarithm), and whether it is only a lower bound."""
        where = f"runs/{run.path.as_posix()}"
        if measure == "score":
            step = self.tree.matrix.get("long_step" if arm.steps == LONG_STEPS else "table_step")
            if step is None or Checkpoint(run, step) not in self.tree.checkpoints:
                raise Gap(f"not part of this scale: a second look at {where}", planned=False)
            score = learning_curves.figure(self.tree, Checkpoint(run, step), "avg_pooled")
            if score is None or step < LEAST_ROLLOUTS:
                raise Gap(f"missing {where}: no score of step {step}" if score is None else RULE)
            return score, False
        measures = self.tree.once(learning_curves.measure_run, run)
        if not measures.finished:
            raise Gap(f"missing {where}")
        of = MEASURES[measure].of
        value = of(read_curve(self.tree.layout.run(run) / "curve.csv")) if of else measures.values[measure]
        never = value is None and measure == "to_grpo"
        if never:
            value = measures.planned + 1.0  # the smallest number that the run does not rule out
        if value is None:
            raise Gap(f"{where}: {measure}: {measures.why.get(measure, 'not defined')}")
        if MEASURES[measure].unit != RATIO:
            return value, False
        if value <= 0:
            raise Gap(f"{where}: {measure} of {value:g}: no ratio")
        return math.log(value), never

    def _matched(self, pairs: Sequence[Pair]) -> Found:
        """Read a sweep's result over several step sizes, with its correction over all its methods."""
        ((a, b),) = pairs
        path, model = self.tree.root / MATCHED, self.tree.model_for(a.model, MODELS[a.model])
        if self.variant or model is None or b is None or not path.is_file():
            raise Gap("not part of this scale: several step sizes of one method", planned=False)
        wanted = {"model": model["key"], "measure": "area", "row": a.method, "versus": b.method}
        numbers = ("difference", "se", "difference_low", "difference_high", "p", "df", "p_holm", "tests")
        rows = read_csv(path, "methods at equal movement", (*wanted, *numbers, "how", "seeds"))
        row = next((row for row in rows if wanted.items() <= row.items()), None)
        if row is None or not row["difference"]:
            missing = f"not part of this scale: a sweep of {a.method} and {b.method}"
            raise Gap(row["how"] if row else missing, planned=row is not None)
        value, se, low, high, p, df, p_holm, tests = (float(row[name]) if row[name] else None for name in numbers)
        seeds = [int(seed) for seed in row["seeds"].split()]
        runs = [run for arm in (a, b) for run in self.planned(arm) if run.seed in seeds]
        comparison = Comparison(difference=value, se=se, low=low, high=high, p=p, how=row["how"], n=len(seeds), df=df)
        return Found(comparison, runs, corrected=(p_holm, int(tests or 0)))


def placebo(claim_measure: str, side: str, contrasts: Sequence[Sequence[Pair]], runs: Runs) -> tuple[str, str]:
    """Return which placebo rewards a supported claim beats, and why it is undecided after all, or "".

    An effect that a random reward also shows is not due to the reward: each contrast under the true reward minus that
    under the placebo, paired by seed, must be on the claimed side. All placebos must be beaten, so their p need no
    correction. The placebo for given settings is a variant that also changes the reward, and nothing else.
    """
    changes = {name: dict(each.get("changes", {})) for name, each in runs.tree.matrix.get("variants", {}).items()}
    settings, beaten, lacking = changes.get(runs.variant or "", {}), [], []
    for name, change in changes.items():
        if change.pop("reward", None) is None or change != settings:
            continue
        try:
            pairs = [
                [each.differences(c, claim_measure)[0] for each in (runs, Runs(runs.tree, name))] for c in contrasts
            ]
        except Gap:
            lacking.append(name)
            continue
        for true, under in pairs:
            seen = runs.excess({model: true[model] for model in under}, under)
            if judge(seen, side=side) != "supported":
                ends = "" if seen.low is None else f" [{seen.low:.3g}, {seen.high:.3g}]"
                return f"not beyond {name}", f"{seen.difference:.3g}{ends} beyond the placebo reward {name}"
        beaten.append(name)
    if not beaten:
        return "no placebo run", ""
    return f"beats {', '.join(beaten)}" + (f"; no run of {', '.join(lacking)}" if lacking else ""), ""
