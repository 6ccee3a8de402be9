"""The parts of every loss once more, slowly: plain Python floats and loops, written from the printed equations alone.

Padding does not exist here: row i is the list of its response tokens. A stop-gradient sg[x] is x taken from `held`, the
batch as it stood before any perturbation; everything else is taken from `now`. Finite differences that move `now` and
leave `held` alone are therefore the gradient that autograd must give. `reference.py` composes the parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Rows = list[list[float]]


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
