"""One run's curve.csv: read strictly, its updates made into one figure per rollout."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from records.csv_files import read_csv
from records.errors import CorruptInputError, unknown
from records.layout import Run
from records.results_tree import Tree

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison, Estimate

INDEX = ("rollout", "update", "minibatch")

# How the updates of a rollout become one figure; each is given the values of all wanted columns, in order, by update.
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],  # figures of the rollout itself, which stand on each of its rows
    "mean": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
}


@dataclass(frozen=True)
class Curve:
    """Rows of a curve.csv by rollout. Everything is still text: only the columns asked for must be numbers."""

    path: Path
    rollouts: tuple[tuple[Mapping[str, str], ...], ...]

    def series(self, columns: Sequence[str], aggregate: str = "mean") -> list[float | None]:
        """One figure per rollout; None where none of the columns has one.

        Raises for a column that the file has not, and for a value that is no finite number, naming line and column.
        """
        for column in columns:
            if column not in self.rollouts[0][0]:
                raise unknown(str(self.path), "column wanted", column, self.rollouts[0][0])
        return [self._figure(rows, columns, AGGREGATES[aggregate]) for rows in self.rollouts]

    def _figure(
        self, rows: Sequence[Mapping[str, str]], columns: Sequence[str], aggregate: Callable[[Sequence[float]], float]
    ) -> float | None:
        values = [self._number(row, column) for row in rows for column in columns if row[column]]
        return aggregate(values) if values else None

    def _number(self, row: Mapping[str, str], column: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            line = int(row["update"]) + 2
            raise CorruptInputError(f"{self.path}: line {line}: {column} is {row[column]!r}, not a finite number")
        return value


def read_curve(path: Path | str) -> Curve:
    """The curve at `path`; rollouts must run 1, 2, 3, ... and updates 0, 1, 2, ... without a gap."""
    rows = read_csv(path, "the learning curve", INDEX)
    for number, row in enumerate(rows):
        for column in ("rollout", "update"):
            if not row[column].isdecimal():
                raise CorruptInputError(
                    f"{path}: line {number + 2}: {column} is {row[column]!r}, not a whole number from 0 on"
                )
        if int(row["update"]) != number:
            raise CorruptInputError(f"{path}: update {number} is missing: line {number + 2} has update {row['update']}")
    rollouts = []
    for number, (rollout, group) in enumerate(groupby(rows, key=lambda row: int(row["rollout"])), 1):
        if rollout != number:
            raise CorruptInputError(f"{path}: rollout {number} is missing: after rollout {number - 1} comes {rollout}")
        rollouts.append(tuple(group))
    return Curve(Path(path), tuple(rollouts))


# How fast and how steadily a run learnt, from its curve; methods compared over seeds. Pure functions of the results.
#
# Definitions. r_1 ... r_N is the run's reward by rollout (share of right responses among all sampled), N the rollouts
# planned. A run that collapsed was stopped with its reward near zero: its rollouts after that count as reward 0, in the
# area as in everything below. The running mean at rollout n >= 3 is (r_{n-2} + r_{n-1} + r_n) / 3, so that one lucky
# rollout reaches nothing. A run that is not finished has no figures, and a figure that does not exist is None.


REFERENCE = "grpo"  # the paper compares everything with GRPO/DAPO
WINDOW = 3  # rollouts of the running mean
THRESHOLDS = (0.5, 0.8)
SECONDS = ("seconds_rollout", "seconds_update")
UNBOUNDED = math.inf


@dataclass(frozen=True)
class Course:
    """A finished run: `reward` over all N planned rollouts, the curve as far as it goes.

    target: the running mean at the end of GRPO/DAPO's run of the same model, seed and settings, or why there is none.
    cpu_seconds: of the whole run.
    """

    reward: Sequence[float]
    curve: Curve
    target: float | str
    cpu_seconds: float | None


@dataclass(frozen=True)
class Measure:
    """A figure of a run. `of` gives it, or says in words why there is none; it lies between 0 and `top`."""

    key: str
    title: str
    unit: str
    meaning: str
    of: Callable[[Course], float | str]
    top: float = UNBOUNDED


@dataclass(frozen=True)
class RunMeasures:
    """The figures of a planned run by measure; None: `why` says why. `planned` and `rollouts`: None until it ends."""

    run: Run
    title: str
    finished: bool
    planned: int | None
    rollouts: int | None  # trained: fewer than planned when it collapsed
    collapsed_at: int | None
    values: Mapping[str, float | None]
    why: Mapping[str, str]


@dataclass(frozen=True)
class MethodMeasure:
    """One measure of a method on a model over its finished seeds, and against GRPO/DAPO under the same settings.

    comparison: None for GRPO/DAPO itself. p_holm: p corrected by Holm for all methods and models of this measure.
    """

    model: str
    method: str
    title: str
    measure: Measure
    planned_seeds: int
    collapsed: int
    estimate: Estimate
    comparison: Comparison | None
    p_holm: float | None


def running_mean(reward: Sequence[float]) -> list[float]:
    """Of each rollout from the third on and the two before it."""
    return [math.fsum(reward[n - WINDOW : n]) / WINDOW for n in range(WINDOW, len(reward) + 1)]


def first_reaching(reward: Sequence[float], target: float) -> int | None:
    """The first rollout (1-based) whose running mean is `target` or more; None: never."""
    return next((n for n, mean in enumerate(running_mean(reward), WINDOW) if mean >= target), None)


def _area(course: Course) -> float:
    return math.fsum(course.reward) / len(course.reward)


def _final(course: Course) -> float | str:
    means = running_mean(course.reward)
    return means[-1] if means else f"fewer than {WINDOW} rollouts"


def _reaching(target: float, course: Course) -> float | str:
    reached = first_reaching(course.reward, target)
    return "never reached" if reached is None else reached


def _reaching_reference(course: Course) -> float | str:
    return course.target if isinstance(course.target, str) else _reaching(course.target, course)


def _mean(columns: Sequence[str], aggregate: str, course: Course) -> float | str:
    values = [value for value in course.curve.series(columns, aggregate) if value is not None]
    return math.fsum(values) / len(values) if values else "not defined for this method"


def _at_the_end(column: str, course: Course) -> float | str:
    value = course.curve.series([column])[-1]
    return "not defined for this method" if value is None else value


def _cpu(course: Course) -> float | str:
    return "not recorded" if course.cpu_seconds is None else course.cpu_seconds / len(course.curve.rollouts)


def _column(key: str, column: str, title: str, unit: str, top: float = UNBOUNDED) -> Measure:
    return Measure(
        key, title, unit, f"mean of {column} over the rollouts trained", partial(_mean, [column], "mean"), top
    )


MEASURES: Mapping[str, Measure] = {
    measure.key: measure
    for measure in (
        Measure("area", "area under the reward curve", "reward", "mean reward over the planned rollouts", _area, 1.0),
        *(
            Measure(
                f"to_{100 * level:.0f}",
                f"rollouts to {100 * level:.0f} % right",
                "rollouts",
                f"first rollout whose running mean reaches {level}",
                partial(_reaching, level),
            )
            for level in THRESHOLDS
        ),
        Measure(
            "to_grpo",
            "rollouts to GRPO/DAPO's final reward",
            "rollouts",
            "first rollout whose running mean reaches the last one of GRPO/DAPO (same model, seed and settings)",
            _reaching_reference,
        ),
        Measure("final", "final reward", "reward", "running mean at the last planned rollout", _final, 1.0),
        _column("grad_norm", "grad_norm", "gradient norm", "norm before clipping"),
        _column("clip_tokens", "clip_fraction_tokens", "clipped tokens", "fraction of tokens", 1.0),
        _column("clip_sequences", "clip_fraction_sequences", "clipped sequences", "fraction of sequences", 1.0),
        _column("ratio_spread", "ratio_spread", "ratio spread", "sd of the log weight"),
        Measure(
            "entropy_end",
            "entropy at the end",
            "nats per token",
            "mean entropy over the updates of the last rollout trained",
            partial(_at_the_end, "entropy"),
        ),
        Measure(
            "seconds_per_step",
            "seconds per step",
            "seconds",
            "mean wall seconds per rollout with its updates, of this machine and what else ran on it",
            partial(_mean, SECONDS, "sum"),
        ),
        Measure(
            "cpu_seconds_per_step",
            "CPU seconds per step",
            "seconds",
            "CPU seconds of the run, its start included, per rollout trained: what wall seconds on a busy machine hide",
            _cpu,
        ),
    )
}


def measures(tree: Tree) -> list[RunMeasures]:
    """One per planned run, in the matrix's order."""
    return [measure_run(tree, run) for run in tree.runs]


