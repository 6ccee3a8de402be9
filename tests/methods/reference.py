"""Every catalog method as a plain Python function of a plain Python batch, with the settings its source prints.

Slow and obvious on purpose. Nothing here is taken from `methods/`: a default that is wrong there fails here.
**A new catalog method needs one row in `LOSSES`**: its loss from `equations.py`'s parts, its printed settings, its
advantage. "The paper" is TEPO's; the others are named by arXiv number at their function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tests.methods.equations import (
    Case,
    Value,
    advantage_of,
    clip,
    covariance,
    divergence,
    eq4_literal,
    everywhere,
    log_likelihood,
    masked,
    own_token,
    own_token_share,
    plain,
    ppo,
    prefix_ratio,
    sequence_mean_token_mean,
    sequence_mean_token_sum,
    sequence_ratio,
    token_mean,
    token_ratio,
    weighted_log_likelihood,
)


def two_sided(c: Case) -> tuple[float, float]:
    return c.params["low"], c.params["high"]


def token_clipped(
    c: Case, advantage: Value = advantage_of, reduce: Callable[[Case, Value], float] = token_mean
) -> float:
    """GRPO with DAPO's clip-higher (2503.14476 eq. 8); the reducer is the caller's."""
    return -reduce(c, ppo(token_ratio, *two_sided(c), advantage, c.params.get("dual-clip")))


def grpo_2024(c: Case) -> float:
    """2402.03300 eq. 3: mean over sequences of the mean over tokens, beta k3 to the reference inside."""
    x = ppo(token_ratio, *two_sided(c))
    anchored = replace(c, readings={**c.readings, "kl-anchor": "ref"})
    return -sequence_mean_token_mean(c, lambda _, i, t: x(c, i, t) - c.params["beta"] * divergence(anchored, i, t))


def clip_cov(c: Case) -> float:
    """2505.22617 eq. 10-12: max(int(r N), 1) tokens lose their term.

    They are drawn among those with 1 < cov < 5 that PPO does not clip already.
    """
    low, high = two_sided(c)

    def clipped(i: int, t: int) -> bool:
        r, a = token_ratio(c, i, t), c.now.advantage[i]
        return clip(r, 1 - low, 1 + high) * a < r * a

    cov = {(i, t): covariance(c, i, t) for i, t in c.every()}
    inside = [at for at in c.every() if c.params["lower"] < cov[at] < c.params["upper"] and not clipped(*at)]
    quota = max(int(c.params["fraction"] * c.count), 1)
    dropped = {inside[j] for j in list(c.permute(len(inside)))[:quota]}
    x = ppo(token_ratio, low, high)
    return -token_mean(c, lambda c, i, t: 0.0 if (i, t) in dropped else x(c, i, t))


def kl_cov(c: Case) -> float:
    """2505.22617 eq. 13-14 and its code: -r A, plus beta |d| on the max(1, int(k N)) tokens of largest covariance."""
    ranked = sorted(c.every(), key=lambda at: covariance(c, *at), reverse=True)
    chosen = set(ranked[: max(1, int(c.params["fraction"] * c.count))])
    absolute = replace(c, readings={"kl-estimator": "abs"})
    ratio_clip = c.readings.get("cov-clip", "official")
    x = plain(token_ratio) if ratio_clip == "official" else ppo(token_ratio, *two_sided(c))
    beta = c.params["beta"]
    return -token_mean(c, lambda _, i, t: x(c, i, t) - (beta * divergence(absolute, i, t) if (i, t) in chosen else 0.0))


def entropy_adv(c: Case) -> float:
    """2506.14758: A' = A + min(alpha sg[H], |A| / kappa) at every token, in GRPO's loss."""

    def shaped(c: Case, i: int, t: int) -> float:
        a = c.now.advantage[i]
        return a + min(c.params["alpha"] * c.held.entropy[i][t], abs(a) / c.params["kappa"])

    return token_clipped(c, shaped)


def gpg(c: Case) -> float:
    """2504.02546: A log pi, no ratio."""
    return -token_mean(c, log_likelihood)


def gspo(c: Case) -> float:
    """2507.18071 eq. 5: mean over sequences of min(s_i A, clip(s_i) A)."""
    return -sequence_mean_token_mean(c, ppo(sequence_ratio, *two_sided(c)))


def cispo(c: Case) -> float:
    """2506.13585 eq. 4-5."""
    return -token_mean(c, weighted_log_likelihood(token_ratio, *two_sided(c)))


def prefix_is(c: Case) -> float:
    """Table 5's prefix weight in the paper's clipped token-mean objective; reading prefix-grad."""
    grad = c.readings.get("prefix-grad", "through")
    if grad == "stop":
        return -token_mean(c, weighted_log_likelihood(prefix_ratio, *two_sided(c)))
    ratio = {"through": prefix_ratio, "own_token": own_token(prefix_ratio)}[grad]
    return -token_mean(c, ppo(ratio, *two_sided(c)))


def tepo_surrogate(c: Case) -> Value:
    """Eq. 4 without its penalty; readings clip-form (R1) and gradient (R2)."""
    line21 = c.readings.get("gradient", "autograd") == "alg1_line21"
    ratio = own_token_share(sequence_ratio) if line21 else sequence_ratio
    form = c.readings.get("clip-form", "ppo")
    if form == "none":
        return plain(ratio)
    return {"ppo": ppo, "eq4": eq4_literal}[form](ratio, *two_sided(c))


def tepo_nokl(c: Case) -> float:
    return -token_mean(c, tepo_surrogate(c))


def tepo_with_kl(where: Value) -> Callable[[Case], float]:
    """Eq. 4: 1/N sum (surrogate - beta KL M); reading mask-norm divides the penalty by sum M instead."""

    def loss(c: Case) -> float:
        x, beta = tepo_surrogate(c), c.params["beta"]

        def penalty(c: Case, i: int, t: int) -> float:
            return beta * divergence(c, i, t) * where(c, i, t)

        if c.readings.get("mask-norm", "tokens") == "tokens":
            return -token_mean(c, lambda c, i, t: x(c, i, t) - penalty(c, i, t))
        selected = sum(where(c, i, t) for i, t in c.every())
        total = sum(penalty(c, i, t) for i, t in c.every())
        return -token_mean(c, x) + (total / selected if selected else 0.0)

    return loss


def tepo_entropy(sign: int) -> Callable[[Case], float]:
    """Panel B: the entropy's token-mean, raised (sign 1) or lowered (-1), gradient on."""

    def loss(c: Case) -> float:
        x, coefficient = tepo_surrogate(c), sign * c.params["coefficient"]
        return -token_mean(c, lambda c, i, t: x(c, i, t) + coefficient * c.now.entropy[i][t])

    return loss


