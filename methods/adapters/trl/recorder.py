"""What a run records while it trains: a row per update, a line per rollout, checkpoints and states at rollout edges.

An edge lies after the last update of a rollout. Only there may anything be saved: a rollout's sequences are in no
state, so a run that resumed inside a rollout would sample others in their place.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from methods.adapters.trl.microbatches import MicroBatch
from methods.diagnostics import NAMES
from methods.training.rollouts import RolloutFigures, collapsed, together
from records.progress import Progress

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder

# A stop request waits for the rollout's end if that is nearer than this. Slurm's default is 30 s between its signal and
# the kill (KillWait).
GRACE_SECONDS = 20.0


class Recorder(TrainerCallback):
    """Collects what the trainer reports, writes it after each update, decides at rollout edges what happens next."""

    def __init__(self, run: RunFolder, method: Method, stop: Callable[[], bool]):
        self.run, self.method, self.stop = run, method, stop
        self.training = run.spec.training
        self.collapsed_at: int | None = None
        self.stopped = False
        self.write_weights: Callable[[Path], None]  # set once the trainer exists
        start = run.mark.rollout
        self.progress = Progress(run.spec.name, self.training.rollouts, start=start)
        self._figures: RolloutFigures
        self._entropy: float | None = None  # of the last update that had a gradient
        # Of the present update:
        self._rollout_seconds: float | None = None  # sampling before it; None if no rollout was due
        self._batches: list[Batch] = []
        self._unchanged_checked = False  # once a process: whether both passes over a minibatch round alike
        self._loss: float | None = None
        self._totals = (0, 0)  # tokens and sequences of the minibatch
        self._gradient_norm: float | None = None
        self._began = time.perf_counter()

    # --- called by our trainer ------------------------------------------------------------------------------------

    def rollout(self, figures: RolloutFigures, seconds: float) -> None:
        """A rollout was sampled and filtered in so many seconds."""
        self._figures, self._rollout_seconds = figures, seconds

    def add_rollout_seconds(self, seconds: float) -> None:
        """Time spent on the rollout after sampling: its micro-batches and the pass over the old policy."""
        self._rollout_seconds = (self._rollout_seconds or 0.0) + seconds

    def micro_batch(self, batch: Batch, loss: Tensor, micro_batch: MicroBatch) -> None:
        """One forward pass. Its batch is kept until the update: diagnostics are those of the whole minibatch."""
        self._batches.append(batch)
        self._loss = float(loss.detach()) + (self._loss or 0.0)
        self._totals = (micro_batch.tokens, micro_batch.sequences)

    def empty(self, micro_batch: MicroBatch) -> None:
        """A micro-batch without rows: no loss, and its minibatch has an update only if another part has rows."""
        self._totals = (micro_batch.tokens, micro_batch.sequences)

    def gradient_norm(self, norm: float) -> None:
        """The norm before clipping."""
        self._gradient_norm = norm

    def saved(self, update: int, refill_position: int) -> None:
        """TRL has written its state after so many updates: mark it as complete. `RuntimeError` inside a rollout."""
        rollout, inside = divmod(update, self.training.updates_per_rollout)
        if inside:
            raise RuntimeError(
                f"a state after update {update} lies inside rollout {rollout + 1}; only edges can be saved"
            )
        state = self.run.state / f"checkpoint-{update}"
        self.run.save_mark(state, update=update, rollout=rollout, refill_position=refill_position)

    # --- called by TRL's loop (transformers' callbacks) -----------------------------------------------------------

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        self._began = time.perf_counter()
        self._batches, self._loss, self._gradient_norm, self._rollout_seconds = [], None, None, None

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        if not self._batches:
            # A minibatch without an informative group says nothing, and AdamW must not move on momentum alone: it skips
            # parameters that have no gradient at all, but not those whose gradient is zero.
            for parameter in kwargs["model"].parameters():
                parameter.grad = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> Any:
        update = state.global_step - 1
        per_rollout = self.training.updates_per_rollout
        seconds = time.perf_counter() - self._began
        self._write(update, float(kwargs["optimizer"].param_groups[0]["lr"]), seconds)
        left = -state.global_step % per_rollout  # updates until the rollout's end
        if left == 0:
            self._edge(state.global_step // per_rollout, control)
        elif self.stop() and left * (seconds - (self._rollout_seconds or 0.0)) > GRACE_SECONDS:
            # Too far to the edge: Slurm kills a while after its signal. The run resumes from the last edge's state.
            control.should_training_stop = self.stopped = True
        return control

    def _write(self, update: int, learning_rate: float, seconds: float) -> None:
        batch = together(self._batches) if self._batches else None
        if batch and update % self.training.updates_per_rollout == 0 and not self._unchanged_checked:
            self.run.unchanged(self.method, batch)
            self._unchanged_checked = True
        figures = self.method.diagnostics(batch) if batch else dict.fromkeys(NAMES)
        self._entropy = figures["entropy"] if batch else self._entropy
        self._batches = []  # frees the graph
        self.run.curve.append(
            {
                **asdict(self._figures),
                "update": update,
                "minibatch": update % self.training.updates_per_rollout,
                "loss": self._loss,
                "grad_norm": self._gradient_norm if batch else None,
                "learning_rate": learning_rate,
                **figures,
                "tokens": self._totals[0],
                "sequences": self._totals[1],
                "seconds_update": seconds - (self._rollout_seconds or 0.0),
                "seconds_rollout": self._rollout_seconds,
            }
        )

    def _edge(self, rollout: int, control: Any) -> None:
        """Checkpoints, before TRL writes the state: a complete state must lack none of those before it."""
        t, checkpoints = self.training, self.run.spec.checkpoints
        self.progress.update(rollout, reward=self._figures.reward, entropy=self._entropy)
        if collapsed(self.run.curve.rewards, rollout):
            self.collapsed_at = rollout
            for step in checkpoints:
                if step >= rollout:  # those still to come too: evaluation measures what is left of the policy
                    self.run.publish(step, self.write_weights)
            control.should_training_stop = True  # without a state to resume from: the run is finished
            return
        if rollout in checkpoints:
            self.run.publish(rollout, self.write_weights)
        self.stopped = self.stop() and rollout < t.rollouts
        control.should_training_stop = control.should_training_stop or self.stopped
        control.should_save = self.stopped or rollout == t.rollouts or rollout % t.save_every == 0
