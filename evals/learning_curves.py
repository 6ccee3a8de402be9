"""Learning curves: curve.csv of a run, how fast and how steadily the run learnt, and methods compared over seeds.

Definitions. r_1 ... r_N is a run's reward by rollout (share of right responses among all sampled), N the planned
rollouts. A collapsed run was stopped with its reward near zero: its rollouts after that count as reward 0 in every
measure. The running mean at rollout n >= 3 is (r_{n-2} + r_{n-1} + r_n) / 3, so that one lucky rollout is not enough.
An unfinished run has no figures, and a figure that does not exist is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import median

from core.errors import CorruptInputError, unknown
from core.files import read_csv
from core.layout import REFERENCE, Checkpoint, Run
from evals.tree import Tree

# One run's curve.csv: a row per update, aggregated into one figure per rollout.

INDEX = ("rollout", "update", "minibatch")

# How the updates of a rollout become one figure; each function gets the values of all requested columns, by update.
SECONDS = ("seconds_rollout", "seconds_update")
AGGREGATES: Mapping[str, Callable[[Sequence[float]], float]] = {
    "first": lambda values: values[0],  # for figures of the rollout itself: every row repeats them
    "mean": lambda values: math.fsum(values) / len(values),
    "sum": math.fsum,
}


@dataclass(frozen=True)
class Curve:
    """Rows of a curve.csv by rollout. Cells are still text: only columns that are read must be numbers."""

    path: Path
    rollouts: tuple[tuple[Mapping[str, str], ...], ...]

    def series(self, columns: Sequence[str], aggregate: str = "mean") -> list[float | None]:
        """Return one figure per rollout; None where none of the columns has one.

        Raises for a missing column, and for a value that is not a finite number, naming line and column.
        """
        for column in columns:
            if column not in self.rollouts[0][0]:
                raise unknown(str(self.path), "column wanted", column, self.rollouts[0][0])
        figures: list[float | None] = []
        for rows in self.rollouts:
            values = [self._number(row, column) for row in rows for column in columns if row[column]]
            figures.append(AGGREGATES[aggregate](values) if values else None)
        return figures

    def _number(self, row: Mapping[str, str], column: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            line = int(row["update"]) + 2 if "update" in row else int(row["rollout"]) + 1
            raise CorruptInputError(f"{self.path}: line {line}: {column} is {row[column]!r}, not a finite number")
        return value


BY_ROLLOUT = ("rollout", "updates")  # of a curve in a kept tree


def rollout_rows(curve: Curve) -> list[dict[str, str]]:
    """Aggregate one row per rollout: sums of seconds, means of columns that vary by update, and their number `updates`.

    `Curve.series` of these rows equals that of the curve, apart from the rounding of sums.
    """
    return [
        dict(rows[0])
        if "updates" in rows[0]
        else {"rollout": rows[0]["rollout"], "updates": str(len(rows))}
        | {name: _joined(curve, rows, name) for name in rows[0] if name not in INDEX}
        for rows in curve.rollouts
    ]


def _joined(curve: Curve, rows: Sequence[Mapping[str, str]], column: str) -> str:
    aggregate = "sum" if column in SECONDS else "mean"
    if aggregate == "mean" and len({row[column] for row in rows}) == 1:
        return rows[0][column]
    values = [curve._number(row, column) for row in rows if row[column]]
    return repr(AGGREGATES[aggregate](values)) if values else ""


def read_curve(path: Path | str) -> Curve:
    """Read the curve at `path`; rollouts must run 1, 2, 3, ... and updates 0, 1, 2, ... without a gap."""
    rows = read_csv(path, "the learning curve", ("rollout",))
    joined = "updates" in rows[0]  # a row per rollout, as a kept tree has it
    for column in BY_ROLLOUT if joined else INDEX:
        if column not in rows[0]:
            raise unknown(str(path), "column wanted", column, rows[0])
    for number, row in enumerate(rows):
        line = number + 2
        for column in ("rollout",) if joined else ("rollout", "update"):
            if not row[column].isdecimal():
                raise CorruptInputError(
                    f"{path}: line {line}: {column} is {row[column]!r}, not a whole number from 0 on"
                )
        if not joined and int(row["update"]) != number:
            raise CorruptInputError(f"{path}: update {number} is missing: line {line} has update {row['update']}")
    rollouts = []
    for number, (rollout, group) in enumerate(groupby(rows, key=lambda row: int(row["rollout"])), 1):
        if rollout != number:
            raise CorruptInputError(f"{path}: rollout {number} is missing: after rollout {number - 1} comes {rollout}")
        rollouts.append(tuple(group))
    return Curve(Path(path), tuple(rollouts))


# The measures of one run.

WINDOW = 3  # rollouts of the running mean
UNDEFINED = "not defined for this method"


@dataclass(frozen=True)
class FinishedRun:
    reward: Sequence[float]  # over all N planned rollouts
    curve: Curve  # up to the run's last rollout
    target: Fraction | str  # last running mean of GRPO/DAPO's run of the same model, seed and settings; or why none
    cpu_seconds: float | None  # of the whole run


@dataclass(frozen=True)
class Measure:
    """A figure that every finished run has, or a reason for its absence."""

    key: str
    title: str
    unit: str
    of: Callable[[FinishedRun], float | str]  # the figure, or the reason for its absence
    top: float = math.inf  # the figure lies between 0 and top


@dataclass(frozen=True)
class RunMeasures:
    """The figures of one planned run."""

    run: Run
    title: str  # of its method
    finished: bool
    planned: int | None  # rollouts; this and the next are None until the run has ended
    rollouts: int | None  # trained: fewer than planned when it collapsed
    collapsed_at: int | None
    values: Mapping[str, float | None]  # by measure
    why: Mapping[str, str]  # measure -> why its value is None


def running_mean(reward: Sequence[float]) -> list[float]:
    """Return the means of each rollout from the third on and the two before it."""
    return [math.fsum(reward[n - WINDOW : n]) / WINDOW for n in range(WINDOW, len(reward) + 1)]


def _exact_running_mean(reward: Sequence[float]) -> list[Fraction]:
    """Return running means as fractions: equal counts of right responses in another order would differ in the last bit.

    A reward is a share of at most a million responses, so only one such fraction is next to its float.
    """
    shares = [Fraction(share).limit_denominator(10**6) for share in reward]
    return [sum(shares[n - WINDOW : n], Fraction()) / WINDOW for n in range(WINDOW, len(shares) + 1)]


def first_reaching(reward: Sequence[float], target: Fraction) -> int | None:
    """Return the first rollout (1-based) whose running mean is at least `target`; None: never."""
    return next((n for n, mean in enumerate(_exact_running_mean(reward), WINDOW) if mean >= target), None)


def _final(run: FinishedRun) -> float | str:
    means = running_mean(run.reward)
    return means[-1] if means else f"fewer than {WINDOW} rollouts"


def _reaching(target: Fraction | None, run: FinishedRun) -> float | str:
    """Return the first rollout that reaches `target` (None: the run's own target), or why none does."""
    wanted = run.target if target is None else target
    return wanted if isinstance(wanted, str) else first_reaching(run.reward, wanted) or "never reached"


def _mean(*columns: str, aggregate: str = "mean") -> Callable[[FinishedRun], float | str]:
    def of(run: FinishedRun) -> float | str:
        values = [value for value in run.curve.series(columns, aggregate) if value is not None]
        return math.fsum(values) / len(values) if values else UNDEFINED

    return of


def _movement(rollouts: slice, run: FinishedRun) -> float | str:
    """Return the median over these rollouts, which is robust to one that diverges."""
    if "kl_step" not in run.curve.rollouts[0][0]:
        return "not recorded by its trainer"
    values = [value for value in run.curve.series(["kl_step"])[rollouts] if value is not None]
    return median(values) if values else "no rollout was trained on"


def _entropy_at_the_end(run: FinishedRun) -> float | str:
    value = run.curve.series(["entropy"])[-1]
    return UNDEFINED if value is None else value


def _cpu(run: FinishedRun) -> float | str:
    return "not recorded" if run.cpu_seconds is None else run.cpu_seconds / len(run.curve.rollouts)


# Means "per rollout" are over the rollouts trained, not those planned: a collapsed run has no others.
MEASURES: Mapping[str, Measure] = {
    measure.key: measure
    for measure in (
        # Mean reward over the planned rollouts.
        Measure(
            "area", "area under the reward curve", "reward", lambda run: math.fsum(run.reward) / len(run.reward), 1.0
        ),
        # First rollout whose running mean reaches the threshold.
        Measure("to_50", "rollouts to 50 % right", "rollouts", partial(_reaching, Fraction(1, 2))),
        Measure("to_80", "rollouts to 80 % right", "rollouts", partial(_reaching, Fraction(4, 5))),
        # ... or the last running mean of GRPO/DAPO's run of the same model, seed and settings.
        Measure("to_grpo", "rollouts to GRPO/DAPO's final reward", "rollouts", partial(_reaching, None)),
        # Running mean at the last planned rollout.
        Measure("final", "final reward", "reward", _final, 1.0),
        # Norm before clipping, per rollout.
        Measure("grad_norm", "gradient norm", "norm before clipping", _mean("grad_norm")),
        # Share of tokens, and of sequences, that the surrogate clips, per rollout.
        Measure("clip_tokens", "clipped tokens", "fraction of tokens", _mean("clip_fraction_tokens"), 1.0),
        Measure("clip_sequences", "clipped sequences", "fraction of sequences", _mean("clip_fraction_sequences"), 1.0),
        # How far the importance weights spread, per rollout.
        Measure("ratio_spread", "ratio spread", "sd of the log weight", _mean("ratio_spread")),
        # KL to the policy before a rollout, of the policy after it: how far a run moves; and the first rollout, which
        # all methods begin from the same weights.
        Measure("movement", "movement", "nats per token, a rollout", partial(_movement, slice(None))),
        Measure("movement_first", "first movement", "nats per token", partial(_movement, slice(1))),
        # Mean over the updates of the last rollout trained.
        Measure("entropy_end", "entropy at the end", "nats per token", _entropy_at_the_end),
        # Wall seconds per rollout with its updates: dependent on this machine and its other load.
        Measure("seconds_per_step", "seconds per step", "seconds", _mean(*SECONDS, aggregate="sum")),
        # CPU seconds of the run, its start included, per rollout: not affected by other load, unlike wall seconds.
        Measure("cpu_seconds_per_step", "CPU seconds per step", "seconds", _cpu),
    )
}


def measures(tree: Tree) -> list[RunMeasures]:
    """Return the measures of each planned run, in the matrix's order."""
    return [measure_run(tree, run) for run in tree.runs]


def measure_run(tree: Tree, run: Run) -> RunMeasures:
    """Return the figures of one run."""
    title = str(tree.methods[run.method]["title"])
    record = tree.record(run)
    if record is None:
        nothing = dict.fromkeys(MEASURES)
        return RunMeasures(run, title, False, None, None, None, nothing, dict.fromkeys(MEASURES, "not finished"))
    curve = read_curve(tree.layout.run(run) / "curve.csv")
    finished = FinishedRun(_rewards(tree, run, curve), curve, _target(tree, run), record.get("cpu_seconds"))
    figures = {key: measure.of(finished) for key, measure in MEASURES.items()}
    values = {key: None if isinstance(value, str) else value for key, value in figures.items()}
    why = {key: value for key, value in figures.items() if isinstance(value, str)}
    planned, trained, collapsed_at = len(finished.reward), len(curve.rollouts), record.get("collapsed_at")
    return RunMeasures(run, title, True, planned, trained, collapsed_at, values, why)


def figure(tree: Tree, checkpoint: Checkpoint, key: str) -> float | None:
    """Return a measure of the run's learning curve, or a score of the checkpoint; None where there is none yet.

    key: of MEASURES, else a benchmark or an average. A measure needs only the curve, so a tree without an evaluation
    has it.
    """
    if key in MEASURES:
        found: RunMeasures = tree.once(measure_run, checkpoint.run)
        return found.values[key]
    score = tree.scores.get((checkpoint, key))
    return None if score is None else score.value


def by_model_and_seed(
    tree: Tree, method: str, measure: str, *, models: Collection[str] | None = None, step: int | None = None
) -> dict[tuple[str, int], float]:
    """Return a method's measure by model and seed, of every finished run that has it; without a sweep's fresh seeds.

    method: its key, or its name in the configuration. measure: as in `figure`; a score is taken after `step` rollouts,
    or after the scale's own number. models: keys of those that count, default all. Empty where the tree does not plan
    the method or that measure.
    """
    key, found = tree.method_for(method), {}
    for run in tree.averaged:
        if run.method != key or (models is not None and run.model not in models) or tree.record(run) is None:
            continue
        checkpoint = Checkpoint(run, tree.matrix["table_step"] if step is None else step)
        if (value := figure(tree, checkpoint, measure)) is not None:
            found[run.model, run.seed] = value
    return found


def _rewards(tree: Tree, run: Run, curve: Curve) -> list[float]:
    """Return reward by planned rollout; 0 after a collapse. Raises when a finished run's curve has another length."""
    record = tree.record(run) or {}
    planned = record["spec"]["training"]["rollouts"]
    trained = record.get("collapsed_at") or planned
    if len(curve.rollouts) != trained:
        raise CorruptInputError(f"{curve.path}: holds {len(curve.rollouts)} rollouts, its run.json speaks of {trained}")
    reward = [0.0] * planned
    for n, value in enumerate(curve.series(["reward"], "first")):
        if value is None:
            raise CorruptInputError(f"{curve.path}: rollout {n + 1}: reward is empty")
        reward[n] = value
    return reward


def _target(tree: Tree, run: Run) -> Fraction | str:
    other = Run(run.model, reference(run.method), run.seed)
    if other not in tree.runs:
        return "no GRPO/DAPO run with this seed"
    if tree.record(other) is None:
        return "GRPO/DAPO's run is not finished"
    # The run of the same seed, because it had the same prompts and initial weights.
    reward = _rewards(tree, other, read_curve(tree.layout.run(other) / "curve.csv"))
    means = _exact_running_mean(reward)
    return means[-1] if means else f"fewer than {WINDOW} rollouts"


def reference(method: str) -> str:
    """Return GRPO/DAPO under the settings of `method`: for `tepo@hot` it is `grpo@hot`."""
    _, at, variant = method.partition("@")
    return REFERENCE + at + variant
