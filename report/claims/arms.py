"""Rows of the paper -> the runs that stand for them at a scale, and the figures of those runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from records.layout import Checkpoint, Run
from report import convergence
from report.claims.contrast import POINTS, Gap
from report.claims.kinds import SCORE, Rows, listed
from report.claims.measures import EXTRAS
from report.curve import read_curve
from report.paper.printed import AVERAGE, HEADINGS, Paper
from report.results import Tree
from report.tables import spec, twins

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
        model = self.tree.model_for(row.model, _titles()[row.model])
        method = self.tree.method_for(self.instead.get(id, run.method) + (f"@{self.variant}" if self.variant else ""))
        if model is None or method is None:
            return None
        runs = tuple(r for r in self.tree.runs if (r.model, r.method) == (model["key"], method))
        long = run.steps is not None and twins.STEPS[run.steps] is not None
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
        self._read: dict[Run, convergence.RunMeasures] = {}

    def finished(self, run: Run) -> convergence.RunMeasures:
        """Raises `Gap` for a run that is planned and not there yet."""
        if run not in self._read:
            found = convergence.measure_run(self.tree, run)
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

    def curve(self, run: Run) -> convergence.Curve:
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
        return measure.replace("_", " ") if measure in EXTRAS else convergence.MEASURES[measure].title

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
    return convergence.MEASURES[measure].unit, 0.0, convergence.MEASURES[measure].top


@cache
def _titles() -> Mapping[str, str]:
    """Slot of a model -> the paper's name of it."""
    return spec.table("1").models


def path(run: Run) -> str:
    """The run's folder below the results folder."""
    return f"runs/{run.path.as_posix()}"
