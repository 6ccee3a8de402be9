"""The identities between losses, each with the row where it fails: an equality that nothing can break proves nothing.

Every loss by itself is held by `test_reference.py`; here is what two methods have in common, and what the reference
does not reach: compositions that no key names, float32 far out, diagnostics, expectations over a vocabulary.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.errors import BenchError
from methods import catalog
from methods.batch import Batch
from methods.parts import Terms, masks, penalties, ratios
from tests.methods import reference, subjects
from tests.methods.batches import Fields, on_policy, random_fields, rows
from tests.methods.subjects import Outcome, assert_same, batch_of, check_each, distance, evaluate

EXACT = 32 * torch.finfo(torch.float64).eps
RAGGED = random_fields(101, groups=4, per_group=4, longest=9, drift=0.5)
FAR = random_fields(102, groups=4, per_group=4, longest=9, drift=1.2)
FIRST = on_policy(RAGGED)
EVEN = random_fields(103, groups=3, per_group=4, longest=6, drift=0.6, equal_lengths=True)

LONG = random_fields(105, groups=10, per_group=10, longest=210, vocabulary=3, equal_lengths=True)


def gradient(text: str, fields: Fields) -> Tensor:
    """By the current log-probabilities, (B, T)."""
    return evaluate(catalog.parse(text), fields)[1]["logp"]


def outcome(text: str, fields: Fields) -> Outcome:
    """Loss and its gradient by logp alone: what two methods with different needs have in common."""
    loss, by_leaf = evaluate(catalog.parse(text), fields)
    return loss, {"logp": by_leaf["logp"]}


def lengths(fields: Fields) -> Tensor:
    return fields["mask"].sum(1, keepdim=True).double()


def reinforce(fields: Fields) -> Tensor:
    """-A m: the gradient of the negated log-likelihood weighted by the advantage, before any denominator."""
    return -fields["advantage"][:, None] * fields["mask"]


# ---- P1: the first minibatch of a rollout is the same update for nearly every method ----


def the_first_update_is_reinforce_unless_the_reference_says_why_not(key: str) -> None:
    off = distance(gradient(key, FIRST), reinforce(FIRST) / lengths(FIRST).sum())
    why_not = reference.LOSSES[key].first_update
    assert (off <= EXACT) if why_not is None else (off > 0.01), f"{off:.1e}; {why_not}"


def test_p1_the_first_update_of_nearly_every_method_is_reinforce() -> None:
    check_each(
        sorted(set(catalog.keys()) & set(reference.LOSSES)),
        the_first_update_is_reinforce_unless_the_reference_says_why_not,
    )


# ---- losses that are equal, and where they part ----

GOOD, BAD = (rows(FAR, FAR["advantage"] * sign > 0) for sign in (1, -1))
EQUAL: list[tuple[str, str, Fields]] = [
    ("gspo", "tepo_nokl", EVEN),
    ("tepo_nokl+clip-form=eq4+low=0.05+high=0.1", "tepo_nokl+clip-form=eq4+low=none+high=0.1", FAR),
    ("gspo+clip-form=eq4+high=0.1", "gspo+high=0.1", GOOD),
    ("tepo+beta=1", "tepo_nokl", FIRST),
    ("tepo+beta=0", "tepo_nokl", FAR),
    ("tepo+beta=1+dh-tol=1000", "tepo_nokl", FAR),
    ("kl_cov+beta=0", "grpo+low=none+high=none", FAR),
    ("clip_cov+lower=1000+upper=1000", "grpo+low=1+high=1", FAR),
    ("top_entropy+share=1", "grpo", FAR),
]
APART: list[tuple[str, str, Fields, float]] = [
    ("gspo", "tepo_nokl", RAGGED, 0.1),
    ("gspo+clip-form=eq4+high=0.1+low=0.1", "gspo+high=0.1+low=0.1", BAD, 0.1),
    ("prefix_is", "prefix_is+prefix-grad=own_token", FIRST, 0.1),
    ("tepo+beta=1", "tepo_nokl", FAR, 0.01),
    ("kl_cov+fraction=0.2", "grpo+low=none+high=none", FAR, 0.01),
    ("clip_cov+fraction=0.2+lower=0", "grpo+low=1+high=1", FAR, 0.01),
    ("dr_grpo", "grpo+high=0.2", RAGGED, 0.01),
    ("grpo+agg-scope=group", "grpo", RAGGED, 0.05),
    *(("grpo", key, RAGGED, 0.01) for key in ("tepo_nokl", "gpg", "cispo", "prefix_is", "gspo")),
]


@pytest.mark.parametrize(("a", "b", "fields"), EQUAL, ids=[f"{row[0]} = {row[1]}" for row in EQUAL])
def test_two_losses_are_one(a: str, b: str, fields: Fields) -> None:
    assert_same(outcome(a, fields), outcome(b, fields), torch.float64)


@pytest.mark.parametrize(("a", "b", "fields", "by"), APART, ids=[f"{row[0]} != {row[1]}" for row in APART])
def test_two_losses_are_two(a: str, b: str, fields: Fields, by: float) -> None:
    assert distance(gradient(a, fields), gradient(b, fields)) > by


# ---- P3, P4: sequence, own-token and prefix weights ----


@pytest.mark.parametrize("key", ["tepo_nokl", "gspo", "tepo_seqsum"])
@pytest.mark.parametrize("bounds", ["", "+low=0.05+high=0.05"])
def test_p3_the_sequence_ratio_is_gspo_token_when_the_advantage_is_constant(key: str, bounds: str) -> None:
    method = catalog.parse(key + bounds)
    own = replace(method, parts=replace(method.parts, ratio=ratios.own_token(of=ratios.sequence())))
    assert_same(evaluate(own, FAR), evaluate(method, FAR), torch.float64)
    clipped = method.diagnostics(batch_of(method, FAR))["clip_fraction_tokens"]
    assert clipped is not None
    assert clipped > 0.1


def test_p3_but_not_when_the_advantage_varies_within_a_row() -> None:
    shaped = catalog.parse("entropy_adv")
    through = replace(shaped, parts=replace(shaped.parts, ratio=ratios.sequence()))
    own = replace(shaped, parts=replace(shaped.parts, ratio=ratios.own_token(of=ratios.sequence())))
    assert distance(evaluate(through, RAGGED)[1]["logp"], evaluate(own, RAGGED)[1]["logp"]) > 0.01


def test_p4_the_prefix_weight_starts_as_token_ratio_and_ends_as_sequence_ratio() -> None:
    method = catalog.parse("prefix_is")
    terms = Terms(batch_of(method, RAGGED), method.parts)
    prefix, token, sequence = (part()(terms) for part in (ratios.prefix, ratios.token, ratios.sequence))
    last = (lengths(RAGGED).long() - 1).squeeze(1)
    assert torch.equal(prefix[:, 0], token[:, 0])
    assert torch.allclose(prefix.gather(1, last[:, None]), sequence, rtol=1e-15, atol=1e-15)


# ---- P15, P16: the masked penalty, the covariance methods ----


@pytest.mark.parametrize("d", [-200.0, 200.0])  # in float32 exp is infinite from 88.7 on
@pytest.mark.parametrize(
    ("key", "estimator"),
    [
        *(("tepo", estimator) for estimator in ("k3", "k3_is", "abs", "k1", "k2")),
        *((key, "k3_is") for key in ("tepo_kl_neg", "tepo_kl_both", "tepo+kl-anchor=ref")),
    ],
)
def test_p15_a_token_outside_the_mask_pays_nothing_however_far_it_is(key: str, estimator: str, d: float) -> None:
    method = catalog.parse(f"{key}+beta=0.5+kl-estimator={estimator}")
    fields = random_fields(106, dtype=torch.float32)
    mask = method.parts.penalties[0].settings["mask"](Terms(batch_of(method, fields), method.parts))
    row, column = (fields["mask"] & ~mask).nonzero()[0].tolist()
    assert bool((fields["mask"] & mask).any())
    for name in ("logp", "old_logp", "ref_logp"):
        fields[name] = fields[name].clone()
        fields[name][row, column] = -1.0
    fields["logp" if d < 0 else "old_logp"][row, column] = -1.0 - abs(d)
    if "ref" in key and d > 0:
        fields["ref_logp"][row, column] = -1.0 - d
    got, without = outcome(method.key, fields), outcome("tepo_nokl", fields)
    assert float(got[1]["logp"][row, column]) == float(without[1]["logp"][row, column])
    assert got[0] != without[0]
    wide = {n: x.double() if x.is_floating_point() else x for n, x in fields.items()}
    assert_same(got, outcome(method.key, wide), torch.float32)


def test_p15_a_weight_is_no_mask_of_a_kl() -> None:
    penalty = penalties.kl(beta=1.0, estimator="k3", anchor="old", mask=masks.short_of_entropy(target=0.2))
    method = replace(catalog.parse("tepo"), parts=replace(catalog.parse("tepo").parts, penalties=(penalty,)))
    with pytest.raises(BenchError, match="short_of_entropy: a weight"):
        method.loss(batch_of(method, RAGGED))


def test_p15_no_token_is_masked_at_ratio_one() -> None:
    for key in ("tepo", "tepo_kl_neg", "tepo_kl_both"):
        method = catalog.parse(key)
        assert method.diagnostics(batch_of(method, FIRST))["mask_fraction"] == 0.0
        assert 0.05 < (method.diagnostics(batch_of(method, FAR))["mask_fraction"] or 0.0) < 0.95


@pytest.mark.parametrize(
    ("dtype", "precision", "change", "inside"),
    [
        (torch.float64, None, 1e-12, True),
        (torch.float32, None, 5e-7, False),  # rounding of two passes over the same state
        (torch.float32, None, 5e-6, True),
        (torch.float32, "bfloat16", 5e-7, False),  # of passes in bfloat16 in the same micro-batch, which repeat
        (torch.float32, "bfloat16", 5e-6, True),
    ],
)
def test_p15_the_tolerance_of_the_entropy_change_follows_the_dtype_and_the_passes(
    dtype: torch.dtype, precision: str | None, change: float, inside: bool
) -> None:
    fields = {n: v.to(dtype) if v.is_floating_point() else v for n, v in FAR.items()}
    fields |= {
        "old_entropy": torch.zeros_like(fields["entropy"]),
        "entropy": torch.full_like(fields["entropy"], -change),
    }
    batch = batch_of(catalog.parse("tepo"), fields, precision=precision)
    share = catalog.parse("tepo").diagnostics(batch)["mask_fraction"]
    positive = ((fields["advantage"] > 0)[:, None] & fields["mask"]).sum() / fields["mask"].sum()
    assert share == pytest.approx(float(positive) if inside else 0.0)


def test_p16_the_printed_fractions_count_tokens() -> None:
    """2e-3 and 2e-4 of 21000 tokens are 42 and 4: a fraction that is off by half would not show in a small batch."""
    penalised = gradient("kl_cov", LONG) != gradient("kl_cov+beta=0", LONG)
    dropped = (gradient("clip_cov", LONG) == 0) & (gradient("grpo+low=1+high=1", LONG) != 0)
    assert (int(penalised.sum()), int(dropped.sum())) == (42, 4)


def the_fraction_selects_as_many(text: str) -> None:
    method = catalog.parse(text)
    share = method.diagnostics(batch_of(method, LONG))["mask_fraction"]
    assert share is not None
    assert round(share * 21000) == (42 if text.startswith("kl_cov") else 4)


def test_p16_whatever_the_reading_the_fraction_selects_as_many() -> None:
    check_each([t for t in subjects.shapes() if t.startswith(("kl_cov", "clip_cov"))], the_fraction_selects_as_many)
    method = catalog.parse("top_entropy")
    assert method.diagnostics(batch_of(method, LONG))["mask_fraction"] == pytest.approx(0.8)


# ---- diagnostics ----


@pytest.mark.parametrize(
    "text",
    [
        *("grpo", "grpo+dual-clip=3", "entropy_adv", "cispo", "gpg", "clip_cov+lower=1000+upper=1000"),
        *("gspo", "tepo_nokl", "tepo_nokl+clip-form=eq4", "tepo_seqsum+seq-eps=gspo", "kl_cov+beta=0"),
        *("prefix_is+prefix-grad=own_token", "prefix_is+prefix-grad=stop"),
    ],
)
def test_the_clip_fraction_is_the_share_of_tokens_without_gradient(text: str) -> None:
    method = catalog.parse(text)
    got = method.diagnostics(batch_of(method, FAR))
    silent = (gradient(text, FAR) == 0) & FAR["mask"]
    assert got["clip_fraction_tokens"] == pytest.approx(float(silent.sum() / FAR["mask"].sum()))
    assert got["clip_fraction_sequences"] == pytest.approx(float((silent | ~FAR["mask"]).all(1).double().mean()))


# ---- P13, P14: penalties in expectation, summed exactly over the actions of a softmax policy ----

VOCABULARY = 7


def policies(seed: int, drift: float = 0.5) -> tuple[Tensor, Tensor]:
    """Logits of the current policy, with gradient, and log-probabilities of the old one, (V,)."""
    draw = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64)
    old = logits + drift * torch.randn(VOCABULARY, generator=draw, dtype=torch.float64)
    return logits.requires_grad_(), old.log_softmax(0)


def expected_penalty(estimator: str, logits: Tensor, old_logp: Tensor, anchor: Tensor | None = None) -> Tensor:
    """Gradient by the logits of E_{a ~ old}[penalty(a)]: with advantage 0 only the penalty is left of a loss."""
    full = logits.log_softmax(0)
    total = torch.zeros((), dtype=torch.float64)
    for action in range(VOCABULARY):
        batch = Batch(
            logp=full[action].view(1, 1),
            old_logp=old_logp[action].view(1, 1),
            ref_logp=(old_logp if anchor is None else anchor)[action].view(1, 1),
            full_logp=full.view(1, 1, -1),
            old_full_logp=old_logp.view(1, 1, -1),
            advantage=torch.zeros(1, dtype=torch.float64),
            mask=torch.ones(1, 1, dtype=torch.bool),
            group=torch.zeros(1, dtype=torch.long),
        )
        against = "old" if anchor is None else "ref"
        method = catalog.parse(f"tepo_kl_all+beta=1+kl-estimator={estimator}+kl-anchor={against}")
        total = total + old_logp[action].exp() * method.loss(batch)
    return torch.autograd.grad(total, logits)[0]


def kl_gradient(logits: Tensor, other: Tensor) -> Tensor:
    """By the logits, of KL(current || other)."""
    full = logits.log_softmax(0)
    return torch.autograd.grad((full.exp() * (full - other)).sum(), logits)[0]


@pytest.mark.parametrize("estimator", ["k1", "abs", "k2", "k3", "k3_is", "full"])
def test_p13_on_policy_the_expected_penalty_has_no_gradient(estimator: str) -> None:
    logits, _ = policies(1)
    old = logits.detach().log_softmax(0)
    assert float(expected_penalty(estimator, logits, old).abs().max()) <= EXACT


def test_p14_weighted_k3_and_the_full_sum_are_the_gradient_of_the_kl_and_the_others_are_not() -> None:
    """k1 pushes away from the old policy; `full` holds the whole gradient at every sampled token."""
    for seed in range(5):
        logits, old = policies(seed)
        wanted = kl_gradient(logits, old)
        for estimator in ("k3_is", "full"):
            assert distance(expected_penalty(estimator, logits, old), wanted) <= 2 * EXACT, estimator
        for estimator in ("k1", "k2", "k3", "abs"):
            assert distance(expected_penalty(estimator, logits, old), wanted) > 0.01, estimator
        # samples come from the old policy, so r = pi/pi_old also where the KL is to another reference
        other = policies(seed + 5)[1]
        got = expected_penalty("k3_is", logits, old, anchor=other)
        assert distance(got, kl_gradient(logits, other)) <= 2 * EXACT
