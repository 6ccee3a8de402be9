"""Every catalog method as a plain Python function of a plain Python batch, with the settings its source prints.

Slow and obvious on purpose: floats and loops, written from the printed equations alone. Nothing here is taken from
`methods/`: a default that is wrong there fails here. First the parts of every loss, then the losses.
**A new catalog method needs one row in `LOSSES`**: its loss from the parts, its printed settings, its advantage. "The
paper" is TEPO's; the others are named by arXiv number at their function.

Padding does not exist here: row i is the list of its response tokens. A stop-gradient sg[x] is x taken from `held`, the
batch as it stood before any perturbation; everything else is taken from `now`. Finite differences that move `now` and
leave `held` alone are therefore the gradient that autograd must give.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.methods.batches import MAX_TOKENS

Rows = list[list[float]]
Numbers = Sequence[float]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Scalars:
    """A batch as nested lists; row i has |y_i| entries. `full`, `old_full`: |y_i| x V log-probabilities."""

    logp: Rows
    old: Rows
    ref: Rows
    sampler: Rows
    entropy: Rows
    old_entropy: Rows
    full: list[Rows]
    old_full: list[Rows]
    advantage: list[float]
    group: list[int]


def scalars(fields: Mapping[str, Any]) -> Scalars:
    """The tensors of a batch without their padding; rows without a token vanish."""
    mask = fields["mask"].tolist()
    keep = [i for i, row in enumerate(mask) if any(row)]

    def ragged(name: str) -> list[Any]:
        value = fields[name].tolist()
        return [[x for x, m in zip(value[i], mask[i], strict=True) if m] for i in keep]

    return Scalars(
        *map(ragged, ("logp", "old_logp", "ref_logp", "sampling_logp")),
        *map(ragged, ("entropy", "old_entropy", "full_logp", "old_full_logp")),
        advantage=fields["advantage"][keep].tolist(),
        group=fields["group"][keep].tolist(),
    )


@dataclass(frozen=True)
class Case:
    """One evaluation: the batch, the method's settings, the update minibatch's totals, and the random order drawn."""

    now: Scalars
    held: Scalars
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokens: int | None = None
    sequences: int | None = None
    permute: Callable[[int], Sequence[int]] = range

    def every(self) -> Iterator[tuple[int, int]]:
        return ((i, t) for i, row in enumerate(self.now.logp) for t in range(len(row)))

    @property
    def count(self) -> int:
        return sum(len(row) for row in self.now.logp)

    def log_ratio(self, i: int, t: int) -> float:
        return self.now.logp[i][t] - self.now.old[i][t]


Value = Callable[[Case, int, int], float]
Reducer = Callable[[Case, Value], float]
Advantage = Callable[[Numbers, Sequence[int], Sequence[int], Settings], list[float]]


# ---- rollout correction: weights of TRL 1.16.0's documentation and of verl 0.9.1's rollout_corr_math.md ----


BOUNDS = {  # of each kind: at most, at least
    "tis": (2.0, None), "seq-tis": (2.0, None), "seq-mis": (3.0, None), "icepop": (5.0, 0.5),
    "token-rs": (2.0, 0.5), "seq-rs": (2.0, 0.5), "geo-rs": (1.001, 0.999),
}  # fmt: skip


def correction(c: Case, i: int, t: int) -> float:
    """The weight of token t for rho = pi_old / pi_sampler, times that of a rejection; 1 without a correction."""
    return one_correction(c, i, t, "correction") * one_correction(c, i, t, "rejection")


def one_correction(c: Case, i: int, t: int, which: str) -> float:
    kind = c.settings.get(which, "none")
    if kind == "none":
        return 1.0
    d = [a - b for a, b in zip(c.now.old[i], c.now.sampler[i], strict=True)]
    whose = {"tis": d[t], "icepop": d[t], "token-rs": d[t], "geo-rs": sum(d) / len(d)}
    rho = math.exp(whose.get(kind, sum(d)))
    cap, floor = (
        c.settings.get(f"{which}-{end}", bound) for end, bound in zip(("cap", "floor"), BOUNDS[kind], strict=True)
    )
    top, bottom = math.inf if cap is None else cap, 0.0 if floor is None else floor
    if kind.endswith("tis"):
        return max(bottom, min(rho, top))
    return (1.0 if kind.endswith("rs") else rho) if bottom <= rho <= top else 0.0


def corrected(x: Value) -> Value:
    return lambda c, i, t: correction(c, i, t) * x(c, i, t)


def penalty_weight(c: Case, i: int, t: int) -> float:
    return correction(c, i, t) if c.settings.get("correction-on") == "objective" else 1.0


# ---- aggregation (Table 5, rows 14 to 16; scopes: reading agg-scope) ----


def token_mean(c: Case, x: Value) -> float:
    """1 / sum_i |y_i| * sum_i sum_t x, over the minibatch, each prompt's group, or the micro-batch."""
    scope = c.settings.get("agg-scope", "minibatch")
    if scope == "minibatch":
        return sum(x(c, i, t) for i, t in c.every()) / (c.tokens or c.count)
    rows = len(c.now.logp)
    total_rows = c.sequences or rows
    if scope == "microbatch":
        return sum(x(c, i, t) for i, t in c.every()) / c.count * rows / total_rows
    if scope == "group":
        total = 0.0
        for g in sorted(set(c.now.group)):
            members = [i for i in range(rows) if c.now.group[i] == g]
            n = sum(len(c.now.logp[i]) for i in members)
            total += sum(x(c, i, t) for i, t in c.every() if i in members) / n * len(members) / total_rows
        return total
    raise NotImplementedError(f"tests/methods/reference.py: token_mean: agg-scope={scope}")


