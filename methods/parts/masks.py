"""Masks of the tokens that a term acts on, (B, T): bool, or a weight. Masks carry no gradient.

Values at padding are arbitrary: the reducer leaves padding out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from core.errors import ConfigError
from methods.parts import ANCHORS, Part, objective, part

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

# R6, by the dtype of the entropies and the precision of the passes that computed them. In the first minibatch of a
# rollout dH is 0 except for rounding, about 1e-7 nats in float32, and its sign is noise.
# A bfloat16 pass is bit-identical in the same micro-batch, so 1e-6 is sufficient; in another micro-batch 5 % of the
# entropies differ by more, up to 3e-3 nats (a random model, on a CPU). Adapters therefore compute old and new entropies
# in the same micro-batches, and `diagnostics.check_unchanged` verifies this in every run. Entropies in half precision
# have no entry: their rounding is as large as the changes, so the tolerance must be set.
TOLERANCE = {("float64", "float64"): 0.0, ("float32", "float32"): 1e-6, ("float32", "bfloat16"): 1e-6}


@part()
def everywhere(t: Terms) -> Tensor:
    """Select every token."""
    return t.batch.mask


def tolerance(t: Terms, of: Tensor) -> float | None:
    """Return the default of dh-tol for the per-token values `of`, such as entropies; None: no default."""
    dtype = str(of.dtype).removeprefix("torch.")
    return TOLERANCE.get((dtype, t.batch.precision or dtype))


# ---- entropy change dH and TEPO's masks ----


def entropy_change(definition: str, *, tolerance: float | None = None) -> Part:
    """Return the part for dH, (B, T), by a definition of R5; `tolerance` (R6) in nats, None: by the entropies' dtype.

    Raises `ConfigError` for a tolerance with a definition that does not take a difference of entropies.
    """
    if definition in DIFFERENCES:
        return DIFFERENCES[definition](tol=tolerance)
    if tolerance is not None:
        raise ConfigError(f"dh-tol: has no meaning with dh-def={definition}, which subtracts nothing of the old policy")
    return SIGNS[definition]()


def _without_rounding(t: Terms, change_BT: Tensor, tol: float | None) -> Tensor:
    """Set changes of at most `tol` to 0; None: the default. Raise `ConfigError` if there is no default."""
    tol = tolerance(t, change_BT) if tol is None else tol
    if tol is None:
        raise ConfigError(
            f"{t.batch.label}: dh-tol: no default for entropies in {change_BT.dtype} of passes in "
            f"{t.batch.precision or change_BT.dtype}; measure it and set it"
        )
    return change_BT.hardshrink(tol)


@part("entropy", "old_entropy")
def entropy_diff(t: Terms, *, tol: float | None) -> Tensor:
    """Return dH_t = H_t - H_t^old, full-vocabulary entropies at one state; |dH| <= tol counts as 0."""
    entropy, old_entropy = t.batch.entropy, t.batch.old_entropy
    assert entropy is not None
    assert old_entropy is not None
    # detached: dH selects tokens and is not optimised (`Batch` rejects an old_entropy that carries gradient)
    # without `valid`: values at padding select nothing, and a comparison with NaN is False
    return _without_rounding(t, entropy.detach() - old_entropy, tol)


@part()
def surprise_diff(t: Terms, *, tol: float | None) -> Tensor:
    """Return -(log p_t - log p_t^old), the change of surprise, whose mean is the entropy; tol: see `entropy_diff`."""
    return _without_rounding(t, -t.log_ratio_BT.detach(), tol)


@part("entropy")
def along_positions(t: Terms) -> Tensor:
    """Return H_t - H_s, s the valid token before t in its response, both for the current policy; 0 at the first."""
    import torch

    assert t.batch.entropy is not None
    entropy_BT = t.batch.valid(t.batch.entropy.detach())
    # 1 + the column of the last valid token at or before each column, 0 for none: a mask may have holes
    column_T = torch.arange(1, entropy_BT.size(1) + 1, device=entropy_BT.device)
    last_BT = (t.batch.mask * column_T).cummax(1).values
    before_BT = last_BT.roll(1, 1)
    before_BT[:, 0] = 0
    change_BT = entropy_BT - entropy_BT.gather(1, (before_BT - 1).clamp(min=0))
    return change_BT.masked_fill(before_BT == 0, 0.0)


@part(scope="batch")
def cov_sign(t: Terms) -> Tensor:
    """Return -cov_t: the paper's C.5, Cov > 0 means dH < 0."""
    return -covariance(t)


