"""Methods that verl 0.9.1 or TRL 1.16.0 also has, against them: loss and gradient.

Here is what `docs/notebook/names.md`, which `test_names.py` runs, does not compare; settings that only change a number
are left to `test_reference.py`. verl and TRL take seconds to import.
"""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from methods import catalog
from tests.methods import oracles
from tests.methods.batches import Fields, assert_same, evaluate, random_fields
from tests.methods.oracles import Answer, trl, verl


def _batch(seed: int, **shape: object) -> Fields:
    """Entropies as float32 holds them: TRL rounds its quantile to float32, and would leave out the token that it is."""
    fields = random_fields(seed, groups=4, per_group=4, longest=12, **shape)  # type: ignore[arg-type]
    return fields | {"entropy": fields["entropy"].float().double()}


BATCHES = (_batch(22, drift=1.5), _batch(23, holes=True), _batch(24, on_policy=True))


def _clip_cov(fields: Fields) -> Answer:
    """verl draws from the global generator: the same seed there as `evaluate` gives ours."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return verl("clip_cov", fields, low=1.0, high=1.0)


def _rejecting(fields: Fields) -> Answer:
    """verl's vanilla loss after rejection of 1/rho, over all tokens: its own mean is over those that are left."""
    given = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}
    return verl("vanilla", fields, correction=given, totals={"batch_num_tokens": int(fields["mask"].sum())})


ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"}
PAIRS: dict[str, Callable[[Fields], Answer]] = {
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.5": partial(verl, "vanilla", correction=ICEPOP),
    "grpo+correction=token-rs+correction-floor=0.5": _rejecting,
    "gpg": partial(verl, "gpg"),
    "clip_cov": _clip_cov,
    "tepo_kl_all+beta=0.3+kl-estimator=k1": partial(verl, "gspo", kl="k1", beta=0.3),
    "tepo_kl_all+beta=0.1+kl-anchor=ref": partial(trl, loss_type="dapo", level="sequence", beta=0.1),
    "tepo_maxent": partial(trl, loss_type="dapo", level="sequence", entropy_coefficient=1e-3),
    "sapo+tau-neg=3+tau-pos=2": partial(trl, loss_type="sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=3.0),
    "vespo": partial(trl, loss_type="vespo"),
    "top_entropy": partial(trl, loss_type="dapo", top_entropy=0.2),
}


@pytest.mark.parametrize("text", PAIRS)
def test_loss_and_gradient_equal_the_oracle(text: str) -> None:
    for fields in BATCHES:
        loss, gradient = PAIRS[text](fields)
        assert_same(evaluate(catalog.parse(text), fields), (float(loss), {"logp": gradient}), torch.float64)


REWARD = torch.tensor([1, 0, 0, 1, 1, 1, 0, 1.0], dtype=torch.float64)
REAL = torch.randn(8, generator=torch.Generator().manual_seed(4)).double()
GROUP, LENGTHS = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2]), torch.tensor([3, 1, 8, 2, 2, 9, 4, 1])
# verl adds 1e-8 to the number of tokens in every mean over tokens: that much is granted where it takes such a mean.
ADVANTAGES: list[tuple[str, str, tuple[Tensor, ...], float]] = [
    ("grpo", "grpo", (REWARD, REAL), 0.0),
    ("gpg", "gpg", (2 * REWARD - 1,), 0.0),  # verl's scale is 1 when no reward is 0
    ("reinforce_pp", "reinforce_plus_plus", (REWARD, REAL), 1e-8),
    ("reinforce_pp_baseline", "reinforce_plus_plus_baseline", (REWARD, REAL), 1e-8),
    ("opo", "opo", (REWARD, REAL), 0.0),
]


@pytest.mark.parametrize(("text", "estimator", "rewards", "granted"), ADVANTAGES, ids=[a[0] for a in ADVANTAGES])
def test_advantage_equals_verl(text: str, estimator: str, rewards: tuple[Tensor, ...], granted: float) -> None:
    for reward in rewards:
        wanted = oracles.verl_advantage(estimator, reward, GROUP, LENGTHS)
        got = catalog.parse(text).advantage(reward, GROUP, LENGTHS)
        assert float((got - wanted).abs().max()) <= (granted + 2e-15) * float(wanted.abs().max()), reward


def test_the_clamped_kl_equals_verl_where_its_clamp_acts() -> None:
    """Also where exp(-d) is beyond float32, and 0 times its gradient would be NaN."""
    fields = {name: x.float() if x.is_floating_point() else x for name, x in BATCHES[0].items()}
    # only the anchor of the penalty is far away, by -90, 0 or 90; log-probs are as far down, so that none is above 0
    far = 90.0 * (torch.arange(fields["logp"].numel()) % 3 - 1).view_as(fields["logp"])
    fields |= {n: fields[n] - 120.0 for n in ("logp", "old_logp")} | {"ref_logp": fields["ref_logp"] + far - 120.0}
    d = (fields["logp"] - fields["ref_logp"])[fields["mask"]]
    assert int(((-d).exp() + d - 1).isinf().sum()) >= 3
    loss, gradient = verl("gspo", fields, kl="k3", anchor="ref_logp", beta=0.3)
    got = evaluate(catalog.parse("tepo_kl_all+beta=0.3+kl-anchor=ref+kl-clamp=10"), fields)
    assert bool(got[1]["logp"].isfinite().all())
    assert_same(got, (float(loss), {"logp": gradient}), torch.float32)
