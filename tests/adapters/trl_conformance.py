"""A trainer without a model: ready-made tensors sent through `MethodTrainer._compute_loss`, which training runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from methods.adapters.trl.microbatches import MicroBatch, Rows
from methods.adapters.trl.trainer import MethodTrainer, RolloutState
from methods.batch import Batch
from methods.method import Method


class _Silent:
    """Takes what a recorder is told."""

    def micro_batch(self, *_: object) -> None: ...


class _State:
    global_step = 0


def through_trainer(method: Method, batch: Batch, parts: int = 1, cov_scope: str = "minibatch") -> torch.Tensor:
    """The trainer's loss summed over `parts` micro-batches; its gradient reaches `batch.logp` and `batch.entropy`."""
    trainer: Any = object.__new__(MethodTrainer)
    trainer.method, trainer.recorder, trainer.run_seed, trainer.state = method, _Silent(), 0, _State()
    trainer.training_sizes = SimpleNamespace(
        max_completion_tokens=batch.max_tokens, cov_scope=cov_scope, precision="float32"
    )
    trainer.present = RolloutState()
    pieces: dict[int, Batch] = {}
    _, index = batch.group.unique(return_inverse=True)
    tokens_K = torch.zeros(int(index.max()) + 1, dtype=torch.long).index_add(0, index, batch.lengths_B)
    size = -(-len(batch.advantage) // parts)
    for part in range(parts):
        at = slice(part * size, (part + 1) * size)
        piece = batch.rows(at)
        if not len(piece.advantage):
            continue
        rows = Rows(
            prompt_ids=torch.zeros(len(piece.mask), 1, dtype=torch.long),
            prompt_mask=torch.ones(len(piece.mask), 1, dtype=torch.long),
            completion_ids=torch.zeros_like(piece.mask, dtype=torch.long),
            completion_mask=piece.mask.long(),
            reward=piece.advantage,
            group=piece.group,
            advantage=piece.advantage,
            ref_logp=piece.ref_logp,
            sampling_logp=piece.sampling_logp,
            old_logp=piece.old_logp,
            old_entropy=piece.old_entropy,
            old_full_logp=piece.old_full_logp,
        )
        groups = int(tokens_K.count_nonzero())
        totals = batch.tokens, batch.sequences, parts, tokens_K[index][at], groups
        trainer.present.parts.append(MicroBatch(rows, *totals, start=at.start))
        pieces[id(rows)] = piece
    # the log-probs of each part, in place of a model's
    trainer._score = lambda _, rows: tuple(getattr(pieces[id(rows)], name) for name in ("logp", "entropy", "full_logp"))
    return sum((trainer._compute_loss(None, part) for part in trainer.present.parts), batch.logp.new_zeros(()))
