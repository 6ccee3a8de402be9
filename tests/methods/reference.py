"""Every catalog method written a second time, from the printed equations alone, with the settings its source prints.

Nothing here is taken from `methods/`: a default that is wrong there fails here. First the parts of every loss, then the
losses. **A new catalog method needs one row in `LOSSES`**: its loss from the parts, its printed settings, its
advantage. "The paper" is TEPO's; the others are named by arXiv number at their function.

Padding does not exist here: a batch is the vector of its N response tokens, row by row. `detach` is the printed sg[.];
autograd through these formulas is therefore the gradient that each loss must have.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.methods.batches import LEAVES, MAX_TOKENS

Settings = Mapping[str, Any]


class Case(SimpleNamespace):
    """One evaluation.

    logp, old, ref, sampler, entropy, old_entropy, advantage, group, row: each (N,), of the tokens; lengths: of the
    rows, at least 1; settings: the method's; tokens, sequences: totals of the update minibatch, or None; permute: a
    random order of so many.
    """

    def get(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)

    @property
    def d(self) -> Tensor:
        """log pi / pi_old of each token."""
        return self.logp - self.old

    def over_rows(self, x: Tensor) -> Tensor:
        """The sum over its row's tokens, at each token."""
        return torch.stack([part.sum() for part in x.split(self.lengths)])[self.row]

    @property
    def length(self) -> Tensor:
        """|y| at each token."""
        return torch.tensor(self.lengths, dtype=self.logp.dtype)[self.row]


def case(fields: Mapping[str, Any], text: str, **more: Any) -> tuple[Case, dict[str, Tensor]]:
    """The tokens of a batch, and the leaves (B, T) behind them; rows without a token vanish."""
    mask, leaves = fields["mask"], {n: fields[n].detach().clone().requires_grad_() for n in LEAVES}
    given = {name: x[mask] for name, x in {**fields, **leaves}.items() if x.ndim > 1}  # perhaps advantages
    lengths = mask.sum(1)[mask.any(1)]
    row = torch.arange(len(lengths)).repeat_interleave(lengths)
    names = {"old": "old", "ref": "ref", "sampler": "sampling"}
    given |= {short: given[f"{name}_logp"] for short, name in names.items()}
    given |= {name: given.get(name, fields[name][mask.any(1)][row]) for name in ("advantage", "group")}
    totals = {"tokens": None, "sequences": None} | more
    return Case(**given, **totals, row=row, lengths=lengths.tolist(), settings=settings_of(text)), leaves


Value = Callable[[Case], Tensor]  # of each token
Reducer = Callable[[Case, Tensor], Tensor]
Advantage = Callable[[Tensor, Tensor, Tensor, Settings], Tensor]


# ---- rollout correction: weights of TRL 1.16.0's documentation and of verl 0.9.1's rollout_corr_math.md ----

BOUNDS = {  # of each kind: at most, at least
    "tis": (2.0, None), "seq-tis": (2.0, None), "seq-mis": (3.0, None), "icepop": (5.0, 0.5),
}  # fmt: skip


def correction(c: Case) -> Tensor:
    """The weight for rho = pi_old / pi_sampler; 1 without a correction."""
    if (kind := c.get("correction", "none")) == "none":
        return torch.ones_like(c.old)
    d = c.old - c.sampler
    rho = (c.over_rows(d) if kind.startswith("seq") else d).exp()
    cap, floor = (c.get(f"correction-{end}", b) for end, b in zip(("cap", "floor"), BOUNDS[kind], strict=True))
    top, bottom = math.inf if cap is None else cap, 0.0 if floor is None else floor
    return rho.clamp(bottom, top) if kind.endswith("tis") else rho * ((bottom <= rho) & (rho <= top))


# ---- aggregation (Table 5, rows 14 to 16; scopes: reading agg-scope) ----
def token_mean(c: Case, x: Tensor) -> Tensor:
    """1 / sum_i |y_i| * sum_i sum_t x, over the minibatch, each prompt's group, or the micro-batch."""
    scope, rows = c.get("agg-scope", "minibatch"), len(c.lengths)
    if scope == "group":
        return torch.stack([x[c.group == g].mean() for g in c.group.unique()]).mean()
    if scope == "microbatch":
        return x.mean() * rows / (c.sequences or rows)
    return x.sum() / (c.tokens or len(x))


