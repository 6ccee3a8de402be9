"""`python -m studies.sampler`: what a sampler that is not the policy does to each method's gradient.

No run is needed. A random policy over `WORDS` words and responses of a few tokens is small enough to list every
response, so that expectation and variance of the gradient are sums, not estimates. The sampler mu is a copy of the
policy pi that differs as samplers do in practice: cast to fewer bits, restricted to a nucleus, at another temperature,
or some updates old. For every method, and for every correction, the CSV has the bias of the gradient that a group of
`GROUP` responses drawn from mu gives, and its noise. The losses are those of the catalog.

The names of axes: S responses, T tokens of a response, N prefixes, V words, P = N V parameters, K numbers of right
responses in a group, B = S K rows of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from core import errors
from core.errors import Parser
from core.files import to_csv, write_text
from paper.claims import lemmas

if TYPE_CHECKING:
    from torch import Tensor

    from methods.method import Method

WORDS = 2  # the fewest with a choice: 2^8 responses of eight tokens are still listed at once
GROUP = 8  # responses to a prompt, as the paper's training
LENGTHS = (2, 4, 6, 8)  # tokens of a response, for the comparison of weights
LENGTH = 6  # for the table of methods
POLICIES = 40
SPREAD = 1.5  # standard deviation of the logits: from nearly even to nearly decided choices
TOP_P = 0.9
TEMPERATURE = 0.9
EXACT = "the policy itself"


@dataclass(frozen=True, eq=False)
class World:
    """A random policy with its reward; every response is listed."""

    logits: Tensor  # (N, V)
    reward: Tensor  # (S,), 0 or 1
    node: Tensor  # (S, T) long: the prefix before each token
    token: Tensor  # (S, T) long

    def logp_ST(self, logits_NV: Tensor) -> Tensor:  # noqa: N802
        """Log-probabilities of all tokens of all responses under a policy."""
        return logits_NV.log_softmax(-1)[self.node, self.token]

    def entropy_ST(self, logits_NV: Tensor) -> Tensor:  # noqa: N802
        """Entropies at the prefixes, nats."""
        logp_NV = logits_NV.log_softmax(-1)
        # a word outside the nucleus has probability 0 and adds nothing
        return -(logp_NV.exp() * logp_NV.nan_to_num(neginf=0.0)).sum(-1)[self.node]

    @cached_property
    def slopes(self) -> tuple[Tensor, Tensor]:
        """(S, T, P): derivatives of log-probabilities and of entropies by the policy's logits."""
        from torch.func import jacrev

        flat = [jacrev(f)(self.logits).flatten(2) for f in (self.logp_ST, self.entropy_ST)]
        return flat[0], flat[1]

    @cached_property
    def policy_gradient_P(self) -> Tensor:  # noqa: N802
        """The gradient of the expected reward."""
        import torch

        p_S = self.logp_ST(self.logits).sum(1).exp()
        return torch.einsum("s,stp->p", p_S * self.reward, self.slopes[0])


def world(seed: int, length: int) -> World:
    """The policy and the reward of this seed: equal on every machine."""
    import numpy as np
    import torch

    draw = np.random.default_rng([seed, length])
    responses = list(product(range(WORDS), repeat=length))
    # prefixes in the order of their length; a prefix's place among them names its row of logits
    prefixes = {p: n for n, p in enumerate(p for t in range(length) for p in product(range(WORDS), repeat=t))}
    reward_S = draw.integers(0, 2, size=len(responses))
    reward_S[draw.permutation(len(responses))[:2]] = 0, 1  # at least one right and one wrong response
    return World(
        logits=torch.tensor(SPREAD * draw.normal(size=(len(prefixes), WORDS))),
        reward=torch.tensor(reward_S, dtype=torch.float64),
        node=torch.tensor([[prefixes[r[:t]] for t in range(length)] for r in responses]),
        token=torch.tensor(responses),
    )


# --- Samplers: from the policy to the logits that responses are drawn from --------------------------------------------


def _cast(bits: str) -> Callable[[World], Tensor]:
    def sampler(w: World) -> Tensor:
        import torch

        return w.logits.to(getattr(torch, bits)).to(w.logits.dtype)

    return sampler


