"""verl's names for what a loss reads: the only module here that knows them (`tests/adapters/test_verl_canary.py` pins).

Rows that verl adds to fill a minibatch have an empty response mask; they become `dropped` rows of the `Batch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from methods.batch import Batch

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

LOSS_FIELDS = ("response_mask", "old_log_probs", "entropy", "advantages")
REFERENCE = "ref_log_prob"
ROW_FIELD = "minibatch_figures"  # ours, (B, 4) long: see `Shares`


@dataclass(frozen=True)
class Shares:
    """What a row must know of its whole minibatch, because a worker sees a part of it. One row of `ROW_FIELD`."""

    group: int  # number of the row's prompt group in the rollout; -1 for a row that only fills up
    group_tokens: int  # of that group, in the minibatch
    groups: int  # in the minibatch
    sequences: int  # in the minibatch, rows that only fill up not counted

    def row(self) -> list[int]:
        return [self.group, self.group_tokens, self.groups, self.sequences]


@dataclass(frozen=True)
class Piece:
    """One micro-batch as a loss reads it, and where it belongs."""

    batch: Batch
    rollout: int  # 1-based, verl's `global_steps`
    tokens: int  # of the minibatch, over all ranks
    sequences: int  # likewise
    rows: int  # of the minibatch over all ranks, those that only fill up counted
    ranks: int  # data-parallel; FSDP averages gradients over them


def piece(model_output: Mapping[str, Any], data: TensorDict, label: str) -> Piece:
    """verl's micro-batch: nested (B, j) tensors in `data`, log-probs and entropies with gradient in `model_output`."""
    from verl.workers.utils.padding import no_padding_2_padding

    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    entropy_BT = no_padding_2_padding(model_output["entropy"], data)
    fields = [*LOSS_FIELDS, *([REFERENCE] if REFERENCE in data else [])]
    padded = {name: _padded(data[name], logp_BT.shape[1]) for name in fields}
    mask_BT = padded["response_mask"].bool()
    group_B, group_tokens_B, groups_B, sequences_B = _padded(data[ROW_FIELD], 4).unbind(1)
    batch = Batch(
        logp=logp_BT,
        old_logp=padded["old_log_probs"],
        advantage=padded["advantages"].gather(1, mask_BT.long().argmax(1, keepdim=True)).squeeze(1),  # of any token
        mask=mask_BT,
        group=group_B,
        entropy=entropy_BT,
        old_entropy=padded["entropy"],
        ref_logp=padded.get(REFERENCE),
        dropped=~mask_BT.any(1),
        group_tokens=group_tokens_B,
        groups=int(groups_B.max()),
        label=label,
    )
    return Piece(
        batch,
        rollout=int(_plain(data["global_steps"])),
        tokens=int(data["batch_num_tokens"]),
        sequences=int(sequences_B.max()),
        rows=int(data["global_batch_size"]),
        ranks=int(data["dp_size"]),
    )


def _padded(x: Tensor, width: int) -> Tensor:
    """(B, width) of a nested or dense tensor, zeros on the right."""
    import torch
    from torch.nn.functional import pad

    if x.is_nested:
        x = torch.nested.to_padded_tensor(x, 0)
    return pad(x, (0, width - x.shape[1]))


def _plain(value: Any) -> Any:
    """One value of a field that is the same for all rows."""
    return value[0] if isinstance(value, Sequence) or hasattr(value, "shape") else value


@dataclass(frozen=True)
class Sampled:
    """One sampled response, as the driver reads it from verl's queue."""

    key: str  # <uid>_<sample>_0
    uid: str
    reward: float
    tokens: int
    truncated: bool
    error: str | None  # what the reward said when it failed


def sampled(keys: Sequence[str], data: TensorDict, limit: int, ends: Sequence[int]) -> list[Sampled]:
    """The responses of these rows. A response is cut off when it fills `limit` tokens without an end token."""
    made = []
    extras = [getattr(extra, "data", extra) for extra in data["extra_fields"]]
    for key, response, scores, extra in zip(keys, data["responses"], data["rm_scores"], extras, strict=True):
        said = extra.get("reward_extra_info", {})
        cut = len(response) >= limit and int(response[-1]) not in ends
        made.append(Sampled(key, key.rsplit("_", 2)[0], float(scores.sum()), len(response), cut, said.get("error")))
    return made


SAMPLED_FIELDS = ("responses", "rm_scores", "extra_fields")