@part("entropy")
def first_order(t: Terms) -> Tensor:
    """Return -A (log p + H): first-order change of the state's entropy if the sampled token's logit moves along A."""
    assert t.batch.entropy is not None
    return -t.advantage * (t.logp_BT.detach() + t.batch.valid(t.batch.entropy.detach()))


@part()
def theorem(t: Terms) -> Tensor:
    """Return -A: the sign of dH according to Theorem 3.1."""
    return -t.advantage.expand_as(t.batch.mask)


DIFFERENCES = {"entropy_diff": entropy_diff, "surprise_diff": surprise_diff}
SIGNS = {"cov_sign": cov_sign, "first_order": first_order, "theorem": theorem, "positions": along_positions}


@part()
def falling_entropy_on_positive(t: Terms, *, dh: Part) -> Tensor:
    """Select tokens with A > 0 and dH < 0 (TEPO eq. 4)."""
    # one comparison with 0 where A > 0 and with -inf elsewhere: on (B, T), a conjunction would be a second pass
    return dh(t) < t.advantage.new_full(t.advantage.shape, -math.inf).masked_fill(t.advantage > 0, 0.0)


@part()
def rising_entropy_on_negative(t: Terms, *, dh: Part) -> Tensor:
    """Select tokens with A < 0 and dH > 0 (TEPO Table 3, Panel E)."""
    return (t.advantage < 0) & (dh(t) > 0)


@part()
def misaligned(t: Terms, *, dh: Part) -> Tensor:
    """Select tokens with A > 0 and dH < 0, or A < 0 and dH > 0: the misalignment of TEPO section 3.3.2."""
    return t.advantage * dh(t) < 0  # opposite signs; 0 on either side is not a misalignment


# ---- covariance of advantage and log-prob ----


def covariance(t: Terms) -> Tensor:
    """Return cov_t = (A_t - mean A)(log p_t - mean log p), means over valid tokens (arXiv 2505.22617, eq. 10)."""
    # log pi is detached, as in the original's code: the covariance selects tokens and is not optimised
    mask, tokens = t.batch.weight_BT, max(t.batch.tokens, 1)
    advantage, logp_BT = t.advantage, t.logp_BT.detach()
    return (advantage - (advantage * mask).sum() / tokens) * (logp_BT - logp_BT.sum() / tokens)


@part(scope="batch")
def top_covariance(t: Terms, *, fraction: float) -> Tensor:
    """Select the max(1, int(fraction N)) valid tokens of largest covariance (KL-Cov, eq. 13)."""
    count = _count(t, fraction, t.batch.tokens)
    return _only(t, covariance(t).masked_fill(t.batch.padding_BT, -math.inf).flatten().topk(count).indices)


def _count(t: Terms, fraction: float, most: int) -> int:
    """Return max(1, int(fraction N)), as in the original's code, but no more than `most`."""
    return min(max(1, int(fraction * t.batch.tokens)), most)


def _only(t: Terms, chosen: Tensor) -> Tensor:
    """Select the tokens with these indices in the flattened batch."""
    return t.batch.mask.new_zeros(t.batch.mask.numel()).index_fill(0, chosen, True).view_as(t.batch.mask)


@part(scope="batch")
def random_in_band(t: Terms, *, fraction: float, lower: float, upper: float) -> Tensor:
    """Draw at most max(1, int(fraction N)) tokens uniformly from the unclipped ones with lower < cov < upper.

    Clip-Cov, eq. 11-12. Uses the loss's CPU generator, or torch's global one.
    """
    import torch

    cov = covariance(t)
    candidates = ((cov > lower) & (cov < upper) & t.batch.mask & ~objective.outside(t)).flatten().nonzero().squeeze(1)
    # drawn on the CPU, so that every device gets the same tokens
    order = torch.randperm(len(candidates), generator=t.generator)[: _count(t, fraction, len(candidates))]
    return _only(t, candidates[order.to(candidates.device)])


@part()
def all_but(t: Terms, *, of: Part) -> Tensor:
    """Select every token except those of `of`."""
    return ~of(t)


# ---- DPPO ----


def _anchor(anchor: str, **_: object) -> str | None:
    """Return the field of the policy at the centre of DPPO's trust region (R36); None for the old one (required)."""
    return None if anchor == "old" else ANCHORS[anchor]


