"""verl's names for what a loss reads: the only module here that knows them (`tests/adapters/test_verl_canary.py` pins).

verl fills a minibatch up to a size it can divide, with rows whose response mask is empty ("filling rows"). They become
`dropped` rows of the `Batch`.
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
SAMPLED = "rollout_log_probs"  # the inference engine's
RESPONSE_FIELDS = ("responses", "rm_scores", "extra_fields")
TOTALS_FIELD = "minibatch_figures"  # ours, (B, 5) long: see `MinibatchTotals`


@dataclass(frozen=True)
class MinibatchTotals:
    """What a row must know of its whole minibatch, because a worker sees only a part of it. One row of `TOTALS_FIELD`.

    Sent along with the rows: verl's own totals count filling rows as sequences and know nothing of prompt groups.
    """

    group: int  # number of the row's prompt group in the rollout; -1 for a filling row
    group_tokens: int  # of that group, in the minibatch
    groups: int  # in the minibatch
    sequences: int  # in the minibatch, without filling rows
    place: int  # of the row in the minibatch, as drawn: 0 to sequences - 1, whatever rank has it; -1 for a filling row

    def row(self) -> list[int]:
        """In the order in which `micro_batch` unpacks them."""
        return [self.group, self.group_tokens, self.groups, self.sequences, self.place]


@dataclass(frozen=True)
class MicroBatch:
    """One micro-batch as a loss reads it, and where it belongs."""

    batch: Batch
    place: Tensor  # (B,) of each row in the minibatch, -1 for filling rows
    rollout: int  # 1-based, verl's `global_steps`
    tokens: int  # of the minibatch, over all ranks
    sequences: int  # likewise
    rows: int  # likewise, with filling rows
    ranks: int  # data-parallel; FSDP averages gradients over them


def micro_batch(model_output: Mapping[str, Any], data: TensorDict, label: str, max_tokens: int) -> MicroBatch:
    """verl's micro-batch: nested (B, j) tensors in `data`, log-probs and entropies with gradient in `model_output`."""
    import torch
    from verl.workers.utils.padding import no_padding_2_padding

    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    entropy_BT = no_padding_2_padding(model_output["entropy"], data)
    # Most fields of `data` are no tensors, so ours are taken by name.
    fields = [*LOSS_FIELDS, *(name for name in (REFERENCE, SAMPLED) if name in data)]
    padded = {name: _padded(data[name], logp_BT.shape[1]) for name in fields}
    mask_BT = padded["response_mask"].bool()
    group_B, group_tokens_B, groups_B, sequences_B, place_B = _padded(data[TOTALS_FIELD], 5).unbind(1)
    # verl spreads a sequence's advantage over its tokens; the first valid token gives it back.
    advantage_B = padded["advantages"].gather(1, mask_BT.long().argmax(1, keepdim=True)).squeeze(1)
    # verl calls a loss inside the autocast of its forward pass
    device = logp_BT.device.type
    half = torch.is_autocast_enabled(device)
    sampled_BT = padded.get(SAMPLED)
    if sampled_BT is not None:  # an engine may have no number for a token: it counts as agreeing, as in TRL
        sampled_BT = sampled_BT.where(sampled_BT.isfinite(), padded["old_log_probs"]).to(logp_BT.dtype)
    batch = Batch(
        logp=logp_BT,
        old_logp=padded["old_log_probs"],
        advantage=advantage_B,
        mask=mask_BT,
        group=group_B,
        entropy=entropy_BT,
        old_entropy=padded["entropy"],
        ref_logp=padded.get(REFERENCE),
        sampling_logp=sampled_BT,
        dropped=~mask_BT.any(1),
        group_tokens=group_tokens_B,
        groups=int(groups_B.max()),
        max_tokens=max_tokens,
        precision=str(torch.get_autocast_dtype(device)).removeprefix("torch.") if half else None,
        label=label,
    )
    rollout: Any = data["global_steps"]
    if isinstance(rollout, Sequence) or hasattr(rollout, "shape"):  # verl hands it over bare, or once per row
        rollout = rollout[0]
    return MicroBatch(
        batch,
        place_B,
        rollout=int(rollout),
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


@dataclass(frozen=True)
class Response:
    """One sampled response, as the driver reads it from verl's queue."""

    key: str  # <uid>_<sample>_0
    uid: str  # of its prompt group
    reward: float | None  # None: it did not come in time
    tokens: int
    truncated: bool
    error: str | None  # what the reward said when it failed


def responses(keys: Sequence[str], data: TensorDict, limit: int, end_tokens: Sequence[int]) -> list[Response]:
    """The responses of these rows. A response is truncated when it fills `limit` tokens without an end token."""
    rows = []
    extras = [getattr(extra, "data", extra) for extra in data["extra_fields"]]
    for key, tokens, scores, extra in zip(keys, data["responses"], data["rm_scores"], extras, strict=True):
        said = extra.get("reward_extra_info", {})
        rows.append(
            Response(
                key=key,
                uid=key.rsplit("_", 2)[0],
                reward=None if said.get("timeout") else float(scores.sum()),
                tokens=len(tokens),
                truncated=len(tokens) >= limit and int(tokens[-1]) not in end_tokens,
                error=said.get("error"),
            )
        )
    return rows
