"""The identities between losses, each with the row where it fails: an equality that nothing can break proves nothing.

P1 to P21 number the identities in the names of tests. Padding, permutation and splits (P12, P21) are tested in
`test_properties.py`, what needs a whole vocabulary (P13, P14, P19) in `test_vocabulary.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from core.errors import BenchError
from methods import catalog
from methods.parts import Terms, masks, penalties, ratios, reducers
from tests.methods import reference, subjects
from tests.methods.batches import MAX_TOKENS, Fields, on_policy, random_fields, rows
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


def same(a: str, b: str, fields: Fields) -> None:
    assert_same(outcome(a, fields), outcome(b, fields), torch.float64)


def differ(a: str, b: str, fields: Fields, by: float = 0.01) -> None:
    assert distance(gradient(a, fields), gradient(b, fields)) > by


def lengths(fields: Fields) -> Tensor:
    return fields["mask"].sum(1, keepdim=True).double()


def reinforce(fields: Fields) -> Tensor:
    """-A m: the gradient of the negated log-likelihood weighted by the advantage, before any denominator."""
    return -fields["advantage"][:, None] * fields["mask"]


def scaled(x: Outcome, factor: float) -> Outcome:
    return x[0] * factor, {name: g * factor for name, g in x[1].items()}


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


@pytest.mark.parametrize(
    "text",
    [
        "prefix_is+prefix-grad=own_token",
        "prefix_is+prefix-grad=stop",
        "tepo+clip-form=eq4+beta=1",
        "tepo+clip-form=none+beta=1",
        "tepo+dh-def=theorem+beta=1",
        "tepo_kl_all+kl-estimator=k2+beta=1",
        "tepo_kl_all+kl-estimator=abs+beta=1",
        "tepo_kl_all+kl-estimator=k3_is+beta=1",
        "kl_cov+fraction=1",
        "clip_cov+lower=1000+upper=1000",
        "grpo+dual-clip=3",
    ],
)
def test_p1_readings_whose_first_update_is_reinforce(text: str) -> None:
    assert distance(gradient(text, FIRST), reinforce(FIRST) / lengths(FIRST).sum()) <= EXACT


@pytest.mark.parametrize("text", ["gspo", "grpo_2024+beta=0"])
def test_p1_with_sequence_means_the_first_update_is_reinforce_over_lengths(text: str) -> None:
    wanted = reinforce(FIRST) / lengths(FIRST) / len(lengths(FIRST))
    assert distance(gradient(text, FIRST), wanted) <= EXACT


def test_p1_with_sequence_sums_the_first_update_is_reinforce_over_rows() -> None:
    assert distance(gradient("tepo_seqsum", FIRST), reinforce(FIRST) / len(lengths(FIRST))) <= EXACT


def test_p1_off_policy_the_methods_part() -> None:
    for key in ("tepo_nokl", "gpg", "cispo", "prefix_is", "gspo"):
        differ("grpo", key, RAGGED)


# ---- P2, P3, P4: sequence, own-token and prefix weights ----


def test_p2_equal_lengths_make_tepo_without_kl_gspo() -> None:
    same("gspo", "tepo_nokl", EVEN)
    differ("gspo", "tepo_nokl", RAGGED, by=0.1)


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


def test_p4_through_and_own_token_differ_even_on_policy() -> None:
    differ("prefix_is", "prefix_is+prefix-grad=own_token", FIRST, by=0.1)


# ---- P5, P6, P7: CISPO, Eq. 4 as printed, Algorithm 1's line 21 ----


def test_p5_cispo_without_bounds_is_grpo_without_a_clip() -> None:
    a, b = gradient("cispo+high=none", FAR), gradient("grpo+low=none+high=none", FAR)
    assert distance(a, b) <= EXACT


def test_p5_cispo_keeps_the_gradient_that_grpo_clips_away() -> None:
    a, b = gradient("cispo+cispo=two-sided", FAR), gradient("grpo", FAR)
    ratio = (FAR["logp"] - FAR["old_logp"]).exp()
    inside = (ratio > 0.8) & (ratio < 1.28) & FAR["mask"]
    clipped = (b == 0) & FAR["mask"]
    assert distance(a[inside], b[inside]) <= EXACT
    assert int(clipped.sum()) > 10
    assert bool((a[clipped] != 0).all())


@pytest.mark.parametrize("key", ["tepo_nokl", "gspo", "tepo_seqsum"])
def test_p6_eq4_literally_is_min_of_w_and_its_upper_bound(key: str) -> None:
    same(f"{key}+clip-form=eq4+low=0.05+high=0.1", f"{key}+clip-form=eq4+low=none+high=0.1", FAR)
    good = rows(FAR, FAR["advantage"] > 0)
    same(f"{key}+clip-form=eq4+high=0.1", f"{key}+clip-form=ppo+high=0.1", good)
    bad = rows(FAR, FAR["advantage"] < 0)
    differ(f"{key}+clip-form=eq4+high=0.1+low=0.1", f"{key}+clip-form=ppo+high=0.1+low=0.1", bad, by=0.1)


def test_p7_line_21_is_the_gradient_over_the_length_and_so_gspo_scaled() -> None:
    line21 = gradient("tepo_nokl+clip-form=none+gradient=alg1_line21", FAR)
    true = gradient("tepo_nokl+clip-form=none", FAR)
    tokens, sequences = lengths(FAR).sum(), len(lengths(FAR))
    assert distance(line21, true / lengths(FAR)) <= EXACT
    assert distance(line21, gradient("gspo+clip-form=none", FAR) * sequences / tokens) <= EXACT
    assert distance(line21, true) > 0.5


# ---- P8 to P11: reducers ----


@pytest.mark.parametrize("fields", [RAGGED, FAR, FIRST], ids=["ragged", "far", "first"])
def test_p8_the_token_sum_is_the_token_mean_times_tokens_per_sequence(fields: Fields) -> None:
    factor = float(lengths(fields).sum()) / len(lengths(fields))
    assert_same(outcome("tepo_seqsum", fields), scaled(outcome("tepo_nokl", fields), factor), torch.float64)


def test_p8_a_fixed_length_as_denominator_is_the_token_sum_over_that_length() -> None:
    b, t = RAGGED["mask"].shape
    fixed = evaluate(catalog.parse("tepo_nokl"), RAGGED, tokens=b * t)
    assert_same(fixed, scaled(outcome("tepo_seqsum", RAGGED), 1 / t), torch.float64)


def test_p8_dr_grpo_is_the_token_mean_with_the_limit_as_every_length() -> None:
    limited = evaluate(catalog.parse("grpo+high=0.2"), RAGGED, tokens=len(RAGGED["mask"]) * MAX_TOKENS)
    assert_same(outcome("dr_grpo", RAGGED), limited, torch.float64)
    differ("dr_grpo", "grpo+high=0.2", RAGGED)


def test_p9_group_and_minibatch_means_agree_when_groups_hold_equally_many_tokens() -> None:
    balanced = rows(RAGGED, torch.arange(8))
    balanced["mask"] = balanced["mask"].clone()
    balanced["mask"][4:] = balanced["mask"][:4].flip(0)
    balanced |= {name: -balanced[name].abs() for name in ("logp", "old_logp")}  # what was padding is now a token
    assert len(set(lengths(balanced).flatten().tolist())) > 1
    same("grpo+agg-scope=group", "grpo", balanced)
    differ("grpo+agg-scope=group", "grpo", RAGGED, by=0.05)


def test_p10_a_micro_batchs_own_token_count_is_another_loss() -> None:
    tokens, sequences = int(lengths(RAGGED).sum()), len(lengths(RAGGED))
    method = catalog.parse("grpo+agg-scope=microbatch")
    parts = [rows(RAGGED, slice(i, i + 4)) for i in range(0, sequences, 4)]
    split = torch.cat([evaluate(method, p, tokens=tokens, sequences=sequences)[1]["logp"] for p in parts])
    assert distance(split, gradient("grpo", RAGGED)) > 0.05


def test_p11_sequence_means_of_the_first_update_are_zero_and_token_means_are_not() -> None:
    assert abs(evaluate(catalog.parse("gspo"), FIRST)[0]) <= EXACT
    assert abs(evaluate(catalog.parse("tepo_nokl"), FIRST)[0]) > 0.01


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


@pytest.mark.parametrize("key", ["tepo", "tepo_kl_neg", "tepo_kl_both"])
def test_p15_tepo_is_tepo_without_kl_when_nothing_is_masked(key: str) -> None:
    same(f"{key}+beta=1", "tepo_nokl", FIRST)
    same(f"{key}+beta=0", "tepo_nokl", FAR)
    same(f"{key}+beta=1+dh-tol=1000", "tepo_nokl", FAR)
    differ(f"{key}+beta=1", "tepo_nokl", FAR)


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


def test_p15_the_two_masks_are_disjoint_and_both_is_their_union() -> None:
    base, positive, negative, both = (
        outcome(f"{key}{'' if key == 'tepo_nokl' else '+beta=1'}", FAR)
        for key in ("tepo_nokl", "tepo", "tepo_kl_neg", "tepo_kl_both")
    )
    penalty = [x[1]["logp"] - base[1]["logp"] for x in (positive, negative)]
    assert not ((penalty[0].abs() > EXACT) & (penalty[1].abs() > EXACT)).any()
    joint = positive[0] + negative[0] - base[0], {"logp": base[1]["logp"] + penalty[0] + penalty[1]}
    assert_same(joint, both, torch.float64)


def test_p15_the_mask_lies_inside_the_undifferentiated_penalty() -> None:
    everywhere = gradient("tepo_kl_all+beta=1", FAR) - gradient("tepo_nokl", FAR)
    masked = gradient("tepo+beta=1", FAR) - gradient("tepo_nokl", FAR)
    inside = (FAR["advantage"] > 0)[:, None] & (FAR["entropy"] < FAR["old_entropy"]) & FAR["mask"]
    assert torch.allclose(masked, everywhere * inside, rtol=0, atol=1e-15)


def test_p16_kl_cov_without_penalty_is_grpo_without_a_clip() -> None:
    same("kl_cov+beta=0", "grpo+low=none+high=none", FAR)
    differ("kl_cov+fraction=0.2", "grpo+low=none+high=none", FAR)


def test_p16_clip_cov_with_an_empty_band_is_grpo_at_its_clip() -> None:
    same("clip_cov+lower=1000+upper=1000", "grpo+low=1+high=1", FAR)
    differ("clip_cov+fraction=0.2+lower=0", "grpo+low=1+high=1", FAR)


def test_p16_clip_cov_drops_its_quota_and_only_candidates() -> None:
    full, some = gradient("grpo+low=1+high=1", FAR), gradient("clip_cov+fraction=0.05+lower=0+upper=100", FAR)
    dropped = (full != 0) & (some == 0)
    a = (FAR["advantage"][:, None] * FAR["mask"]).sum() / FAR["mask"].sum()
    p = (FAR["logp"] * FAR["mask"]).sum() / FAR["mask"].sum()
    cov = (FAR["advantage"][:, None] - a) * (FAR["logp"] - p)
    assert int(dropped.sum()) == int(0.05 * int(FAR["mask"].sum()))
    assert bool((cov[dropped] > 0).all())


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


# ---- P17, P18, P20: entropy advantage, advantages, STEER ----


@pytest.mark.parametrize(("alpha", "kappa"), [(0.4, 2.0), (4e-4, 2.0), (100.0, 1.5)])
def test_p17_the_entropy_bonus_never_flips_a_sign_and_stays_below_its_share(alpha: float, kappa: float) -> None:
    loss_gradient = evaluate(catalog.parse(f"entropy_adv+alpha={alpha}+kappa={kappa}"), FIRST)[1]
    shaped = -loss_gradient["logp"] * lengths(FIRST).sum()
    plain = FIRST["advantage"][:, None].expand_as(shaped)
    valid = FIRST["mask"]
    assert bool((shaped.sign() == plain.sign())[valid].all())
    assert bool(((shaped - plain)[valid] >= 0).all())
    assert bool(((shaped - plain).abs() <= plain.abs() / kappa * (1 + 1e-14))[valid].all())
    assert not loss_gradient["entropy"].any()


@pytest.mark.parametrize("std", ["unbiased", "biased", "unbiased-1e-4"])
def test_p18_standardised_advantages_ignore_affine_rewards(std: str) -> None:
    method, reward, group = catalog.parse(f"grpo+adv-std={std}"), torch.randn(12).double(), torch.arange(12) // 4
    a, b = method.advantage(reward, group), method.advantage(1e6 * reward - 5e5, group)
    eps = 1e-4 if std.endswith("1e-4") else 1e-6
    deviation = min(float(r.std(correction=int(std != "biased"))) for r in reward.view(3, 4))
    assert distance(a, b) <= 1.1 * eps / deviation


def test_p18_gpg_doubles_when_rewards_are_plus_and_minus_one() -> None:
    method, group = catalog.parse("gpg"), torch.arange(8) // 4
    reward = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0.0]).double()
    assert torch.equal(method.advantage(2 * reward - 1, group), 2 * method.advantage(reward, group))
    for scale in ("one", "std", "informative", "inverse-accuracy"):
        plain, signed = (catalog.parse(f"gpg+gpg-scale={scale}+reward={kind}") for kind in ("binary", "signed"))
        assert torch.equal(signed.advantage(reward, group), plain.advantage(2 * reward - 1, group)), scale


# Four prompts of six responses: rewards 0 and 1, every share of right answers between.
BINARY = (
    torch.tensor([[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 0]]).double().flatten()
)
PROMPTS = torch.arange(24) // 6
UNEQUAL, ALIKE = torch.arange(1, 25) % 7 + 1, torch.full((24,), 5)


def advantage(key: str, lengths: Tensor = UNEQUAL, reward: Tensor = BINARY) -> Tensor:
    return catalog.parse(key).advantage(reward, PROMPTS, lengths)


def test_p18_maxrl_is_the_centred_reward_over_the_share_of_right_answers() -> None:
    right = BINARY.view(4, 6).mean(1).repeat_interleave(6)
    assert distance(advantage("maxrl") * right, advantage("dr_grpo")) <= EXACT
    # the gradient of log p: of right answers 1/p - 1, of wrong ones -1
    assert distance(advantage("maxrl")[BINARY == 0], -torch.ones(int((BINARY == 0).sum())).double()) <= EXACT
    assert distance(advantage("maxrl")[BINARY == 1], (1 / right - 1)[BINARY == 1]) <= EXACT
    assert torch.equal(advantage("maxrl", reward=0 * BINARY), 0 * BINARY)


def test_p18_rloo_is_the_centred_reward_of_n_over_n_minus_1() -> None:
    assert distance(advantage("rloo"), advantage("dr_grpo") * 6 / 5) <= EXACT
    assert torch.equal(advantage("rloo"), advantage("rloo_sequence"))


def test_p18_opo_weighs_by_length_and_leaves_no_advantage_per_token() -> None:
    assert distance(advantage("opo", ALIKE), advantage("dr_grpo")) <= EXACT
    assert distance(advantage("opo"), advantage("dr_grpo")) > 0.05
    assert float((advantage("opo") * UNEQUAL).view(4, 6).sum(1).abs().max()) <= EXACT


@pytest.mark.parametrize("key", ["reinforce_pp", "reinforce_pp_baseline"])
def test_p18_reinforce_pp_has_mean_0_and_variance_1_over_the_tokens_of_the_whole_rollout(key: str) -> None:
    """Of the whole: cutting the rollout in two and whitening each half would give others."""
    whole = advantage(key)
    tokens = whole.repeat_interleave(UNEQUAL)
    assert abs(float(tokens.mean())) <= EXACT
    assert float(tokens.var()) == pytest.approx(1, rel=1e-6)  # 1e-8 beside the variance
    method = catalog.parse(key)
    halves = [method.advantage(BINARY[at], PROMPTS[at], UNEQUAL[at]) for at in (slice(0, 12), slice(12, 24))]
    assert distance(torch.cat(halves), whole) > 0.05
    assert method.scope == "token", "it is computed before minibatches are made, so that they may be cut"


def test_p16_all_tokens_are_the_top_entropy_tokens_when_the_share_is_1() -> None:
    same("top_entropy+share=1", "grpo", FAR)
    method = catalog.parse("top_entropy")
    assert method.diagnostics(batch_of(method, LONG))["mask_fraction"] == pytest.approx(0.8)
    kept = gradient("top_entropy+low=none+high=none", FAR) != 0
    chosen, others = FAR["entropy"][kept], FAR["entropy"][FAR["mask"] & ~kept]
    assert float(chosen.min()) > float(others.max())


@pytest.mark.parametrize("map_", ["exp", "linear"])
def test_p20_steer_weights_fall_from_one_to_lambda_min(map_: str) -> None:
    fields = FIRST | {"advantage": FIRST["advantage"].clone()}
    steer = gradient(f"tepo_steer+ratio=token+map={map_}+lambda-min=0.6", fields)
    weight = (steer / gradient("grpo", fields))[fields["mask"]]
    assert float(weight.min()) == pytest.approx(0.6, rel=1e-14)
    assert float(weight.max()) <= 1.0
    assert len(weight.unique()) > 10
    faint = fields | {"advantage": 1e-4 * fields["advantage"]}  # every |Omega| below the floor of 0.02
    weight = gradient(f"tepo_steer+ratio=token+map={map_}", faint) / gradient("grpo", faint)
    assert float(weight[faint["mask"]].min()) > 0.99


def test_max_and_min_entropy_are_mirror_images() -> None:
    up, down = (evaluate(catalog.parse(key), FAR) for key in ("tepo_maxent", "tepo_minent"))
    base = evaluate(catalog.parse("tepo_nokl"), FAR)
    assert up[0] + down[0] == pytest.approx(2 * base[0], abs=1e-15)
    assert torch.equal(up[1]["entropy"], -down[1]["entropy"])
    assert float(up[1]["entropy"].sum()) == pytest.approx(-1e-3)


def test_every_reducer_weighs_rows_as_its_name_says() -> None:
    """Gradient mass of a row on-policy: |y|/N, 1/B, |y|/B."""
    b, n = len(lengths(FIRST)), lengths(FIRST).sum()
    mass = [
        (reducers.token_mean(scope="minibatch"), lengths(FIRST) / n),
        (reducers.seq_mean_token_mean(), torch.full_like(lengths(FIRST), 1 / b)),
        (reducers.seq_mean_token_sum(), lengths(FIRST) / b),
    ]
    batch = batch_of(catalog.parse("grpo"), FIRST)
    for reduce, wanted in mass:
        x = torch.ones(FIRST["mask"].shape, dtype=torch.float64, requires_grad=True)
        (got,) = torch.autograd.grad(reduce(x, batch, None, None), x)
        assert distance(got.sum(1, keepdim=True), wanted) <= EXACT


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
