"""Which tokens a term acts on: (B, T) bool, or a weight in [0, 1]; no gradient. The reducer applies the mask."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from methods.parts import Part, part, surrogates
from records.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor

    from methods.parts import Terms

# R6: in the first minibatch of a rollout dH is rounding noise
TOLERANCE = {"torch.float64": 0.0, "torch.float32": 1e-6}


@part()
def everywhere(t: Terms) -> Tensor:
    """Every token."""
    return t.batch.mask


# ---- entropy change, TEPO's mask ----


@part("entropy", "old_entropy")
def entropy_diff(t: Terms, *, tol: float | None) -> Tensor:
    """dH_t = H_t - H_t^old, full-vocabulary entropies at one state; |dH| <= tol counts as 0."""
    entropy, old_entropy = t.batch.entropy, t.batch.old_entropy
    assert entropy is not None
    assert old_entropy is not None
    if tol is None:
        if str(entropy.dtype) not in TOLERANCE:
            raise ConfigError(
                f"{t.batch.label}: dh-tol: no default for entropies in {entropy.dtype}; measure it and set it"
            )
        tol = TOLERANCE[str(entropy.dtype)]
    change = t.batch.valid(entropy.detach() - old_entropy)
    return change * (change.abs() > tol)


@part(scope="batch")
def cov_sign(t: Terms) -> Tensor:
    """-cov_t: the paper's C.5, Cov > 0 means dH < 0."""
    return -covariance(t)


@part("entropy")
def first_order(t: Terms) -> Tensor:
    """-A (log p + H): first-order change of the own state's entropy when the sampled token's logit moves along A."""
    assert t.batch.entropy is not None
    return -t.advantage * (t.logp_BT.detach() + t.batch.valid(t.batch.entropy.detach()))


@part()
def theorem(t: Terms) -> Tensor:
    """-A: what Theorem 3.1 says dH's sign is."""
    return -t.advantage.expand_as(t.batch.mask)


def delta_entropy(definition: str, tol: float | None) -> Part:
    """dH, (B, T), by one of the readings of R5."""
    if definition == "entropy_diff":
        return entropy_diff(tol=tol)
    return {"cov_sign": cov_sign, "first_order": first_order, "theorem": theorem}[definition]()


@part()
def sure_and_sharpening(t: Terms, *, dh: Part) -> Tensor:
    """A > 0 and dH < 0 (TEPO eq. 4)."""
    return (t.advantage > 0) & (dh(t) < 0)


@part()
def unsure_and_spreading(t: Terms, *, dh: Part) -> Tensor:
    """A < 0 and dH > 0 (TEPO Table 3, Panel E)."""
    return (t.advantage < 0) & (dh(t) > 0)


@part()
def either(t: Terms, *, dh: Part) -> Tensor:
    """A > 0 and dH < 0, or A < 0 and dH > 0: TEPO section 3.3.2's misalignment."""
    return t.advantage * dh(t) < 0


# ---- covariance of advantage and log-prob ----


def covariance(t: Terms) -> Tensor:
    """cov_t = (A_t - mean A)(log p_t - mean log p), means over the valid tokens at hand (arXiv 2505.22617, eq. 10)."""
    mask, tokens = t.batch.weight_BT, max(t.batch.tokens, 1)
    advantage, logp_BT = t.advantage, t.logp_BT.detach()
    return (advantage - (advantage * mask).sum() / tokens) * (logp_BT - logp_BT.sum() / tokens)


@part(scope="batch")
def top_covariance(t: Terms, *, fraction: float) -> Tensor:
    """The max(1, int(fraction N)) valid tokens of largest covariance (KL-Cov, eq. 13)."""
    count = min(max(1, int(fraction * t.batch.tokens)), t.batch.tokens)
    chosen = covariance(t).masked_fill(t.batch.padding_BT, float("-inf")).flatten().topk(count).indices
    return t.batch.mask.new_zeros(t.batch.mask.numel()).index_fill(0, chosen, True).view_as(t.batch.mask)


@part(scope="batch")
def random_in_band(t: Terms, *, fraction: float, lower: float, upper: float) -> Tensor:
    """At most max(1, int(fraction N)) tokens, drawn uniformly from those with lower < cov < upper that are not clipped.

    Clip-Cov, eq. 11-12. Draws from the loss's CPU generator, or torch's global one.
    """
    import torch

    cov = covariance(t)
    candidates = ((cov > lower) & (cov < upper) & t.batch.mask & ~surrogates.outside(t)).flatten().nonzero().squeeze(1)
    count = min(max(1, int(fraction * t.batch.tokens)), len(candidates))
    order = torch.randperm(len(candidates), generator=t.generator)[:count].to(candidates.device)
    return t.batch.mask.new_zeros(t.batch.mask.numel()).index_fill(0, candidates[order], True).view_as(t.batch.mask)


@part()
def all_but(t: Terms, *, of: Part) -> Tensor:
    """Every token except those of `of`."""
    return ~of(t)


# ---- STEER ----


@part("entropy", scope="batch")
def steer(t: Terms, *, least: float, map: str) -> Tensor:
    """Weight in [least, 1], falling with |Omega_t| = |A (1 - p)(log p + H)|, the entropy change a token causes.

    exp: least^u;  linear: 1 - (1 - least) u;  u = |Omega| / max(max |Omega|, 0.02). arXiv 2510.10150, with p ~ p_old.
    """
    assert t.batch.entropy is not None
    logp_BT = t.logp_BT.detach()
    omega = t.batch.valid(t.advantage * (1 - logp_BT.exp()) * (logp_BT + t.batch.entropy.detach())).abs()
    share = omega / omega.max().clamp(min=0.02)
    return (share * math.log(least)).exp() if map == "exp" else 1 - (1 - least) * share
