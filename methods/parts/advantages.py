"""Advantages, one per response, and shapes that spread them over tokens.

An advantage is computed once per rollout, over the responses that are trained on, before they are dealt into
minibatches. It is therefore independent of any later split, whatever it averages over. `lengths_B` counts each
response's tokens, (B,) long; only formulas that weight by length read it. Formulas return float64 for rewards of any
dtype: `Method.advantage` rounds once, at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from core.errors import ConfigError, CorruptInputError
from methods.parts import part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch

# R11: name -> (1 to divide the squares by n - 1, 0 to divide by n; eps added to the deviation). The paper has no eps.
STD = {
    "unbiased": (1, 1e-6),  # verl
    "biased": (0, 1e-6),
    "unbiased-1e-4": (1, 1e-4),  # TRL
}


def by_group(x_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sum of `x` per group (K,), size of each group (K,) in the dtype of `x`, each row's group index (B,)."""
    ids, index_B = group_B.unique(return_inverse=True)
    zeros_K = x_B.new_zeros(len(ids))
    return zeros_K.index_add(0, index_B, x_B), zeros_K.index_add(0, index_B, x_B.new_ones(len(x_B))), index_B


def _finite(reward_B: Tensor) -> Tensor:
    """Return the rewards in float64; raise `CorruptInputError` if one is not finite.

    In float32 the mean of equal rewards such as 0.1 can have a rounding error. Divided by a deviation of 0 + eps, it
    would give an advantage that is not near 0.
    """
    if not bool(reward_B.isfinite().all()):
        raise CorruptInputError(f"reward: not finite at {int((~reward_B.isfinite()).nonzero()[0])}")
    return reward_B.double()


