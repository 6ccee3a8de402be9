"""Group-relative advantages, one per response, and shapes that spread them over tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from methods.parts import part
from records.errors import CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch

# R11: name -> (1 to divide the squares by n - 1 or 0 by n, eps added to the deviation). The paper prints no eps.
STD = {
    "unbiased": (1, 1e-6),  # verl
    "biased": (0, 1e-6),
    "unbiased-1e-4": (1, 1e-4),  # TRL
}


def by_group(x_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Sum of `x` over each group (K,), size of each group (K,) in the dtype of `x`, each row's group index (B,)."""
    ids, index_B = group_B.unique(return_inverse=True)
    zeros_K = x_B.new_zeros(len(ids))
    return zeros_K.index_add(0, index_B, x_B), zeros_K.index_add(0, index_B, x_B.new_ones(len(x_B))), index_B


def _centred(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """R - mean of the group, float64.

    In float32 the mean of equal rewards such as 0.1 can be off by one rounding, and dividing that rounding by a
    deviation of 0 + eps would give an advantage that is not near 0.
    """
    if not bool(reward_B.isfinite().all()):
        raise CorruptInputError(f"reward: not finite at {int((~reward_B.isfinite()).nonzero()[0])}")
    sums_K, sizes_K, index_B = by_group(reward_B.double(), group_B)
    if bool((sizes_K < 2).any()):
        row = int((sizes_K < 2)[index_B].nonzero()[0])
        raise CorruptInputError(f"group: {int(group_B[row])} holds one response: no group-relative advantage")
    return reward_B.double() - (sums_K / sizes_K)[index_B]


def _deviation(centred_B: Tensor, group_B: Tensor, correction: int) -> Tensor:
    """Standard deviation of each row's group, (B,)."""
    squares_K, sizes_K, index_B = by_group(centred_B**2, group_B)
    return (squares_K / (sizes_K - correction)).sqrt()[index_B]


@part()
def group_zscore(reward_B: Tensor, group_B: Tensor, *, std: str) -> Tensor:
    """A = (R - mean) / (std + eps) within the prompt's group (GRPO, arXiv 2402.03300, section 4.1.2; TEPO eq. 9)."""
    correction, eps = STD[std]
    centred_B = _centred(reward_B, group_B)
    return (centred_B / (_deviation(centred_B, group_B, correction) + eps)).to(reward_B.dtype)


# R13: what GPG multiplies the centred reward by, alpha / F_norm.


def _one(reward_B: Tensor, group_B: Tensor) -> float:
    return 1.0


def _inverse_std(reward_B: Tensor, group_B: Tensor) -> Tensor:
    """F_norm = std + 1e-6."""
    correction, eps = STD["unbiased"]
    return 1 / (_deviation(_centred(reward_B, group_B), group_B, correction) + eps)


def _informative(reward_B: Tensor, group_B: Tensor) -> float:
    """alpha = B / (B - M), M responses in groups of equal reward (2504.02546, in print)."""
    ids, index_B = group_B.unique(return_inverse=True)
    zeros_K = reward_B.new_zeros(len(ids))
    lowest_K = zeros_K.scatter_reduce(0, index_B, reward_B, "amin", include_self=False)
    highest_K = zeros_K.scatter_reduce(0, index_B, reward_B, "amax", include_self=False)
    # at least 1: with equal rewards everywhere the centred rewards are 0 and any finite scale will do
    return len(reward_B) / max(int((lowest_K < highest_K)[index_B].count_nonzero()), 1)


def _inverse_accuracy(reward_B: Tensor, group_B: Tensor) -> float:
    """alpha = B / responses with a reward, verl's rule."""
    # at least 1: without any reward the centred rewards are 0, and any finite scale will do
    return len(reward_B) / max(int(reward_B.count_nonzero()), 1)


SCALES: dict[str, Callable[[Tensor, Tensor], Tensor | float]] = {
    "one": _one,
    "std": _inverse_std,
    "informative": _informative,
    "inverse-accuracy": _inverse_accuracy,
}


@part()
def group_centred(reward_B: Tensor, group_B: Tensor, *, scale: str) -> Tensor:
    """A = alpha (R - mean) / F_norm (GPG, arXiv 2504.02546), alpha / F_norm by `SCALES[scale]`."""
    return (_centred(reward_B, group_B) * SCALES[scale](reward_B, group_B)).to(reward_B.dtype)


@part("entropy")
def entropy_bonus(batch: Batch, advantage_B1: Tensor, *, alpha: float, kappa: float) -> Tensor:
    """A'_t = A + min(alpha sg[H_t], |A|/kappa): never flips a sign for kappa > 1 (arXiv 2506.14758)."""
    assert batch.entropy is not None
    # detached: the bonus reweights tokens, it does not push the entropy itself
    bonus_BT = alpha * batch.valid(batch.entropy.detach())
    return advantage_B1 + bonus_BT.minimum(advantage_B1.abs() / kappa)
