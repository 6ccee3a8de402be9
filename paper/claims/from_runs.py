"""A results tree as a source of numbers: runs of two methods paired by seed, several models compared by their means."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from core.files import read_csv, stored
from core.layout import Checkpoint, Run
from core.results_tree import Tree, plain
from evals import learning_curves
from evals.learning_curves import Curve, read_curve
from evals.stats.compare import by_clean_model
from evals.stats.estimate import Comparison
from paper.claims.contrast import (
    SCORE,
    Contrast,
    Gap,
    Rows,
    Source,
    listed,
    of_t,
    of_two_samples,
    over_runs,
    ratio_of_paired_sds,
)
from paper.claims.entries import LEAST_ROLLOUTS, POINTS
from paper.printed import AVERAGE, HEADINGS, LONG_STEPS, MODELS, Paper

POOLED = "avg_pooled"  # the row of scores.csv that stands for the paper's "Avg."
MATCHED = "sweep/matched.csv"  # what `report.frontier` writes, below the results folder

FIELDS = ("difference", "difference_low", "difference_high", "p", "se", "df", "title", "how", "seeds")

# Figures of one learning curve that only claims speak about; all others are in `evals.learning_curves.MEASURES`.


class Extra(NamedTuple):
    of: Callable[[Curve], float | None]  # a finished run's curve -> the figure; None where it is not defined
    unit: str
    low: float = -math.inf  # the figure lies between low and top
    top: float = math.inf


def entropy_fall(curve: Curve) -> float | None:
    """Mean entropy of the first rollout minus that of the last, nats per token."""
    entropy = _known(curve.series(["entropy"]))
    return entropy[0] - entropy[-1] if entropy else None


def reward_falls(curve: Curve) -> float | None:
    """What the reward lost from one rollout to the next, mean over all steps (0 where it rose): unsteadiness."""
    reward = _known(curve.series(["reward"], "first"))
    return _mean([max(0.0, before - after) for before, after in pairwise(reward)])


def reward_gain(curve: Curve) -> float | None:
    """Running mean of the reward at the last rollout minus the reward of the first rollout."""
    reward = _known(curve.series(["reward"], "first"))
    means = learning_curves.running_mean(reward)
    return means[-1] - reward[0] if means else None


def entropy_kept(curve: Curve) -> float | None:
    """Mean entropy of the last third of the rollouts over that of the first rollout."""
    entropy = _known(curve.series(["entropy"]))
    last = _mean(entropy[-max(1, len(entropy) // 3) :])
    return last / entropy[0] if last is not None and entropy[0] > 0 else None


def _check_long_enough(rollouts: int, done: str) -> None:
    if rollouts < LEAST_ROLLOUTS:
        raise Gap(f"{rollouts} rollouts {done}; a verdict needs {LEAST_ROLLOUTS}")


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Sequence[float | None]) -> float | None:
    known = _known(values)
    return math.fsum(known) / len(known) if known else None


EXTRAS: dict[str, Extra] = {
    # Share of tokens on which entropy moves against the sign of the advantage.
    "sign_agreement": Extra(lambda curve: _mean(curve.series(["theorem_sign_agreement"], "mean")), "share", 0.0, 1.0),
    "entropy_fall": Extra(entropy_fall, "nats per token"),
    "reward_falls": Extra(reward_falls, "reward", 0.0, 1.0),
    "reward_gain": Extra(reward_gain, "reward", -1.0, 1.0),
    "entropy_kept": Extra(entropy_kept, "share", 0.0),
    # Length of a sampled response.
    "response_tokens": Extra(lambda curve: _mean(curve.series(["response_tokens"], "first")), "tokens", 0.0),
}

# Measures in which a run that never gets there is later than its end.
ROLLOUTS_UNTIL = ("to_50", "to_80", "to_grpo")


def unit_and_range(measure: str) -> tuple[str, float, float]:
    """Unit of a measure, and the smallest and largest value that it can have."""
    if measure == SCORE:
        return POINTS, 0.0, 1.0
    if measure in EXTRAS:
        extra = EXTRAS[measure]
        return extra.unit, extra.low, extra.top
    known = learning_curves.MEASURES[measure]
    return known.unit, 0.0, known.top


@dataclass(frozen=True)
class Arm:
    """What stands for a printed row at this scale: the planned runs of one method on one model."""

    runs: tuple[Run, ...]
    step: int | None  # rollouts after which they are scored; None: this scale takes no such second look
    title: str

    @property
    def model(self) -> str:
        return self.runs[0].model


Pairs = Sequence[tuple[Arm, Arm]]


class Runs(Source):
    """A results tree.

    variant: which training settings (None: the scale's own). instead: printed row -> the method that another reading of
    the paper puts in its place. only: key of the one model that counts (None: all that a claim speaks of).
    """

    def __init__(
        self,
        tree: Tree,
        paper: Paper,
        *,
        variant: str | None = None,
        instead: Mapping[str, str] | None = None,
        only: str | None = None,
    ):
        self.tree = tree
        self.paper = paper
        self.variant = variant
        self.instead = instead or {}
        self.only = only
        self._measures: dict[Run, learning_curves.RunMeasures] = {}  # each run is read once
        self.over_runs = partial(over_runs, clean_models=tree.clean_models)

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        pairs = self.pairs(left, right)
        differences = _differences(pairs, lambda run, arm: self.figure(run, arm, measure, column), times)
        unit, low, top = unit_and_range(measure)
        what = f"{_titles(pairs, '−' if times == 1 else f'− {times:g} ×')}, {self.name(measure, column)}"
        bounds = low - times * top - null, top - times * low - null
        contrast = self.over_runs(what, differences, null=null, unit=unit, bounds=bounds, runs=_used(pairs))
        if contrast.n == 1 and measure == SCORE:
            return self._add_problem_interval(contrast, pairs, column)
        return contrast

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """As a mean of logarithms: twice and half are equally far from 1.

        A run of the left side that never gets there counts as if it did one rollout after its last. The true ratio is
        then larger than the one given.
        """
        pairs = self.pairs(left, right)
        logs: dict[str, dict[int, float]] = {}
        late: list[str] = []
        for a, run_a, b, run_b in paired_runs(pairs):
            value_b = self.figure(run_b, b, measure)  # raises when b never gets there: nothing to be reached
            measures_a = self.finished(run_a)
            if measure in ROLLOUTS_UNTIL and measures_a.values[measure] is None:
                value_a = (measures_a.planned or 0) + 1.0  # the smallest number that the run does not rule out
                late.append(folder(run_a))
            else:
                value_a = self.figure(run_a, a, measure)
            if min(value_a, value_b) <= 0:
                raise Gap(f"{folder(run_a)}: {self.name(measure)} of 0: no ratio", planned=True)
            logs.setdefault(a.model, {})[run_a.seed] = math.log(value_a / value_b)
        what = f"{_titles(pairs, 'over')}, {self.name(measure)}"
        unbounded = (-math.inf, math.inf)
        contrast = self.over_runs(what, logs, null=math.log(null), unit="", bounds=unbounded, runs=_used(pairs))
        contrast = contrast.map(math.exp, "ratio")
        if not late:
            return contrast
        never = f"; {len(late)} of {sum(map(len, logs.values()))} never get there: {', '.join(late)}"
        return replace(contrast, at_least=True, how=contrast.how + never)

    def value(self, rows: Rows, measure: str, null: float) -> Contrast:
        """Several methods of one model are averaged seed by seed."""
        arms = self._arms(rows)
        values: dict[str, dict[int, list[float]]] = {}
        for arm in arms:
            for run in arm.runs:
                values.setdefault(arm.model, {}).setdefault(run.seed, []).append(self.figure(run, arm, measure))
        means = {model: {s: math.fsum(v) / len(v) for s, v in seeds.items()} for model, seeds in values.items()}
        unit, low, top = unit_and_range(measure)
        what = f"{', '.join(dict.fromkeys(arm.title for arm in arms))}: {self.name(measure)}"
        return self.over_runs(what, means, null=null, unit=unit, bounds=(low - null, top - null), runs=_folders(arms))

    def matched(self, left: str, right: str) -> Contrast:
        """From what a sweep of this scale found (`report.frontier`), whose seeds are those that select; or directly,
        where every rollout moves the policy equally far."""
        if self.tree.matrix.get("training", {}).get("kl_target"):
            return self.difference(left, right, "area", AVERAGE, 0.0)
        path, ids = self.tree.root / MATCHED, (left, right)
        methods = [self.instead.get(id, run.method) for id in ids if (run := self.paper[id].run)]
        model = self.tree.model_for(self.paper[left].model, MODELS[self.paper[left].model])
        if self.variant or self.only or model is None or not stored(path):
            raise Gap("not part of this scale: several step sizes of one method", planned=False)
        self.tree.check_written(MATCHED.removesuffix("matched.csv") + "frontier", MATCHED)
        rows = read_csv(path, "methods at equal movement", ("model", "measure", "row", "versus", *FIELDS))
        wanted = [model["key"], "area", *methods]
        row = next((r for r in rows if [r["model"], r["measure"], r["row"], r["versus"]] == wanted), None)
        if row is None:
            raise Gap(f"not part of this scale: a sweep of {methods[0]} and {methods[1]}", planned=False)
        if not row["difference"]:
            raise Gap(row["how"])
        seeds = [int(seed) for seed in row["seeds"].split()]
        keys = [key for method in methods if (key := self.tree.method_for(method))]
        versus = next((m["title"] for m in self.tree.methods.values() if m["row"] == methods[1]), methods[1])
        runs = [Run(model["key"], key, seed) for key in keys for seed in seeds]  # at the scale's own step size
        value, low, high, p, se, df = (float(row[name]) if row[name] else None for name in FIELDS[:6])
        comparison = Comparison(value, se, low, high, p, None, "seed", row["how"], len(seeds), df)
        what = f"{row['title']} − {versus} at equal movement, {self.name('area')}"
        unit, used = learning_curves.MEASURES["area"].unit, [folder(run) for run in runs if run in self.tree.runs]
        return of_t(comparison, what, null=0.0, unit=unit, reach=1.0, runs=used)

    def bases(self, runs: Sequence[str]) -> str:
        """`titles (family)` of the models of these folders."""
        keys = {run.split("/")[1] for run in runs}
        families: dict[str, list[str]] = {}
        for model in self.tree.models:
            if model["key"] in keys:
                stands_for = model.get("stands_for")
                own = stands_for is None or plain(stands_for) == plain(model["title"])
                name = model["title"] if own else f"{model['title']} for {stands_for}"
                families.setdefault(model["bases"], []).append(name)
        return "; ".join(f"{', '.join(names)} ({family})" for family, names in families.items())

    def spread(self, steadier: Rows, than: Rows, column: str, measure: str = SCORE) -> Contrast:
        pairs = self.pairs(steadier, than)
        values: dict[str, tuple[dict[int, float], dict[int, float]]] = {}
        for a, run_a, b, run_b in paired_runs(pairs):
            both = values.setdefault(a.model, ({}, {}))
            both[0][run_a.seed] = self.figure(run_a, a, measure, column)
            both[1][run_b.seed] = self.figure(run_b, b, measure, column)
        what = f"sd over seeds, {_titles(pairs, 'over')}, {self.name(measure, column)}"
        groups = []
        for model, sides in values.items():
            means = [by_clean_model(side, self.tree.clean_models(model)).values() for side in sides]
            groups.append(list(zip(*means, strict=True)))
        return ratio_of_paired_sds(what, groups, runs=_used(pairs))

    def collapsed(self, row: str, by: int, below: float) -> Contrast:
        """Reward: the running mean at rollout `by`, or at the end of a shorter run (a collapse ends a run)."""
        (arm,) = self._arms(row)
        rewards: dict[int, float] = {}
        last = 0
        for run in arm.runs:
            self.finished(run)
            curve = read_curve(self.tree.layout.run(run) / "curve.csv")
            # A running mean, because the reward of one rollout is 0 by chance now and then.
            reward = _known(curve.series(["reward"], "first")[:by])
            rewards[run.seed] = learning_curves.running_mean(reward)[-1]
            last = max(last, len(reward))
        what = f"{arm.title}: reward at the end (rollout {last})"
        bounds = (-below, 1.0 - below)
        values = {arm.model: rewards}
        return self.over_runs(what, values, null=below, unit="reward", bounds=bounds, runs=_folders([arm]))

    def _add_problem_interval(self, contrast: Contrast, pairs: Pairs, column: str) -> Contrast:
        """One seed: what the problems say about these two checkpoints. No p: that is no test of two methods."""
        from evals.score import difference_of_scores

        ((a, run_a, b, run_b),) = paired_runs(pairs)
        if a.step is None or b.step is None or (run_a, a.step) == (run_b, b.step):
            return contrast  # a checkpoint minus itself is 0 by construction
        checkpoints = Checkpoint(run_a, a.step), Checkpoint(run_b, b.step)
        comparison = difference_of_scores(self.tree, self._benchmark(column), *checkpoints)
        if comparison is None:
            return contrast
        how = f"{contrast.how}; of these two checkpoints only: {comparison.how}"
        return replace(contrast, low=comparison.low, high=comparison.high, level=comparison.level, how=how)

    # Rows of the paper -> the runs that stand for them at this scale.

    def _arm(self, id: str) -> Arm | None:
        """None: no model of this scale stands for the row's, or no such run is planned under these settings."""
        row = self.paper[id]
        run = self.paper[row.of[0]].run if row.of else row.run
        assert run is not None, f"{id}: claims.yaml is checked to name evaluated rows"
        model = self.tree.model_for(row.model, MODELS[row.model])
        method = self.tree.method_for(self.instead.get(id, run.method) + (f"@{self.variant}" if self.variant else ""))
        if model is None or method is None or self.only not in (None, model["key"]):
            return None
        runs = tuple(r for r in self.tree.averaged if (r.model, r.method) == (model["key"], method))
        if not runs:
            return None
        planned = self.tree.matrix.get("training", {}).get("rollouts")  # None: up to the last checkpoint
        _check_long_enough(planned or min(max(self.tree.runs[r]["steps"]) for r in runs), "trained")
        step = self.tree.matrix.get("long_step" if run.steps == LONG_STEPS else "table_step")
        return Arm(runs, step, str(self.tree.methods[method]["title"]))

    def main_model(self, rows: Sequence[str]) -> str | None:
        """Of several models that stand for these rows, the one with the most seeds; None: one model, or none."""
        arms = [arm for id in rows if (arm := self._arm(id))]
        seeds: dict[str, set[int]] = {}
        for arm in arms:
            seeds.setdefault(arm.model, set()).update(run.seed for run in arm.runs)
        return max(seeds, key=lambda model: len(seeds[model])) if len(seeds) > 1 else None

    def _arms(self, rows: Rows) -> list[Arm]:
        """The arms of those rows that this scale has. Raises `Gap` when it has none."""
        arms = [arm for id in listed(rows) if (arm := self._arm(id))]
        if not arms:
            raise self._absent(listed(rows))
        return arms

    def pairs(self, left: Rows, right: Rows) -> list[tuple[Arm, Arm]]:
        """The arms of both sides, model by model, where this scale has both. Raises `Gap` when it has no pair."""
        both = [(self._arm(a), self._arm(b)) for a, b in zip(listed(left), listed(right), strict=True)]
        pairs = [(a, b) for a, b in both if a and b]
        if not pairs:
            raise self._absent([*listed(left), *listed(right)])
        return pairs

    def _absent(self, ids: Sequence[str]) -> Gap:
        return Gap(f"not part of this scale: {', '.join(id for id in ids if not self._arm(id))}", planned=False)

    # The figures of those runs.

    def finished(self, run: Run) -> learning_curves.RunMeasures:
        """Raises `Gap` for a run that is planned and not there yet."""
        if run not in self._measures:
            measures = learning_curves.measure_run(self.tree, run)
            if not measures.finished:
                raise Gap(f"missing {folder(run)}")
            self._measures[run] = measures
        return self._measures[run]

    def figure(self, run: Run, arm: Arm, measure: str, column: str = AVERAGE) -> float:
        """A measure of a run, or its score in a column. Raises `Gap` when there is none."""
        if measure == SCORE:
            return self._score(run, arm.step, column)
        measures = self.finished(run)
        if measure in EXTRAS:
            value = EXTRAS[measure].of(read_curve(self.tree.layout.run(run) / "curve.csv"))
        else:
            value = measures.values[measure]
        if value is None:
            raise Gap(f"{folder(run)}: {self.name(measure)}: {measures.why.get(measure, 'not defined')}")
        return value

    def _score(self, run: Run, step: int | None, column: str) -> float:
        if step is None or Checkpoint(run, step) not in self.tree.checkpoints:
            raise Gap(f"not part of this scale: a second look at {folder(run)}", planned=False)
        benchmark = self._benchmark(column)
        if not stored(self.tree.layout.scores):
            raise Gap("missing scores.csv")
        score = self.tree.scores.get((Checkpoint(run, step), benchmark))
        if score is None or score.value is None:
            raise Gap(f"missing {folder(run)}: no score of step {step} on {benchmark}")
        _check_long_enough(step, "scored")
        return score.value

    def _benchmark(self, column: str) -> str:
        """The key in scores.csv of what stands for a printed column."""
        if column == AVERAGE:
            return POOLED
        benchmark = self.tree.benchmark_for(column, HEADINGS[column])
        if benchmark is None:
            raise Gap(f"not part of this scale: {HEADINGS[column]}", planned=False)
        return str(benchmark["key"])

    def name(self, measure: str, column: str = AVERAGE) -> str:
        if measure == SCORE:
            return HEADINGS[AVERAGE] if column == AVERAGE else self._benchmark(column)
        return measure.replace("_", " ") if measure in EXTRAS else learning_curves.MEASURES[measure].title


class Excess(Runs):
    """A `Source` whose contrasts are those under the true reward minus those under a placebo, against 0.

    They are paired by seed where both have the same seeds, otherwise taken as two samples, which loses no seed. Only
    models that the placebo was trained on count, with all their seeds. Raises `Gap` where a run is missing.
    """

    def __init__(self, true: Runs, placebo: str):
        super().__init__(true.tree, true.paper, variant=placebo, instead=true.instead, only=true.only)
        self.true = true

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        unit, low, top = unit_and_range(measure)
        figure = partial(Runs.figure, measure=measure, column=column)
        return self._excess(left, right, figure, self.name(measure, column), unit, 2 * (top - low))

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """A run that never reaches something counts as one rollout after its last, on either side."""

        def figure(source: Runs, run: Run, arm: Arm) -> float:
            measures = source.finished(run)
            if measure in ROLLOUTS_UNTIL and measures.values[measure] is None:
                return math.log((measures.planned or 0) + 1)
            value = source.figure(run, arm, measure)
            if value <= 0:
                raise Gap(f"{folder(run)}: {self.name(measure)} of 0: no ratio")
            return math.log(value)

        return self._excess(left, right, figure, self.name(measure), "log ratio", math.inf)

    def _excess(
        self, left: Rows, right: Rows, figure: Callable[[Runs, Run, Arm], float], name: str, unit: str, reach: float
    ) -> Contrast:
        pairs = self.pairs(left, right)
        models = {arm.model for arm, _ in pairs}
        true_pairs = [pair for pair in self.true.pairs(left, right) if pair[0].model in models]
        if {arm.model for arm, _ in true_pairs} != models:
            raise Gap(f"not part of this scale: the true reward of every run of {self.variant}", planned=False)
        true = _differences(true_pairs, partial(figure, self.true))
        placebo = _differences(pairs, partial(figure, self))
        runs = list(dict.fromkeys([*_used(true_pairs), *_used(pairs)]))
        titles = " − ".join(arm.title for arm in true_pairs[0])
        what = f"{titles}, {name}, the true reward's minus that of {self.variant}"
        if len(models) == 1:
            (model,) = models
            if true[model].keys() != placebo[model].keys():
                sides, clusters = (true[model], placebo[model]), self.tree.clean_models(model)
                return of_two_samples(what, *sides, unit=unit, reach=reach, runs=runs, clusters=clusters)
            excess = {model: {seed: true[model][seed] - placebo[model][seed] for seed in true[model]}}
            return self.over_runs(what, excess, null=0.0, unit=unit, bounds=(-reach, reach), runs=runs)

        # The unit is the model. Seed 0 stands for all seeds of a model: it continues no clean model.
        def mean(side: dict[str, dict[int, float]], model: str) -> float:
            return fmean(by_clean_model(side[model], self.tree.clean_models(model)).values())

        excess = {model: {0: mean(true, model) - mean(placebo, model)} for model in models}
        return over_runs(what, excess, null=0.0, unit=unit, bounds=(-reach, reach), runs=runs)


def folder(run: Run) -> str:
    """The run's folder below the results folder."""
    return f"runs/{run.path.as_posix()}"


def _folders(arms: Sequence[Arm]) -> list[str]:
    return [folder(run) for arm in arms for run in arm.runs]


def paired_runs(pairs: Pairs) -> Iterator[tuple[Arm, Run, Arm, Run]]:
    """Runs of both sides with the same seed. Raises `Gap` where a model has none."""
    for a, b in pairs:
        runs_b = {run.seed: run for run in b.runs}
        common = [(run, runs_b[run.seed]) for run in a.runs if run.seed in runs_b]
        if not common:
            raise Gap(f"no seed in common: {folder(a.runs[0])} and {folder(b.runs[0])}")
        for run_a, run_b in common:
            yield a, run_a, b, run_b


def _differences(pairs: Pairs, figure: Callable[[Run, Arm], float], times: float = 1.0) -> dict[str, dict[int, float]]:
    """A figure of the left side minus `times` that of the right, by model and seed."""
    found: dict[str, dict[int, float]] = {}
    for a, run_a, b, run_b in paired_runs(pairs):
        found.setdefault(a.model, {})[run_a.seed] = figure(run_a, a) - times * figure(run_b, b)
    return found


def _titles(pairs: Pairs, between: str) -> str:
    return f"{pairs[0][0].title} {between} {pairs[0][1].title}"


def _used(pairs: Pairs) -> list[str]:
    return list(dict.fromkeys(folder(run) for _, run_a, _, run_b in paired_runs(pairs) for run in (run_a, run_b)))
