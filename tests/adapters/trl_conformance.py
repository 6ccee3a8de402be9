"""A trainer without a model: ready-made tensors sent through `MethodTrainer._compute_loss`, which training runs."""

from types import SimpleNamespace
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.tensorclass import NonTensorData

from methods.adapters.trl.microbatches import MicroBatch, Rows
from methods.adapters.trl.trainer import MethodTrainer, RolloutState
from methods.adapters.verl import worker
from methods.adapters.verl.worker import MethodLoss
from methods.batch import Batch
from methods.method import Method


def through_trainer(method: Method, batch: Batch, parts: int = 1, whole: bool = True) -> torch.Tensor:
    """The trainer's loss summed over `parts` micro-batches; its gradient reaches `batch.logp` and `batch.entropy`.

    whole: statistics over the minibatch (R15).
    """
    trainer: Any = object.__new__(MethodTrainer)
    trainer.method, trainer.run_seed, trainer.state = method, 0, SimpleNamespace(global_step=0)
    trainer.recorder = SimpleNamespace(micro_batch=lambda *_: None)
    trainer.training_sizes = SimpleNamespace(
        max_completion_tokens=batch.max_tokens, cov_scope="minibatch" if whole else "microbatch", precision="float32"
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
        none = torch.zeros(len(piece.mask), 1, dtype=torch.long)
        same = ("group", "advantage", "ref_logp", "sampling_logp", "old_logp", "old_entropy")
        rows = Rows(
            none, none + 1, torch.zeros_like(piece.mask, dtype=torch.long), piece.mask.long(), reward=piece.advantage,
            **{name: getattr(piece, name) for name in same},
        )  # fmt: skip
        groups = int(tokens_K.count_nonzero())
        totals = batch.tokens, batch.sequences, parts, tokens_K[index][at], groups
        trainer.present.parts.append(MicroBatch(rows, *totals, start=at.start))
        pieces[id(rows)] = piece
    # the log-probs of each part, in place of a model's
    trainer._score = lambda _, rows: tuple(getattr(pieces[id(rows)], name) for name in ("logp", "entropy"))
    return sum((trainer._compute_loss(None, part) for part in trainer.present.parts), batch.logp.new_zeros(()))


PROMPT = 2  # tokens; a loss reads none of them


def through_workers(
    method: Method, batch: Batch, parts: int = 1, ranks: int = 1, order: list[int] | None = None, whole: bool = True
) -> torch.Tensor:
    """The workers' loss over `parts` micro-batches on each of `ranks`, averaged over ranks as FSDP does; its gradient
    reaches `batch.logp` and `batch.entropy`.

    order: of the rows over ranks and micro-batches, as drawn if None. whole: statistics over the minibatch (R15).
    """
    index = torch.arange(len(batch.mask)) if order is None else torch.tensor(order)
    size = -(-len(index) // (parts * ranks))
    pieces = [as_verl(batch, at, ranks) for at in index.split(size)]
    total = batch.logp.new_zeros(())
    for rank in range(ranks):
        loss = MethodLoss(method.key, 0, 1, batch.max_tokens or batch.mask.shape[1], whole_minibatch=whole)
        loss.look(lambda collect: [collect(*piece) for piece in pieces], lambda seen: [seen])
        for piece in pieces[rank * parts : (rank + 1) * parts]:
            total = total + loss(*piece)[0] / ranks
    return total


def as_verl(batch: Batch, at: slice | torch.Tensor, ranks: int = 1) -> tuple[dict[str, torch.Tensor], TensorDict]:
    """Rows `at` of a minibatch as a worker's engine hands them to its loss: nested rows without padding.

    A row that `batch` has dropped comes as verl's filling: one token, masked out.
    """
    piece = batch.rows(at)
    lengths = piece.lengths_B.clamp(min=1).tolist()
    rows: dict[str, Any] = {
        "prompts": _nested([torch.zeros(PROMPT, dtype=torch.long) for _ in lengths]),
        "responses": _nested([torch.zeros(n, dtype=torch.long) for n in lengths]),
        "response_mask": _cut(piece.mask.long(), lengths),
        "old_log_probs": _cut(piece.old_logp, lengths),
        "entropy": _cut(piece.old_entropy, lengths),
        "advantages": _cut(piece.advantage.unsqueeze(1) * piece.mask, lengths),
        worker.TOTALS_FIELD: torch.tensor(_totals(batch))[at],
    }
    if piece.ref_logp is not None:
        rows[worker.REFERENCE] = _cut(piece.ref_logp, lengths)
    if piece.sampling_logp is not None:
        rows[worker.SAMPLED] = _cut(piece.sampling_logp, lengths)
    data = TensorDict(rows, batch_size=len(lengths))
    whole = {
        "global_steps": 1,
        "batch_num_tokens": batch.tokens,
        "global_batch_size": len(batch.mask),
        "dp_size": ranks,
    }
    for name, value in whole.items():
        data[name] = NonTensorData(value)
    # the engine's outputs cover the prompt too; position t holds the log-probability of token t + 1
    output = {"log_probs": piece.logp, "entropy": piece.entropy}
    return {name: _shifted(x, lengths) for name, x in output.items() if x is not None}, data


def _totals(batch: Batch) -> list[worker.MinibatchTotals]:
    tokens = {int(g): int(batch.lengths_B[batch.group == g].sum()) for g in batch.group.unique()}
    groups, rows = sum(n > 0 for n in tokens.values()), batch.sequences
    real = batch.lengths_B > 0
    places = (real.cumsum(0) - 1).where(real, -1).tolist()
    return [
        worker.MinibatchTotals(int(g), tokens[int(g)], groups, rows, place)
        for g, place in zip(batch.group, places, strict=True)
    ]


def _cut(x_BT: torch.Tensor | None, lengths: list[int]) -> torch.Tensor:
    assert x_BT is not None, "verl always has old entropies"
    return _nested([row[:n] for row, n in zip(x_BT, lengths, strict=True)])


def _shifted(x_BT: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    zeros = x_BT.new_zeros
    return _nested([torch.cat([zeros(PROMPT - 1), row[:n], zeros(1)]) for row, n in zip(x_BT, lengths, strict=True)])


def _nested(rows: list[torch.Tensor]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