def sequence_mean_token_sum(c: Case, x: Value) -> float:
    return sum(x(c, i, t) for i, t in c.every()) / (c.sequences or len(c.now.logp))


def sequence_mean_token_mean(c: Case, x: Value) -> float:
    return sequence_mean_token_sum(c, lambda c, i, t: x(c, i, t) / len(c.now.logp[i]))


# ---- importance weights (Table 5, rows 17 to 19) ----


def token_ratio(c: Case, i: int, t: int) -> float:
    return math.exp(c.log_ratio(i, t))


def sequence_ratio(c: Case, i: int, t: int) -> float:
    n = len(c.now.logp[i])
    return math.exp(sum(c.log_ratio(i, u) for u in range(n)) / n)


def product_ratio(c: Case, i: int, t: int) -> float:
    """pi(y) / pi_old(y): the whole response as one action (2402.14740)."""
    return math.exp(sum(c.log_ratio(i, u) for u in range(len(c.now.logp[i]))))


def prefix_ratio(c: Case, i: int, t: int) -> float:
    return math.exp(sum(c.log_ratio(i, u) for u in range(t + 1)) / (t + 1))


def stopped(ratio: Value) -> Value:
    """sg[w]: the weight as it stood."""
    return lambda c, i, t: ratio(replace(c, now=c.held), i, t)


def own_token(ratio: Value) -> Value:
    """sg[w] * pi(y_t) / sg[pi(y_t)]: only token t's own path is differentiated (GSPO-token, 2507.18071)."""
    held = stopped(ratio)
    return lambda c, i, t: held(c, i, t) * math.exp(c.now.logp[i][t] - c.held.logp[i][t])


def own_token_share(ratio: Value) -> Value:
    """Algorithm 1, line 21: dw = w / (|y_i| pi(y_t)) dpi(y_t): the own path with the mean's 1/|y_i| kept."""
    held = stopped(ratio)
    return lambda c, i, t: held(c, i, t) * math.exp((c.now.logp[i][t] - c.held.logp[i][t]) / len(c.now.logp[i]))


# ---- surrogates ----


def clip(x: float, low: float, high: float) -> float:
    return max(low, min(x, high))


def advantage_of(c: Case, i: int, t: int) -> float:
    return c.now.advantage[i]


def ppo(ratio: Value, low: float, high: float, advantage: Value = advantage_of, dual: float | None = None) -> Value:
    """min(w A, clip(w, 1 - low, 1 + high) A); dual clip: no less than dual * A where A < 0."""

    def x(c: Case, i: int, t: int) -> float:
        w, a = ratio(c, i, t), advantage(c, i, t)
        value = min(w * a, clip(w, 1 - low, 1 + high) * a)
        return max(value, dual * a) if dual is not None and a < 0 else value

    return x


def eq4_literal(ratio: Value, low: float, high: float) -> Value:
    """Eq. 4 as printed: min(w, clip(w)) * A, the minimum taken before A is known."""
    return lambda c, i, t: min(w := ratio(c, i, t), clip(w, 1 - low, 1 + high)) * c.now.advantage[i]


