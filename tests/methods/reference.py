"""Every catalog method as a plain Python function of a plain Python batch, with the settings its source prints.

Slow and obvious on purpose. Nothing here is taken from `methods/`: a default that is wrong there fails here.
**A new catalog method needs one row in `LOSSES`**: its loss from `equations.py`'s parts, its printed settings, its
advantage. "The paper" is TEPO's; the others are named by arXiv number at their function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.methods.batches import MAX_TOKENS
from tests.methods.equations import (
    Case,
    Value,
    advantage_of,
    binary_divergence,
    clip,
    corrected,
    correction,
    covariance,
    divergence,
    eq4_literal,
    everywhere,
    gamma_weight,
    geometric_mean_of_clipped,
    log_likelihood,
    masked,
    mean_over_tokens,
    own_token,
    own_token_share,
    penalty_weight,
    ppo,
    prefix_ratio,
    product_ratio,
    sequence_mean_token_mean,
    sequence_mean_token_sum,
    sequence_ratio,
    soft_gated,
    token_mean,
    token_ratio,
    top_entropy,
    weighted_log_likelihood,
)  # fmt: skip

Reducer = Callable[[Case, Value], float]
Settings = Mapping[str, Any]
Advantage = Callable[[Sequence[float], Sequence[int], Sequence[int], Settings], list[float]]


def clipped(c: Case, ratio: Value, advantage: Value = advantage_of) -> Value:
    """The surrogate of a ratio method; readings clip-form (R1), dual-clip (R21), and the bounds."""
    low, high = bounds(c)
    form = c.settings.get("clip-form", "ppo")
    if form == "none":
        return lambda c, i, t: ratio(c, i, t) * advantage(c, i, t)
    if form == "eq4":
        return eq4_literal(ratio, low, high)
    return ppo(ratio, low, high, advantage, c.settings.get("dual-clip"))


def bounds(c: Case) -> tuple[float, float]:
    """Widths below and above 1; None = no bound on that side."""
    low, high = c.settings["low"], c.settings["high"]
    return math.inf if low is None else low, math.inf if high is None else high


def base_ratio(c: Case, default: str) -> Value:
    """Token or sequence ratio (reading panel-b-base), and line 21's gradient (R2)."""
    ratio = {"token": token_ratio, "sequence": sequence_ratio}[c.settings.get("ratio", default)]
    return own_token_share(ratio) if c.settings.get("gradient") == "alg1_line21" else ratio


def penalised(c: Case, x: Value, where: Value, reduce: Reducer = token_mean) -> float:
    """-(reduced x - beta KL M); reading mask-norm (R7) divides the penalty by sum M, not by the reducer's count.

    A micro-batch of a larger minibatch then weighs with its share of the tokens.
    """
    beta = c.settings["beta"]

    def penalty(_: Case, i: int, t: int) -> float:
        return beta * divergence(c, i, t) * where(c, i, t) * penalty_weight(c, i, t)

    if c.settings.get("mask-norm", "tokens") == "tokens":
        return -reduce(c, lambda _, i, t: correction(c, i, t) * x(c, i, t) - penalty(c, i, t))
    selected = sum(where(c, i, t) for i, t in c.every())
    share = c.count / (c.tokens or c.count)
    return -reduce(c, corrected(x)) + (
        share * sum(penalty(c, i, t) for i, t in c.every()) / selected if selected else 0.0
    )


def grpo(c: Case) -> float:
    """GRPO with DAPO's clip-higher and token-mean (2503.14476 eq. 8)."""
    return -token_mean(c, corrected(clipped(c, base_ratio(c, "token"))))


def grpo_2024(c: Case) -> float:
    """2402.03300 eq. 3: mean over sequences of the mean over tokens, beta k3 to the reference inside."""
    return penalised(c, clipped(c, token_ratio), everywhere, sequence_mean_token_mean)


def clip_cov(c: Case) -> float:
    """2505.22617 eq. 10-12: max(int(r N), 1) tokens lose their term.

    They are drawn among those with 1 < cov < 5 that PPO does not clip already.
    """
    ratio = base_ratio(c, "token")
    x = clipped(c, ratio)

    def already(i: int, t: int) -> bool:
        return x(c, i, t) != ratio(c, i, t) * c.now.advantage[i]

    cov = {(i, t): covariance(c, i, t) for i, t in c.every()}
    inside = [at for at in c.every() if c.settings["lower"] < cov[at] < c.settings["upper"] and not already(*at)]
    quota = max(int(c.settings["fraction"] * c.count), 1)
    dropped = {inside[j] for j in list(c.permute(len(inside)))[:quota]}
    return -token_mean(c, corrected(lambda c, i, t: 0.0 if (i, t) in dropped else x(c, i, t)))


