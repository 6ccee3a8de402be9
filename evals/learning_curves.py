"""Learning curves: curve.csv of a run, how fast and how steadily the run learnt, and methods compared over seeds.

Definitions. r_1 ... r_N is a run's reward by rollout (share of right responses among all sampled), N the planned
rollouts. A collapsed run was stopped with its reward near zero: its rollouts after that count as reward 0 in every
measure. The running mean at rollout n >= 3 is (r_{n-2} + r_{n-1} + r_n) / 3, so that one lucky rollout is not enough.
An unfinished run has no figures; a missing figure is None.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from core.errors import CorruptInputError, unknown
from core.files import read_csv
from core.layout import REFERENCE, Checkpoint, Run
from evals.tree import Tree
from methods.training.movement import is_miss

# One run's curve.csv: a row per update, aggregated into one figure per rollout.

INDEX = ("rollout", "update", "minibatch")
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
        """Return one figure per rollout, of all values in its rows by row and column; None where there is none.

        Raises for a missing column, and for a value that is not a finite number, naming rollout and column.
        """
        for column in columns:
            if column not in self.rollouts[0][0]:
                raise unknown(str(self.path), "column wanted", column, self.rollouts[0][0])
        figures: list[float | None] = []
        for rows in self.rollouts:
            values = [self._number(row, column) for row in rows for column in columns if row[column]]
            figures.append(AGGREGATES[aggregate](values) if values else None)
        return figures

    def known(self, *columns: str, aggregate: str = "mean") -> list[float]:
        """Return the figures of `series` that exist."""
        return [value for value in self.series(columns, aggregate) if value is not None]

    def _number(self, row: Mapping[str, str], column: str) -> float:
        try:
            value = float(row[column])
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            line = int(row["update"]) + 2 if "update" in row else int(row["rollout"]) + 1
            raise CorruptInputError(f"{self.path}: line {line}: {column} is {row[column]!r}, not a finite number")
        return value

    def by_rollout(self) -> list[dict[str, str]]:
        """Aggregate one row per rollout: sums of seconds, means of columns that vary by update, and their number
        `updates`. `series` of these rows equals that of the curve, apart from the rounding of sums."""
        if "updates" in self.rollouts[0][0]:
            return [dict(row) for (row,) in self.rollouts]
        names = [name for name in self.rollouts[0][0] if name not in INDEX]
        figures = {name: self.series([name], "sum" if name in SECONDS else "mean") for name in names}
        table = []
        for place, rows in enumerate(self.rollouts):
            cells = {name: "" if (value := figures[name][place]) is None else repr(value) for name in names}
            same = {n: rows[0][n] for n in names if n not in SECONDS and len({row[n] for row in rows}) == 1}
            table.append({"rollout": rows[0]["rollout"], "updates": str(len(rows))} | cells | same)
        return table


def read_curve(path: Path | str) -> Curve:
    """Read the curve at `path`; rollouts must run 1, 2, 3, ... and updates 0, 1, 2, ... without a gap."""
    rows = read_csv(path, "the learning curve", ("rollout",))
    for number, row in enumerate(rows):  # a row per rollout has no update
        if row.get("update", str(number)) != str(number):
            raise CorruptInputError(f"{path}: line {number + 2}: update is {row['update']!r}, expected {number}")
    rollouts = []
    for number, (rollout, group) in enumerate(groupby(rows, key=lambda row: row["rollout"]), 1):
        if rollout != str(number):
            raise CorruptInputError(f"{path}: after rollout {number - 1} comes {rollout!r}, expected {number}")
        rollouts.append(tuple(group))
    return Curve(Path(path), tuple(rollouts))


# The measures of one run.

WINDOW = 3  # rollouts of the running mean
ROUNDING = 1e-9  # equal counts of right responses in another order differ less; other counts of up to 10^7 more
FEW, UNDEFINED = f"fewer than {WINDOW} rollouts", "not defined for this method"


# Each measure and its unit. Means are over the rollouts trained, not those planned: a collapsed run has no others.
MEASURES: Mapping[str, str] = {
    "area": "reward",  # area under the reward curve: its mean over the planned rollouts
    "to_50": "rollouts",  # the first whose running mean reaches 50 %
    "to_80": "rollouts",
    "to_grpo": "rollouts",  # ... or the last running mean of GRPO/DAPO's run of the same model, seed and settings
    "final": "reward",  # running mean at the last planned rollout
    "grad_norm": "norm before clipping",
    "clip_tokens": "fraction of tokens",  # that the surrogate clips
    "movement": "nats per token, a rollout",  # KL to the policy before a rollout, of the policy after it
    "movement_first": "nats per token",  # of the first rollout, which all methods begin from the same weights
    "entropy_end": "nats per token",  # mean over the updates of the last rollout trained
}


def top(measure: str) -> float:
    """Return the largest possible value; the smallest is 0."""
    return 1.0 if measure in ("area", "final", "clip_tokens") else math.inf


@dataclass(frozen=True)
class RunMeasures:
    """The figures of one planned run."""

    run: Run
    title: str  # of its method
    planned: int | None  # rollouts; this and the next are None until the run has ended
    rollouts: int | None  # trained: fewer than planned when it collapsed
    collapsed_at: int | None
    values: Mapping[str, float | None]  # by measure
    why: Mapping[str, str]  # measure -> why its value is None

    @property
    def finished(self) -> bool:
        return self.planned is not None


def running_mean(reward: Sequence[float]) -> list[float]:
    """Return the means of each rollout from the third on and the two before it."""
    return [math.fsum(reward[n - WINDOW : n]) / WINDOW for n in range(WINDOW, len(reward) + 1)]


def _figures(reward: Sequence[float], curve: Curve, target: float | str) -> dict[str, float | str]:
    """Return every measure of a finished run, or why it has none. reward: over the planned rollouts; curve: up to the
    last one trained; target: the last running mean of GRPO/DAPO's run, or why there is none."""

    def reaching(share: float) -> float | str:
        """Return the first rollout (1-based) whose running mean is at least `share`."""
        return next((n for n, mean in enumerate(means, WINDOW) if mean >= share - ROUNDING), "never reached")

    def mean(column: str) -> float | str:
        return AGGREGATES["mean"](values) if (values := curve.known(column)) else UNDEFINED

    def movement(rollouts: slice) -> float | str:
        """Return the median KL to the policy before a rollout, of the policy after it: robust to one that diverges."""
        if "kl_step" not in curve.rollouts[0][0]:
            return "not recorded by its trainer"
        values = [value for value in curve.series(["kl_step"])[rollouts] if value is not None]
        return median(values) if values else "no rollout was trained on"

    means, entropy = running_mean(reward), curve.series(["entropy"])[-1]
    return {
        "area": math.fsum(reward) / len(reward),
        "to_50": reaching(0.5),
        "to_80": reaching(0.8),
        "to_grpo": target if isinstance(target, str) else reaching(target),
        "final": means[-1] if means else FEW,
        "grad_norm": mean("grad_norm"),
        "clip_tokens": mean("clip_fraction_tokens"),
        "movement": movement(slice(None)),
        "movement_first": movement(slice(1)),
        "entropy_end": UNDEFINED if entropy is None else entropy,
    }


