"""Records of a TRL run: a row per update, a line per rollout, checkpoints and states at rollout edges.

An edge lies after the last update of a rollout. States are saved only there: they do not contain a rollout's
sequences, so a run resumed inside a rollout would sample different ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from methods.adapters.trl.microbatches import MicroBatch
from methods.training import curve, movement
from methods.training.rollouts import RolloutFigures, together

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder

# A stop request waits for the rollout's end if it is nearer than this. By default Slurm leaves 30 s between its signal
# and the kill (KillWait).
GRACE_SECONDS = 20.0


class Recorder(curve.Recorder, TrainerCallback):
    """Recorder that collects the trainer's figures, writes them after each update, and controls TRL's loop at edges."""

    def __init__(self, run: RunFolder, method: Method, stop: Callable[[], bool]):
        super().__init__(run, method, stop)
        self.write_weights: Callable[[Path], None]  # set once the trainer exists
        self.divergences: Callable[[], dict[str, float | None]]  # likewise; for the rollout just trained on
        self._figures: RolloutFigures
        # For the current update:
        self._rollout_seconds: float | None = None  # of sampling before it; None if no rollout was due
        self._batches: list[Batch] = []
        self._loss: float | None = None
        self._totals = (0, 0)  # tokens and sequences of the minibatch
        self.gradient_norm: float | None = None  # before clipping
        self._weights: list[Tensor] = []  # before the step
        self._began = time.perf_counter()

    # --- called by our trainer ------------------------------------------------------------------------------------

    def rollout(self, figures: RolloutFigures, seconds: float) -> None:
        """Record a rollout that was sampled and filtered in so many seconds."""
        self._figures, self._rollout_seconds = figures, seconds

    def add_rollout_seconds(self, seconds: float) -> None:
        """Add time spent on the rollout after sampling: its micro-batches and the pass over the old policy."""
        self._rollout_seconds = (self._rollout_seconds or 0.0) + seconds

    def micro_batch(self, micro_batch: MicroBatch, batch: Batch | None = None, loss: Tensor | None = None) -> None:
        """Record one forward pass; without rows it has no batch and no loss.

        A batch is kept until the update, because diagnostics cover the whole minibatch.
        """
        self._totals = (micro_batch.tokens, micro_batch.sequences)
        if batch is not None and loss is not None:
            self._batches.append(batch)
            self._loss = float(loss.detach()) + (self._loss or 0.0)

    def saved(self, update: int, refill_position: int) -> None:
        """Mark the state that TRL wrote after so many updates as complete. Raise `RuntimeError` inside a rollout."""
        rollout, inside = divmod(update, self.training.updates_per_rollout)
        if inside:
            raise RuntimeError(
                f"a state after update {update} lies inside rollout {rollout + 1}; only edges can be saved"
            )
        state = self.run.state / f"checkpoint-{update}"
        self.run.save(state, update=update, rollout=rollout, refill_position=refill_position)

    # --- called by TRL's loop (transformers' callbacks) -----------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._began = time.perf_counter()
        self._batches, self._loss, self.gradient_norm, self._rollout_seconds = [], None, None, None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._weights = movement.copies(kwargs["model"].parameters())
        if not self._batches:
            # There is nothing to learn without an informative group. AdamW skips parameters without a gradient; with a
            # zero gradient it would move on momentum alone.
            for parameter in kwargs["model"].parameters():
                parameter.grad = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        seconds = time.perf_counter() - self._began - (self._rollout_seconds or 0.0)
        per_rollout = self.training.updates_per_rollout
        moved, self._weights = movement.update(self._weights, kwargs["model"].parameters()), []
        left = -state.global_step % per_rollout  # updates until the rollout's end
        batch = together(self._batches) if self._batches else None
        self._batches = []  # frees the graph
        self.write_row(
            self._figures,
            (state.global_step - 1) % per_rollout,
            batch,
            self.gradient_norm,
            moved=moved,
            divergences=None if left else self.divergences(),
            loss=self._loss,
            learning_rate=float(kwargs["optimizer"].param_groups[0]["lr"]),
            tokens=self._totals[0],
            sequences=self._totals[1],
            seconds_update=seconds,
            seconds_rollout=self._rollout_seconds,
        )
        if left == 0:
            # Checkpoints come before TRL writes the state: a complete state must not lack an earlier checkpoint.
            due, control.should_save = self.end_rollout(self._figures)
            for step in due:
                self.run.publish(step, self.write_weights)
            control.should_training_stop |= self.stopped or self.collapsed_at is not None
        elif self.stop() and left * seconds > GRACE_SECONDS:
            # The edge is too far away: Slurm kills soon after its signal. The run resumes from the last edge's state.
            control.should_training_stop = self.stopped = True
        return control