def _centred(reward_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return R - mean, mean and size of each row's group, (B,) each, float64.

    Raises `CorruptInputError` for a group of one response.
    """
    sums_K, sizes_K, index_B = by_group(_finite(reward_B), group_B)
    if bool((sizes_K < 2).any()):
        row = int((sizes_K < 2)[index_B].nonzero()[0])
        raise CorruptInputError(f"group: {int(group_B[row])} holds one response: no group-relative advantage")
    mean_B = (sums_K / sizes_K)[index_B]
    return reward_B.double() - mean_B, mean_B, sizes_K[index_B]


def _tokens(lengths_B: Tensor | None, reward_B: Tensor, name: str) -> Tensor:
    """Return the lengths in float64; raise an error if they are missing or invalid."""
    if lengths_B is None:
        raise ConfigError(f"lengths: needed by the advantage {name}, not supplied (tokens of each response)")
    # written so that NaN is rejected as well
    if not bool(((lengths_B >= 1) & lengths_B.isfinite()).all()):
        raise CorruptInputError(f"lengths: expected {len(reward_B)} numbers of at least 1, got {lengths_B.tolist()}")
    return lengths_B.double()


def _deviation(centred_B: Tensor, group_B: Tensor, std: str) -> Tensor:
    """Return the standard deviation of each row's group plus eps, (B,)."""
    correction, eps = STD[std]
    squares_K, sizes_K, index_B = by_group(centred_B**2, group_B)
    return (squares_K / (sizes_K - correction)).sqrt()[index_B] + eps


@part()
def group_zscore(reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None, *, std: str) -> Tensor:
    """Return A = (R - mean) / (std + eps) within the prompt's group (GRPO, 2402.03300, section 4.1.2; TEPO eq. 9)."""
    centred_B, *_ = _centred(reward_B, group_B)
    return centred_B / _deviation(centred_B, group_B, std)


def _informative(reward_B: Tensor, group_B: Tensor) -> int:
    """Return B - M, M responses in groups of equal reward."""
    ids, index_B = group_B.unique(return_inverse=True)
    zeros_K = reward_B.new_zeros(len(ids))
    lowest_K, highest_K = (
        zeros_K.scatter_reduce(0, index_B, reward_B, end, include_self=False) for end in ("amin", "amax")
    )
    return int((lowest_K < highest_K)[index_B].count_nonzero())


# R13: GPG's factor of the centred reward, alpha / F_norm. Counts are at least 1: where one is 0, so are the centred
# rewards, and any finite scale will do.
SCALES: dict[str, Callable[[Tensor, Tensor], Tensor | float]] = {
    "one": lambda reward_B, group_B: 1.0,
    # F_norm = std + 1e-6
    "std": lambda reward_B, group_B: 1 / _deviation(_centred(reward_B, group_B)[0], group_B, "unbiased"),
    # alpha = B / (B - M) (2504.02546, in print)
    "informative": lambda reward_B, group_B: len(reward_B) / max(_informative(reward_B, group_B), 1),
    # alpha = B / responses with a reward, verl's rule
    "inverse-accuracy": lambda reward_B, group_B: len(reward_B) / max(int(reward_B.count_nonzero()), 1),
}


@part()
def group_centred(
    reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None, *, scale: str, reward: str = "binary"
) -> Tensor:
    """Return A = alpha (R - mean) / F_norm (GPG, arXiv 2504.02546), alpha / F_norm by `SCALES[scale]`, R by R28."""
    if reward == "signed":
        # here, not in the trainer, whose records and collapse test count right answers
        reward_B = 2 * reward_B - 1
    return _centred(reward_B, group_B)[0] * SCALES[scale](reward_B, group_B)


@part()
def leave_one_out(reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Return A = R - mean of the group's other responses = n/(n - 1) (R - mean) (RLOO, arXiv 2402.14740)."""
    centred_B, _, size_B = _centred(reward_B, group_B)
    return centred_B * size_B / (size_B - 1)


@part()
def mean_scaled(reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Return A = (R - mean) / mean within the prompt's group (MaxRL, arXiv 2602.02710)."""
    centred_B, mean_B, _ = _centred(reward_B, group_B)
    # Divide only by a positive mean. Without any reward A is 0; a negative mean, which does not occur with MaxRL's
    # success rates, would flip every sign.
    return centred_B / mean_B.where(mean_B > 0, 1.0)


@part()
def length_weighted_baseline(reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None) -> Tensor:
    """Return A = R - sum |y| R / sum |y| within the prompt's group, the least-variance baseline (OPO, 2505.23585)."""
    # of the centred rewards, so that equal rewards give 0 rather than a rounding error
    centred_B, *_ = _centred(reward_B, group_B)
    tokens_B = _tokens(lengths_B, reward_B, "length_weighted_baseline")
    weighted_K, _, index_B = by_group(tokens_B * centred_B, group_B)
    tokens_K, _, _ = by_group(tokens_B, group_B)
    return centred_B - (weighted_K / tokens_K)[index_B]


@part()
def whitened(
    reward_B: Tensor, group_B: Tensor, lengths_B: Tensor | None, *, baseline: str, std: str = "unbiased"
) -> Tensor:
    """Return A = (b - mean b) / sqrt(var b + 1e-8) over all tokens, b = R or R - group mean (REINFORCE++, 2501.03262).

    Over tokens: a response is weighted by its number of tokens. The variance divides by tokens - 1 (std=unbiased: verl)
    or by tokens (biased: OpenRLHF), R37.
    """
    value_B = _finite(reward_B) if baseline == "none" else _centred(reward_B, group_B)[0]
    tokens_B = _tokens(lengths_B, reward_B, "whitened")
    count = tokens_B.sum()
    centred_B = value_B - (tokens_B * value_B).sum() / count
    # at least 1: one response of one token is its own mean, and any finite scale will do
    variance = (tokens_B * centred_B**2).sum() / (count - int(std == "unbiased")).clamp(min=1)
    return centred_B / (variance + 1e-8).sqrt()


ENTROPY_OF = {"current": "entropy", "old": "old_entropy"}


@part(also=lambda of, **_: ENTROPY_OF[of])
def entropy_bonus(batch: Batch, advantage_B1: Tensor, *, alpha: float, kappa: float, of: str) -> Tensor:
    """Return A'_t = A + min(alpha sg[H_t], |A|/kappa): never flips a sign for kappa > 1 (arXiv 2506.14758).

    H is the entropy of the `current` policy or of the `old` one, which sampled (R35).
    """
    entropy_BT = batch.entropy if of == "current" else batch.old_entropy
    assert entropy_BT is not None
    # detached: the bonus reweights tokens and does not directly change the entropy
    bonus_BT = alpha * batch.valid(entropy_BT.detach())
    return advantage_B1 + bonus_BT.minimum(advantage_B1.abs() / kappa)
