"""The loss that verl's workers call: fill a `Batch`, call `Method.loss`, hand the micro-batch back for the curve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from methods import catalog
from methods.adapters.verl import tensors
from methods.batch import Batch
from methods.training.rollouts import derive
from records.errors import ConfigError

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

PART = "part"  # name of our one metric; without "max" and "min", by which verl would reduce it


class MethodLoss:
    """Sent to every worker by `set_loss_fn`. Counts the minibatches it sees: verl does not tell it which one it is."""

    def __init__(self, method: str, run_seed: int, updates_per_rollout: int, *, whole_minibatch: bool):
        self.method = catalog.parse(method)
        self.run_seed, self.updates_per_rollout = run_seed, updates_per_rollout
        self.whole_minibatch = whole_minibatch  # a method of scope batch refuses to see a part
        self.rollout = self.rows = 0

    def __call__(
        self, model_output: Mapping[str, Any], data: TensorDict, dp_group: object = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """The micro-batch's share of the minibatch's loss, times the ranks over which FSDP averages."""
        import torch

        piece = tensors.piece(model_output, data, self.method.key)
        update = self._update(piece)
        split = len(piece.batch.mask) < piece.rows
        if split and self.whole_minibatch and self.method.scope == "batch":
            raise ConfigError(
                f"verl: a worker got {len(piece.batch.mask)} of a minibatch's {piece.rows} sequences, but "
                f"{self.method.key} takes statistics over all of it (scope batch); allowed: one GPU, micro_batches 1"
            )
        loss = self.method.loss(
            piece.batch if split else replace(piece.batch, group_tokens=None, groups=None),
            tokens=piece.tokens if split else None,
            sequences=piece.sequences if split else None,
            generator=torch.Generator().manual_seed(derive(self.run_seed, "selection", update)),
        )
        part = (update, float(loss.detach()), detached(piece.batch))
        return loss * piece.ranks, {PART: part}

    def _update(self, piece: tensors.Piece) -> int:
        """0-based over the run, of the minibatches that were trained on."""
        if piece.rollout != self.rollout:
            self.rollout, self.rows = piece.rollout, 0
        nth = self.rows * piece.ranks // piece.rows
        self.rows += len(piece.batch.mask)
        return (piece.rollout - 1) * self.updates_per_rollout + nth


def detached(batch: Batch) -> Batch:
    """On the CPU, without gradient: what diagnostics need."""
    import torch

    found = {f.name: getattr(batch, f.name) for f in fields(Batch)}
    moved: dict[str, Any] = {n: x.detach().cpu() for n, x in found.items() if isinstance(x, torch.Tensor)}
    return replace(batch, **moved)