def weighted_log_likelihood(ratio: Value, low: float, high: float) -> Value:
    """sg[clip(w)] A log pi (CISPO, 2506.13585 eq. 4-5); low = inf: no lower bound."""
    held = stopped(ratio)
    return lambda c, i, t: clip(held(c, i, t), 1 - low, 1 + high) * c.now.advantage[i] * c.now.logp[i][t]


def log_likelihood(c: Case, i: int, t: int) -> float:
    return c.now.advantage[i] * c.now.logp[i][t]


def soft_gated(positive: float, negative: float) -> Value:
    """4 / tau sigmoid(tau (r - 1)) A (SAPO, 2511.20347 eq. 5-6)."""

    def x(c: Case, i: int, t: int) -> float:
        a = c.now.advantage[i]
        tau = positive if a > 0 else negative
        return 4 / tau / (1 + math.exp(-tau * (token_ratio(c, i, t) - 1))) * a

    return x


def geometric_mean_of_clipped(low: float, high: float) -> Value:
    """A times the geometric mean of the ratios, each clipped in log space on the side that A pushes to (2507.20673)."""

    def x(c: Case, i: int, t: int) -> float:
        a, n = c.now.advantage[i], len(c.now.logp[i])
        clipped = [min(c.log_ratio(i, u), high) if a > 0 else max(c.log_ratio(i, u), -low) for u in range(n)]
        return math.exp(sum(clipped) / n) * a

    return x


def gamma_weight(settings: Mapping[str, Any]) -> Value:
    """phi(w) = w^k e^(lambda (1 - w)) of the whole sequence's ratio as it stood (VESPO, 2602.10693)."""

    def x(c: Case, i: int, t: int) -> float:
        w = min(max(stopped(product_ratio)(c, i, t), 1e-8), math.exp(20))
        side = "pos" if c.now.advantage[i] >= 0 else "neg"
        k, decay = settings[f"k-{side}"], settings[f"lambda-{side}"]
        return w**k * math.exp(decay * (1 - w))

    return x


# ---- divergences of the current policy from an anchor; d = log pi - log pi_anchor ----


def divergence(c: Case, i: int, t: int) -> float:
    kind = c.settings.get("kl-estimator", "k3")
    if kind == "full":
        current, old = c.now.full[i][t], c.now.old_full[i][t]
        return sum(math.exp(p) * (p - q) for p, q in zip(current, old, strict=True))
    anchor = {"old": c.now.old, "ref": c.now.ref}[c.settings.get("kl-anchor", "old")]
    d = c.now.logp[i][t] - anchor[i][t]
    k3 = math.exp(-d) - 1 + d
    if c.settings.get("kl-clamp") is not None:
        k3 = min(k3, c.settings["kl-clamp"])
    return {"k1": d, "abs": abs(d), "k2": d * d / 2, "k3": k3, "k3_is": math.exp(c.log_ratio(i, t)) * k3}[kind]


# ---- masks ----


def mean_over_tokens(c: Case, x: Value) -> float:
    return sum(x(c, i, t) for i, t in c.every()) / c.count


def covariance(c: Case, i: int, t: int) -> float:
    """(A - mean A)(log pi - mean log pi), means over all valid tokens (2505.22617 eq. 10); never differentiated."""
    a = c.now.advantage[i] - mean_over_tokens(c, advantage_of)
    return a * (c.held.logp[i][t] - mean_over_tokens(c, lambda c, i, t: c.held.logp[i][t]))


def entropy_change(c: Case, i: int, t: int) -> float:
    """Delta H_{i,t}, up to its size: only the sign is used."""
    kind = c.settings.get("dh-def", "entropy_diff")
    a = c.now.advantage[i]
    if kind == "entropy_diff":
        return c.held.entropy[i][t] - c.held.old_entropy[i][t]
    if kind == "cov_sign":  # Eq. 18: Delta H is minus the covariance
        return -covariance(c, i, t)
    if kind == "first_order":
        return -a * (c.held.logp[i][t] + c.held.entropy[i][t])
    if kind == "surprise_diff":
        return -(c.held.logp[i][t] - c.now.old[i][t])
    if kind == "positions":
        return c.held.entropy[i][t] - c.held.entropy[i][t - 1] if t else 0.0
    if kind == "theorem":  # Theorem 3.1 taken at its word
        return -a
    raise NotImplementedError(f"tests/methods/reference.py: entropy_change: dh-def={kind}")


