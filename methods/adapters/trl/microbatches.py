"""From sampling to the first update: constant groups are dropped, the rest is dealt into minibatches.

TRL shuffles single sequences and cuts equal parts. Here prompt groups stay whole, as in verl and in the paper's
mini-batches of 16 prompts, and dropped sequences are never computed. Rows of a rollout are always ordered by group,
so `group` is row // samples_per_prompt. Pure functions and records on tensors, independent of the trainer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from methods.batch import Batch
from methods.training.rollouts import deal

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Sequences as a trainer pads them: prompts on the left, completions (C columns) on the right."""

    prompt_ids: Tensor  # (N, P) long
    prompt_mask: Tensor  # (N, P) long, 1 at tokens
    completion_ids: Tensor  # (N, C) long
    completion_mask: Tensor  # (N, C) long, 1 at tokens
    reward: Tensor  # (N,) as passed to the method
    group: Tensor  # (N,) long
    true_reward: Tensor | None = None  # (N,)
    advantage: Tensor | None = None  # (N,)
    ref_logp: Tensor | None = None  # (N, C)
    sampling_logp: Tensor | None = None  # (N, C) as generation computed them
    old_logp: Tensor | None = None  # (N, C)
    old_entropy: Tensor | None = None  # (N, C)

    def __len__(self) -> int:
        return len(self.reward)

    @property
    def lengths(self) -> Tensor:
        """Completion tokens per row, (N,) long."""
        return self.completion_mask.sum(1)

    @property
    def inputs(self) -> tuple[Tensor, Tensor, int]:
        """Tokens (N, P + C) of prompts and completions, their mask, and C."""
        import torch

        ids = torch.cat([self.prompt_ids, self.completion_ids], dim=1)
        return ids, torch.cat([self.prompt_mask, self.completion_mask], dim=1), self.completion_ids.shape[1]

    def take(self, index: Tensor | slice) -> Rows:
        """Return these rows, without padding columns that none of them uses."""
        rows = replace(self, **{name: x[index] for name, x in vars(self).items() if x is not None})
        if len(rows) == 0:  # the maximum of no lengths is undefined
            return rows
        width, prompt = int(rows.lengths.max()), int(rows.prompt_mask.sum(1).max())
        cut = {f.name: getattr(rows, f.name)[:, :width] for f in fields(rows) if _is_completion(f.name, rows)}
        first = rows.prompt_ids.shape[1] - prompt
        return replace(rows, **cut, prompt_ids=rows.prompt_ids[:, first:], prompt_mask=rows.prompt_mask[:, first:])


def _is_completion(name: str, rows: Rows) -> bool:
    """Return whether the field is present and has a column for each completion token."""
    return not name.startswith("prompt_") and getattr(rows, name) is not None and getattr(rows, name).ndim >= 2


@dataclass(frozen=True)
class MicroBatch:
    """Input of one forward and backward pass: a minibatch or a part of one, and the minibatch's totals."""

    rows: Rows
    tokens: int  # of the whole minibatch
    sequences: int  # of the whole minibatch
    parts: int  # micro-batches in the minibatch
    group_tokens: Tensor  # (n,) tokens of each row's group in the minibatch
    groups: int  # in the minibatch
    minibatch: int = 0  # number in the pass
    start: int = 0  # position of the first row in the minibatch

    def with_old(self, logp: Tensor, entropy: Tensor | None) -> MicroBatch:
        """Return a copy with values of the policy that sampled the rows."""
        return replace(self, rows=replace(self.rows, old_logp=logp, old_entropy=entropy))

    def batch(
        self,
        logp: Tensor,
        entropy: Tensor,
        label: str,
        max_tokens: int,
        precision: str | None = None,
    ) -> Batch:
        """Return the loss's input. Without stored old values the current policy is the one that sampled."""
        rows, split = self.rows, self.parts > 1
        assert rows.advantage is not None
        return Batch(
            logp=logp,
            old_logp=logp.detach() if rows.old_logp is None else rows.old_logp,
            advantage=rows.advantage.to(logp.dtype),
            mask=rows.completion_mask.bool(),
            group=rows.group,
            entropy=entropy,
            old_entropy=entropy.detach() if rows.old_entropy is None else rows.old_entropy,
            ref_logp=rows.ref_logp,
            sampling_logp=None if rows.sampling_logp is None else rows.sampling_logp.to(logp.dtype),
            # the loss counts the groups of an unsplit minibatch
            group_tokens=self.group_tokens if split else None,
            groups=self.groups if split else None,
            max_tokens=max_tokens,
            precision=precision,
            label=label,
        )


def join(draws: Sequence[Rows], pad: int) -> Rows:
    """Concatenate draws: prompts padded on the left, completions on the right, groups numbered consecutively."""
    import torch
    from torch.nn.functional import pad as padded

    if len(draws) == 1:
        return draws[0]
    prompt, width = (max(getattr(d, name).shape[1] for d in draws) for name in ("prompt_ids", "completion_ids"))
    columns: dict[str, list[Tensor]] = {}
    groups_before = 0
    for draw in draws:
        for name, x in vars(draw).items():
            if x is None:
                continue
            value = pad if name.endswith("_ids") else 0
            if name.startswith("prompt_"):
                x = padded(x, (prompt - x.shape[1], 0), value=value)
            elif _is_completion(name, draw):
                x = padded(x, (0, width - x.shape[1]), value=value)
            columns.setdefault(name, []).append(x + groups_before if name == "group" else x)
        groups_before += int(draw.group.max()) + 1
    return Rows(**{name: torch.cat(values) for name, values in columns.items()})


def micro_batches(rows: Rows, samples: int, minibatches: int, parts: int) -> list[MicroBatch]:
    """Deal the kept rows into minibatches and split each into `parts`; every part has its minibatch's totals."""
    import torch

    result = []
    groups = rows.group.view(-1, samples)
    for number, members in enumerate(deal(range(len(groups)), minibatches)):
        index = (torch.tensor(members, dtype=torch.long).unsqueeze(1) * samples + torch.arange(samples)).flatten()
        minibatch = rows.take(index.to(rows.group.device))
        lengths_KG = minibatch.lengths.view(-1, samples)
        totals = int(minibatch.lengths.sum()), len(minibatch), parts
        group_tokens = lengths_KG.sum(1).repeat_interleave(samples)
        size = max(1, -(-len(minibatch) // parts))  # rounded up; the parts of an empty minibatch are empty
        for start in range(0, parts * size, size):
            at = slice(start, start + size)
            part = minibatch.take(at)
            result.append(MicroBatch(part, *totals, group_tokens[at], len(members), minibatch=number, start=start))
    return result
