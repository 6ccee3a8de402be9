"""What a run tells while it goes, in the driver: a row per update, checkpoints and states at rollout edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from methods.adapters.verl.buffer import Drawn
from methods.diagnostics import NAMES
from methods.training.rollouts import RolloutFigures, collapsed, together
from records.progress import Progress

if TYPE_CHECKING:
    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder

Part = tuple[int, float, "Batch"]  # update over the run, share of the loss, micro-batch


class Recorder:
    """Writes the curve's rows of a rollout once its updates are done, decides what happens at its end."""

    def __init__(self, run: RunFolder, method: Method, stop: Callable[[], bool]):
        self.run, self.method, self.stop = run, method, stop
        self.training = run.spec.training
        self.collapsed_at: int | None = None
        self.stopped = False
        self.progress = Progress(run.spec.name, self.training.rollouts, start=run.mark.rollout)
        self._reward = 0.0
        self._entropy: float | None = None

    def rollout(
        self,
        number: int,
        drawn: Drawn,
        updates: Sequence[Sequence[Part]],
        norms: Sequence[float],
        learning_rate: float,
        seconds_rollout: float,
        seconds_updates: float,
    ) -> None:
        """All rows of rollout `number` (1-based). `updates`: the micro-batches of each update that was made, in order;
        minibatches without an informative group were not made: they are the last ones of each pass."""
        t = self.training
        figures = asdict(self._figures(number, drawn))
        made = min(len(drawn.kept), t.minibatches)
        for index in range(t.updates_per_rollout):
            nth, minibatch = divmod(index, t.minibatches)
            at = nth * made + minibatch
            row: dict[str, Any] = dict.fromkeys(("loss", "grad_norm", *NAMES)) | {"tokens": 0, "sequences": 0}
            if minibatch < made:
                batch = together([part for _, _, part in updates[at]])
                row |= self.method.diagnostics(batch) | {
                    "loss": sum(share for _, share, _ in updates[at]),
                    "grad_norm": norms[at],
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
                    "seconds_update": seconds_updates / t.updates_per_rollout,
                    "seconds_rollout": None if index else seconds_rollout,
                }
            )
        self._reward = float(figures["reward"])
        self.progress.update(number, reward=self._reward, entropy=self._entropy)

    def _figures(self, number: int, drawn: Drawn) -> RolloutFigures:
        kept = drawn.kept_rows
        return RolloutFigures(
            rollout=number,
            reward=_mean([row.reward for row in drawn.rows]),
            reward_kept=_mean([row.reward for row in kept]) if kept else None,
            groups_sampled=drawn.groups,
            groups_kept=len(drawn.kept),
            groups_discarded=drawn.groups - len(drawn.kept),
            response_tokens=_mean([row.tokens for row in drawn.rows]),
            truncated_fraction=_mean([row.truncated for row in drawn.rows]),
        )

    def collapsed(self, rollout: int) -> bool:
        return collapsed(self.run.curve.rewards, rollout)


def _mean(values: Sequence[float]) -> float:
    return float(sum(values)) / len(values)