def _nucleus(w: World) -> Tensor:
    """The most probable words that together reach `TOP_P`, as engines cut; the others have probability 0."""
    p_NV, order_NV = w.logits.softmax(-1).sort(-1, descending=True)
    out_NV = (p_NV.cumsum(-1) - p_NV >= TOP_P).gather(-1, order_NV.argsort(-1))
    return w.logits.masked_fill(out_NV, -math.inf)


def _old(kl: float) -> Callable[[World], Tensor]:
    """The policy before it moved up the gradient of the expected reward by this KL(pi || mu) per token."""

    def sampler(w: World) -> Tensor:
        direction_NV = w.policy_gradient_P.view_as(w.logits) / w.policy_gradient_P.norm()
        low, high = 0.0, 10.0  # a policy that is nearly decided never reaches a large distance: then 10
        for _ in range(60):  # halving: the distance grows with the step
            middle = (low + high) / 2
            near = distance(w, w.logits - middle * direction_NV) < kl
            low, high = (middle, high) if near else (low, middle)
        return w.logits - low * direction_NV

    return sampler


def distance(w: World, logits_NV: Tensor) -> float:
    """KL(mu || pi) per token, nats: finite where mu leaves words out."""
    logp_ST, own_ST = w.logp_ST(logits_NV), w.logp_ST(w.logits)
    drawn_S = logp_ST.isfinite().all(1)
    p_S = logp_ST[drawn_S].sum(1).exp()
    return float((p_S * (logp_ST - own_ST)[drawn_S].sum(1)).sum() / logp_ST.shape[1])


SAMPLERS: dict[str, Callable[[World], Tensor]] = {
    EXACT: lambda w: w.logits,
    "bfloat16": _cast("bfloat16"),
    "float8": _cast("float8_e4m3fn"),
    f"temperature {TEMPERATURE}": lambda w: w.logits / TEMPERATURE,
    f"top-p {TOP_P}": _nucleus,
    "old, KL 0.001": _old(1e-3),
    "old, KL 0.01": _old(1e-2),
    "old, KL 0.1": _old(1e-1),
}
CORRECTED = ("grpo", "tepo")  # methods whose corrections are compared
# Their trainer holds the sampler's own weights as the old policy; the others' holds the policy's.
STALE = {name for name in SAMPLERS if name.startswith("old")}


# --- Expectation and variance of a method's gradient ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moments:
    """Of the gradient that one group of `GROUP` responses gives."""

    mean: Tensor  # (P,)
    variance: float  # trace of the covariance


