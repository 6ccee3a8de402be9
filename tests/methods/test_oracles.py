"""Every method that verl 0.9.1 or TRL 1.16.0 also has, against them: loss and gradient, float64 and float32.

And the traps: what each of them does when nobody sets it, as assertions, so that an upgrade that moves one is seen.
verl and TRL take seconds to import; everything that needs them stands in this module.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pytest
import torch
from torch import Tensor

from methods import catalog
from tests.methods import oracles
from tests.methods.batches import MAX_TOKENS, Fields, random_fields, rows
from tests.methods.oracles import Answer, trl, trl_rloo, verl
from tests.methods.subjects import assert_same, check_each, distance, evaluate

SMTM, SMTS = "seq-mean-token-mean", "seq-mean-token-sum"
# verl divides a sequence by |y| + 1e-8: that much, and no more, is granted where its sequence mean is the oracle. In
# its GMPO the weight's exponent, its gradient and the advantage are all divided so.
PER_SEQUENCE = {f"verl gspo, {SMTM}": 1e-8, "verl sapo": 1e-8, "verl geo_mean": 3e-8}
# TRL holds its temperatures in float32 whatever the log-probs are.
TRL_TAU = float(torch.tensor(1.05))


def _batch(seed: int, **shape: object) -> Fields:
    """Entropies as float32 holds them: TRL rounds its quantile to float32, and would leave out the token that it is."""
    fields = random_fields(seed, groups=4, per_group=4, longest=12, **shape)  # type: ignore[arg-type]
    return fields | {"entropy": fields["entropy"].float().double()}


BATCHES: dict[str, Fields] = {
    "ragged": _batch(21),
    "far": _batch(22, drift=1.5),
    "holes": _batch(23, holes=True),
    "on-policy": _batch(24, on_policy=True),
}


def _verl(name: str, **settings: object) -> Callable[[Fields], Answer]:
    return lambda fields: verl(name, fields, **settings)  # type: ignore[arg-type]


def _trl(loss_type: str, level: str = "token", **settings: object) -> Callable[[Fields], Answer]:
    return lambda fields: trl(fields, loss_type=loss_type, level=level, **settings)  # type: ignore[arg-type]


def _clip_cov(**settings: object) -> Callable[[Fields], Answer]:
    """verl draws from the global generator: the same seed there as `evaluate` gives ours."""

    def answer(fields: Fields) -> Answer:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return verl("clip_cov", fields, **settings)  # type: ignore[arg-type]

    return answer


def _rejecting(rule: str, low: float, high: float, **weight: object) -> Callable[[Fields], Answer]:
    """verl's vanilla loss after rejection, over all tokens: its own mean is over those that are left (a trap, below).

    Its k1 is log pi_sampler / pi_old: bounds of rho are the reciprocals of its thresholds.
    """

    def answer(fields: Fields) -> Answer:
        given = {"rollout_rs": rule, "rollout_rs_threshold": f"{1 / high}_{1 / low}"} | weight
        return verl("vanilla", fields, correction=given, totals={"batch_num_tokens": int(fields["mask"].sum())})

    return answer


def _bypassing(name: str, **settings: object) -> Callable[[Fields], Answer]:
    """verl's `bypass_mode`: the sampler's log-probs are the old ones."""
    return lambda fields: _verl(name, **settings)(fields | {"old_logp": fields["sampling_logp"]})


TOKEN, SEQUENCE = ({"rollout_is": level, "rollout_is_threshold": 1.5} for level in ("token", "sequence"))
BOTH = {"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"}
TIS = "correction=tis+correction-cap=1.5"
ICEPOP = "correction=icepop+correction-cap=1.5+correction-floor=0.5"
CORRECTED: list[tuple[str, str, Callable[[Fields], Answer]]] = [
    (f"grpo+{TIS}", "verl vanilla, rollout_is token", _verl("vanilla", correction=TOKEN)),
    (f"grpo+{TIS}", "TRL token_truncate", _trl("dapo", mode="token_truncate", clip_max=1.5)),
    (f"grpo+{TIS}+correction-floor=0.5", "TRL token_truncate, two bounds",
     _trl("dapo", mode="token_truncate", clip_max=1.5, clip_min=0.5)),
    (f"grpo+{ICEPOP}", "verl, IcePop", _verl("vanilla", correction=BOTH)),
    (f"grpo+{ICEPOP}", "TRL token_mask",
     _trl("dapo", mode="token_mask", clip_max=1.5, clip_min=0.5)),
    ("grpo+correction=seq-tis+correction-cap=1.5", "verl, rollout_is sequence", _verl("vanilla", correction=SEQUENCE)),
    ("grpo+correction=seq-tis+correction-cap=1.5", "TRL sequence_truncate",
     _trl("dapo", mode="sequence_truncate", clip_max=1.5)),
    ("grpo+correction=seq-mis+correction-cap=3", "TRL sequence_mask, its default", _trl("dapo", mode="sequence_mask")),
    ("grpo+correction=seq-mis+correction-cap=2+correction-floor=0.25", "verl, rollout_is sequence, two thresholds",
     _verl("vanilla", correction={"rollout_is": "sequence", "rollout_is_threshold": "0.25_2"})),
    ("grpo+correction=token-rs+correction-floor=0.5", "verl, rollout_rs token_k1", _rejecting("token_k1", 0.5, 2)),
    ("grpo+correction=seq-rs+correction-floor=0.5", "verl, rollout_rs seq_sum_k1", _rejecting("seq_sum_k1", 0.5, 2)),
    ("grpo+correction=geo-rs+correction-cap=1.25+correction-floor=0.8", "verl, rollout_rs seq_mean_k1",
     _rejecting("seq_mean_k1", 0.8, 1.25)),
    (f"grpo+{TIS}+rejection=geo-rs+rejection-cap=1.25+rejection-floor=0.8",
     "verl, rollout_is token, rollout_rs seq_mean_k1", _rejecting("seq_mean_k1", 0.8, 1.25, **TOKEN)),
    ("grpo+correction=seq-tis+correction-cap=1.5+rejection=token-rs", "verl, rollout_is sequence, rollout_rs token_k1",
     _rejecting("token_k1", 0.5, 2, **SEQUENCE)),
    (f"grpo_2024+kl-estimator=k3_is+{TIS}", "TRL grpo, KL uncorrected",
     _trl("grpo", high=0.2, beta=0.04, bias_corrected_kl=True, mode="token_truncate", clip_max=1.5)),
    (f"gspo+{TIS}", "TRL grpo/sequence, token_truncate", _trl("grpo", "sequence", mode="token_truncate", clip_max=1.5)),
    ("tepo_nokl+correction=seq-tis+correction-cap=1.5", "verl gspo, rollout_is sequence",
     _verl("gspo", correction=SEQUENCE)),
    (f"tepo_seqsum+{TIS}", "TRL luspo/sequence", _trl("luspo", "sequence", mode="token_truncate", clip_max=1.5)),
    (f"gpg+{TIS}", "verl gpg", _verl("gpg", correction=TOKEN)),
    (f"cispo+cispo=two-sided+{TIS}", "verl cispo", _verl("cispo", correction=TOKEN)),
    (f"clip_cov+{TIS}", "verl clip_cov", _clip_cov(low=1.0, high=1.0, correction=TOKEN)),
    (f"kl_cov+{TIS}+correction-on=objective", "verl kl_cov",
     _verl("kl_cov", kl_cov_ratio=2e-3, ppo_kl_coef=1.0, correction=TOKEN)),
    ("tepo_kl_all+beta=0.3+kl-estimator=k2+correction=seq-tis+correction-cap=1.5", "verl gspo, its KL loss uncorrected",
     _verl("gspo", kl="k2", beta=0.3, correction=SEQUENCE)),
    (f"sapo+{TIS}", "verl sapo", _verl("sapo", correction=TOKEN)),
    (f"dppo_tv+{TIS}", "verl dppo_tv", _verl("dppo_tv", low=0.15, high=0.15, dual_clip=20.0, correction=TOKEN)),
    (f"dppo_kl+{TIS}", "verl dppo_kl", _verl("dppo_kl", low=0.05, high=0.05, dual_clip=20.0, correction=TOKEN)),
    ("dppo_tv+dppo-anchor=sampler", "verl dppo_tv, bypass_mode",
     _bypassing("dppo_tv", low=0.15, high=0.15, dual_clip=20.0)),
    ("dppo_kl+dppo-anchor=sampler", "verl dppo_kl, bypass_mode",
     _bypassing("dppo_kl", low=0.05, high=0.05, dual_clip=20.0)),
    (f"dro+{TIS}+correction-on=objective", "verl dro", _verl("dro", dro_beta=0.05, correction=TOKEN)),
]  # fmt: skip

PAIRS: list[tuple[str, str, Callable[[Fields], Answer]]] = [
    *CORRECTED,
    ("grpo", "verl vanilla", _verl("vanilla")),
    ("grpo", "TRL dapo/token", _trl("dapo")),
    ("grpo+dual-clip=3", "verl vanilla, its default dual clip", _verl("vanilla", dual_clip=3.0)),
    ("grpo+low=0.1+high=0.1", "TRL bnpo/token", _trl("bnpo", low=0.1, high=0.1)),
    ("grpo_2024", "TRL grpo/token, KL not bias-corrected", _trl("grpo", high=0.2, beta=0.04)),
    ("grpo_2024+kl-estimator=k3_is", "TRL grpo/token", _trl("grpo", high=0.2, beta=0.04, bias_corrected_kl=True)),
    ("tepo_nokl", "verl gspo, token-mean", _verl("gspo")),
    ("tepo_nokl", "TRL dapo/sequence", _trl("dapo", "sequence")),
    ("tepo_nokl+seq-eps=gspo", "verl gspo, token-mean, its own bounds", _verl("gspo", low=3e-4, high=4e-4)),
    ("gspo", "verl gspo, " + SMTM, _verl("gspo", reduce=SMTM)),
    ("gspo", "TRL grpo/sequence", _trl("grpo", "sequence")),
    ("tepo_seqsum", "verl gspo, " + SMTS, _verl("gspo", reduce=SMTS)),
    ("tepo_seqsum", "TRL luspo/sequence", _trl("luspo", "sequence")),
    ("gpg", "verl gpg", _verl("gpg")),
    ("cispo", "TRL cispo", _trl("cispo", high=1.28)),
    ("cispo+cispo=cap", "TRL cispo, cap 4", _trl("cispo", high=4.0)),
    ("cispo+cispo=two-sided", "verl cispo", _verl("cispo")),
    ("cispo+cispo=verl", "verl cispo, its script", _verl("cispo", low=10.0, high=0.2)),
    ("kl_cov", "verl kl_cov", _verl("kl_cov", kl_cov_ratio=2e-3, ppo_kl_coef=1.0)),
    ("kl_cov+fraction=0.2+beta=0.5", "verl kl_cov", _verl("kl_cov", kl_cov_ratio=0.2, ppo_kl_coef=0.5)),
    ("clip_cov", "verl clip_cov", _clip_cov(low=1.0, high=1.0)),
    ("clip_cov+fraction=0.1", "verl clip_cov", _clip_cov(low=1.0, high=1.0, clip_cov_ratio=0.1)),
    (
        "clip_cov+cov-clip=clip-higher+fraction=0.2+lower=0.1+upper=2",
        "verl clip_cov, a wide band",
        _clip_cov(clip_cov_ratio=0.2, clip_cov_lb=0.1, clip_cov_ub=2.0),
    ),
    ("tepo_kl_all+beta=0.1+kl-anchor=ref", "TRL dapo/sequence", _trl("dapo", "sequence", beta=0.1)),
    ("tepo_maxent", "TRL entropy_coef", _trl("dapo", "sequence", entropy_coefficient=1e-3)),
    ("tepo_minent", "TRL entropy_coef < 0", _trl("dapo", "sequence", entropy_coefficient=-1e-3)),
    ("sapo", "verl sapo", _verl("sapo")),
    (f"sapo+tau-neg={TRL_TAU}", "TRL sapo", _trl("sapo")),
    ("sapo+tau-neg=3+tau-pos=2", "verl sapo, other tau", _verl("sapo", tau_pos=2.0, tau_neg=3.0)),
    (
        "sapo+tau-neg=3+tau-pos=2",
        "TRL sapo, other tau",
        _trl("sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=3.0),
    ),
    ("gmpo", "TRL GMPOTrainer", _trl("grpo", low=0.4, high=0.4, trainer_class="GMPOTrainer")),
    ("gmpo", "verl geo_mean, bounds of .4", _verl("geo_mean", low=0.4, high=0.4)),
    ("gmpo+gmpo-eps=verl", "verl geo_mean, its own bounds", _verl("geo_mean", low=0.2, high=0.2)),
    ("dppo_tv", "verl dppo_tv, cap 20", _verl("dppo_tv", low=0.15, high=0.15, dual_clip=20.0)),
    ("dppo_tv+high=0.3+low=0.1", "verl dppo_tv, other bounds", _verl("dppo_tv", low=0.1, high=0.3, dual_clip=20.0)),
    ("dppo_tv+dppo-cap=3", "verl dppo_tv, ActorConfig's cap", _verl("dppo_tv", low=0.15, high=0.15, dual_clip=3.0)),
    ("dppo_kl", "verl dppo_kl, cap 20", _verl("dppo_kl", low=0.05, high=0.05, dual_clip=20.0)),
    ("dppo_kl+high=0.3+low=0.01", "verl dppo_kl, other bounds", _verl("dppo_kl", low=0.01, high=0.3, dual_clip=20.0)),
    ("dppo_kl+dppo-cap=off", "verl dppo_kl, no cap", _verl("dppo_kl", low=0.05, high=0.05)),
    ("vespo", "TRL vespo", _trl("vespo")),
    (
        "vespo+k-neg=1+k-pos=1.5+lambda-neg=0.5+lambda-pos=0.25",
        "TRL vespo, other numbers",
        _trl("vespo", vespo_k_pos=1.5, vespo_k_neg=1.0, vespo_lambda_pos=0.25, vespo_lambda_neg=0.5),
    ),
    ("dro", "verl dro", _verl("dro", dro_beta=0.05)),
    ("dro+beta=1", "verl dro", _verl("dro", dro_beta=1.0)),
    ("luspo", "TRL luspo/sequence", _trl("luspo", "sequence")),
    ("gspo_token", "verl gspo, " + SMTM, _verl("gspo", reduce=SMTM)),
    ("dr_grpo", "TRL dr_grpo/token", _trl("dr_grpo", high=0.2)),
    ("dr_grpo", "verl vanilla, seq-mean-token-sum-norm", _verl("vanilla", high=0.2, reduce=SMTS + "-norm")),
    ("reinforce_pp", "verl vanilla, its default clip", _verl("vanilla", high=0.2)),
    ("reinforce_pp_baseline", "verl vanilla, its default clip", _verl("vanilla", high=0.2)),
    ("rloo", "verl vanilla, its default clip", _verl("vanilla", high=0.2)),
    ("rloo_sequence", "TRL RLOOTrainer", trl_rloo),
    ("opo", "verl vanilla, its default clip", _verl("vanilla", high=0.2)),
    ("top_entropy", "TRL top_entropy_quantile", _trl("dapo", top_entropy=0.2)),
    ("top_entropy+share=0.5", "TRL top_entropy_quantile", _trl("dapo", top_entropy=0.5)),
]


DTYPES = (torch.float64, torch.float32)


@pytest.mark.parametrize(("text", "label", "oracle"), PAIRS, ids=[f"{p[0]} = {p[1]}" for p in PAIRS])
def test_loss_and_gradient_equal_the_oracle(text: str, label: str, oracle: Callable[[Fields], Answer]) -> None:
    def equal(batch: str) -> None:
        for dtype in DTYPES:
            equal_the_oracle(text, label, oracle, cast(BATCHES[batch], dtype), dtype)

    check_each(BATCHES, equal)


def equal_the_oracle(
    text: str, label: str, oracle: Callable[[Fields], Answer], fields: Fields, dtype: torch.dtype
) -> None:
    loss, gradient = oracle(fields)
    got, by_leaf = evaluate(catalog.parse(text), fields)
    wanted = {"logp": gradient}
    granted = next((extra for start, extra in PER_SEQUENCE.items() if label.startswith(start)), 0.0)
    roundings = 32 + (granted / torch.finfo(dtype).eps if dtype == torch.float64 else 0)
    assert_same((got, by_leaf), (float(loss), wanted), dtype, roundings=int(roundings))


@pytest.mark.parametrize("anchor", ["old", "ref"])
@pytest.mark.parametrize("estimator", ["k1", "abs", "k2", "k3"])
def test_kl_loss_equals_verl(estimator: str, anchor: str) -> None:
    def equal(batch: str) -> None:
        for dtype in DTYPES:
            fields = cast(BATCHES[batch], dtype)
            loss, gradient = verl("gspo", fields, kl=estimator, anchor=f"{anchor}_logp", beta=0.3)
            got = evaluate(catalog.parse(f"tepo_kl_all+beta=0.3+kl-anchor={anchor}+kl-estimator={estimator}"), fields)
            assert_same(got, (float(loss), {"logp": gradient}), dtype)

    check_each(("ragged", "holes", "on-policy"), equal)  # in "far" verl's clamp of k3 acts: a trap, below


def cast(fields: Fields, dtype: torch.dtype) -> Fields:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in fields.items()}


def test_the_far_batch_holds_what_a_dual_clip_and_a_lower_bound_would_act_on() -> None:
    fields = BATCHES["far"]
    ratio = (fields["logp"] - fields["old_logp"]).exp()
    negative = (fields["advantage"] < 0)[:, None] & fields["mask"]
    assert int(((ratio > 3) & negative).sum()) >= 3
    assert int(((ratio < 0.8) & negative).sum()) >= 3


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_entropy_gradient_equals_trl(sign: float) -> None:
    fields = BATCHES["ragged"]
    key = "tepo_maxent" if sign > 0 else "tepo_minent"
    _, wanted = trl(fields, loss_type="dapo", level="sequence", entropy_coefficient=sign * 1e-3, leaf="entropy")
    _, got = evaluate(catalog.parse(key), fields)
    assert distance(got["entropy"], wanted) <= 4e-16


@pytest.mark.parametrize(
    ("text", "name", "reduce"),
    [
        ("grpo", "vanilla", "token-mean"),
        ("tepo_nokl", "gspo", "token-mean"),
        ("tepo_seqsum", "gspo", SMTS),
        ("dr_grpo+high=0.28", "vanilla", SMTS + "-norm"),
    ],
)
def test_a_micro_batch_with_global_totals_equals_verl_with_its_global_batch_info(
    text: str, name: str, reduce: str
) -> None:
    fields = BATCHES["ragged"]
    tokens, sequences = int(fields["mask"].sum()), len(fields["mask"])
    part = rows(fields, slice(0, 5))
    totals = {"batch_num_tokens": tokens, "global_batch_size": sequences}
    loss, gradient = verl(name, part, reduce=reduce, totals=totals)
    got = evaluate(catalog.parse(text), part, tokens=tokens, sequences=sequences)
    assert_same(got, (float(loss), {"logp": gradient}), torch.float64)


REWARD = torch.tensor([1, 0, 0, 1, 1, 1, 0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])


@pytest.mark.parametrize(
    ("text", "estimator", "reward"),
    [
        ("grpo", "grpo", REWARD),
        ("gpg", "gpg", 2 * REWARD - 1),  # verl's scale is 1 when no reward is 0
        # verl rounds its scale to float32: half of the rewards are 1, so that it is exact there too
        ("gpg+gpg-scale=inverse-accuracy", "gpg", torch.tensor([1, 0, 0, 1, 1, 0, 0, 1.0], dtype=torch.float64)),
    ],
)
def test_advantage_equals_verl(text: str, estimator: str, reward: Tensor) -> None:
    wanted = oracles.verl_advantage(estimator, reward, GROUP)
    assert torch.allclose(catalog.parse(text).advantage(reward, GROUP), wanted, rtol=4e-16, atol=4e-16)


# verl adds 1e-8 to the number of tokens in every mean over tokens: that much is granted where it takes such a mean.
PER_TOKEN = 1e-8
LENGTHS = torch.tensor([3, 1, 8, 2, 2, 9, 4, 1])
NEW_ADVANTAGES = [
    ("dr_grpo", "grpo", {"norm_adv_by_std_in_grpo": False}, 0.0),
    ("reinforce_pp", "reinforce_plus_plus", {}, PER_TOKEN),
    ("reinforce_pp_baseline", "reinforce_plus_plus_baseline", {}, PER_TOKEN),
    ("rloo", "rloo", {}, 0.0),
    ("rloo_sequence", "rloo_vectorized", {}, 0.0),
    ("opo", "opo", {}, 0.0),
]


@pytest.mark.parametrize(
    ("text", "estimator", "settings", "granted"), NEW_ADVANTAGES, ids=[a[0] for a in NEW_ADVANTAGES]
)
def test_advantage_beyond_the_paper_equals_verl(
    text: str, estimator: str, settings: dict[str, bool], granted: float
) -> None:
    real = torch.randn(8, generator=torch.Generator().manual_seed(4)).double()
    for dtype in DTYPES:
        for reward in (REWARD.to(dtype), real.to(dtype)):
            wanted = oracles.verl_advantage(estimator, reward, GROUP, LENGTHS, **settings)
            got = catalog.parse(text).advantage(reward, GROUP, LENGTHS)
            assert got.dtype == dtype
            tolerance = granted + 8 * torch.finfo(dtype).eps
            assert float((got - wanted).abs().max()) <= tolerance * float(wanted.abs().max()), (dtype, reward)


# ---- traps: the same word, another loss ----


def answers_differ(a: Answer, b: Answer) -> bool:
    return distance(a[1], b[1]) > 1e-3


def test_the_versions_are_those_that_were_read() -> None:
    assert (version("verl"), version("trl")) == ("0.9.1", "1.16.0")


def test_trap_verl_clips_negative_advantages_again_at_3_unless_told_not_to() -> None:
    from verl.workers.config import ActorConfig

    assert ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1).clip_ratio_c == 3.0
    assert answers_differ(verl("vanilla", BATCHES["far"]), verl("vanilla", BATCHES["far"], dual_clip=3.0))


def test_trap_an_unconfigured_verl_gspo_is_tepo_without_kl() -> None:
    from verl.workers.config import ActorConfig

    default = ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1).loss_agg_mode
    assert default == "token-mean"
    _, gradient = verl("gspo", BATCHES["ragged"], reduce=default)
    assert distance(evaluate(catalog.parse("tepo_nokl"), BATCHES["ragged"])[1]["logp"], gradient) <= 1e-14
    assert distance(evaluate(catalog.parse("gspo"), BATCHES["ragged"])[1]["logp"], gradient) > 0.1


def test_trap_trl_cispo_bound_is_absolute() -> None:
    on_policy = BATCHES["on-policy"]
    scaled, full = trl(on_policy, loss_type="cispo", high=0.28), trl(on_policy, loss_type="cispo", high=1.28)
    assert distance(scaled[1], 0.28 * full[1]) <= 1e-15


def test_trap_verl_cov_losses_default_to_other_numbers_than_their_papers() -> None:
    from verl.workers.config.actor import PolicyLossConfig

    assert (PolicyLossConfig().kl_cov_ratio, PolicyLossConfig().ppo_kl_coef) == (2e-4, 0.1)
    assert catalog.parse("kl_cov").params["fraction"] == 2e-3


def test_trap_verl_k3_plus_has_the_gradient_of_k2() -> None:
    fields = BATCHES["ragged"]
    k3_plus, k2 = (verl("gspo", fields, kl=kind, beta=1.0) for kind in ("k3+", "k2"))
    assert distance(k3_plus[1], k2[1]) <= 1e-14
    assert abs(float(k3_plus[0] - k2[0])) > 1e-4


def test_trap_verl_clamps_k3_at_10() -> None:
    fields = BATCHES["far"]
    log_ratio = (fields["logp"] - fields["old_logp"])[fields["mask"]]
    assert float(((-log_ratio).exp() + log_ratio - 1).max()) > 10
    ours, _ = evaluate(catalog.parse("tepo_kl_all+beta=1"), fields)
    assert ours - float(verl("gspo", fields, kl="k3", beta=1.0)[0]) > 1e-3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("anchor", ["old", "ref"])
@pytest.mark.parametrize("drift", [1.0, 60.0])  # 60: exp(-d) is beyond float32, and 0 times its gradient would be NaN
def test_the_clamped_kl_equals_verl_where_its_clamp_acts(anchor: str, drift: float, dtype: torch.dtype) -> None:
    fields = cast(BATCHES["far"], dtype)
    name = f"{anchor}_logp"
    # the surrogate stays as it is: only the anchor of the penalty is far away, by -1.5, 0 or 1.5 times the drift
    shift = 1.5 * drift * (torch.arange(fields["logp"].numel()) % 3 - 1).view_as(fields["logp"]).to(dtype)
    fields = fields | ({"ref_logp": fields["ref_logp"] + shift} if anchor == "ref" else {})
    # all log-probs as far down, so that none is above 0
    fields |= {n: fields[n] - 2 * drift for n in ("logp", "old_logp", "ref_logp")}
    d = (fields["logp"] - fields[name])[fields["mask"]].double()
    assert int(((-d).exp() + d - 1 > 10).sum()) >= 3
    loss, gradient = verl("gspo", fields, kl="k3", anchor=name, beta=0.3)
    got = evaluate(catalog.parse(f"tepo_kl_all+beta=0.3+kl-anchor={anchor}+kl-clamp=10"), fields)
    assert bool(got[1]["logp"].isfinite().all())
    assert_same(got, (float(loss), {"logp": gradient}), dtype)


def test_trap_verl_gpg_scale_is_inverse_accuracy_and_not_the_papers() -> None:
    reward, group = torch.tensor([1, 0, 0, 1, 1, 1.0]), torch.tensor([0, 0, 0, 1, 1, 1])
    verls = oracles.verl_advantage("gpg", reward, group)[0]
    ours = catalog.parse("gpg").advantage(reward, group)[0]
    assert float(verls / ours) == pytest.approx(6 / 4, rel=1e-6)
    papers = catalog.parse("gpg+gpg-scale=informative").advantage(reward, group)[0]
    assert float(papers / ours) == pytest.approx(6 / 3, rel=1e-6)


def test_the_corrections_bounds_act_on_these_batches() -> None:
    fields = BATCHES["ragged"]
    rho = (fields["old_logp"] - fields["sampling_logp"])[fields["mask"]].exp()
    assert int((rho > 2).sum()) >= 3
    assert int((rho < 0.5).sum()) >= 3


def test_trap_verl_rejection_shrinks_the_denominator_and_trl_masking_does_not() -> None:
    fields = BATCHES["ragged"]
    given = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2"}
    _, kept = oracles.verl_correction(fields, fields["mask"].double(), **given)
    assert 0 < float(kept.sum()) < int(fields["mask"].sum())
    ours = evaluate(catalog.parse("grpo+correction=token-rs+correction-floor=0.5"), fields)[1]["logp"]
    verls = verl("vanilla", fields, correction=given)[1]
    assert distance(verls * float(kept.sum()) / int(fields["mask"].sum()), ours) <= 1e-14


def test_trap_verl_gmpo_takes_the_geometric_mean_of_the_corrections_weights() -> None:
    fields = BATCHES["ragged"]
    verls = verl("geo_mean", fields, low=0.4, high=0.4, correction=TOKEN)[1]
    assert distance(verls, evaluate(catalog.parse(f"gmpo+{TIS}"), fields)[1]["logp"]) > 1e-3


def test_trap_a_correction_by_token_parts_the_two_forms_of_gspo() -> None:
    """One gradient as long as all tokens of a row weigh the same: verl's own-token form, or through the mean."""
    fields = BATCHES["ragged"]
    through = trl(fields, loss_type="dapo", level="sequence", mode="token_truncate", clip_max=1.5)[1]
    assert distance(through, evaluate(catalog.parse(f"tepo_nokl+{TIS}"), fields)[1]["logp"]) <= 1e-14
    assert distance(through, verl("gspo", fields, correction=TOKEN)[1]) > 0.1