def sequence_mean_token_sum(c: Case, x: Tensor) -> Tensor:
    return x.sum() / (c.sequences or len(c.lengths))


def sequence_mean_token_mean(c: Case, x: Tensor) -> Tensor:
    return sequence_mean_token_sum(c, x / c.length)


# ---- importance weights (Table 5, rows 17 to 19) ----
RATIOS: dict[str, Value] = {
    "token": lambda c: c.d.exp(),
    "sequence": lambda c: (c.over_rows(c.d) / c.length).exp(),
    "product": lambda c: c.over_rows(c.d).exp(),  # the whole response as one action (2402.14740)
    "prefix": lambda c: torch.cat([x.cumsum(0) / torch.arange(1, len(x) + 1) for x in c.d.split(c.lengths)]).exp(),
}


def own_token(c: Case, ratio: Tensor, share: Tensor | float = 1.0) -> Tensor:
    """sg[w] * (pi(y_t) / sg[pi(y_t)])^(1/share): only token t's own path is differentiated (GSPO-token, 2507.18071).

    Algorithm 1, line 21, keeps the mean's 1/|y_i|: dw = w / (|y_i| pi(y_t)) dpi(y_t).
    """
    return ratio.detach() * ((c.logp - c.logp.detach()) / share).exp()


def base_ratio(c: Case, default: str) -> Tensor:
    """Token or sequence ratio (reading panel-b-base), and line 21's gradient (R2)."""
    ratio = RATIOS[c.get("ratio", default)](c)
    return own_token(c, ratio, c.length) if c.get("gradient") == "alg1_line21" else ratio


# ---- surrogates ----
def bounds(c: Case) -> tuple[float, float]:
    """Ends of the clip; None = no bound on that side."""
    low, high = c.get("low"), c.get("high")
    return -math.inf if low is None else 1 - low, math.inf if high is None else 1 + high


def clipped(c: Case, w: Tensor, advantage: Tensor | None = None) -> Tensor:
    """min(w A, clip(w, 1 - low, 1 + high) A); readings clip-form (R1); dual-clip (R21): at least dual A if A < 0."""
    a, form, dual = c.advantage if advantage is None else advantage, c.get("clip-form", "ppo"), c.get("dual-clip")
    if form == "none":
        return w * a
    if form == "eq4":  # as printed: the minimum is taken before A is known
        return torch.minimum(w, w.clamp(*bounds(c))) * a
    value = torch.minimum(w * a, w.clamp(*bounds(c)) * a)
    return value if dual is None else value.maximum(dual * a).where(a < 0, value)


def weighted_log_likelihood(c: Case, w: Tensor, low: float, high: float) -> Tensor:
    """sg[clip(w)] A log pi (CISPO, 2506.13585 eq. 4-5)."""
    return w.detach().clamp(low, high) * c.advantage * c.logp


# ---- divergences of the current policy from an anchor; d = log pi - log pi_anchor ----
def divergence(c: Case) -> Tensor:
    kind = c.get("kl-estimator", "k3")
    d = c.logp - {"old": c.old, "ref": c.ref}[c.get("kl-anchor", "old")]
    k3 = (-d).exp() - 1 + d
    if c.get("kl-clamp") is not None:
        k3 = k3.clamp(max=c.get("kl-clamp"))
    return {"k1": d, "abs": d.abs(), "k2": d * d / 2, "k3": k3, "k3_is": c.d.exp() * k3}[kind]


# ---- masks; never differentiated ----
def covariance(c: Case) -> Tensor:
    """(A - mean A)(log pi - mean log pi), means over all valid tokens (2505.22617 eq. 10)."""
    logp = c.logp.detach()
    return (c.advantage - c.advantage.mean()) * (logp - logp.mean())


