"""The objective: importance weights, as logarithms; the term per token that they weight; and the mean over tokens.

d_t = log pi(y_t)/pi_old(y_t), zero at padding; |y| a row's valid tokens. A clip is a region for the weight, whose ends
depend on the sign of A. Denominators are those of the update minibatch: a trainer that splits it passes the minibatch's
counts with every micro-batch, and the losses of the micro-batches then add up to the minibatch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias, Union

from core.errors import ConfigError, CorruptInputError
from methods.parts import Part, Scope, part
from methods.parts.advantages import by_group

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch
    from methods.parts import Terms

INF = float("inf")
CLIP_HIGHER = (0.2, 0.28)  # DAPO's bounds (2503.14476) and the default of the options `low` and `high`
Count: TypeAlias = Union[int, float, "Tensor", None]  # None: count in the given batch


# ---- importance weights, as logarithms ----


@part()
def none(t: Terms) -> Tensor:
    """Return weight 1: no importance sampling."""
    return t.advantage.new_zeros(len(t.batch.mask), 1)


@part()
def token(t: Terms, *, gradient: str = "autograd") -> Tensor:
    """Return r_t = exp d_t, one weight per token (GRPO, arXiv 2402.03300, eq. 3). `gradient`: see `sequence`."""
    return _with_gradient(t, t.log_ratio_BT, gradient)


@part("sampling_logp")
def to_sampler(t: Terms) -> Tensor:
    """Return r_t = pi(y_t) / pi_sampler(y_t), with the sampler in place of the old policy (DPPO's code)."""
    return t.log_ratio_to("sampler")


@part(scope="sequence")
def sequence(t: Terms, *, gradient: str = "autograd") -> Tensor:
    """Return w = exp( (1/|y|) sum_t d_t ), the geometric mean, (B, 1) (TEPO section 3.3.1; GSPO, 2507.18071, eq. 7).

    `gradient` (R2): autograd, or alg1_line21, (B, T): the same value, but gradient only through the token's own ratio.
    """
    return _with_gradient(t, t.log_ratio_BT.sum(1, keepdim=True) / t.lengths_B1, gradient)


@part(scope="sequence")
def product(t: Terms, *, most: float | None) -> Tensor:
    """Return w = pi(y)/pi_old(y) = exp( sum_t d_t ), one action per response, (B, 1); each d_t within `most` nats."""
    log_ratio_BT = t.log_ratio_BT if most is None else t.log_ratio_BT.clamp(-most, most)
    return log_ratio_BT.sum(1, keepdim=True)


@part(scope="sequence")
def prefix(t: Terms, *, gradient: str = "through") -> Tensor:
    """Return w_t = exp( (1/t) sum_{u<=t} d_u ), one weight per token (TEPO Table 5, without the stray sum in front).

    `gradient` (R8): through, own_token (GSPO-token, eq. 14) or stop. With "stop" the value is the same, and
    the surrogate is `weighted`, which detaches it.
    """
    # t counts valid tokens, so holes in the mask do not lengthen a prefix; at least 1 before the first valid token
    log_weight = t.log_ratio_BT.cumsum(1) / t.batch.mask.cumsum(1).clamp(min=1)
    choices = {"through": lambda: log_weight, "stop": lambda: log_weight}
    return (choices | {"own_token": lambda: _own_path(t, log_weight, 1.0)})[gradient]()


def at_level(level: str, *, gradient: str = "autograd") -> Part:
    """Return the weight `token` or `sequence`, for methods whose level the paper leaves open (R18, R19)."""
    return {"token": token, "sequence": sequence}[level](gradient=gradient)


def _with_gradient(t: Terms, log_weight: Tensor, gradient: str) -> Tensor:
    """Return the weight with its gradient, or with only the token's own part of a mean (Algorithm 1, line 21)."""
    choices = {"autograd": lambda: log_weight, "alg1_line21": lambda: _own_path(t, log_weight, t.lengths_B1)}
    return choices[gradient]()


def _own_path(t: Terms, log_weight: Tensor, count: Tensor | float) -> Tensor:
    """Return the value of the weight with the gradient of the own token's d_t / count only."""
    return log_weight.detach() + (t.log_ratio_BT - t.log_ratio_BT.detach()) / count


# ---- rollout correction ----
# A constant weight per token for the mismatch of the sampler and the trainer's old policy: an inference engine computes
# other log-probs than the trainer, even with the same weights. rho = pi_old / pi_sampler of the token or of the whole
# sequence. The weight multiplies the surrogate after its clip and its mask, as in TRL and verl; it is available for
# every method (`methods.options.CORRECTION`).

# option `correction` -> (level of rho, action outside [floor, cap], default cap, default floor)
KINDS: dict[str, tuple[str, str, float, float | None]] = {
    # truncated importance sampling; TRL token_truncate with cap 3, verl rollout_is=token, `decoupled_token_is`
    "tis": ("token", "truncate", 2.0, None),
    # TRL token_mask, verl rollout_is=token with two thresholds; IcePop's, and verl's `decoupled_token_icepop`
    "icepop": ("token", "mask", 5.0, 0.5),
    "seq-tis": ("sequence", "truncate", 2.0, None),  # TRL sequence_truncate with cap 3, verl's `decoupled_seq_is`
    "seq-mis": ("sequence", "mask", 3.0, None),  # masked importance sampling; TRL sequence_mask, its default
}


def correction(*, kind: str, cap: float | None, floor: float | None) -> Part | None:
    """Return the correction `kind`, None for "none"; raise `ConfigError` for bounds that exclude each other."""
    if kind == "none":
        return None
    level, action, *_ = KINDS[kind]
    if cap is not None and floor is not None and floor >= cap:
        raise ConfigError(f"correction-floor: {floor} is not below correction-cap={cap}")
    settings = {"level": level, "action": action, "cap": cap, "floor": floor}
    scope: Scope = "token" if level == "token" else "sequence"
    return Part(_correction, settings, frozenset({"sampling_logp"}), scope)


def _correction(t: Terms, *, level: str, action: str, cap: float | None, floor: float | None) -> Tensor:
    """Return rho clamped to [floor, cap] (truncate), or rho inside and 0 outside (mask); no gradient."""
    batch = t.batch
    assert batch.sampling_logp is not None
    log_rho = batch.valid(batch.old_logp - batch.sampling_logp)
    rho = (log_rho if level == "token" else log_rho.sum(1, keepdim=True)).exp()
    if action == "truncate":
        return rho if cap is None and floor is None else rho.clamp(floor, cap)
    outside = rho > (math.inf if cap is None else cap)
    if floor is not None:
        outside = outside | (rho < floor)
    return rho.masked_fill(outside, 0.0)


# ---- the term per token, larger is better ----


def clipped(*, low: float | None, high: float | None, form: str = "ppo", dual: float | None = None) -> Part:
    """Return the clipped objective; `form` (R1) is ppo, eq4 or none, `dual` (R21) a second upper bound where A < 0.

    None for `low` or `high` leaves that side open. Raises `ConfigError` for settings that the form does not use.
    """
    if form != "ppo" and dual is not None:
        raise ConfigError(f"dual-clip: has no meaning with clip-form={form}")
    # defaults are passed with every form; other bounds were set on purpose and would have no effect
    if form == "none" and (low, high) != CLIP_HIGHER:
        raise ConfigError("low, high: have no meaning with clip-form=none")
    if form == "none" or (low is None and high is None and dual is None):
        return plain()
    return Part(_clipped, {"low": low, "high": high, "form": form, "dual": dual})


@part()
def plain(t: Terms) -> Tensor:
    """Return w A: importance sampling without a clip."""
    return t.log_weight.exp() * t.advantage


def _clipped(t: Terms, *, low: float | None, high: float | None, form: str, dual: float | None) -> Tensor:
    """Clamp the weight to its region, times A: for `form="ppo"` this is min(w A, clip(w, 1 - low, 1 + high) A)."""
    lower, upper = region(t.advantage, low=low, high=high, form=form, dual=dual)
    # clamped before exp: an overflowing weight would get the gradient 0 * inf
    return t.log_weight.clamp(lower, upper).exp() * t.advantage


def region(
    advantage: Tensor, *, low: float | None, high: float | None, form: str, dual: float | None
) -> tuple[Tensor, Tensor]:
    """Return logarithms of the ends between which the weight keeps its gradient; None, or low >= 1: that side is open.

    ppo  A > 0: up to 1 + high;  A < 0: from 1 - low, up to `dual` if there is one
    eq4  up to 1 + high for either sign: the paper's min(w, clip(w)) A, with A outside the minimum
    """
    lower, upper = advantage.new_full(advantage.shape, -INF), advantage.new_full(advantage.shape, INF)
    if high is not None:
        upper = upper.masked_fill((advantage > 0) | (form == "eq4"), math.log1p(high))
    # eq4 has no lower bound: where w < 1 - low, clip(w) = 1 - low is the larger of the two and the minimum is w
    if form == "ppo" and low is not None and low < 1:
        lower = lower.masked_fill(advantage < 0, math.log1p(-low))
    if form == "ppo" and dual is not None:
        upper = upper.masked_fill(advantage < 0, math.log(dual))
    return lower, upper


@part()
def weighted(t: Terms, *, low: float | None, high: float | None) -> Tensor:
    """Return sg[clip(w, 1 - low, 1 + high)] A log pi: the clip bounds a weight, gradients stay (CISPO, 2506.13585)."""
    weight = t.log_weight.detach().exp().clamp(None if low is None else 1 - low, INF if high is None else 1 + high)
    return weight * t.advantage * t.logp_BT


# Weights beyond these have no gradient in float64; without the bounds exp would overflow, and 0 * inf is NaN.
FARTHEST = (math.log(1e-8), 20.0)  # of log w; TRL's


@part()
def soft_gate(t: Terms, *, tau_positive: float, tau_negative: float) -> Tensor:
    """Return (4/tau) sigmoid(tau (w - 1)) A, tau by the sign of A: a smooth clip (SAPO, arXiv 2511.20347)."""
    tau = t.advantage.new_full(t.advantage.shape, tau_negative).masked_fill(t.advantage > 0, tau_positive)
    gate = (tau * (t.log_weight.clamp(max=FARTHEST[1]).exp() - 1)).sigmoid()
    return gate * (4 / tau * t.advantage)  # row factors first, because products over (B, T) are expensive


@part(scope="sequence")
def geometric_clipped(t: Terms, *, low: float, high: float) -> Tensor:
    """Return exp( mean_t clip(d_t) ) A, d_t at most high where A > 0, at least -low where A < 0 (GMPO, 2507.20673)."""
    lower, upper = log_region(t.advantage, low=low, high=high)
    clipped_BT = t.batch.valid(t.log_weight.clamp(lower, upper))
    return (clipped_BT.sum(1, keepdim=True) / t.lengths_B1).exp() * t.advantage


def log_region(advantage: Tensor, *, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return the ends as `region` does, for bounds that are already logarithms."""
    upper = advantage.new_full(advantage.shape, INF).masked_fill(advantage > 0, high)
    return advantage.new_full(advantage.shape, -INF).masked_fill(advantage < 0, -low), upper


@part()
def gamma_weighted(t: Terms, *, k_pos: float, lambda_pos: float, k_neg: float, lambda_neg: float) -> Tensor:
    """Return sg[phi(w)] A log pi, phi(w) = w^k exp(lambda (1 - w)), k, lambda by the sign of A (VESPO, 2602.10693)."""
    log_weight = t.log_weight.detach().clamp(*FARTHEST)
    positive = t.advantage >= 0
    k = log_weight.new_full(positive.shape, k_neg).masked_fill(positive, k_pos)
    decay = log_weight.new_full(positive.shape, lambda_neg).masked_fill(positive, lambda_pos)
    return (decay + k * log_weight - decay * log_weight.exp()).exp() * t.advantage * t.logp_BT


@part()
def log_likelihood(t: Terms) -> Tensor:
    """Return A log pi: REINFORCE's surrogate, no weight (GPG, arXiv 2504.02546)."""
    return t.advantage * t.logp_BT


def outside(t: Terms) -> Tensor:
    """Return valid tokens whose surrogate gradient the clip removes, bool (B, T): weight outside its region, A != 0."""
    regions: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {"clipped": region, "geometric_clipped": log_region}
    surrogate = t.parts.surrogate
    if surrogate.name not in regions:  # no clip, or a clip that bounds a weight without removing gradient
        return t.batch.mask & False
    lower, upper = regions[surrogate.name](t.advantage, **surrogate.settings)
    log_weight = t.log_weight.detach()
    # strict: torch's clamp keeps the gradient exactly at the end of a region
    return ((log_weight < lower) | (log_weight > upper)) & (t.advantage != 0) & t.batch.mask


# ---- from tokens to a scalar ----


def denominator(minibatch: Count, counted: int, unit: str, batch: Batch) -> int | float | Tensor:
    """Return the minibatch's count if the trainer passed one, else the batch's count; raise an error for 0."""
    if minibatch is not None:
        return minibatch
    if counted == 0:
        raise CorruptInputError(f"{batch.label}: mask: holds no {unit}, and no {unit} count of the minibatch was given")
    return counted


def row_sums(x: Tensor, batch: Batch) -> Tensor:
    """Return sum_t m x per row, (B,); x is (B, T), or (B, 1) if equal for all tokens of a row."""
    return x.squeeze(1) * batch.lengths_B if x.shape[1] == 1 else (x * batch.weight_BT).sum(1)


def token_mean(*, scope: str) -> Part:
    """Return (1/N) sum_i sum_t x; `scope` (R20) selects N: of the minibatch, each prompt group or the micro-batch."""
    choices = {"minibatch": token_mean_minibatch, "group": token_mean_group, "microbatch": token_mean_microbatch}
    return choices[scope]()


@part()
def token_mean_minibatch(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return (1/N) sum_i sum_t x, N = tokens of the minibatch (TEPO Table 5, token-mean; verl >= 0.7, TRL `dapo`)."""
    return row_sums(x, batch).sum() / denominator(tokens, batch.tokens, "token", batch)


@part()
def token_mean_group(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return (1/K) sum_k (1/N_k) sum_{i in k} sum_t x over K prompt groups (TEPO eq. 4; DAPO, mean over prompts)."""
    if batch.group_tokens is not None and batch.groups is not None:
        tokens_B, groups = batch.group_tokens, batch.groups
    elif tokens is not None or sequences is not None:
        raise ConfigError(
            f"{batch.label}: agg-scope=group: a micro-batch needs `group_tokens` and `groups` of its minibatch"
        )
    else:
        tokens_K, _, index_B = by_group(batch.lengths_B, batch.group)
        tokens_B, groups = tokens_K[index_B], int(tokens_K.count_nonzero())
    # clamped: a group of dropped rows has no tokens, its sum is 0 and it is not counted in `groups`
    return (row_sums(x, batch) / tokens_B.clamp(min=1)).sum() / denominator(None, groups, "group", batch)


@part(scope="batch")
def token_mean_microbatch(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return the token mean over these rows times their share of the sequences: older verl, the paper's lineage."""
    # divides by the given rows' tokens, even if the trainer passed the minibatch's count: R20 defines it so
    mean = row_sums(x, batch).sum() / max(batch.tokens, 1)
    return mean * batch.sequences / denominator(sequences, batch.sequences, "sequence", batch)


@part(scope="sequence")
def seq_mean_token_mean(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return (1/B) sum_i (1/|y_i|) sum_t x, B = sequences of the update minibatch (TEPO Table 5; GRPO, GSPO)."""
    means_B = row_sums(x, batch) / batch.lengths_B.clamp(min=1)
    return means_B.sum() / denominator(sequences, batch.sequences, "sequence", batch)


@part()
def seq_mean_token_sum(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return (1/B) sum_i sum_t x (TEPO Table 5)."""
    return row_sums(x, batch).sum() / denominator(sequences, batch.sequences, "sequence", batch)


@part("max_tokens")
def seq_mean_token_sum_norm(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Return (1/(B L)) sum_i sum_t x, L = maximum tokens of a response (Dr. GRPO, arXiv 2503.20783; TRL `dr_grpo`)."""
    assert batch.max_tokens is not None
    return seq_mean_token_sum()(x, batch, tokens, sequences) / batch.max_tokens