def kl_cov(c: Case) -> float:
    """2505.22617 eq. 13-14 and its code: -r A, plus beta |d| on the max(1, int(k N)) tokens of largest covariance."""
    ranked = sorted(c.every(), key=lambda at: covariance(c, *at), reverse=True)
    chosen = set(ranked[: max(1, int(c.settings["fraction"] * c.count))])
    return penalised(c, clipped(c, base_ratio(c, "token")), lambda _, i, t: float((i, t) in chosen))


def entropy_adv(c: Case) -> float:
    """2506.14758: A' = A + min(alpha sg[H], |A| / kappa) at every token, in GRPO's loss."""

    def shaped(c: Case, i: int, t: int) -> float:
        a = c.now.advantage[i]
        entropy = c.now.old_entropy if c.settings.get("entropy-of") == "old" else c.held.entropy
        return a + min(c.settings["alpha"] * entropy[i][t], abs(a) / c.settings["kappa"])

    return -token_mean(c, corrected(clipped(c, base_ratio(c, "token"), shaped)))


def gpg(c: Case) -> float:
    """2504.02546: A log pi, no ratio."""
    return -token_mean(c, corrected(log_likelihood))


def gspo(c: Case) -> float:
    """2507.18071 eq. 5: mean over sequences of min(s_i A, clip(s_i) A)."""
    return -sequence_mean_token_mean(c, corrected(clipped(c, base_ratio(c, "sequence"))))


def cispo(c: Case) -> float:
    """2506.13585 eq. 4-5."""
    return -token_mean(c, corrected(weighted_log_likelihood(token_ratio, *bounds(c))))


def prefix_is(c: Case) -> float:
    """Table 5's prefix weight in the paper's clipped token-mean objective; reading prefix-grad (R8)."""
    grad = c.settings.get("prefix-grad", "through")
    if grad == "stop":
        return -token_mean(c, corrected(weighted_log_likelihood(prefix_ratio, *bounds(c))))
    return -token_mean(c, corrected(clipped(c, {"through": prefix_ratio, "own_token": own_token(prefix_ratio)}[grad])))


def tepo_nokl(c: Case) -> float:
    """Eq. 4 without its penalty."""
    return -token_mean(c, corrected(clipped(c, base_ratio(c, "sequence"))))


def tepo_with_kl(where: Value) -> Callable[[Case], float]:
    """Eq. 4: 1/N sum (surrogate - beta KL M)."""
    return lambda c: penalised(c, clipped(c, base_ratio(c, "sequence")), where)


def tepo_entropy(sign: int) -> Callable[[Case], float]:
    """Panel B: the entropy's token-mean, raised (sign 1) or lowered (-1), gradient on."""

    def loss(c: Case) -> float:
        x, coefficient = clipped(c, base_ratio(c, "sequence")), sign * c.settings["coefficient"]
        return -token_mean(
            c,
            lambda c, i, t: (
                correction(c, i, t) * x(c, i, t) + coefficient * c.now.entropy[i][t] * penalty_weight(c, i, t)
            ),
        )

    return loss


def tepo_held(c: Case) -> float:
    """TEPO without KL, plus 1/N sum c sg[h - mean H] H_t: the gradient is that of -(c/2) (mean H - h)^2."""
    short = c.settings["target"] - mean_over_tokens(c, lambda c, i, t: c.held.entropy[i][t])
    held = token_mean(c, lambda c, i, t: short * c.now.entropy[i][t] * penalty_weight(c, i, t))
    return tepo_nokl(c) - c.settings["hold"] * held