def entropy_change(c: Case) -> Tensor:
    """Delta H_{i,t}, up to its size: only the sign is used."""
    entropy, a, logp = c.entropy.detach(), c.advantage, c.logp.detach()
    before = torch.cat([torch.cat([x[:1], x[:-1]]) for x in entropy.split(c.lengths)])
    return {
        "entropy_diff": entropy - c.old_entropy,
        "cov_sign": -covariance(c),  # Eq. 18: Delta H is minus the covariance
        "first_order": -a * (logp + entropy),
        "surprise_diff": -(logp - c.old),
        "positions": entropy - before,
        "theorem": -a,  # Theorem 3.1 taken at its word
    }[c.get("dh-def", "entropy_diff")]


def masked(c: Case, tokens: str) -> Tensor:
    """M of Eq. 4 and of Panel E, 1 or 0."""
    a, dh, tolerance = c.advantage, entropy_change(c), c.get("dh-tol") or 0.0
    positive, negative = (a > 0) & (dh < -tolerance), (a < 0) & (dh > tolerance)
    every = {"positive": positive, "negative": negative, "both": positive | negative, "every": a == a}
    return every[tokens].double()


def trusted(c: Case, kind: str) -> Tensor:
    """1 where pi(y_t) may still move the way A pushes (DPPO, 2602.04879): total variation or KL of {y_t, the rest}."""
    p, old, up, low, high = c.logp.detach().exp(), c.old.exp(), c.advantage > 0, c.get("low"), c.get("high")
    if kind == "tv":
        return (p - old <= high).where(up, old - p <= low).double()
    kl = old * (old / p).log() + (1 - old) * ((1 - old + 1e-8) / (1 - p + 1e-8)).log()
    return ((kl <= high) | (p <= old)).where(up, (kl <= low) | (p >= old)).double()


# ---- losses ----
def penalised(c: Case, x: Tensor, where: Tensor, reduce: Reducer = token_mean) -> Tensor:
    """-(reduced x - beta KL M); reading mask-norm (R7) divides the penalty by sum M, not by the reducer's count.

    A micro-batch of a larger minibatch then weighs with its share of the tokens.
    """
    penalty = c.get("beta") * divergence(c) * where
    if c.get("mask-norm", "tokens") == "tokens":
        return -reduce(c, correction(c) * x - penalty)
    share = len(x) / (c.tokens or len(x))
    return -reduce(c, correction(c) * x) + share * penalty.sum() / where.sum().clamp(min=1)


def reduced(value: Value, reduce: Reducer = token_mean) -> Value:
    return lambda c: -reduce(c, correction(c) * value(c))


def ratio_method(level: str, reduce: Reducer) -> Value:
    """The clipped surrogate of the weight at this level, reduced."""
    return reduced(lambda c: clipped(c, base_ratio(c, level)), reduce)


grpo = ratio_method("token", token_mean)  # with DAPO's clip-higher and token-mean (2503.14476 eq. 8)
tepo_nokl = ratio_method("sequence", token_mean)  # Eq. 4 without its penalty


def clip_cov(c: Case) -> Tensor:
    """2505.22617 eq. 10-12: max(int(r N), 1) tokens lose their term.

    They are drawn among those with 1 < cov < 5 that PPO does not clip already.
    """
    w, cov = base_ratio(c, "token"), covariance(c)
    x = clipped(c, w)
    inside = ((cov > c.get("lower")) & (cov < c.get("upper")) & (x == w * c.advantage)).nonzero()[:, 0]
    quota = max(int(c.get("fraction") * len(x)), 1)
    kept = torch.ones_like(cov)
    kept[inside[list(c.permute(len(inside)))[:quota]]] = 0.0
    return -token_mean(c, correction(c) * kept * x)


def kl_cov(c: Case) -> Tensor:
    """2505.22617 eq. 13-14 and its code: -r A, plus beta |d| on the max(1, int(k N)) tokens of largest covariance."""
    chosen = torch.zeros_like(c.old)
    chosen[covariance(c).argsort(descending=True, stable=True)[: max(1, int(c.get("fraction") * len(chosen)))]] = 1.0
    return penalised(c, clipped(c, base_ratio(c, "token")), chosen)


def entropy_adv(c: Case) -> Tensor:
    """2506.14758: A' = A + min(alpha sg[H], |A| / kappa) at every token."""
    entropy = c.old_entropy if c.get("entropy-of") == "old" else c.entropy.detach()
    a = c.advantage + (c.get("alpha") * entropy).minimum(c.advantage.abs() / c.get("kappa"))
    return clipped(c, RATIOS["token"](c), a)


