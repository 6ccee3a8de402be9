"""A results tree as a source: runs of two methods paired by seed, models taken together by their means."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from evals import learning_curves
from evals.learning_curves import Curve, read_curve
from paper.claims.contrast import POINTS, Contrast, Gap, over_runs, ratio_of_sds
from paper.claims.tests import SCORE, Rows, listed
from paper.printed import AVERAGE, HEADINGS, Paper
from records.layout import Checkpoint, Run
from records.results_tree import Tree
from report.tables import spec

# Figures of one learning curve that claims speak about and `evals.learning_curves` has not.


class Extra(NamedTuple):
    """of: a finished run's curve -> the figure, None where it is not defined. low, top: between which it lies."""

    of: Callable[[Curve], float | None]
    unit: str
    low: float = -math.inf
    top: float = math.inf


def sign_agreement(curve: Curve) -> float | None:
    """Mean over rollouts of the share of tokens on which entropy moves against the sign of the advantage."""
    return _mean(curve.series(["theorem_sign_agreement"]))


def entropy_fall(curve: Curve) -> float | None:
    """Mean entropy of the first rollout minus that of the last, nats per token."""
    entropy = [value for value in curve.series(["entropy"]) if value is not None]
    return entropy[0] - entropy[-1] if entropy else None


def reward_falls(curve: Curve) -> float | None:
    """What the reward lost from one rollout to the next, mean over all steps (0 where it rose): unsteadiness."""
    reward = _known(curve.series(["reward"], "first"))
    falls = [max(0.0, before - after) for before, after in pairwise(reward)]
    return _mean(falls)


def reward_by_entropy(curve: Curve) -> float | None:
    """Correlation over rollouts of reward and exp(entropy); -1: R = -a exp(H) + b with a > 0."""
    points = [
        (r, math.exp(h))
        for r, h in zip(curve.series(["reward"], "first"), curve.series(["entropy"]), strict=True)
        if r is not None and h is not None
    ]
    if len(points) < 3:
        return None
    (mean_r, mean_h), n = (sum(side) / len(points) for side in zip(*points, strict=True)), len(points)
    covariance = sum((r - mean_r) * (h - mean_h) for r, h in points) / n
    spread = math.sqrt(sum((r - mean_r) ** 2 for r, _ in points) * sum((h - mean_h) ** 2 for _, h in points)) / n
    return covariance / spread if spread else None


def response_tokens(curve: Curve) -> float | None:
    """Mean length of a sampled response over all rollouts."""
    return _mean(curve.series(["response_tokens"], "first"))


EXTRAS: dict[str, Extra] = {
    "sign_agreement": Extra(sign_agreement, "share", 0.0, 1.0),
    "entropy_fall": Extra(entropy_fall, "nats per token"),
    "reward_falls": Extra(reward_falls, "reward", 0.0, 1.0),
    "reward_by_entropy": Extra(reward_by_entropy, "correlation", -1.0, 1.0),
    "response_tokens": Extra(response_tokens, "tokens", 0.0),
}


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return math.fsum(known) / len(known) if known else None


# Rows of the paper -> the runs that stand for them at a scale, and the figures of those runs.


POOLED = "avg_pooled"


@dataclass(frozen=True)
class Arm:
    """A printed row at this scale: the planned runs of one method on one model, scored after `step` rollouts."""

    runs: tuple[Run, ...]
    step: int | None
    title: str

    @property
    def model(self) -> str:
        return self.runs[0].model

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint(run, self.step) for run in self.runs if self.step is not None]


class Arms:
    """variant: which training settings (None: the scale's own). instead: printed row -> the method that a reading puts
    in its place."""

    def __init__(self, tree: Tree, paper: Paper, *, variant: str | None = None, instead: Mapping[str, str] = {}):
        self.tree, self.paper, self.variant, self.instead = tree, paper, variant, instead

    def find(self, id: str) -> Arm | None:
        """None: no model of this scale stands for the row's, or no such run is planned under these settings."""
        row = self.paper[id]
        run = (self.paper[row.of[0]] if row.of else row).run
        assert run is not None, f"{id}: claims.yaml is checked to name evaluated rows"
        model = self.tree.model_for(row.model, _titles_arms()[row.model])
        method = self.tree.method_for(self.instead.get(id, run.method) + (f"@{self.variant}" if self.variant else ""))
        if model is None or method is None:
            return None
        runs = tuple(r for r in self.tree.runs if (r.model, r.method) == (model["key"], method))
        long = run.steps is not None and spec.STEPS[run.steps] is not None
        step = self.tree.matrix.get("long_step" if long else "table_step")
        return Arm(runs, step, str(self.tree.methods[method]["title"])) if runs else None

    def all(self, rows: Rows) -> list[Arm]:
        """The arms of those rows that this scale has. Raises `Gap` when it has none."""
        found = [arm for id in listed(rows) if (arm := self.find(id))]
        if not found:
            raise self._absent(listed(rows))
        return found

    def pairs(self, left: Rows, right: Rows) -> list[tuple[Arm, Arm]]:
        """The arms of both sides, model by model, where this scale has both. Raises `Gap` when it has no pair."""
        both = [(self.find(a), self.find(b)) for a, b in zip(listed(left), listed(right), strict=True)]
        found = [(a, b) for a, b in both if a and b]
        if not found:
            raise self._absent([*listed(left), *listed(right)])
        return found

    def _absent(self, ids: Sequence[str]) -> Gap:
        return Gap(f"not part of this scale: {', '.join(id for id in ids if not self.find(id))}", planned=False)