def test_trap_trl_vespo_puts_the_correction_into_the_curves_weight() -> None:
    fields = BATCHES["ragged"]
    trls = trl(fields, loss_type="vespo", mode="token_truncate", clip_max=1.5)[1]
    assert distance(trls, evaluate(catalog.parse(f"vespo+{TIS}"), fields)[1]["logp"]) > 1e-3


def test_trap_trl_multiplies_its_kl_by_the_ratio_by_default() -> None:
    from trl import GRPOConfig

    fields = {f.name: f.default for f in GRPOConfig.__dataclass_fields__.values()}
    assert fields["use_bias_correction_kl"] is True
    plain, corrected = (trl(BATCHES["far"], loss_type="dapo", beta=1.0, bias_corrected_kl=b) for b in (False, True))
    assert answers_differ(plain, corrected)


def test_trap_verl_divides_dr_grpo_by_the_width_of_a_micro_batch_unless_told_the_limit() -> None:
    """`loss_scale_factor` is None by default: then responses that happen to be short weigh more."""
    from verl.workers.config import ActorConfig

    actor = ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1)
    assert actor.loss_scale_factor is None
    width, norm = BATCHES["ragged"]["mask"].shape[1], SMTS + "-norm"
    unset = verl("vanilla", BATCHES["ragged"], reduce=norm, totals={"loss_scale_factor": None})  # type: ignore[dict-item]
    assert distance(unset[1], verl("vanilla", BATCHES["ragged"], reduce=norm)[1] * MAX_TOKENS / width) <= 1e-15
    assert width != MAX_TOKENS