def prefix_is(c: Case) -> Tensor:
    """Table 5's prefix weight in the paper's clipped objective; reading prefix-grad (R8)."""
    grad, w = c.get("prefix-grad", "through"), RATIOS["prefix"](c)
    if grad == "stop":
        return weighted_log_likelihood(c, w, *bounds(c))
    return clipped(c, own_token(c, w) if grad == "own_token" else w)


def tepo(tokens: str, ratio: str = "sequence", reduce: Reducer = token_mean) -> Value:
    """Eq. 4: 1/N sum (surrogate - beta KL M)."""
    return lambda c: penalised(c, clipped(c, base_ratio(c, ratio)), masked(c, tokens), reduce)


def tepo_entropy(coefficient: Value) -> Value:
    """Panel B: plus the entropy's token-mean, gradient on, times a coefficient."""
    return lambda c: tepo_nokl(c) - token_mean(c, coefficient(c) * c.entropy)


def tepo_steer(c: Case) -> Tensor:
    """2510.10150: the clipped term times sg[lambda_t], which falls from 1 to lambda_min in |A (1 - p)(log p + H)|."""
    logp, least, kind = c.logp.detach(), c.get("lambda-min"), c.get("map", "exp")
    ratio = (logp - c.old).exp() if c.get("omega") == "ratio" else 1.0
    omega = (c.advantage * ratio * (1 - logp.exp()) * (logp + c.entropy.detach())).abs()
    share = omega / omega.max().clamp(min=0.02)
    scaled = (omega - omega.min()) / (omega.max() - omega.min())
    weights = {"exp": least**share, "linear": 1 - (1 - least) * share, "min-max": 2 - least - 2 * (1 - least) * scaled}
    return weights[kind] * clipped(c, base_ratio(c, "sequence"))


def sapo(c: Case) -> Tensor:
    """4 / tau sigmoid(tau (r - 1)) A (2511.20347 eq. 5-6)."""
    tau = torch.full_like(c.old, c.get("tau-neg")).masked_fill(c.advantage > 0, c.get("tau-pos"))
    return 4 / tau * (tau * (RATIOS["token"](c) - 1)).sigmoid() * c.advantage


def gmpo(c: Case) -> Tensor:
    """A times the geometric mean of the ratios, each clipped in log space on the side that A pushes to (2507.20673)."""
    d = c.d.clamp(max=c.get("high")).where(c.advantage > 0, c.d.clamp(min=-c.get("low")))
    return (c.over_rows(d) / c.length).exp() * c.advantage


def dppo(kind: str) -> Value:
    """2602.04879, section 5.4: sg[min(r, cap)] A log pi on the tokens inside the trust region."""

    def value(c: Case) -> Tensor:
        c = Case(**vars(c) | {"old": c.sampler}) if c.get("dppo-anchor") == "sampler" else c
        cap = math.inf if c.get("cap") is None else c.get("cap")
        return trusted(c, kind) * weighted_log_likelihood(c, RATIOS["token"](c), 0.0, cap)

    return value


def vespo(c: Case) -> Tensor:
    """sg[phi(w)] A log pi, phi(w) = w^k e^(lambda (1 - w)) of the whole sequence's ratio (2602.10693)."""
    w = RATIOS["product"](c).detach().clamp(1e-8, math.exp(20))
    k, decay = (
        torch.full_like(w, c.get(f"{name}-neg")).masked_fill(c.advantage >= 0, c.get(f"{name}-pos"))
        for name in ("k", "lambda")
    )
    return w**k * (decay * (1 - w)).exp() * c.advantage * c.logp


def top_entropy(c: Case) -> Tensor:
    """2506.01939: terms of tokens below the (1 - share) quantile of all entropies are 0, and count in the divisor.

    A token's place is the number of others that are not above it; the quantile's place is (1 - share)(n - 1).
    """
    entropy = c.entropy.detach()
    place = (entropy[None, :] <= entropy[:, None]).sum(1) - 1
    chosen = place >= (1 - c.get("share")) * (len(entropy) - 1) - 1e-6
    return chosen.double() * clipped(c, RATIOS["token"](c))


