"""What a run records while it trains, in the driver: a row of the curve per update, a line per rollout."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from methods.diagnostics import NAMES
from methods.training.rollouts import RolloutFigures, collapsed, together
from records.errors import CorruptInputError
from records.progress import Progress

if TYPE_CHECKING:
    from methods.adapters.verl.buffer import Rollout
    from methods.adapters.verl.worker import MicroBatchResult
    from methods.method import Method
    from methods.training.run_folder import RunFolder


class Recorder:
    """Writes the curve's rows of a rollout once its updates are done; knows how the run stands."""

    def __init__(self, run: RunFolder, method: Method, stop: Callable[[], bool]):
        self.run, self.method, self.stop = run, method, stop
        self.training = run.spec.training
        self.collapsed_at: int | None = None
        self.stopped = False
        self.progress = Progress(run.spec.name, self.training.rollouts, start=run.mark.rollout)
        self._unchanged_checked = False  # once a process: whether both passes over a minibatch round alike
        self._entropy: float | None = None  # of the last update that took place

    def rollout(
        self,
        number: int,
        rollout: Rollout,
        updates: Sequence[Sequence[MicroBatchResult]],
        gradient_norms: Sequence[float],
        learning_rate: float,
        seconds_rollout: float,
        seconds_updates: float,
    ) -> None:
        """Write all rows of rollout `number` (1-based). `updates`: the micro-batches of each update, in order.

        A minibatch without an informative group has no update; such minibatches are the last ones of each pass.
        """
        t = self.training
        figures = asdict(self._figures(number, rollout))
        trained = min(len(rollout.kept_groups), t.minibatches)  # minibatches of a pass that have a group
        for index in range(t.updates_per_rollout):
            passes_before, minibatch = divmod(index, t.minibatches)
            row: dict[str, Any] = dict.fromkeys(("loss", "grad_norm", *NAMES)) | {"tokens": 0, "sequences": 0}
            if minibatch < trained:
                update = passes_before * trained + minibatch
                batch = together([result.batch for result in updates[update]])
                if index == 0 and not self._unchanged_checked:
                    self.run.unchanged(self.method, batch)
                    self._unchanged_checked = True
                row |= self.method.diagnostics(batch) | {
                    "loss": sum(result.loss for result in updates[update]),
                    "grad_norm": gradient_norms[update],
                    "tokens": batch.tokens,
                    "sequences": batch.sequences,
                }
                self._entropy = row["entropy"]
            self.run.curve.append(
                {
                    **figures,
                    "update": (number - 1) * t.updates_per_rollout + index,
                    "minibatch": index,
                    "learning_rate": learning_rate,
                    **row,
                    # verl makes all updates of a rollout in one call: each gets an equal share of its time
                    "seconds_update": seconds_updates / t.updates_per_rollout,
                    "seconds_rollout": None if index else seconds_rollout,
                }
            )
        self.progress.update(number, reward=float(figures["reward"]), entropy=self._entropy)

    def _figures(self, number: int, rollout: Rollout) -> RolloutFigures:
        kept = rollout.kept_rows
        rewards = [row.reward for row in rollout.rows if row.reward is not None]
        if not rewards:
            raise CorruptInputError(f"verl: rollout {number}: no reward of {len(rollout.rows)} came in time")
        return RolloutFigures(
            rollout=number,
            reward=_mean(rewards),
            reward_kept=_mean([row.reward for row in kept if row.reward is not None]) if kept else None,
            reward_given=_mean(rewards),
            reward_timeouts=len(rollout.rows) - len(rewards),
            groups_sampled=rollout.groups,
            groups_kept=len(rollout.kept_groups),
            groups_discarded=rollout.groups - len(rollout.kept_groups),
            response_tokens=_mean([row.tokens for row in rollout.rows]),
            truncated_fraction=_mean([row.truncated for row in rollout.rows]),
        )

    def collapsed(self, rollout: int) -> bool:
        """Whether the run has collapsed by the end of this rollout (1-based)."""
        return collapsed(self.run.curve.rewards, rollout)


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values)