class Figures:
    """What single runs came out with; each run is read once."""

    def __init__(self, tree: Tree):
        self.tree = tree
        self._read: dict[Run, learning_curves.RunMeasures] = {}

    def finished(self, run: Run) -> learning_curves.RunMeasures:
        """Raises `Gap` for a run that is planned and not there yet."""
        if run not in self._read:
            found = learning_curves.measure_run(self.tree, run)
            if not found.finished:
                raise Gap(f"missing {path(run)}")
            self._read[run] = found
        return self._read[run]

    def of(self, run: Run, arm: Arm, measure: str, column: str = AVERAGE) -> float:
        """A measure of a run, or its score in a column. Raises `Gap` when there is none."""
        if measure == SCORE:
            return self._score(run, arm.step, column)
        known = self.finished(run)
        value = EXTRAS[measure].of(self.curve(run)) if measure in EXTRAS else known.values[measure]
        if value is None:
            raise Gap(f"{path(run)}: {self.name(measure)}: {known.why.get(measure, 'not defined')}")
        return value

    def curve(self, run: Run) -> learning_curves.Curve:
        self.finished(run)
        return read_curve(self.tree.layout.run(run) / "curve.csv")

    def benchmark(self, column: str) -> str:
        """The key in scores.csv of what stands for a printed column."""
        if column == AVERAGE:
            return POOLED
        found = self.tree.benchmark_for(column, HEADINGS[column])
        if found is None:
            raise Gap(f"not part of this scale: {HEADINGS[column]}", planned=False)
        return str(found["key"])

    def name(self, measure: str, column: str = AVERAGE) -> str:
        if measure == SCORE:
            return HEADINGS[AVERAGE] if column == AVERAGE else self.benchmark(column)
        return measure.replace("_", " ") if measure in EXTRAS else learning_curves.MEASURES[measure].title

    def _score(self, run: Run, step: int | None, column: str) -> float:
        if step is None or Checkpoint(run, step) not in self.tree.checkpoints:
            raise Gap(f"not part of this scale: a second look at {path(run)}", planned=False)
        key = self.benchmark(column)
        if not self.tree.layout.scores.is_file():
            raise Gap("missing scores.csv")
        score = self.tree.scores.get((Checkpoint(run, step), key))
        if score is None or score.value is None:
            raise Gap(f"missing {path(run)}: no score of step {step} on {key}")
        return score.value


def scale(measure: str) -> tuple[str, float, float]:
    """Unit, and between what a figure lies."""
    if measure == SCORE:
        return POINTS, 0.0, 1.0
    if measure in EXTRAS:
        extra = EXTRAS[measure]
        return extra.unit, extra.low, extra.top
    return learning_curves.MEASURES[measure].unit, 0.0, learning_curves.MEASURES[measure].top


@cache
def _titles_arms() -> Mapping[str, str]:
    """Slot of a model -> the paper's name of it."""
    return spec.table("1").models


def path(run: Run) -> str:
    """The run's folder below the results folder."""
    return f"runs/{run.path.as_posix()}"


Pairs = Sequence[tuple[Arm, Arm]]