# ---- advantages ----
def per_group(of: Callable[[Tensor, Tensor, Settings], Tensor]) -> Advantage:
    """The advantage whose value for the rewards and lengths of one prompt is `of`."""

    def advantage(reward: Tensor, group: Tensor, lengths: Tensor, settings: Settings) -> Tensor:
        found = torch.zeros_like(reward)
        for g in group.unique():
            found[group == g] = of(reward[group == g], lengths[group == g], settings)
        return found

    return advantage


def _z_scored(r: Tensor, n: Tensor, s: Settings) -> Tensor:
    kind = s.get("adv-std", "unbiased")
    return (r - r.mean()) / (r.std(correction=int(kind != "biased")) + (1e-4 if kind == "unbiased-1e-4" else 1e-6))


z_scored = per_group(_z_scored)  # reading adv-std (R11)
leave_one_out = per_group(lambda r, n, s: r - (r.sum() - r) / (len(r) - 1))  # 2402.14740
mean_scaled = per_group(lambda r, n, s: (r - r.mean()) / (r.mean() if r.mean() > 0 else 1))  # 2602.02710
by_length = per_group(lambda r, n, s: r - (n * r).sum() / n.sum())  # the mean over the prompt's tokens (2505.23585)


def centred(reward: Tensor, group: Tensor, lengths: Tensor, settings: Settings) -> Tensor:
    """alpha (R - mean of the group) / F_norm (2504.02546 eq. 5); readings gpg-scale (R13), reward (R28)."""
    reward = 2 * reward - 1 if settings.get("reward") == "signed" else reward
    kind = settings.get("gpg-scale", "one")
    found = per_group(lambda r, n, s: (r - r.mean()) / (r.std() + 1e-6 if kind == "std" else 1))
    settled = sum(len(r) for r in (reward[group == g] for g in group.unique()) if len(r.unique()) == 1)
    counted = {"informative": len(reward) - settled, "inverse-accuracy": int((reward != 0).sum())}
    return found(reward, group, lengths, settings) * len(reward) / max(counted.get(kind, len(reward)), 1)


def whitened(baseline: bool) -> Advantage:
    """(b - mean) / sqrt(var + 1e-8) over every token of the batch, each with its response's b (2501.03262).

    Reading whiten-std (R37): the variance divides by tokens - 1 or by tokens.
    """

    def advantage(reward: Tensor, group: Tensor, lengths: Tensor, settings: Settings) -> Tensor:
        b = centred(reward, group, lengths, {}) if baseline else reward
        tokens = b.repeat_interleave(lengths)
        variance = tokens.var(correction=int(settings.get("whiten-std") != "biased"))
        return (b - tokens.mean()) / (variance + 1e-8).sqrt()

    return advantage


@dataclass(frozen=True)
class Row:
    """One catalog method: loss, printed settings, how its advantage is made."""

    loss: Value
    settings: Settings = field(default_factory=dict)
    advantage: Advantage = z_scored


HIGHER: Settings = {"low": 0.2, "high": 0.28}
EVEN: Settings = {"low": 0.2, "high": 0.2}