def tepo_steer(c: Case) -> float:
    """2510.10150: the clipped term times sg[lambda_t], which falls from 1 to lambda_min in |A (1 - p)(log p + H)|."""
    x = clipped(c, base_ratio(c, "sequence"))
    least = c.settings["lambda-min"]

    def omega(c: Case, i: int, t: int) -> float:
        p = math.exp(c.held.logp[i][t])
        ratio = p / math.exp(c.now.old[i][t]) if c.settings.get("omega") == "ratio" else 1.0
        return abs(c.now.advantage[i] * ratio * (1 - p) * (c.held.logp[i][t] + c.held.entropy[i][t]))

    every = [omega(c, i, t) for i, t in c.every()]
    top = max(0.02, *every)

    def weight(c: Case, i: int, t: int) -> float:
        kind = c.settings.get("map", "exp")
        if kind == "min-max":
            width = max(every) - min(every)
            most = 2 - least
            return most - (most - least) * (omega(c, i, t) - min(every)) / width if width else 1.0
        if kind == "linear":
            return 1 - (1 - least) * omega(c, i, t) / top
        return clip(math.exp(math.log(least) / top * omega(c, i, t)), least, 1.0)

    return -token_mean(c, corrected(lambda c, i, t: weight(c, i, t) * x(c, i, t)))


def tepo_seqsum(c: Case) -> float:
    """Panel D: mean over sequences of the sum over tokens."""
    return -sequence_mean_token_sum(c, corrected(clipped(c, base_ratio(c, "sequence"))))


def sapo(c: Case) -> float:
    """2511.20347 eq. 5-6."""
    return -sequence_mean_token_mean(c, corrected(soft_gated(c.settings["tau-pos"], c.settings["tau-neg"])))


def gmpo(c: Case) -> float:
    """2507.20673 and its code: one term per sequence."""
    return -sequence_mean_token_mean(c, corrected(geometric_mean_of_clipped(c.settings["low"], c.settings["high"])))


def dppo(kind: str) -> Callable[[Case], float]:
    """2602.04879, section 5.4: sg[min(r, cap)] A log pi on the tokens inside the trust region."""

    def loss(c: Case) -> float:
        if c.settings.get("dppo-anchor") == "sampler":
            c = replace(c, **{b: replace(x, old=x.sampler) for b, x in (("now", c.now), ("held", c.held))})
        near = binary_divergence(kind, c.settings["low"], c.settings["high"])
        cap = math.inf if c.settings["cap"] is None else c.settings["cap"]
        x = weighted_log_likelihood(token_ratio, math.inf, cap - 1)
        return -token_mean(c, corrected(lambda c, i, t: near(c, i, t) * x(c, i, t)))

    return loss


def vespo(c: Case) -> float:
    """2602.10693: sg[phi(w)] A log pi."""
    weight = gamma_weight(c.settings)
    return -token_mean(c, corrected(lambda c, i, t: weight(c, i, t) * log_likelihood(c, i, t)))


def dro(c: Case) -> float:
    """2405.19107 as verl states it: A log pi - beta / 2 (log r)^2."""
    return penalised(c, log_likelihood, everywhere)


def dr_grpo(c: Case) -> float:
    """2503.20783: sum over tokens, divided by a constant, mean over sequences."""
    return -sequence_mean_token_sum(c, corrected(clipped(c, token_ratio))) / MAX_TOKENS


def rloo_sequence(c: Case) -> float:
    """2402.14740 with TRL's clip: one term per response."""
    x, rows = clipped(c, product_ratio), range(len(c.now.logp))
    weight = [sum(correction(c, i, t) for t in range(len(c.now.logp[i]))) / len(c.now.logp[i]) for i in rows]
    return -sum(weight[i] * x(c, i, 0) for i in rows) / (c.sequences or len(rows))


def top_entropy_tokens(c: Case) -> float:
    """2506.01939: the other tokens' terms are 0, and count in the divisor."""
    x, chosen = clipped(c, token_ratio), top_entropy(c.settings["share"])
    return -token_mean(c, corrected(lambda c, i, t: chosen(c, i, t) * x(c, i, t)))


# ---- advantages ----

Numbers = Sequence[float]


def groups(reward: Sequence[float], group: Sequence[int]) -> list[list[float]]:
    """For each response the rewards of its prompt's responses."""
    return [[r for r, h in zip(reward, group, strict=True) if h == g] for g in group]


def deviation(rewards: Sequence[float], degrees: int = 1) -> float:
    mean = sum(rewards) / len(rewards)
    return math.sqrt(sum((r - mean) ** 2 for r in rewards) / (len(rewards) - degrees))