def measure_run(tree: Tree, run: Run) -> RunMeasures:
    """Return the figures of one planned run."""
    title, record = str(tree.methods[run.method]["title"]), tree.record(run)
    if record is None:
        unknown_yet = dict.fromkeys(MEASURES, "not finished")
        return RunMeasures(run, title, None, None, None, dict.fromkeys(MEASURES), unknown_yet)
    reward, curve = _rewards(tree, run, record)
    other = Run(run.model, REFERENCE + run.method.removeprefix(run.key), run.seed)
    # The last running mean of GRPO/DAPO's run of the same model, settings and seed, with the same prompts and initial
    # weights, or why there is none.
    target: float | str = "no GRPO/DAPO run with this seed"
    if other in tree.runs:
        theirs = tree.record(other)
        means = theirs and running_mean(_rewards(tree, other, theirs)[0])
        target = "GRPO/DAPO's run is not finished" if means is None else means[-1] if means else FEW
    figures = _figures(reward, curve, target)
    values = {key: None if isinstance(value, str) else value for key, value in figures.items()}
    why = {key: value for key, value in figures.items() if isinstance(value, str)}
    return RunMeasures(run, title, len(reward), len(curve.rollouts), record.get("collapsed_at"), values, why)


def missed_targets(tree: Tree, run: Run) -> tuple[int, int]:
    """Return how many rollouts missed the KL of `training.kl_target` and how many have one."""
    target: Any = (tree.record(run) or {"spec": {"training": {}}})["spec"]["training"].get("kl_target")
    if target is None:
        return 0, 0
    curve = read_curve(tree.layout.run(run) / "curve.csv")
    if "kl_missed" in curve.rollouts[0][0]:
        missed = curve.known("kl_missed")
    else:  # of a tree made before this column, when the target was one number
        missed = [is_miss(float(target), reached) for reached in curve.series(["kl_step"])]
    return int(sum(missed)), len(missed)


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


def _rewards(tree: Tree, run: Run, record: Mapping[str, Any]) -> tuple[list[float], Curve]:
    """Return reward by planned rollout, 0 after a collapse, and the curve. Raises when the curve of a finished run has
    another length."""
    curve, planned = read_curve(tree.layout.run(run) / "curve.csv"), record["spec"]["training"]["rollouts"]
    trained, reward = record.get("collapsed_at") or planned, curve.series(["reward"], "first")
    if len(reward) != trained or None in reward:
        known = sum(value is not None for value in reward)
        raise CorruptInputError(f"{curve.path}: has rewards of {known} rollouts, its run.json has {trained}")
    return [*(float(value or 0.0) for value in reward), *[0.0] * (planned - trained)], curve