LOSSES: dict[str, Row] = {
    "grpo": Row(grpo, HIGHER),
    # 2402.03300 eq. 3: mean over sequences of the mean over tokens, beta k3 to the reference inside
    "grpo_2024": Row(tepo("every", "token", sequence_mean_token_mean), {**EVEN, "beta": 0.04, "kl-anchor": "ref"}),
    "clip_cov": Row(clip_cov, {"low": 1.0, "high": 1.0, "fraction": 2e-4, "lower": 1.0, "upper": 5.0}),
    "kl_cov": Row(kl_cov, {"low": None, "high": None, "fraction": 2e-3, "beta": 1.0, "kl-estimator": "abs"}),
    "entropy_adv": Row(reduced(entropy_adv), {**HIGHER, "alpha": 0.4, "kappa": 2.0}),
    "gpg": Row(reduced(lambda c: c.advantage * c.logp), advantage=centred),  # 2504.02546: no ratio
    # 2507.18071 eq. 5: mean over sequences of min(s_i A, clip(s_i) A)
    "gspo": Row(ratio_method("sequence", sequence_mean_token_mean), HIGHER),
    "cispo": Row(
        reduced(lambda c: weighted_log_likelihood(c, RATIOS["token"](c), *bounds(c))), {"low": None, "high": 0.28}
    ),
    "prefix_is": Row(reduced(prefix_is), HIGHER),
    "tepo_nokl": Row(tepo_nokl, HIGHER),
    "tepo": Row(tepo("positive"), {**HIGHER, "beta": 0.001}),
    "tepo_kl_all": Row(tepo("every"), {**HIGHER, "beta": 0.001}),
    "tepo_kl_neg": Row(tepo("negative"), {**HIGHER, "beta": 0.001}),
    "tepo_kl_both": Row(tepo("both"), {**HIGHER, "beta": 0.001}),
    "tepo_maxent": Row(tepo_entropy(lambda c: c.get("coefficient")), {**HIGHER, "coefficient": 1e-3}),
    "tepo_minent": Row(tepo_entropy(lambda c: -c.get("coefficient")), {**HIGHER, "coefficient": 1e-3}),
    # c sg[h - mean H] H_t: the gradient is that of -(c/2) (mean H - h)^2
    "tepo_held": Row(
        tepo_entropy(lambda c: c.get("hold") * (c.get("target") - c.entropy.detach().mean())),
        {**HIGHER, "target": 0.2, "hold": 5.0},
    ),
    "tepo_steer": Row(reduced(tepo_steer), {**HIGHER, "lambda-min": 0.8}),
    # Panel D: mean over sequences of the sum over tokens
    "tepo_seqsum": Row(ratio_method("sequence", sequence_mean_token_sum), HIGHER),
    "sapo": Row(reduced(sapo, sequence_mean_token_mean), {"tau-pos": 1.0, "tau-neg": 1.05}),
    "gmpo": Row(reduced(gmpo, sequence_mean_token_mean), {"low": 0.4, "high": 0.4}),
    "dppo_tv": Row(reduced(dppo("tv")), {"low": 0.15, "high": 0.15, "cap": 20.0}),
    "dppo_kl": Row(reduced(dppo("kl")), {"low": 0.05, "high": 0.05, "cap": 20.0}),
    "vespo": Row(reduced(vespo), {"k-pos": 2.0, "lambda-pos": 3.0, "k-neg": 3.0, "lambda-neg": 2.0}),
    # 2405.19107 as verl states it: A log pi - beta / 2 (log r)^2
    "dro": Row(lambda c: penalised(c, c.advantage * c.logp, masked(c, "every")), {"beta": 0.05, "kl-estimator": "k2"}),
    # 2503.20783: sum over tokens, divided by a constant, mean over sequences
    "dr_grpo": Row(lambda c: ratio_method("token", sequence_mean_token_sum)(c) / MAX_TOKENS, EVEN, advantage=centred),
    "reinforce_pp": Row(grpo, EVEN, advantage=whitened(baseline=False)),
    "reinforce_pp_baseline": Row(grpo, EVEN, advantage=whitened(baseline=True)),
    "rloo": Row(grpo, EVEN, advantage=leave_one_out),
    # 2402.14740 with TRL's clip: one term per response
    "rloo_sequence": Row(
        reduced(lambda c: clipped(c, RATIOS["product"](c)), sequence_mean_token_mean), EVEN, advantage=leave_one_out
    ),
    "maxrl": Row(grpo, EVEN, advantage=mean_scaled),
    "opo": Row(grpo, EVEN, advantage=by_length),
    "top_entropy": Row(reduced(top_entropy), {**HIGHER, "share": 0.2}),
}


def settings_of(text: str) -> Settings:
    """What a key such as `tepo+beta=1+low=0.0003` says, over what the method's source prints."""
    key, *changes = text.split("+")
    settings = dict(LOSSES[key].settings)
    for name, value in (change.split("=") for change in changes):
        try:
            settings[name] = float(value)
        except ValueError:
            words = ("none", "auto", "off")
            settings[name] = None if value in words and name not in ("clip-form", "correction") else value
    return settings