@part(also=_anchor)
def within_tv(t: Terms, *, low: float, high: float, anchor: str = "old") -> Tensor:
    """Select p - p_anchor <= high where A > 0, >= -low elsewhere: binary total variation (DPPO, 2602.04879)."""
    change_BT = t.logp_BT.detach().exp() - t.anchor_logp(anchor).exp()
    return (change_BT <= high).where(t.advantage > 0, change_BT >= -low)


@part(also=_anchor)
def within_kl(t: Terms, *, low: float, high: float, anchor: str = "old") -> Tensor:
    """Select tokens by KL(p_anchor || p), sampled token against all others: at most `high` where A > 0, else `low`.

    A token that moved against its advantage is kept at any distance (DPPO, arXiv 2602.04879).
    """
    logp_BT, anchor_BT = t.logp_BT.detach(), t.anchor_logp(anchor)
    p_BT, p_anchor_BT = logp_BT.exp(), anchor_BT.exp()
    # 1e-8 as in verl: a probability that rounds to 1 would give the logarithm of 0
    others_BT = (1 - p_anchor_BT) * ((1 - p_anchor_BT + 1e-8) / (1 - p_BT + 1e-8)).log()
    kl_BT = p_anchor_BT * (anchor_BT - logp_BT) + others_BT
    raised = (kl_BT <= high) | (p_BT <= p_anchor_BT)
    lowered = (kl_BT <= low) | (p_BT >= p_anchor_BT)
    return raised.where(t.advantage > 0, lowered)


# ---- entropy ----


@part("entropy", scope="batch")
def top_entropy(t: Terms, *, share: float) -> Tensor:
    """Select valid tokens whose entropy is at or above the (1 - share) quantile (80/20 rule, arXiv 2506.01939)."""
    assert t.batch.entropy is not None
    if t.batch.tokens == 0:
        return t.batch.mask
    entropy_BT = t.batch.entropy.detach()
    # An interpolated quantile lies between two tokens' entropies and would select the tokens from the upper one on, so
    # interpolation is unnecessary. Rounded, because (1 - 0.2) * 10 may evaluate to more than 8.
    rank = math.ceil(round((1 - share) * (t.batch.tokens - 1), 6))
    least = entropy_BT[t.batch.mask].kthvalue(rank + 1).values
    # padding, which may contain anything, including NaN, is never selected
    return (entropy_BT >= least) & t.batch.mask


@part("entropy", scope="batch")
def short_of_entropy(t: Terms, *, target: float) -> Tensor:
    """Return target - mean H over the valid tokens, in nats, for every token: positive if entropy is too low."""
    assert t.batch.entropy is not None
    # detached: with the gradient of the mean, the term's gradient would be twice that of the square
    mean = t.batch.valid(t.batch.entropy.detach()).sum() / max(t.batch.tokens, 1)
    return (target - mean).expand_as(t.batch.mask)


# ---- STEER ----


@part("entropy", scope="batch")
def steer(t: Terms, *, least: float, map: str, omega: str = "first-order") -> Tensor:
    """Return a weight that falls with |Omega_t| = |A (1 - p)(log p + H)|, a token's entropy change (2510.10150).

    exp: least^u, linear: 1 - (1 - least) u, both in [least, 1] with u = |Omega| / max(max |Omega|, 0.02);
    min-max: 2 - least at the smallest |Omega| of a valid token, least at the largest, linear between (R19).
    omega: first-order, or `ratio`, times r = p / p_old as in the original's code.
    """
    assert t.batch.entropy is not None
    logp_BT = t.logp_BT.detach()
    omega_BT = t.batch.valid(t.advantage * (1 - logp_BT.exp()) * (logp_BT + t.batch.entropy.detach())).abs()
    if omega == "ratio":
        omega_BT = omega_BT * t.log_ratio_BT.detach().exp()
    if map == "min-max":
        low, high = omega_BT.masked_fill(t.batch.padding_BT, math.inf).min(), omega_BT.max()
        # clamped for padding, which may be lower; NaN (all equal) becomes the middle, as in the original's code
        share = ((omega_BT - low) / (high - low)).clamp(0, 1).nan_to_num(0.5)
        return 2 - least - 2 * (1 - least) * share
    # 0.02 is the original's floor: without it the largest of many tiny changes would get weight `least`
    share = omega_BT / omega_BT.max().clamp(min=0.02)
    return (share * math.log(least)).exp() if map == "exp" else 1 - (1 - least) * share