def measure_run(tree: Tree, run: Run) -> RunMeasures:
    """The figures of one run."""
    title = str(tree.methods[run.method]["title"])
    record = tree.record(run)
    if record is None:
        nothing = dict.fromkeys(MEASURES)
        return RunMeasures(run, title, False, None, None, None, nothing, dict.fromkeys(MEASURES, "not finished"))
    curve = read_curve(tree.layout.run(run) / "curve.csv")
    course = Course(_rewards(tree, run, curve), curve, _target(tree, run), record.get("cpu_seconds"))
    found = {key: measure.of(course) for key, measure in MEASURES.items()}
    return RunMeasures(
        run=run,
        title=title,
        finished=True,
        planned=len(course.reward),
        rollouts=len(curve.rollouts),
        collapsed_at=record.get("collapsed_at"),
        values={key: None if isinstance(value, str) else value for key, value in found.items()},
        why={key: value for key, value in found.items() if isinstance(value, str)},
    )


def compare(tree: Tree, model: str, a: str, b: str, measure: str) -> Comparison:
    """Method a minus method b on a model, paired by seed; methods as the configuration names them (`tepo@hot`).

    Raises for a name that the results do not plan. A seed that is not finished, or where one of the two has no
    figure, is no pair: with any such seed there is no difference, and `how` says which.
    """
    if measure not in MEASURES:
        raise unknown("convergence", "measure", measure, MEASURES)
    where = str(tree.layout.matrix)
    models = dict.fromkeys(run.model for run in tree.runs)
    if model not in models:
        raise unknown(where, "models", model, models)

    def side(name: str) -> list[RunMeasures]:
        runs = [run for run in tree.runs if (run.model, run.method) == (model, tree.method_for(name))]
        if not runs:
            raise unknown(where, f"methods of {model}", name, [run.method for run in tree.runs if run.model == model])
        return [measure_run(tree, run) for run in runs]

    return _compare(side(a), side(b), MEASURES[measure])