def moments(method: Method, w: World, mu_NV: Tensor, old_NV: Tensor) -> Moments:
    """Of the ascent direction of `method.loss` under responses drawn from the sampler `mu_NV`.

    Given the number k of right responses, the responses of a group are independent, and each one's advantage is known.
    So the loss is taken once over every pair of a response and a k, and its derivatives by log-probability and entropy
    are carried on to the parameters: 2^T K rows instead of (2^T)^GROUP groups.
    Only for methods in whose loss a row does not depend on the other rows (`separable`).
    """
    import torch

    from methods.batch import Batch

    mu_ST = w.logp_ST(mu_NV)
    drawn_S = mu_ST.isfinite().all(1)
    p_S = torch.where(drawn_S, mu_ST.sum(1), -math.inf).exp()
    success = float(p_S @ w.reward)
    length = mu_ST.shape[1]

    # A of a right and of a wrong response, by the number of right ones
    ones_KG = (torch.arange(GROUP) < torch.arange(GROUP + 1)[:, None]).double()
    group_G, tokens_G = torch.zeros(GROUP).long(), torch.full((GROUP,), length)
    advantage_KG = torch.stack([method.advantage(ones_G, group_G, tokens_G) for ones_G in ones_KG])
    pairs = [
        (s, k)
        for s in drawn_S.nonzero().flatten().tolist()
        for k in (range(1, GROUP + 1) if w.reward[s] else range(GROUP))
    ]
    s_B, k_B = torch.tensor(pairs).unbind(1)
    right_B = w.reward[s_B] == 1
    advantage_B = torch.where(right_B, advantage_KG[k_B, 0], advantage_KG[k_B, -1])

    logp_BT = w.logp_ST(w.logits)[s_B].requires_grad_()
    entropy_BT = w.entropy_ST(w.logits)[s_B].requires_grad_()
    batch = Batch(
        logp=logp_BT,
        old_logp=w.logp_ST(old_NV)[s_B],
        sampling_logp=mu_ST[s_B],
        max_tokens=length,
        ref_logp=w.logp_ST(w.logits)[s_B],  # the first update of a run: the initial model is the policy
        advantage=advantage_B,
        mask=torch.ones_like(logp_BT, dtype=torch.bool),
        group=torch.zeros(len(pairs)).long(),
        entropy=entropy_BT,
        old_entropy=w.entropy_ST(old_NV)[s_B],
        label=method.key,
    )
    # every row as one of a group: the counts are the group's, not those of the list of pairs
    loss = method.loss(batch, tokens=GROUP * length, sequences=GROUP)
    by_logp_BT, by_entropy_BT = torch.autograd.grad(-loss, (logp_BT, entropy_BT), allow_unused=True)
    ascent_BP = torch.einsum("bt,btp->bp", by_logp_BT, w.slopes[0][s_B])
    if by_entropy_BT is not None:
        ascent_BP += torch.einsum("bt,btp->bp", by_entropy_BT, w.slopes[1][s_B])

    mean_P, square = ascent_BP.new_zeros(ascent_BP.shape[1]), 0.0
    for k in range(GROUP + 1):
        weight = math.comb(GROUP, k) * success**k * (1 - success) ** (GROUP - k)
        if weight == 0:  # a nucleus may hold right responses only
            continue
        parts = []  # of right and of wrong responses: their number, mean and mean square
        for n, right in ((k, True), (GROUP - k, False)):
            if n == 0:
                continue
            rows = (k_B == k) & (right_B == right)
            q_R = p_S[s_B[rows]] / p_S[s_B[rows]].sum()
            parts.append((n, q_R @ ascent_BP[rows], float(q_R @ ascent_BP[rows].square().sum(1))))
        mean_k_P = torch.stack([n * m_P for n, m_P, _ in parts]).sum(0)
        # E|sum g|^2 = |E sum g|^2 + the variances of the independent responses
        spread = sum(n * (s - float(m_P @ m_P)) for n, m_P, s in parts)
        mean_P += weight * mean_k_P
        square += weight * (float(mean_k_P @ mean_k_P) + spread)
    return Moments(mean_P, square - float(mean_P @ mean_P))


# --- What is compared -------------------------------------------------------------------------------------------------

NO_WEIGHT, TOKEN_WEIGHT, FULL_WEIGHT = "none", "token", "sequence, full product"


def weights() -> dict[str, Method]:
    """One loss for every importance weight: no clip, A = R - mean, so that nothing but the weight differs."""
    from methods.method import Method
    from methods.parts import Part, Parts, Terms, advantages, part, ratios, reducers, surrogates

    # A part of its own: divided over the tokens, a response with one weight of its full product counts once under the
    # token mean, as it does under the other weights.
    @part()
    def once_per_response(t: Terms) -> Tensor:
        return t.log_weight.exp() * t.advantage / t.lengths_B1

    def loss(name: str, ratio: Part, surrogate: Part) -> Method:
        parts = Parts(
            advantage=advantages.group_centred(scale="one", reward="binary"),
            ratio=ratio,
            surrogate=surrogate,
            reduce=reducers.token_mean(scope="minibatch"),
        )
        return Method(key=name, title=name, source="", parts=parts)

    # the gradient of the own token alone: through the whole prefix it is not the policy gradient, even on policy
    prefix = ratios.prefix(gradient="own_token")
    forms = {
        NO_WEIGHT: (ratios.token(), surrogates.log_likelihood()),
        TOKEN_WEIGHT: (ratios.token(), surrogates.plain()),
        "prefix, geometric mean": (prefix, surrogates.plain()),
        "sequence, geometric mean": (ratios.sequence(), surrogates.plain()),
        FULL_WEIGHT: (ratios.product(most=None), once_per_response()),
    }
    return {name: loss(name, *form) for name, form in forms.items()}


def separable(method: Method) -> bool:
    """Whether `moments` applies: a row's advantage and its part of the loss depend on its own group alone."""
    return method.scope != "batch" and "full_logp" not in method.needs


