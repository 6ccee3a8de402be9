"""What all trainers do with a rollout: which prompt groups are trained on, in which minibatch, what is told about it.

Pure functions on rewards and batches; nothing here knows a trainer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from methods.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

COLLAPSE_REWARD, COLLAPSE_ROLLOUTS = 0.005, 5


@dataclass(frozen=True)
class RolloutFigures:
    """The columns of `curve.csv` that are the same for all updates of a rollout."""

    rollout: int
    reward: float
    reward_kept: float | None
    groups_sampled: int
    groups_kept: int
    groups_discarded: int
    response_tokens: float
    truncated_fraction: float


def collapsed(rewards: Mapping[int, float], rollout: int) -> bool:
    """Whether the mean rewards (by rollout) of the last rollouts up to this one are all nearly zero."""
    last = [rewards.get(r) for r in range(rollout - COLLAPSE_ROLLOUTS + 1, rollout + 1)]
    return all(reward is not None and reward < COLLAPSE_REWARD for reward in last)


def informative(reward: Tensor, samples: int) -> list[bool]:
    """Per group of `samples` rows: do its rewards differ? An all-equal group has advantage 0 everywhere."""
    reward_KG = reward.view(-1, samples)
    return (reward_KG.amax(1) > reward_KG.amin(1)).tolist()


def choose(mixed: Sequence[bool], wanted: int, filtering: str) -> list[int]:
    """Groups to train on, in the order drawn: the first `wanted` informative ones, with filter `none` any."""
    candidates = [k for k, m in enumerate(mixed) if m or filtering == "none"]
    return candidates[:wanted]


def deal(kept: Sequence[int], minibatches: int) -> list[list[int]]:
    """Groups of each minibatch, dealt like cards: too few make every minibatch smaller, not the last ones empty."""
    return [list(kept[m::minibatches]) for m in range(minibatches)]


def together(batches: Sequence[Batch]) -> Batch:
    """The minibatch of these micro-batches, without gradient, for diagnostics."""
    import torch

    if len(batches) == 1:
        return batches[0]
    width = max(b.logp.shape[1] for b in batches)
    columns: dict[str, Any] = {}
    for f in fields(Batch):
        values = [getattr(b, f.name) for b in batches]
        if not all(isinstance(v, torch.Tensor) for v in values) or f.name == "group_tokens":
            continue
        columns[f.name] = torch.cat([_widened(v.detach(), width) for v in values])
    return Batch(**columns, label=batches[0].label)


def _widened(x: Tensor, width: int) -> Tensor:
    from torch.nn.functional import pad

    if x.ndim < 2:
        return x
    return pad(x, (0, 0) * (x.ndim - 2) + (0, width - x.shape[1]), value=False if str(x.dtype) == "torch.bool" else 0)