def by_method(done: Sequence[RunMeasures]) -> list[MethodMeasure]:
    """Every measure of every method on every model, from the figures of all runs."""
    from evals.stats.compare import holm

    arms: dict[tuple[str, str], list[RunMeasures]] = {}
    for one in done:
        arms.setdefault((one.run.model, one.run.method), []).append(one)
    rows = []
    for measure in MEASURES.values():
        compared = {
            arm: _compare(runs, arms[against], measure)
            for arm, runs in arms.items()
            if (against := (arm[0], reference(arm[1]))) != arm and against in arms
        }
        p_holm = dict(zip(compared, holm([c.p for c in compared.values()]), strict=True))
        rows += [
            MethodMeasure(
                *arm,
                runs[0].title,
                measure,
                planned_seeds=len(runs),
                collapsed=sum(one.collapsed_at is not None for one in runs),
                estimate=_estimate(runs, measure),
                comparison=compared.get(arm),
                p_holm=p_holm.get(arm),
            )
            for arm, runs in arms.items()
        ]
    return rows


def reference(method: str) -> str:
    """GRPO/DAPO under the settings of `method`: of `tepo@hot` it is `grpo@hot`."""
    _, at, variant = method.partition("@")
    return REFERENCE + at + variant


def _rewards(tree: Tree, run: Run, curve: Curve) -> list[float]:
    """Reward by planned rollout; 0 after a collapse. Raises when the curve of a finished run has another length."""
    record = tree.record(run) or {}
    planned = record["spec"]["training"]["rollouts"]
    ends = record.get("collapsed_at") or planned
    if len(curve.rollouts) != ends:
        raise CorruptInputError(f"{curve.path}: holds {len(curve.rollouts)} rollouts, its run.json speaks of {ends}")
    reward = curve.series(["reward"], "first")
    missing = next((n for n, value in enumerate(reward, 1) if value is None), None)
    if missing is not None:
        raise CorruptInputError(f"{curve.path}: rollout {missing}: reward is empty")
    return [value for value in reward if value is not None] + [0.0] * (planned - ends)


def _target(tree: Tree, run: Run) -> float | str:
    other = Run(run.model, reference(run.method), run.seed)
    if other not in tree.runs:
        return "no GRPO/DAPO run with this seed"
    if tree.record(other) is None:
        return "GRPO/DAPO's run is not finished"
    reward = _rewards(tree, other, read_curve(tree.layout.run(other) / "curve.csv"))
    means = running_mean(reward)
    return means[-1] if means else f"fewer than {WINDOW} rollouts"


def _values(runs: Sequence[RunMeasures], measure: Measure) -> dict[int, float | str]:
    """By seed: the figure, or why there is none. A method that never gets there has no mean over those that did."""
    return {one.run.seed: one.why[measure.key] if (value := one.values[measure.key]) is None else value for one in runs}


def _estimate(runs: Sequence[RunMeasures], measure: Measure) -> Estimate:
    from evals.stats import compare as seeds
    from evals.stats.estimate import Estimate

    values = _values([one for one in runs if one.finished], measure)
    if not values:
        return Estimate(None, None, None, None, "seed", "no seed is finished", 0)
    missing = _missing(values)
    if missing:
        return Estimate(None, None, None, None, "seed", missing, len(values))
    return seeds.over_seeds(_numbers(values), bounds=(0.0, measure.top))


def _compare(a: Sequence[RunMeasures], b: Sequence[RunMeasures], measure: Measure) -> Comparison:
    from evals.stats import compare as seeds
    from evals.stats.estimate import Comparison

    sides = [_values([one for one in side if one.finished], measure) for side in (a, b)]
    common = sorted(set(sides[0]) & set(sides[1]))
    for side, runs in zip(sides, (a, b), strict=True):
        missing = _missing({seed: side[seed] for seed in common})
        if missing:
            return Comparison(None, None, None, None, None, None, "seed", f"{runs[0].title}: {missing}", len(common))
    numbers = [_numbers({seed: side[seed] for seed in common}) for side in sides]
    return seeds.compare_seeds(*numbers, bounds=(-measure.top, measure.top))


def _missing(values: Mapping[int, float | str]) -> str:
    """`seed 2: never reached`, or nothing when every seed has its figure."""
    return "; ".join(f"seed {seed}: {value}" for seed, value in sorted(values.items()) if isinstance(value, str))


def _numbers(values: Mapping[int, float | str]) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if not isinstance(value, str)}