def test_trap_trl_trains_on_all_tokens_and_luspo_on_token_ratios_unless_told_otherwise() -> None:
    from trl import GRPOConfig

    fields = {f.name: f.default for f in GRPOConfig.__dataclass_fields__.values()}
    assert (fields["top_entropy_quantile"], fields["importance_sampling_level"]) == (1.0, "token")
    assert answers_differ(
        trl(BATCHES["far"], loss_type="luspo"), trl(BATCHES["far"], loss_type="luspo", level="sequence")
    )


def test_the_private_call_into_trl_still_has_the_shape_that_was_read() -> None:
    from trl.trainer.grpo_trainer import GRPOTrainer

    assert list(inspect.signature(GRPOTrainer._compute_loss).parameters) == ["self", "model", "inputs"]
    text = inspect.getsource(GRPOTrainer._compute_loss)
    for name in ("old_per_token_logps", "ref_per_token_logps", "num_items_in_batch", "completion_mask", "advantages"):
        assert f'"{name}"' in text, name


# --- The table: `python -m tests.methods.test_oracles > docs/notebook/oracles.md` -------------------------------------

_HEAD = f"""# Losses against verl and TRL

Largest difference over {len(BATCHES)} batches ({", ".join(BATCHES)}) between our loss and the framework's own code:
of the value, relative to the size of what is summed, and of the gradient by the log-probs, relative to its largest
entry. verl divides a sequence by its length + 1e-8, which is what the larger figures in float64 are. Made by
`python -m tests.methods.test_oracles > docs/notebook/oracles.md`; the tests of the same file hold every line to 32
roundings and, where it applies, that constant.

| method | oracle | value, float64 | gradient, float64 | value, float32 | gradient, float32 |
|---|---|---|---|---|---|
"""


def test_the_table_has_every_pair() -> None:
    page = (Path(__file__).parents[2] / "docs/notebook/oracles.md").read_text(encoding="utf-8")
    assert page.startswith(_HEAD)
    assert [line.split(" | ")[:2] for line in page[len(_HEAD) :].splitlines()] == [[f"| `{p[0]}`", p[1]] for p in PAIRS]


def _table() -> str:
    lines = []
    for text, label, oracle in PAIRS:
        cells = []
        for dtype in (torch.float64, torch.float32):
            values, gradients = [], []
            for batch in BATCHES.values():
                fields = cast(batch, dtype)
                loss, wanted = oracle(fields)
                got, by_leaf = evaluate(catalog.parse(text), fields)
                values.append(abs(got - float(loss)) / (1 + float(wanted.abs().sum())))
                gradients.append(distance(by_leaf["logp"], wanted))
            cells += [f"{max(figures):.0e}" if max(figures) else "0" for figures in (values, gradients)]
        lines.append(f"| `{text}` | {label} | {' | '.join(cells)} |\n")
    return _HEAD + "".join(lines)


if __name__ == "__main__":
    print(_table(), end="")
