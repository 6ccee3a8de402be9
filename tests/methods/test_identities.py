"""What `test_reference.py`, which holds each loss alone, does not reach: float32 far out, fractions, diagnostics."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.errors import BenchError
from methods import catalog
from methods.parts import Terms, masks, penalties
from tests.methods import reference, subjects
from tests.methods.batches import Fields, on_policy, random_fields
from tests.methods.subjects import Outcome, assert_same, batch_of, check_each, distance, evaluate

EXACT = 32 * torch.finfo(torch.float64).eps
RAGGED = random_fields(101, groups=4, per_group=4, longest=9, drift=0.5)
FAR = random_fields(102, groups=4, per_group=4, longest=9, drift=1.2)
FIRST = on_policy(RAGGED)

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