@dataclass(frozen=True)
class Row:
    """One line of the CSV: a loss under a sampler, over random policies. Medians and quartiles."""

    study: str  # weights, methods or corrections
    length: int  # tokens of a response
    sampler: str
    kl: float  # KL(mu || pi) per token, nats, median
    loss: str  # a weight, or a method key
    own_ratio: bool  # the method's old policy is the sampler; else the policy at the sampler's weights
    policies: int
    bias: float  # |E_mu[g] - E_pi[g]| / |E_pi[g]|, g the gradient of one group
    bias_q1: float
    bias_q3: float
    noise: float  # sqrt(trace Cov_mu[g]) / |E_pi[g]|
    noise_q1: float
    noise_q3: float
    cosine: float | None  # of E_mu[g] with the gradient of the expected reward; None: for a policy E_mu[g] is 0
    reference: str  # the loss that the two shares compare with
    less_bias: int  # policies on which the bias is below the reference's
    less_noise: int


def measure(
    study: str,
    length: int,
    losses: Mapping[str, Method],
    reference: str,
    *,
    own_ratio: Callable[[str, str], bool],
    samplers: Sequence[str] = tuple(SAMPLERS),
    policies: int = POLICIES,
) -> Iterator[Row]:
    """Rows for every sampler and loss; own_ratio(sampler, loss) says which old policy the trainer holds."""
    import numpy as np

    figures: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    distances: dict[str, list[float]] = {}
    for seed in range(policies):
        w = world(seed, length)
        on_policy = {name: moments(m, w, w.logits, w.logits).mean for name, m in losses.items()}
        for sampler in samplers:
            mu_NV = SAMPLERS[sampler](w)
            distances.setdefault(sampler, []).append(distance(w, mu_NV))
            for name, method in losses.items():
                found = moments(method, w, mu_NV, mu_NV if own_ratio(sampler, name) else w.logits)
                size = float(on_policy[name].norm())
                cosine = found.mean @ w.policy_gradient_P / (found.mean.norm() * w.policy_gradient_P.norm())
                figures.setdefault((sampler, name), []).append(
                    (
                        float((found.mean - on_policy[name]).norm()) / size,
                        math.sqrt(max(found.variance, 0.0)) / size,  # rounding may leave -1e-20
                        float(cosine),
                    )
                )
    for (sampler, name), values in figures.items():
        value_RC, other_RC = np.array(values), np.array(figures[sampler, reference])
        (bias_q1, noise_q1, _), (bias, noise, cosine), (bias_q3, noise_q3, _) = np.quantile(
            value_RC, (0.25, 0.5, 0.75), axis=0
        )
        # equal losses differ by rounding alone, which is no difference
        below_C = (value_RC < other_RC * (1 - 1e-9)).sum(0)
        yield Row(
            study, length, sampler, float(np.median(distances[sampler])), name, own_ratio(sampler, name), policies,
            float(bias), float(bias_q1), float(bias_q3), float(noise), float(noise_q1), float(noise_q3),
            None if math.isnan(cosine) else float(cosine),
            reference, int(below_C[0]), int(below_C[1]),
        )  # fmt: skip


def rows() -> Iterator[Row]:
    """All that the CSV holds."""
    from methods import catalog
    from methods.parts import corrections

    for length in LENGTHS:
        # the weights are what is compared: each is taken against the sampler itself
        yield from measure("weights", length, weights(), TOKEN_WEIGHT, own_ratio=lambda *_: True)
    methods = {key: catalog.parse(key) for key in catalog.entries()}
    methods = {key: method for key, method in methods.items() if separable(method)}
    yield from measure("methods", LENGTH, methods, "grpo", own_ratio=lambda sampler, _: sampler in STALE)
    for key in CORRECTED:
        corrected = {
            name: catalog.parse(name) for name in (key, *(f"{key}+correction={kind}" for kind in corrections.KINDS))
        }
        # under an old sampler the old policy is the sampler, and a correction has nothing to do
        here = [sampler for sampler in SAMPLERS if sampler not in STALE]
        yield from measure("corrections", LENGTH, corrected, key, own_ratio=lambda *_: False, samplers=here)
        alone = {key: corrected[key]}
        yield from measure("corrections", LENGTH, alone, key, own_ratio=lambda *_: True, samplers=here)


def main() -> None:
    parser = Parser(description="Bias and variance of every gradient where the sampler is not the policy.")
    parser.add_argument("--out", type=Path, default=lemmas.SAMPLER, help="CSV to write (default: paper/sampler.csv)")
    args = parser.parse_args()
    found = list(rows())
    write_text(args.out, to_csv([field.name for field in fields(Row)], [asdict(row) for row in found]))
    print(f"{args.out}  {len(found)} rows")


if __name__ == "__main__":
    errors.run(main)