def tepo_steer(c: Case) -> float:
    """2510.10150: the clipped term times sg[lambda_t], which falls from 1 to lambda_min in |A (1 - p)(log p + H)|."""
    ratio = token_ratio if c.readings.get("steer-ratio", "sequence") == "token" else sequence_ratio
    x = ppo(ratio, *two_sided(c))
    least = c.params["lambda-min"]

    def omega(c: Case, i: int, t: int) -> float:
        p = math.exp(c.held.logp[i][t])
        return abs(c.now.advantage[i] * (1 - p) * (c.held.logp[i][t] + c.held.entropy[i][t]))

    top = max(0.02, max(omega(c, i, t) for i, t in c.every()))

    def weight(c: Case, i: int, t: int) -> float:
        if c.readings.get("steer-map", "exp") == "linear":
            return 1 - (1 - least) * omega(c, i, t) / top
        return clip(math.exp(math.log(least) / top * omega(c, i, t)), least, 1.0)

    return -token_mean(c, lambda c, i, t: weight(c, i, t) * x(c, i, t))


def tepo_seqsum(c: Case) -> float:
    return -sequence_mean_token_sum(c, tepo_surrogate(c))


# ---- advantages ----


def z_scored(reward: Sequence[float], group: Sequence[int], kind: str = "unbiased + 1e-6") -> list[float]:
    """(R - mean of the group) / (std of the group + eps); n - 1 in the std unless `biased`."""
    out = []
    for r, g in zip(reward, group, strict=True):
        peers = [x for x, h in zip(reward, group, strict=True) if h == g]
        mean = sum(peers) / len(peers)
        degrees = len(peers) - (0 if kind.startswith("biased") else 1)
        std = math.sqrt(sum((x - mean) ** 2 for x in peers) / degrees)
        out.append((r - mean) / (std + (1e-4 if kind.endswith("1e-4") else 1e-6)))
    return out


def centred(reward: Sequence[float], group: Sequence[int]) -> list[float]:
    """R - mean of the group."""
    means = {g: [r for r, h in zip(reward, group, strict=True) if h == g] for g in set(group)}
    return [r - sum(means[g]) / len(means[g]) for r, g in zip(reward, group, strict=True)]


@dataclass(frozen=True)
class Row:
    """One catalog method: its loss, its printed settings, and how its advantage is made."""

    loss: Callable[[Case], float]
    params: Mapping[str, float] = field(default_factory=dict)
    advantage: Callable[[Sequence[float], Sequence[int]], list[float]] = z_scored


HIGHER = {"low": 0.2, "high": 0.28}
INFINITE = math.inf

LOSSES: dict[str, Row] = {
    "grpo": Row(token_clipped, HIGHER),
    "grpo_2024": Row(grpo_2024, {"low": 0.2, "high": 0.2, "beta": 0.04}),
    "clip_cov": Row(clip_cov, {"low": 1.0, "high": 1.0, "fraction": 2e-4, "lower": 1.0, "upper": 5.0}),
    "kl_cov": Row(kl_cov, {"fraction": 2e-3, "beta": 1.0}),
    "entropy_adv": Row(entropy_adv, {**HIGHER, "alpha": 0.4, "kappa": 2.0}),
    "entropy_adv_printed": Row(entropy_adv, {**HIGHER, "alpha": 4e-4, "kappa": 2.0}),
    "gpg": Row(gpg, advantage=centred),
    "gspo": Row(gspo, HIGHER),
    "cispo": Row(cispo, {"low": INFINITE, "high": 0.28}),
    "prefix_is": Row(prefix_is, HIGHER),
    "tepo_nokl": Row(tepo_nokl, HIGHER),
    "tepo": Row(tepo_with_kl(masked("positive")), {**HIGHER, "beta": 0.001}),
    "tepo_kl_all": Row(tepo_with_kl(everywhere), {**HIGHER, "beta": 0.001}),
    "tepo_kl_neg": Row(tepo_with_kl(masked("negative")), {**HIGHER, "beta": 0.001}),
    "tepo_kl_both": Row(tepo_with_kl(masked("both")), {**HIGHER, "beta": 0.001}),
    "tepo_maxent": Row(tepo_entropy(+1), {**HIGHER, "coefficient": 1e-3}),
    "tepo_minent": Row(tepo_entropy(-1), {**HIGHER, "coefficient": 1e-3}),
    "tepo_steer": Row(tepo_steer, {**HIGHER, "lambda-min": 0.8}),
    "tepo_seqsum": Row(tepo_seqsum, HIGHER),
}