def masked(tokens: str) -> Value:
    """M of Eq. 4 and of Panel E, 1 or 0."""

    def m(c: Case, i: int, t: int) -> float:
        a, dh = c.now.advantage[i], entropy_change(c, i, t)
        tolerance = c.settings.get("dh-tol") or 0.0
        sharpening = a > 0 and dh < -tolerance
        flattening = a < 0 and dh > tolerance
        return float({"positive": sharpening, "negative": flattening, "both": sharpening or flattening}[tokens])

    return m


def binary_divergence(kind: str, low: float, high: float) -> Value:
    """1 where pi(y_t) may still move the way A pushes (DPPO, 2602.04879): total variation or KL of {y_t, the rest}."""

    def m(c: Case, i: int, t: int) -> float:
        p, old, up = math.exp(c.held.logp[i][t]), math.exp(c.now.old[i][t]), c.now.advantage[i] > 0
        if kind == "tv":
            return float(p - old <= high if up else old - p <= low)
        kl = old * math.log(old / p) + (1 - old) * math.log((1 - old + 1e-8) / (1 - p + 1e-8))
        return float(kl <= high or p <= old if up else kl <= low or p >= old)

    return m


def everywhere(c: Case, i: int, t: int) -> float:
    return 1.0


def top_entropy(share: float) -> Value:
    """1 on the tokens at or above the (1 - share) quantile of all entropies: 2506.01939; never differentiated.

    A token's place is the number of others that are not above it; the quantile's place is (1 - share)(n - 1).
    """

    def m(c: Case, i: int, t: int) -> float:
        place = sum(c.held.entropy[j][u] <= c.held.entropy[i][t] for j, u in c.every()) - 1
        return float(place >= (1 - share) * (c.count - 1) - 1e-6)

    return m


# ---- losses ----


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


def ratio_method(level: str, reduce: Reducer) -> Callable[[Case], float]:
    """The clipped surrogate of the weight at this level, reduced."""
    return lambda c: -reduce(c, corrected(clipped(c, base_ratio(c, level))))


grpo = ratio_method("token", token_mean)  # with DAPO's clip-higher and token-mean (2503.14476 eq. 8)
# 2507.18071 eq. 5: mean over sequences of min(s_i A, clip(s_i) A)
gspo = ratio_method("sequence", sequence_mean_token_mean)
tepo_nokl = ratio_method("sequence", token_mean)  # Eq. 4 without its penalty
tepo_seqsum = ratio_method("sequence", sequence_mean_token_sum)  # Panel D: mean over sequences of the sum over tokens


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


def cispo(c: Case) -> float:
    """2506.13585 eq. 4-5."""
    return -token_mean(c, corrected(weighted_log_likelihood(token_ratio, *bounds(c))))


def prefix_is(c: Case) -> float:
    """Table 5's prefix weight in the paper's clipped token-mean objective; reading prefix-grad (R8)."""
    grad = c.settings.get("prefix-grad", "through")
    if grad == "stop":
        return -token_mean(c, corrected(weighted_log_likelihood(prefix_ratio, *bounds(c))))
    return -token_mean(c, corrected(clipped(c, {"through": prefix_ratio, "own_token": own_token(prefix_ratio)}[grad])))


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
    return ratio_method("token", sequence_mean_token_sum)(c) / MAX_TOKENS


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


def groups(reward: Numbers, group: Sequence[int]) -> list[list[float]]:
    """For each response the rewards of its prompt's responses."""
    return [[r for r, h in zip(reward, group, strict=True) if h == g] for g in group]


def deviation(rewards: Numbers, degrees: int = 1) -> float:
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


def settings_of(text: str) -> Settings:
    """What a key such as `tepo+beta=1+low=0.0003` says, over what the method's source prints."""
    key, *changes = text.split("+")
    settings = dict(LOSSES[key].settings)
    for change in changes:
        name, value = change.split("=")
        settings[name] = value if name == "clip-form" else number_or_word(value)
    return settings


def number_or_word(text: str) -> float | str | None:
    if text in ("none", "auto", "off"):
        return None
    try:
        return float(text)
    except ValueError:
        return text