def z_scored(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
    """(R - mean of the group) / (std of the group + eps); reading adv-std (R11)."""
    kind = settings.get("adv-std", "unbiased")
    degrees, eps = 0 if kind == "biased" else 1, 1e-4 if kind == "unbiased-1e-4" else 1e-6
    peers = groups(reward, group)
    return [(r - sum(p) / len(p)) / (deviation(p, degrees) + eps) for r, p in zip(reward, peers, strict=True)]


def centred(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
    """alpha (R - mean of the group) / F_norm (2504.02546 eq. 5); readings gpg-scale (R13), reward (R28)."""
    if settings.get("reward") == "signed":
        reward = [2 * r - 1 for r in reward]
    kind = settings.get("gpg-scale", "one")
    peers = groups(reward, group)
    centre = [r - sum(p) / len(p) for r, p in zip(reward, peers, strict=True)]
    if kind == "std":
        return [x / (deviation(p) + 1e-6) for x, p in zip(centre, peers, strict=True)]
    counted = {
        "one": len(reward),
        "informative": sum(len(set(p)) > 1 for p in peers),
        "inverse-accuracy": sum(r != 0 for r in reward),
    }[kind]
    return [x * len(reward) / max(counted, 1) for x in centre]


def leave_one_out(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
    """R minus the mean of the prompt's other responses (2402.14740)."""
    every = list(zip(reward, group, strict=True))
    others = [[r for j, (r, h) in enumerate(every) if h == g and j != i] for i, (_, g) in enumerate(every)]
    return [r - sum(o) / len(o) for r, o in zip(reward, others, strict=True)]


def mean_scaled(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
    """(R - mean) / mean where the mean is positive (2602.02710)."""
    means = [sum(p) / len(p) for p in groups(reward, group)]
    return [(r - m) / m if m > 0 else r - m for r, m in zip(reward, means, strict=True)]


def by_length(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
    """R minus the mean over the prompt's tokens, each with its response's reward (2505.23585)."""
    tokens = [[r for r, h, n in zip(reward, group, lengths, strict=True) if h == g for _ in range(n)] for g in group]
    return [r - sum(t) / len(t) for r, t in zip(reward, tokens, strict=True)]


def whitened(baseline: bool) -> Advantage:
    """(b - mean) / sqrt(var + 1e-8) over every token of the batch, each with its response's b (2501.03262).

    Reading whiten-std (R37): the variance divides by tokens - 1 or by tokens.
    """

    def advantage(reward: Numbers, group: Sequence[int], lengths: Sequence[int], settings: Settings) -> list[float]:
        b = [r - sum(p) / len(p) if baseline else r for r, p in zip(reward, groups(reward, group), strict=True)]
        tokens = [x for x, n in zip(b, lengths, strict=True) for _ in range(n)]
        mean = sum(tokens) / len(tokens)
        degrees = 0 if settings.get("whiten-std") == "biased" else 1
        variance = sum((x - mean) ** 2 for x in tokens) / (len(tokens) - degrees)
        return [(x - mean) / math.sqrt(variance + 1e-8) for x in b]

    return advantage


@dataclass(frozen=True)
class Row:
    """One catalog method: loss, printed settings, how its advantage is made."""

    loss: Callable[[Case], float]
    settings: Settings = field(default_factory=dict)
    advantage: Advantage = z_scored


HIGHER: Settings = {"low": 0.2, "high": 0.28}
EVEN: Settings = {"low": 0.2, "high": 0.2}

LOSSES: dict[str, Row] = {
    "grpo": Row(grpo, HIGHER),
    "grpo_2024": Row(grpo_2024, {**EVEN, "beta": 0.04, "kl-anchor": "ref"}),
    "clip_cov": Row(clip_cov, {"low": 1.0, "high": 1.0, "fraction": 2e-4, "lower": 1.0, "upper": 5.0}),
    "kl_cov": Row(kl_cov, {"low": None, "high": None, "fraction": 2e-3, "beta": 1.0, "kl-estimator": "abs"}),
    "entropy_adv": Row(entropy_adv, {**HIGHER, "alpha": 0.4, "kappa": 2.0}),
    "gpg": Row(gpg, advantage=centred),
    "gspo": Row(gspo, HIGHER),
    "cispo": Row(cispo, {"low": None, "high": 0.28}),
    "prefix_is": Row(prefix_is, HIGHER),
    "tepo_nokl": Row(tepo_nokl, HIGHER),
    "tepo": Row(tepo_with_kl(masked("positive")), {**HIGHER, "beta": 0.001}),
    "tepo_kl_all": Row(tepo_with_kl(everywhere), {**HIGHER, "beta": 0.001}),
    "tepo_kl_neg": Row(tepo_with_kl(masked("negative")), {**HIGHER, "beta": 0.001}),
    "tepo_kl_both": Row(tepo_with_kl(masked("both")), {**HIGHER, "beta": 0.001}),
    "tepo_maxent": Row(tepo_entropy(+1), {**HIGHER, "coefficient": 1e-3}),
    "tepo_minent": Row(tepo_entropy(-1), {**HIGHER, "coefficient": 1e-3}),
    "tepo_held": Row(tepo_held, {**HIGHER, "target": 0.2, "hold": 5.0}),
    "tepo_steer": Row(tepo_steer, {**HIGHER, "lambda-min": 0.8}),
    "tepo_seqsum": Row(tepo_seqsum, HIGHER),
    "sapo": Row(sapo, {"tau-pos": 1.0, "tau-neg": 1.05}),
    "gmpo": Row(gmpo, {"low": 0.4, "high": 0.4}),
    "dppo_tv": Row(dppo("tv"), {"low": 0.15, "high": 0.15, "cap": 20.0}),
    "dppo_kl": Row(dppo("kl"), {"low": 0.05, "high": 0.05, "cap": 20.0}),
    "vespo": Row(vespo, {"k-pos": 2.0, "lambda-pos": 3.0, "k-neg": 3.0, "lambda-neg": 2.0}),
    "dro": Row(dro, {"beta": 0.05, "kl-estimator": "k2"}),
    "dr_grpo": Row(dr_grpo, EVEN, advantage=centred),
    "reinforce_pp": Row(grpo, EVEN, advantage=whitened(baseline=False)),
    "reinforce_pp_baseline": Row(grpo, EVEN, advantage=whitened(baseline=True)),
    "rloo": Row(grpo, EVEN, advantage=leave_one_out),
    "rloo_sequence": Row(rloo_sequence, EVEN, advantage=leave_one_out),
    "maxrl": Row(grpo, EVEN, advantage=mean_scaled),
    "opo": Row(grpo, EVEN, advantage=by_length),
    "top_entropy": Row(top_entropy_tokens, {**HIGHER, "share": 0.2}),
}

# What the label of a reading stands for, where the label is not itself the setting.
MEANS: dict[str, dict[str, Settings]] = {
    "seq-eps": {"clip-higher": HIGHER, "symmetric": EVEN, "gspo": {"low": 3e-4, "high": 4e-4}},
    "entropy-alpha": {"original": {"alpha": 0.4}, "printed": {"alpha": 4e-4}},
    "cispo": {
        "upper": {"low": None, "high": 0.28},
        "verl": {"low": 10.0, "high": 0.2},
        "two-sided": {"low": 0.2, "high": 0.28},
        "cap": {"low": None, "high": 3.0},
    },
    "ent-coef": {"1e-3": {"coefficient": 1e-3}, "1e-4": {"coefficient": 1e-4}, "5e-3": {"coefficient": 5e-3}},
    "steer": {
        "token": {"ratio": "token"},
        "linear": {"map": "linear"},
        "min-max": {"map": "min-max"},
        "ratio": {"omega": "ratio"},
        "0.7": {"lambda-min": 0.7},
    },
    "panel-b-base": {"grpo": {"ratio": "token"}, "tepo": {"ratio": "sequence"}},
    "cov-clip": {"clip-higher": HIGHER},
    "gmpo-eps": {"original": {"low": 0.4, "high": 0.4}, "verl": {"low": 0.2, "high": 0.2}},
    "dppo-cap": {"20": {"cap": 20.0}, "3": {"cap": 3.0}, "off": {"cap": None}},
}


def settings_of(text: str) -> Settings:
    """What a key such as `tepo+beta=1+seq-eps=gspo` says, over what the method's source prints."""
    key, *changes = text.split("+")
    settings = dict(LOSSES[key].settings)
    for change in changes:
        name, value = change.split("=")
        settings |= MEANS.get(name, {}).get(value) or {name: value if name == "clip-form" else number_or_word(value)}
    return settings


def number_or_word(text: str) -> float | str | None:
    if text in ("none", "auto", "off"):
        return None
    try:
        return float(text)
    except ValueError:
        return text
