"""A results tree as a source: runs of two methods paired by seed, models taken together by their means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from records.layout import Run
from report import convergence
from report.claims.arms import Arm, Arms, Figures, path, scale
from report.claims.contrast import Contrast, Gap, over_runs
from report.claims.kinds import SCORE, Rows
from report.claims.spreads import ratio_of_sds
from report.paper.printed import Paper
from report.results import Tree

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
            values[run.seed], last = convergence.running_mean(reward)[-1], max(last, len(reward))
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
        from report import estimates

        ((a, b),) = pairs
        found = estimates.difference(self.tree, self.figures.benchmark(column), a.checkpoints, b.checkpoints)
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
