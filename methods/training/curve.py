"""curve.csv, one row per update, and the recorder that both adapters write it with. No torch here.

Rewards and counts are written so that they read back to the same bits; results of float32 passes with seven digits.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError
from core.progress import Progress
from methods.diagnostics import NAMES
from methods.training.movement import MOVEMENT, Update
from methods.training.rollouts import SamplerCheck, collapsed

if TYPE_CHECKING:
    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder

Figure = float | int | None

COLUMNS = (
    "rollout", "update", "minibatch", "reward", "reward_kept", "reward_given", "groups_sampled", "groups_kept",
    "groups_discarded", "response_tokens", "truncated_fraction", "reward_timeouts", "loss", "grad_norm",
    "learning_rate", *NAMES, *MOVEMENT, "tokens", "sequences", "seconds_update", "seconds_rollout",
)  # fmt: skip
HEADER = ",".join(COLUMNS) + "\n"
# Seven digits, the precision of float32: this halves the size of kept references.
ROUNDED = frozenset(("loss", "grad_norm", *NAMES, *MOVEMENT, "seconds_update", "seconds_rollout"))


class Curve:
    """The curve of a run in progress. `text` is the curve; the file at `path` is a copy for other processes.

    text: rows so far, with the header. With `sampler_check`, a row that shows different policies of sampler and trainer
    ends the run with `SamplerError`.
    """

    def __init__(self, path: Path, text: str = HEADER, sampler_check: bool = False):
        if not text.startswith(HEADER):
            raise CorruptInputError(f"{path}: columns {text.partition(chr(10))[0]} are not those of a curve")
        self.path, self.text = path, text
        self.check = SamplerCheck(str(path)) if sampler_check else None
        self.rows: list[Mapping[str, Any]] = []
        for row in csv.DictReader(text.splitlines()):
            self._note(row)
        self._stream = open(path, "w", encoding="utf-8", newline="")  # noqa: SIM115  open as long as the run
        self._stream.write(text)
        self._stream.flush()

    def append(self, row: Mapping[str, Figure]) -> None:
        """Append one row, which must have every column; None is written as an empty cell."""
        if row.keys() != set(COLUMNS):
            raise CorruptInputError(f"{self.path}: a row with columns {sorted(row)}, expected {sorted(COLUMNS)}")
        row = {
            name: float(f"{value:.7g}") if name in ROUNDED and isinstance(value, float) else value
            for name, value in row.items()
        }
        # repr, because it is the shortest text that reads back to the same bits
        line = ",".join("" if (value := row[name]) is None else repr(value) for name in COLUMNS) + "\n"
        self.text += line
        self._stream.write(line)
        self._stream.flush()
        self._note(row)

    def _note(self, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
        if self.check:
            self.check(row)

    @property
    def rewards(self) -> dict[int, float]:
        """Mean reward as passed to the method, by rollout."""
        return {int(row["rollout"]): float(row["reward_given"]) for row in self.rows}

    def close(self) -> None:
        """Close the file; may be called more than once."""
        self._stream.close()


class Recorder:
    """Writer of a run's rows, which also decides what is due at the end of a rollout."""

    def __init__(self, run: RunFolder, method: Method, stop: Callable[[], bool]):
        self.run, self.method, self.stop = run, method, stop
        self.training = run.spec.training
        self.collapsed_at: int | None = None  # rollout
        self.stopped = False
        self.progress = Progress(run.spec.name, self.training.rollouts, start=run.start.rollout)
        self._entropy: float | None = None  # of the last update that had a gradient
        self._unchanged_checked = False  # once per process: whether both passes over a minibatch agree

    def write_row(
        self,
        figures: Mapping[str, Figure],
        index: int,
        batch: Batch | None,
        gradient_norm: float | None,
        moved: Update | None = None,
        divergences: Mapping[str, Figure] | None = None,
        **more: Figure,
    ) -> None:
        """Write the row of update `index` of a rollout. batch: the whole minibatch; None: it had no group to train on.

        divergences: the columns `movement.KL`, for a rollout's last row; more: loss, learning_rate, tokens, sequences,
        seconds_update, seconds_rollout. Raises `CorruptInputError` for a gradient that is not finite.
        """
        rollout = int(figures["rollout"] or 0)
        update = (rollout - 1) * self.training.updates_per_rollout + index
        self.check_gradient(gradient_norm, update)
        row: dict[str, Figure] = {
            **dict.fromkeys((*NAMES, *MOVEMENT, "grad_norm")), **figures, **(divergences or {}), **more,
            "update": update, "minibatch": index,
        }  # fmt: skip
        row.pop("extremes", None)  # of the run, not a column
        if moved:
            row |= {"update_norm": moved.norm, "effective_step": moved.effective(float(more["learning_rate"] or 0))}
        if batch:
            if index == 0 and not self._unchanged_checked:
                self.method.check_repeatable(batch)
                if (rounding := self.method.check_unchanged(batch)) is not None:
                    print(f"{self.run.folder}: dH of unchanged weights: {rounding}", flush=True)
                self._unchanged_checked = True
            row |= {**self.method.diagnostics(batch), "grad_norm": gradient_norm}
            self._entropy = row["entropy"]
            if gradient_norm is not None:
                row["grad_clipped"] = int(gradient_norm > self.training.gradient_clip)
        self.run.curve.append(row)

    def check_gradient(self, norm: float | None, update: int) -> None:
        """Raise `CorruptInputError` for a norm that is not finite: a step on it silently destroys the weights.

        A trainer that would take such a step calls this first. If a trainer skips it, `write_row` ends the run.
        """
        if norm is not None and not math.isfinite(norm):
            raise CorruptInputError(
                f"{self.run.folder}: rollout {update // self.training.updates_per_rollout + 1}: update {update}: "
                f"the gradient's norm is {norm}: a step would destroy the weights; lower training.learning_rate"
            )

    def end_rollout(self, figures: Mapping[str, Any]) -> tuple[list[int], bool]:
        """Return the checkpoints to publish now, and whether a state to resume from is due.

        After a collapse the later checkpoints are published too, so that evaluation can measure the collapsed policy.
        """
        rollout, t, seen = figures["rollout"], self.training, (*self.run.extremes, *figures["extremes"])
        self.run.extremes = min(seen), max(seen)
        self.progress.update(rollout, reward=figures["reward"], entropy=self._entropy)
        if collapsed(self.run.curve.rewards, rollout, self.run.extremes):
            self.collapsed_at = rollout
            return [step for step in self.run.spec.checkpoints if step >= rollout], False
        self.stopped = self.stop() and rollout < t.rollouts
        due = [step for step in self.run.spec.checkpoints if step == rollout]
        return due, self.stopped or rollout == t.rollouts or rollout % t.save_every == 0
