"""Methods that verl 0.9.1 or TRL 1.16.0 also has, against them: loss and gradient, float64 and float32.

Here is what `docs/notebook/names.md`, which `test_names.py` runs, does not compare. Settings that only change a number
are left to `test_reference.py`, whose formulas these comparisons and those of the page hold to the frameworks'.
verl and TRL take seconds to import; everything that needs them stands in this module.
"""

from collections.abc import Callable
from functools import partial
from importlib.metadata import version

import pytest
import torch
from torch import Tensor

from methods import catalog
from tests.methods import oracles
from tests.methods.batches import Fields, assert_same, check_each, evaluate, random_fields
from tests.methods.oracles import Answer, trl, verl

DTYPES = (torch.float64, torch.float32)


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


def _clip_cov(**settings: object) -> Callable[[Fields], Answer]:
    """verl draws from the global generator: the same seed there as `evaluate` gives ours."""

    def answer(fields: Fields) -> Answer:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            return verl("clip_cov", fields, **settings)  # type: ignore[arg-type]

    return answer


def _rejecting(rule: str, low: float, high: float) -> Callable[[Fields], Answer]:
    """verl's vanilla loss after rejection, over all tokens: its own mean is over those that are left.

    Its k1 is log pi_sampler / pi_old: bounds of rho are the reciprocals of its thresholds.
    """

    def answer(fields: Fields) -> Answer:
        given = {"rollout_rs": rule, "rollout_rs_threshold": f"{1 / high}_{1 / low}"}
        return verl("vanilla", fields, correction=given, totals={"batch_num_tokens": int(fields["mask"].sum())})

    return answer


TOKEN = {"rollout_is": "token", "rollout_is_threshold": 1.5}
TIS = "correction=tis+correction-cap=1.5"
PAIRS: list[tuple[str, str, Callable[[Fields], Answer]]] = [
    ("grpo+correction=icepop+correction-cap=1.5+correction-floor=0.5", "verl, IcePop",
     partial(verl, "vanilla", correction={"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"})),
    ("grpo+correction=token-rs+correction-floor=0.5", "verl, rollout_rs token_k1", _rejecting("token_k1", 0.5, 2)),
    (f"kl_cov+{TIS}+correction-on=objective", "verl kl_cov",
     partial(verl, "kl_cov", kl_cov_ratio=2e-3, ppo_kl_coef=1.0, correction=TOKEN)),
    ("gpg", "verl gpg", partial(verl, "gpg")),
    ("clip_cov", "verl clip_cov", _clip_cov(low=1.0, high=1.0)),
    ("tepo_kl_all+beta=0.3+kl-estimator=k1", "verl, k1", partial(verl, "gspo", kl="k1", beta=0.3)),
    ("tepo_kl_all+beta=0.1+kl-anchor=ref", "TRL dapo/sequence",
     partial(trl, loss_type="dapo", level="sequence", beta=0.1)),
    ("tepo_maxent", "TRL entropy_coef", partial(trl, loss_type="dapo", level="sequence", entropy_coefficient=1e-3)),
    ("sapo", "verl sapo", partial(verl, "sapo")),
    ("vespo", "TRL vespo", partial(trl, loss_type="vespo")),
    ("top_entropy", "TRL top_entropy_quantile", partial(trl, loss_type="dapo", top_entropy=0.2)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "label", "oracle"), PAIRS, ids=[f"{p[0]} = {p[1]}" for p in PAIRS])
def test_loss_and_gradient_equal_the_oracle(text: str, label: str, oracle: Callable[[Fields], Answer]) -> None:
    # verl divides a sequence by |y| + 1e-8: that much, and no more, is granted where its sequence mean is the oracle
    granted = 1e-8 if label == "verl sapo" else 0.0

    def equal(batch: str) -> None:
        for dtype in DTYPES:
            fields = cast(BATCHES[batch], dtype)
            loss, gradient = oracle(fields)
            roundings = 32 + (granted / torch.finfo(dtype).eps if dtype == torch.float64 else 0)
            got = evaluate(catalog.parse(text), fields)
            assert_same(got, (float(loss), {"logp": gradient}), dtype, roundings=int(roundings))

    check_each(BATCHES, equal)


