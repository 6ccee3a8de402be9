"""The laboratory against a listing of whole groups that shares nothing with it, and the kept figures against it."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations_with_replacement

import pytest
import torch

from core.files import read_csv
from methods import catalog
from methods.batch import Batch
from paper.claims import lemmas
from studies import sampler
from studies.sampler import (
    EXACT,
    FULL_WEIGHT,
    GROUP,
    NO_WEIGHT,
    SAMPLERS,
    TOKEN_WEIGHT,
    World,
    moments,
    weights,
    world,
)

METHODS = (
    "grpo", "tepo", "tepo_nokl+clip-form=eq4", "gpg", "cispo", "prefix_is", "entropy_adv", "grpo+low=0.01+high=0.01",
    "reinforce_pp", "dr_grpo", "maxrl", "sapo", "gmpo", "dppo_tv", "grpo+correction=tis", "tepo+correction=seq-rs",
)  # fmt: skip


KEPT = read_csv(lemmas.SAMPLER, "what the sampler changes", ["study", "loss"])


def _kept(study: str, length: int, name: str, loss: str) -> dict[str, str]:
    """The first kept row of these names."""
    names = study, str(length), name, loss
    return next(row for row in KEPT if (row["study"], row["length"], row["sampler"], row["loss"]) == names)


def listed(method, w: World, mu: torch.Tensor, old: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Mean and variance over every group of responses, by one loss and one backward pass for each."""
    probability = w.logp_ST(mu).sum(1).exp()
    mean, square = torch.zeros(w.logits.numel(), dtype=torch.float64), 0.0
    for group in combinations_with_replacement(range(len(probability)), GROUP):
        s, counts = list(group), Counter(group)
        weight = math.factorial(GROUP) * math.prod(
            float(probability[i]) ** n / math.factorial(n) for i, n in counts.items()
        )
        if weight == 0:
            continue
        logits = w.logits.clone().requires_grad_()
        logp = logits.log_softmax(-1)[w.node[s], w.token[s]]
        batch = Batch(
            logp=logp,
            old_logp=w.logp_ST(old)[s],
            ref_logp=w.logp_ST(w.logits)[s],
            advantage=method.advantage(w.reward[s], torch.zeros(GROUP).long(), torch.full((GROUP,), logp.shape[1])),
            sampling_logp=w.logp_ST(mu)[s],
            max_tokens=logp.shape[1],
            mask=torch.ones_like(logp, dtype=torch.bool),
            group=torch.zeros(GROUP).long(),
            entropy=torch.distributions.Categorical(logits=logits).entropy()[w.node[s]],
            old_entropy=w.entropy_ST(old)[s],
        )
        (gradient,) = torch.autograd.grad(-method.loss(batch), logits)
        mean += weight * gradient.flatten()
        square += weight * float(gradient.square().sum())
    return mean, square - float(mean @ mean)


@pytest.mark.parametrize("name", [EXACT, "old, KL 0.1", f"top-p {sampler.TOP_P}"])
def test_moments_are_those_of_all_groups(name: str) -> None:
    w = world(3, 2)
    mu = SAMPLERS[name](w)
    old = mu if name in sampler.STALE else w.logits
    for key in METHODS:
        method = catalog.parse(key)
        exact = moments(method, w, mu, old)
        mean, variance = listed(method, w, mu, old)
        size = float(mean.norm())
        assert (exact.mean - mean).abs().max() <= 1e-13 * max(size, 1), key
        assert exact.variance == pytest.approx(variance, rel=1e-10), key


@pytest.mark.parametrize("name", [name for name in SAMPLERS if not name.startswith("top-p")])
def test_only_the_full_product_is_unbiased(name: str) -> None:
    w = world(1, 4)
    mu = SAMPLERS[name](w)
    forms = weights()
    target = moments(forms[NO_WEIGHT], w, w.logits, w.logits).mean
    # A = R - mean of all takes the own reward along: (1 - 1/G) of the policy gradient, spread over the tokens
    torch.testing.assert_close(target * 4, w.policy_gradient_P * (1 - 1 / GROUP), rtol=1e-12, atol=1e-15)
    bias = {form: float((moments(m, w, mu, mu).mean - target).norm() / target.norm()) for form, m in forms.items()}
    assert bias[FULL_WEIGHT] < 1e-12
    if name != EXACT:
        assert all(value > 1e-5 for form, value in bias.items() if form != FULL_WEIGHT)


def test_the_kept_figures_are_those_of_this_code() -> None:
    """One sampler and two losses, over all policies; `python -m studies.sampler` makes the file anew.

    And the corrections at their own bounds, which are part of what the page says of them.
    """
    forms = {name: form for name, form in weights().items() if name in (TOKEN_WEIGHT, "sequence, geometric mean")}
    again = [
        *sampler.measure("weights", 4, forms, TOKEN_WEIGHT, own_ratio=lambda *_: True, samplers=["old, KL 0.01"]),
        *sampler.measure(
            "methods",
            sampler.LENGTH,
            {key: catalog.parse(key) for key in ("grpo", "tepo")},
            "grpo",
            own_ratio=lambda *_: True,
            samplers=["old, KL 0.01"],
        ),
        *sampler.measure(
            "corrections",
            sampler.LENGTH,
            {key: catalog.parse(key) for key in ("grpo", "grpo+correction=geo-rs", "grpo+correction=seq-mis")},
            "grpo",
            own_ratio=lambda *_: False,
            samplers=[f"temperature {sampler.TEMPERATURE}"],
        ),
    ]
    for row in again:
        kept = _kept(row.study, row.length, row.sampler, row.loss)
        assert (int(kept["less_bias"]), int(kept["less_noise"])) == (row.less_bias, row.less_noise)
        assert (float(kept["bias"]), float(kept["noise"])) == pytest.approx((row.bias, row.noise), rel=1e-9)


@pytest.mark.parametrize("name", [name for name in SAMPLERS if name not in (EXACT, *sampler.STALE)])
def test_the_bounds_that_act_are_those_that_the_page_names(name: str) -> None:
    def bias(key: str) -> float:
        return float(_kept("corrections", sampler.LENGTH, name, key)["bias"])

    free = bias("grpo")
    assert [bias(f"grpo+correction={kind}") for kind in ("token-rs", "seq-rs")] == pytest.approx([free] * 2, rel=5e-3)
    assert bias("grpo+correction=icepop") == pytest.approx(bias("grpo+correction=tis"), rel=5e-3)
    assert bias("grpo+correction=seq-tis") < 0.9 * free
    assert (bias("grpo+correction=geo-rs") > 0.9) == (name != "bfloat16")


def test_every_method_is_there_or_named_as_left_out() -> None:
    kept = {row["loss"] for row in KEPT if row["study"] == "methods"}
    for key in catalog.entries():
        assert (key in kept) == sampler.separable(catalog.parse(key)), key
