"""Every method that verl 0.9.1 or TRL 1.16.0 also has, against them: loss and gradient, float64 and float32.

What each of them does when nobody sets it: `docs/notebook/names.md`, which `test_names.py` runs.
verl and TRL take seconds to import; everything that needs them stands in this module.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
import torch
from torch import Tensor

from methods import catalog
from tests.methods import oracles
from tests.methods.batches import Fields, random_fields, rows
from tests.methods.oracles import Answer, trl, trl_rloo, verl
from tests.methods.subjects import assert_same, check_each, evaluate

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
    """verl's vanilla loss after rejection, over all tokens: its own mean is over those that are left.

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
    (f"grpo+{TIS}+correction-floor=0.5", "TRL token_truncate, two bounds",
     _trl("dapo", mode="token_truncate", clip_max=1.5, clip_min=0.5)),
    (f"grpo+{ICEPOP}", "verl, IcePop", _verl("vanilla", correction=BOTH)),
    ("grpo+correction=seq-tis+correction-cap=1.5", "verl, rollout_is sequence", _verl("vanilla", correction=SEQUENCE)),
    ("grpo+correction=seq-mis+correction-cap=3", "TRL sequence_mask, its default", _trl("dapo", mode="sequence_mask")),
    ("grpo+correction=token-rs+correction-floor=0.5", "verl, rollout_rs token_k1", _rejecting("token_k1", 0.5, 2)),
    ("grpo+correction=seq-rs+correction-floor=0.5", "verl, rollout_rs seq_sum_k1", _rejecting("seq_sum_k1", 0.5, 2)),
    ("grpo+correction=geo-rs+correction-cap=1.25+correction-floor=0.8", "verl, rollout_rs seq_mean_k1",
     _rejecting("seq_mean_k1", 0.8, 1.25)),
    (f"grpo+{TIS}+rejection=geo-rs+rejection-cap=1.25+rejection-floor=0.8",
     "verl, rollout_is token, rollout_rs seq_mean_k1", _rejecting("seq_mean_k1", 0.8, 1.25, **TOKEN)),
    (f"grpo_2024+kl-estimator=k3_is+{TIS}", "TRL grpo, KL uncorrected",
     _trl("grpo", high=0.2, beta=0.04, bias_corrected_kl=True, mode="token_truncate", clip_max=1.5)),
    (f"kl_cov+{TIS}+correction-on=objective", "verl kl_cov",
     _verl("kl_cov", kl_cov_ratio=2e-3, ppo_kl_coef=1.0, correction=TOKEN)),
    ("dppo_tv+dppo-anchor=sampler", "verl dppo_tv, bypass_mode",
     _bypassing("dppo_tv", low=0.15, high=0.15, dual_clip=20.0)),
    ("dppo_kl+dppo-anchor=sampler", "verl dppo_kl, bypass_mode",
     _bypassing("dppo_kl", low=0.05, high=0.05, dual_clip=20.0)),
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
    ("clip_cov+cov-clip=clip-higher+fraction=0.2+lower=0.1+upper=2", "verl clip_cov, a wide band",
     _clip_cov(clip_cov_ratio=0.2, clip_cov_lb=0.1, clip_cov_ub=2.0)),
    ("tepo_kl_all+beta=0.1+kl-anchor=ref", "TRL dapo/sequence", _trl("dapo", "sequence", beta=0.1)),
    ("tepo_maxent", "TRL entropy_coef", _trl("dapo", "sequence", entropy_coefficient=1e-3)),
    ("tepo_minent", "TRL entropy_coef < 0", _trl("dapo", "sequence", entropy_coefficient=-1e-3)),
    ("sapo", "verl sapo", _verl("sapo")),
    (f"sapo+tau-neg={TRL_TAU}", "TRL sapo", _trl("sapo")),
    ("sapo+tau-neg=3+tau-pos=2", "verl sapo, other tau", _verl("sapo", tau_pos=2.0, tau_neg=3.0)),
    ("sapo+tau-neg=3+tau-pos=2", "TRL sapo, other tau",
     _trl("sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=3.0)),
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
    ("vespo+k-neg=1+k-pos=1.5+lambda-neg=0.5+lambda-pos=0.25", "TRL vespo, other numbers",
     _trl("vespo", vespo_k_pos=1.5, vespo_k_neg=1.0, vespo_lambda_pos=0.25, vespo_lambda_neg=0.5)),
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
]  # fmt: skip


DTYPES = (torch.float64, torch.float32)


@pytest.mark.parametrize(("text", "label", "oracle"), PAIRS, ids=[f"{p[0]} = {p[1]}" for p in PAIRS])
def test_loss_and_gradient_equal_the_oracle(text: str, label: str, oracle: Callable[[Fields], Answer]) -> None:
    granted = next((extra for start, extra in PER_SEQUENCE.items() if label.startswith(start)), 0.0)

    def equal(batch: str) -> None:
        for dtype in DTYPES:
            fields = cast(BATCHES[batch], dtype)
            loss, gradient = oracle(fields)
            roundings = 32 + (granted / torch.finfo(dtype).eps if dtype == torch.float64 else 0)
            got = evaluate(catalog.parse(text), fields)
            assert_same(got, (float(loss), {"logp": gradient}), dtype, roundings=int(roundings))

    check_each(BATCHES, equal)


@pytest.mark.parametrize("anchor", ["old", "ref"])
@pytest.mark.parametrize("estimator", ["k1", "abs", "k2", "k3"])
def test_kl_loss_equals_verl(estimator: str, anchor: str) -> None:
    def equal(batch: str) -> None:
        for dtype in DTYPES:
            fields = cast(BATCHES[batch], dtype)
            loss, gradient = verl("gspo", fields, kl=estimator, anchor=f"{anchor}_logp", beta=0.3)
            got = evaluate(catalog.parse(f"tepo_kl_all+beta=0.3+kl-anchor={anchor}+kl-estimator={estimator}"), fields)
            assert_same(got, (float(loss), {"logp": gradient}), dtype)

    check_each(("ragged", "holes", "on-policy"), equal)  # in "far" verl's clamp of k3 acts, see docs/notebook/names.md


def cast(fields: Fields, dtype: torch.dtype) -> Fields:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in fields.items()}


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
LENGTHS = torch.tensor([3, 1, 8, 2, 2, 9, 4, 1])
REAL = torch.randn(8, generator=torch.Generator().manual_seed(4)).double()
# verl adds 1e-8 to the number of tokens in every mean over tokens: that much is granted where it takes such a mean.
PER_TOKEN = 1e-8
ADVANTAGES: list[tuple[str, str, tuple[Tensor, ...], dict[str, Any], float]] = [
    ("grpo", "grpo", (REWARD, REAL), {}, 0.0),
    ("gpg", "gpg", (2 * REWARD - 1,), {}, 0.0),  # verl's scale is 1 when no reward is 0
    # verl rounds its scale to float32: half of the rewards are 1, so that it is exact there too
    ("gpg+gpg-scale=inverse-accuracy", "gpg", (torch.tensor([1, 0, 0, 1, 1, 0, 0, 1.0]).double(),), {}, 0.0),
    ("dr_grpo", "grpo", (REWARD, REAL), {"norm_adv_by_std_in_grpo": False}, 0.0),
    ("reinforce_pp", "reinforce_plus_plus", (REWARD, REAL), {}, PER_TOKEN),
    ("reinforce_pp_baseline", "reinforce_plus_plus_baseline", (REWARD, REAL), {}, PER_TOKEN),
    ("rloo", "rloo", (REWARD, REAL), {}, 0.0),
    ("rloo_sequence", "rloo_vectorized", (REWARD, REAL), {}, 0.0),
    ("opo", "opo", (REWARD, REAL), {}, 0.0),
]


@pytest.mark.parametrize(
    ("text", "estimator", "rewards", "settings", "granted"), ADVANTAGES, ids=[a[0] for a in ADVANTAGES]
)
def test_advantage_equals_verl(
    text: str, estimator: str, rewards: tuple[Tensor, ...], settings: dict[str, Any], granted: float
) -> None:
    for dtype in DTYPES:
        for reward in (x.to(dtype) for x in rewards):
            wanted = oracles.verl_advantage(estimator, reward, GROUP, LENGTHS, **settings)
            got = catalog.parse(text).advantage(reward, GROUP, LENGTHS)
            assert got.dtype == dtype
            tolerance = granted + 8 * torch.finfo(dtype).eps
            assert float((got - wanted).abs().max()) <= tolerance * float(wanted.abs().max()), (dtype, reward)


# ---- what these comparisons rest on ----


def test_the_versions_are_those_that_were_read() -> None:
    assert (version("verl"), version("trl")) == ("0.9.1", "1.16.0")


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