def cast(fields: Fields, dtype: torch.dtype) -> Fields:
    return {name: value.to(dtype) if value.is_floating_point() else value for name, value in fields.items()}


REWARD = torch.tensor([1, 0, 0, 1, 1, 1, 0, 1.0], dtype=torch.float64)
GROUP = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2])
LENGTHS = torch.tensor([3, 1, 8, 2, 2, 9, 4, 1])
REAL = torch.randn(8, generator=torch.Generator().manual_seed(4)).double()
# verl adds 1e-8 to the number of tokens in every mean over tokens: that much is granted where it takes such a mean.
PER_TOKEN = 1e-8
ADVANTAGES: list[tuple[str, str, tuple[Tensor, ...], float]] = [
    ("grpo", "grpo", (REWARD, REAL), 0.0),
    ("gpg", "gpg", (2 * REWARD - 1,), 0.0),  # verl's scale is 1 when no reward is 0
    # verl rounds its scale to float32: half of the rewards are 1, so that it is exact there too
    ("gpg+gpg-scale=inverse-accuracy", "gpg", (torch.tensor([1, 0, 0, 1, 1, 0, 0, 1.0]).double(),), 0.0),
    ("reinforce_pp", "reinforce_plus_plus", (REWARD, REAL), PER_TOKEN),
    ("reinforce_pp_baseline", "reinforce_plus_plus_baseline", (REWARD, REAL), PER_TOKEN),
    ("opo", "opo", (REWARD, REAL), 0.0),
]


@pytest.mark.parametrize(("text", "estimator", "rewards", "granted"), ADVANTAGES, ids=[a[0] for a in ADVANTAGES])
def test_advantage_equals_verl(text: str, estimator: str, rewards: tuple[Tensor, ...], granted: float) -> None:
    for dtype in DTYPES:
        for reward in (x.to(dtype) for x in rewards):
            wanted = oracles.verl_advantage(estimator, reward, GROUP, LENGTHS)
            got = catalog.parse(text).advantage(reward, GROUP, LENGTHS)
            assert got.dtype == dtype
            tolerance = granted + 8 * torch.finfo(dtype).eps
            assert float((got - wanted).abs().max()) <= tolerance * float(wanted.abs().max()), (dtype, reward)


# ---- what these comparisons rest on ----


def test_the_versions_are_those_that_were_read() -> None:
    assert (version("verl"), version("trl")) == ("0.9.1", "1.16.0")


def test_the_clamped_kl_equals_verl_where_its_clamp_acts() -> None:
    """Also where exp(-d) is beyond float32, and 0 times its gradient would be NaN."""
    fields = cast(BATCHES["far"], torch.float32)
    # the surrogate stays as it is: only the anchor of the penalty is far away, by -90, 0 or 90
    fields["ref_logp"] = fields["ref_logp"] + 90.0 * (torch.arange(fields["logp"].numel()) % 3 - 1).view_as(
        fields["logp"]
    )
    # all log-probs as far down, so that none is above 0
    fields |= {n: fields[n] - 120.0 for n in ("logp", "old_logp", "ref_logp")}
    d = (fields["logp"] - fields["ref_logp"])[fields["mask"]]
    assert int(((-d).exp() + d - 1).isinf().sum()) >= 3
    loss, gradient = verl("gspo", fields, kl="k3", anchor="ref_logp", beta=0.3)
    got = evaluate(catalog.parse("tepo_kl_all+beta=0.3+kl-anchor=ref+kl-clamp=10"), fields)
    assert bool(got[1]["logp"].isfinite().all())
    assert_same(got, (float(loss), {"logp": gradient}), torch.float32)
