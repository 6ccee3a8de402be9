"""This project's losses: with the TRL adapter's micro-batches (one rank), and with the verl adapter's loss in verl's
engine, as in `micro_verl`."""

from __future__ import annotations

import torch
from common import COPIES, LONGEST, run
from micro_verl import RANK, RANKS, ROWS, Policy, by_engine, columns, reduced, rows
from torch.nn.utils.rnn import pad_sequence

from methods import catalog
from methods.adapters.trl.microbatches import Rows, micro_batches
from methods.adapters.verl.worker import TOTALS_FIELD, MethodLoss

KEYS = ("tepo", "grpo", "dr_grpo", "gspo", "dapo")


def with_verl(accumulation, key):
    found = rows()
    lengths = torch.tensor([len(words) for _, words, _ in rows(everywhere=True)])
    group = torch.arange(ROWS) // COPIES
    totals = [group, torch.zeros(ROWS // COPIES, dtype=torch.long).index_add(0, group, lengths)[group],
              torch.full((ROWS,), ROWS // COPIES), torch.full((ROWS,), ROWS), torch.arange(ROWS)]  # fmt: skip
    mine = torch.stack(totals, 1)[RANK * ROWS // RANKS : (RANK + 1) * ROWS // RANKS]
    loss = MethodLoss(key, 0, 1, LONGEST, whole_minibatch=True)
    micro, extra = ROWS // RANKS // accumulation, {TOTALS_FIELD: list(mine)}
    return reduced(lambda module, read: by_engine(module, micro, read, found, loss, **extra))


def with_trl(accumulation, key):
    method, policy = catalog.parse(key), Policy()
    cells = {name: pad_sequence(value, batch_first=True) for name, value in columns(rows()).items()}
    of_rows = Rows(
        prompt_ids=cells["before"][:, :1], prompt_mask=torch.ones(ROWS, 1, dtype=torch.long),
        completion_ids=cells["responses"], completion_mask=cells["response_mask"].long(),
        reward=cells["advantages"][:, 0], group=torch.arange(ROWS) // COPIES, advantage=cells["advantages"][:, 0],
    )  # fmt: skip
    for part in micro_batches(of_rows, COPIES, 1, accumulation):
        words = part.rows.completion_ids
        before = torch.cat([part.rows.prompt_ids, words[:, :-1]], 1)
        logp = policy(before, words)
        batch = part.batch(logp, -logp.detach(), key, LONGEST)  # any entropy: the same before and after
        split = part.parts > 1
        method.loss(
            batch, tokens=part.tokens if split else None, sequences=part.sequences if split else None
        ).backward()
    return policy.table.grad.flatten()


def gradient(accumulation, adapter, key):
    return {"TRL": with_trl, "verl": with_verl}[adapter](accumulation, key)


run({f"{key}, {adapter} adapter": {"key": key, "adapter": adapter}
     for adapter in ("TRL", "verl")[RANKS - 1 :] for key in KEYS}, gradient)  # fmt: skip