class Runs:
    """variant, instead: as in `arms.Arms`."""

    def __init__(self, tree: Tree, paper: Paper, *, variant: str | None = None, instead: Mapping[str, str] = {}):
        self.tree = tree
        self.arms = Arms(tree, paper, variant=variant, instead=instead)
        self.figures = Figures(tree)

    def difference(self, left: Rows, right: Rows, measure: str, column: str, null: float) -> Contrast:
        pairs = self.arms.pairs(left, right)
        sides = self._both(pairs, measure, column)
        gains = {model: {seed: a - b for seed, (a, b) in seeds.items()} for model, seeds in sides.items()}
        unit, low, top = scale(measure)
        bounds = low - top - null, top - low - null
        what = f"{_titles(pairs, '−')}, {self.figures.name(measure, column)}"
        made = over_runs(what, gains, null=null, unit=unit, bounds=bounds, runs=_used(pairs))
        return self._two_checkpoints(made, pairs, column) if made.n == 1 and measure == SCORE else made

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """Of rollouts until something is reached; a mean of logarithms: twice and half are equally far from 1.

        A run of the left side that never gets there counts as if it did one rollout after its last: the true ratio is
        then larger than the one given.
        """
        pairs = self.arms.pairs(left, right)
        logs: dict[str, dict[int, float]] = {}
        late: list[str] = []
        for a, x, b, y in _common(pairs):
            asked, known = self.figures.of(y, b, measure), self.figures.finished(x)
            needed = known.values[measure]
            if needed is None:  # y has a figure, so there is something to reach
                needed = (known.planned or 0) + 1
                late.append(path(x))
            logs.setdefault(a.model, {})[x.seed] = math.log(needed / asked)
        what = f"{_titles(pairs, 'over')}, {self.figures.name(measure)}"
        endless = (-math.inf, math.inf)
        made = over_runs(what, logs, null=math.log(null), unit="", bounds=endless, runs=_used(pairs))
        made = made.map(math.exp, "ratio")
        never = f"; {len(late)} of {sum(map(len, logs.values()))} never get there: {', '.join(late)}"
        return replace(made, at_least=True, how=made.how + never) if late else made

    def value(self, rows: Rows, measure: str, null: float) -> Contrast:
        """Several methods of one model are averaged seed by seed."""
        arms = self.arms.all(rows)
        values: dict[str, dict[int, list[float]]] = {}
        for arm in arms:
            for run in arm.runs:
                figure = self.figures.of(run, arm, measure)
                values.setdefault(arm.model, {}).setdefault(run.seed, []).append(figure)
        means = {model: {s: math.fsum(v) / len(v) for s, v in seeds.items()} for model, seeds in values.items()}
        unit, low, top = scale(measure)
        what = f"{', '.join(dict.fromkeys(arm.title for arm in arms))}: {self.figures.name(measure)}"
        runs = [path(run) for arm in arms for run in arm.runs]
        return over_runs(what, means, null=null, unit=unit, bounds=(low - null, top - null), runs=runs)

    def spread(self, steadier: Rows, than: Rows, column: str) -> Contrast:
        a, b = (self.arms.all(side) for side in (steadier, than))
        sides = [[[self.figures.of(run, arm, SCORE, column) for run in arm.runs] for arm in arms] for arms in (a, b)]
        what = f"sd over seeds, {a[0].title} over {b[0].title}, {self.figures.name(SCORE, column)}"
        return ratio_of_sds(what, *sides, runs=[path(run) for arm in (*a, *b) for run in arm.runs])

    def collapsed(self, row: str, by: int, below: float) -> Contrast:
        """Reward: the running mean at rollout `by`, or at the end of a shorter run (a collapse ends a run)."""
        (arm,) = self.arms.all(row)
        values, last = {}, 0
        for run in arm.runs:
            reward = [r for r in self.figures.curve(run).series(["reward"], "first")[:by] if r is not None]
            values[run.seed], last = learning_curves.running_mean(reward)[-1], max(last, len(reward))
        what, runs = f"{arm.title}: reward at the end (rollout {last})", [path(run) for run in arm.runs]
        return over_runs(what, {arm.model: values}, null=below, unit="reward", bounds=(-below, 1.0 - below), runs=runs)

    def _both(self, pairs: Pairs, measure: str, column: str) -> dict[str, dict[int, tuple[float, float]]]:
        """Figures of both sides by model and seed."""
        found: dict[str, dict[int, tuple[float, float]]] = {}
        for a, x, b, y in _common(pairs):
            figures = self.figures.of(x, a, measure, column), self.figures.of(y, b, measure, column)
            found.setdefault(a.model, {})[x.seed] = figures
        return found

    def _two_checkpoints(self, made: Contrast, pairs: Pairs, column: str) -> Contrast:
        """One seed: what the problems say about these two checkpoints. No p: that is no test of two methods."""
        from report.tables import fill

        ((a, b),) = pairs
        found = fill.difference(self.tree, self.figures.benchmark(column), a.checkpoints, b.checkpoints)
        if found is None:
            return made
        how = f"{made.how}; of these two checkpoints only: {found.how}"
        return replace(made, low=found.low, high=found.high, level=found.level, how=how)


def _common(pairs: Pairs) -> Iterator[tuple[Arm, Run, Arm, Run]]:
    """Runs of both sides with the same seed. Raises `Gap` where a model has none."""
    for a, b in pairs:
        right = {run.seed: run for run in b.runs}
        both = [(run, right[run.seed]) for run in a.runs if run.seed in right]
        if not both:
            raise Gap(f"no seed in common: {path(a.runs[0])} and {path(b.runs[0])}")
        for x, y in both:
            yield a, x, b, y


def _titles(pairs: Pairs, between: str) -> str:
    return f"{pairs[0][0].title} {between} {pairs[0][1].title}"


def _used(pairs: Pairs) -> list[str]:
    return list(dict.fromkeys(path(run) for _, x, _, y in _common(pairs) for run in (x, y)))
