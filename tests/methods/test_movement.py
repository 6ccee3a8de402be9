"""How far a policy moves, against closed forms, exact sums and weights."""

from __future__ import annotations

import math

import pytest
import torch

from methods.training import movement
from methods.training.movement import KL, NOTHING_TRAINED, Update, divergences


def two_tokens(p: float) -> torch.Tensor:
    return torch.tensor([p, 1 - p], dtype=torch.float64).log()


def kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def test_two_tokens_have_the_divergence_of_the_closed_form() -> None:
    contexts = [(0.5, 0.7, 0.2), (0.9, 0.6, 0.5), (0.3, 0.3, 0.4)]  # before, after, base
    before, after, base = (torch.stack([two_tokens(p) for p in column]) for column in zip(*contexts, strict=True))
    found = divergences(before, after, base, torch.tensor([4, 7, 7]))
    for name, at in (("kl_step", 0), ("kl_base", 2)):
        exact = [kl(row[1], row[at]) for row in contexts]
        mean = sum(exact) / 3
        assert found[name] == pytest.approx(mean, rel=1e-12)
        sums = exact[0] - mean, exact[1] + exact[2] - 2 * mean  # of the two groups
        assert found[f"{name}_se"] == pytest.approx(math.sqrt(2 * sum(s * s for s in sums)) / 3, rel=1e-12)
    one = divergences(before, after, None, torch.zeros(3, dtype=torch.long))
    assert one == {"kl_step": found["kl_step"], "kl_step_se": None, "kl_base": None, "kl_base_se": None}


def test_the_estimators_expectation_over_the_sampling_policy_is_the_exact_sum() -> None:
    """Every word of the vocabulary in turn is the sampled one, weighted by its probability."""
    torch.manual_seed(0)
    before, after, base = ((torch.randn(15, 11, dtype=torch.float64) * scale).log_softmax(1) for scale in (2, 2, 3))
    group = torch.zeros(1, dtype=torch.long)
    for context in range(15):
        exact = divergences(*(x[context : context + 1] for x in (before, after, base)), group)
        words = [divergences(*(x[context, v].view(1) for x in (before, after, base)), group) for v in range(11)]
        for name in ("kl_step", "kl_base"):
            values = [found[name] or 0.0 for found in words]
            assert min(values) >= 0
            mean = sum(float(p) * x for p, x in zip(before[context].exp(), values, strict=True))
            assert mean == pytest.approx(exact[name], rel=1e-9)


def test_no_change_is_zero_no_token_unknown_and_no_number_none() -> None:
    logp, group = torch.randn(6, 4).log_softmax(1), torch.arange(6)
    assert divergences(logp, logp, logp, group) == dict.fromkeys(KL, 0.0)
    assert divergences(logp[:0], logp[:0], logp[:0], group[:0]) == NOTHING_TRAINED
    assert divergences(logp, logp * math.nan, logp, group) == dict.fromkeys(KL)
    parameters = [torch.randn(3, 2), torch.randn(5)]
    assert movement.update(movement.copies(parameters), parameters) == Update(0.0, 11)


def test_adamws_first_step_is_the_learning_rate_in_every_parameter() -> None:
    """m/sqrt(v) is then the gradient's sign: effective step 1, whatever the gradient; with half the gradients, less."""
    model = torch.nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
    before = movement.copies(model.parameters())
    model(torch.randn(2, 8)).square().sum().backward()
    optimizer.step()
    moved = movement.update(before, model.parameters())
    assert (moved.norm, moved.parameters) == (pytest.approx(1e-3 * 6, rel=1e-3), 36)
    assert moved.effective(1e-3) == pytest.approx(1, rel=1e-3)


def test_parameters_get_other_values_and_their_own_memory_back() -> None:
    model = torch.nn.Linear(2, 2)
    own = [p.data_ptr() for p in model.parameters()]
    x, y = torch.ones(1, 2), model(torch.ones(1, 2))
    with movement.weights(list(model.parameters()), [torch.zeros_like(p) for p in model.parameters()]):
        assert not model(x).any()
    assert [p.data_ptr() for p in model.parameters()] == own
    assert torch.equal(model(x), y)


@pytest.mark.parametrize("power", [1.0, 2.0, 3.0])
@pytest.mark.parametrize("scale", [1e-6, 0.3, 40.0])
def test_the_multiple_reaches_the_target(power: float, scale: float) -> None:
    def moved(size: float) -> float:
        kl = scale * size**power
        return kl if kl < 100 else math.nan  # a policy that is broken

    found = movement.multiple(lambda size: math.inf if math.isnan(moved(size)) else moved(size), 0.02)
    assert moved(found) == pytest.approx(0.02, rel=movement.TOLERANCE)


def test_a_step_that_moves_nothing_is_left_alone() -> None:
    assert movement.multiple(lambda size: 0.0, 0.02) == 1.0
