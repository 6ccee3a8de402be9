"""Random ragged batches of a small softmax policy, and what can be done to a batch without changing its loss.

A batch is a plain dict of the fields of `methods.batch.Batch`, so that reference, oracles and methods are all fed the
same numbers. All is drawn in float64 from one seed and cast last: the float32 batch is the float64 batch, rounded.
"""

from __future__ import annotations

import torch
from torch import Tensor

Fields = dict[str, Tensor]

TOKEN_FIELDS = ("logp", "old_logp", "entropy", "old_entropy", "ref_logp", "sampling_logp", "mask")
VOCABULARY_FIELDS = ("full_logp", "old_full_logp")
MAX_TOKENS = 17  # a trainer's limit on a response: above every length here, and no batch's width


def random_fields(
    seed: int,
    *,
    groups: int = 3,
    per_group: int = 3,
    longest: int = 6,
    vocabulary: int = 5,
    drift: float = 0.4,
    jump: float = 0.0,
    sharpness: float = 1.5,
    on_policy: bool = False,
    equal_lengths: bool = False,
    holes: bool = False,
    dtype: torch.dtype = torch.float64,
) -> Fields:
    """One batch: (B, T) with B = groups * per_group, T = longest + 1 so that even the longest row has padding.

    drift: standard deviation of the logits' difference between old and current policy (about that of a log-ratio);
    1.5 makes ratios above 3, where a dual clip would act. on_policy: old policy = current policy, to the bit.
    jump: added to the log-ratios of every third row, so that whole sequences are far.
    holes: a mask may be False inside a response (tool output). Padding holds noise.
    Tokens are sampled from the old policy; advantages are z-scored random rewards.
    """
    draw, other = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(seed + 1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    rows, width = groups * per_group, longest + 1
    logits = sharpness * normal(rows, width, vocabulary)
    old_logits = logits if on_policy else logits + drift * normal(rows, width, vocabulary)
    full, old_full = logits.log_softmax(-1), old_logits.log_softmax(-1)
    ref_full = (old_logits + drift * normal(rows, width, vocabulary)).log_softmax(-1)
    token = torch.multinomial(old_full.exp().flatten(0, 1), 1, generator=draw).view(rows, width, 1)

    lengths = torch.randint(1, longest + 1, (rows,), generator=draw)
    lengths[torch.randint(rows, (1,), generator=draw)] = longest
    if equal_lengths:
        lengths = torch.full((rows,), longest)
    mask = torch.arange(width) < lengths[:, None]
    if holes:
        mask = torch.stack([row[torch.randperm(width, generator=draw)] for row in mask])

    reward = normal(groups, per_group)
    advantage = (reward - reward.mean(1, keepdim=True)) / reward.std(1, keepdim=True)

    def pick(log_probabilities: Tensor) -> Tensor:
        return log_probabilities.gather(-1, token).squeeze(-1)

    old = pick(old_full) - jump * (torch.arange(rows) % 3 == 0)[:, None]
    fields = {
        "logp": pick(full),
        "old_logp": old,
        "ref_logp": pick(ref_full),
        "entropy": -(full.exp() * full).sum(-1),
        "old_entropy": -(old_full.exp() * old_full).sum(-1),
        "full_logp": full,
        "old_full_logp": old_full,
        # last, and from a generator of its own: the numbers above are older
        "sampling_logp": old + 0.5 * torch.randn(rows, width, generator=other, dtype=torch.float64),
    }
    fields["sampling_logp"].clamp_(max=0.0)
    for name, value in fields.items():
        keep = mask if value.dim() == 2 else mask[..., None]
        fields[name] = value.where(keep, 3 * normal(*value.shape)).to(dtype)
    # a prompt may have any number for a name, and its rows need not be neighbours
    group = 1000 - 7 * torch.arange(groups).repeat_interleave(per_group).roll(1)
    return fields | {"advantage": advantage.flatten().to(dtype), "mask": mask, "group": group}


def rows(fields: Fields, index: Tensor | slice | list[int]) -> Fields:
    """The rows of `index`, in its order: a permutation of the batch or one micro-batch of it."""
    return {name: value[index] for name, value in fields.items()}


def refill(fields: Fields, value: float) -> Fields:
    """The same responses with `value` in every padding cell."""
    mask = fields["mask"]
    out = dict(fields)
    for name in (*TOKEN_FIELDS[:-1], *VOCABULARY_FIELDS):
        keep = mask if fields[name].dim() == 2 else mask[..., None]
        out[name] = fields[name].where(keep, torch.full_like(fields[name], value))
    return out


def append_empty_rows(fields: Fields, count: int = 2) -> Fields:
    """The same batch with `dropped` rows that hold no token, one of them in a group of its own."""
    extra = rows(fields, [0] * count)
    extra["group"] = torch.cat([fields["group"][:1], fields["group"].max() + torch.arange(1, count)])
    extra["mask"] = torch.zeros_like(extra["mask"])
    both = {name: torch.cat([value, extra[name]]) for name, value in fields.items()}
    return both | {"dropped": ~both["mask"].any(1)}
