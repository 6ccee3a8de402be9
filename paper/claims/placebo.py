"""Does a supported claim beat its placebo? An effect that a coin as reward shows too is no effect of the reward.

A placebo of some settings is a variant that changes the reward besides them, and nothing else. A claim about what is
learnt, that one side's scores or rewards are above another's, is held against each placebo with runs of both sides: the
claim's own test must be supported (p below 5 %, interval on the claimed side) for the contrast under the true reward
minus the same contrast under the placebo, against 0: paired by seed where both have the same seeds, otherwise as two
samples, which loses no seed. All placebos must be beaten, so their p need no correction. Claims about a loss itself
(clipped tokens, gradient norm, entropy) are not asked: they hold or fail under any reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean
from typing import Any

from paper.claims.claims import Question
from paper.claims.contrast import Contrast, Gap, of_two_samples, over_runs
from paper.claims.entries import NO_RUN
from paper.claims.from_runs import ROLLOUTS_UNTIL, Arm, Runs, _paired_runs, folder, unit_and_range
from paper.claims.tests import KINDS, SCORE, Outcome, Rows
from records.layout import Run
from records.results_tree import Tree

REWARD, STREAM = "reward", "stream"  # what controls change: keys of `changes` in matrix.json
# Measures of what is learnt: scores, and the figures of a curve that are computed from its reward.
LEARNT = (SCORE, "area", "final", *ROLLOUTS_UNTIL, "reward_falls", "reward_gain")
# Kinds of test that set one side against another; their measure is the score where they name none.
SIDED = ("difference_of_rows", "highest", "ordering", "rank", "convergence", "curve_ratio", "curve_mean_difference")


def is_control(tree: Tree, variant: str) -> bool:
    """Whether a variant is a control: claims are held against it, and not judged under it."""
    return bool({REWARD, STREAM} & _changes(tree, variant).keys())


def placebos(tree: Tree, variant: str | None = None) -> list[str]:
    """The placebo variants of the settings of `variant`; None: of the scale's own."""
    settings = {} if variant is None else _changes(tree, variant)
    found = {name: _changes(tree, name) for name in tree.matrix.get("variants", {})}
    return [
        name
        for name, changes in found.items()
        if REWARD in changes and {key: value for key, value in changes.items() if key != REWARD} == settings
    ]


def _changes(tree: Tree, variant: str) -> Mapping[str, Any]:
    changes: Mapping[str, Any] = tree.matrix["variants"][variant].get("changes", {})
    return changes


def is_asked(question: Question) -> bool:
    """Whether a claim says that one side learns more, or faster, than another."""
    return question.kind in SIDED and question.arguments.get("measure", SCORE) in LEARNT


def unbeaten(
    source: Runs, question: Question, supported: Callable[[Outcome], tuple[bool, Contrast]]
) -> tuple[str, str | None]:
    """What the placebos of a supported claim say, and why it is not supported after all (None: it is).

    supported: the ledger's judgement of an outcome before any correction, and the contrast that decided it.
    """
    beaten, lacking = [], []
    for name in placebos(source.tree, source.variant):
        try:
            outcome = KINDS[question.kind](Excess(source, name), **question.arguments)
        except Gap:
            lacking.append(name)
            continue
        holds, contrast = supported(outcome)
        if not holds:
            figures = ", ".join("unknown" if x is None else f"{x:.3g}" for x in (contrast.low, contrast.high))
            value = "unknown" if contrast.value is None else f"{contrast.value:.3g}"
            return f"not beyond {name}", f"{contrast.what}: {value} [{figures}], not beyond the placebo"
        beaten.append(name)
    if not beaten:
        return NO_RUN, None
    return f"beats {', '.join(beaten)}" + (f"; no run of {', '.join(lacking)}" if lacking else ""), None


class Excess(Runs):
    """A `Source` whose contrasts are those under the true reward minus those under a placebo, against 0.

    Only models that the placebo was trained on count, with all their seeds. Raises `Gap` where a run is missing.
    """

    def __init__(self, true: Runs, placebo: str):
        super().__init__(true.tree, true.paper, variant=placebo, instead=true.instead, only=true.only)
        self.true = true

    def difference(
        self, left: Rows, right: Rows, measure: str, column: str, null: float, times: float = 1.0
    ) -> Contrast:
        def figure(source: Runs, run: Run, arm: Arm) -> float:
            return source._figure(run, arm, measure, column)

        unit, low, top = unit_and_range(measure)
        reach = 2 * (top - low)
        return self._excess(left, right, figure, self._name(measure, column), unit, reach)

    def ratio(self, left: Rows, right: Rows, measure: str, null: float) -> Contrast:
        """A run that never reaches something counts as one rollout after its last, on either side."""

        def figure(source: Runs, run: Run, arm: Arm) -> float:
            measures = source._finished(run)
            if measure in ROLLOUTS_UNTIL and measures.values[measure] is None:
                return math.log((measures.planned or 0) + 1)
            value = source._figure(run, arm, measure)
            if value <= 0:
                raise Gap(f"{folder(run)}: {self._name(measure)} of 0: no ratio")
            return math.log(value)

        return self._excess(left, right, figure, self._name(measure), "log ratio", math.inf)

    def _excess(
        self,
        left: Rows,
        right: Rows,
        figure: Callable[[Runs, Run, Arm], float],
        name: str,
        unit: str,
        reach: float,
    ) -> Contrast:
        effects: list[
            dict[str, dict[int, float]]
        ] = []  # under the true reward and under the placebo, by model and seed
        runs: dict[str, None] = {}
        placebo_pairs = self._pairs(left, right)
        models = {arm.model for arm, _ in placebo_pairs}
        true_pairs = [pair for pair in self.true._pairs(left, right) if pair[0].model in models]
        if {arm.model for arm, _ in true_pairs} != models:
            raise Gap(f"not part of this scale: the true reward of every run of {self.variant}", planned=False)
        for source, pairs in ((self.true, true_pairs), (self, placebo_pairs)):
            by_model: dict[str, dict[int, float]] = {}
            for a, run_a, b, run_b in _paired_runs(pairs):
                by_model.setdefault(a.model, {})[run_a.seed] = figure(source, run_a, a) - figure(source, run_b, b)
                runs |= dict.fromkeys(folder(run) for run in (run_a, run_b))
            effects.append(by_model)
        true, placebo = effects
        titles = " − ".join(arm.title for arm in true_pairs[0])
        what = f"{titles}, {name}, the true reward's minus that of {self.variant}"
        if len(models) == 1:
            (model,) = models
            if true[model].keys() != placebo[model].keys():
                return of_two_samples(what, true[model], placebo[model], unit=unit, reach=reach, runs=list(runs))
            excess = {model: {seed: true[model][seed] - placebo[model][seed] for seed in true[model]}}
        else:  # the unit is the model
            excess = {model: {0: fmean(true[model].values()) - fmean(placebo[model].values())} for model in models}
        return over_runs(what, excess, null=0.0, unit=unit, bounds=(-reach, reach), runs=list(runs))
