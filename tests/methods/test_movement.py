"""How far an update moves the policy."""

import math

import pytest
import torch

from methods.training import movement
from methods.training.movement import KL, NOTHING_TRAINED, Update, divergences


def kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def test_two_tokens_have_the_divergence_of_the_closed_form() -> None:
    """Of whole distributions; and in the mean over the sampled word, which is drawn from the policy before."""
    contexts = [(0.5, 0.7, 0.2), (0.9, 0.6, 0.5), (0.3, 0.3, 0.4)]  # before, after, base
    columns = [[[p, 1 - p] for p in column] for column in zip(*contexts, strict=True)]
    logp = [torch.tensor(column, dtype=torch.float64).log() for column in columns]
    found = divergences(*logp, torch.tensor([4, 7, 7]))
    words = [[divergences(*(x[i : i + 1, v] for x in logp), torch.zeros(1)) for v in (0, 1)] for i in range(3)]
    for name, at in (("kl_step", 0), ("kl_base", 2)):
        exact = [kl(row[1], row[at]) for row in contexts]
        mean = sum(exact) / 3
        assert found[name] == pytest.approx(mean, rel=1e-12)
        sums = exact[0] - mean, exact[1] + exact[2] - 2 * mean  # of the two groups
        assert found[f"{name}_se"] == pytest.approx(math.sqrt(2 * sum(s * s for s in sums)) / 3, rel=1e-12)
        for (p, _, _), (a, b), wanted in zip(contexts, words, exact, strict=True):
            assert min(a[name], b[name]) >= 0
            assert p * a[name] + (1 - p) * b[name] == pytest.approx(wanted, rel=1e-12)
    one = divergences(*logp[:2], None, torch.zeros(3, dtype=torch.long))
    assert one == {"kl_step": found["kl_step"], "kl_step_se": None, "kl_base": None, "kl_base_se": None}


def test_no_change_is_zero_no_token_unknown_and_no_number_none() -> None:
    logp, group = torch.randn(6, 4).log_softmax(1), torch.arange(6)
    assert divergences(logp, logp, logp, group) == dict.fromkeys(KL, 0.0)
    assert divergences(logp[:0], logp[:0], logp[:0], group[:0]) == NOTHING_TRAINED
    assert divergences(logp, logp * math.nan, logp, group) == dict.fromkeys(KL)


def test_an_update_is_measured_over_all_parameters() -> None:
    """AdamW's first step is the learning rate in every parameter, whatever the gradient: effective step 1."""
    parameters = [torch.randn(3, 2), torch.randn(3)]
    assert movement.update(movement.copies(parameters), parameters) == Update(0.0, 9)
    moved = movement.update(movement.copies(parameters), [p - 1e-3 for p in parameters])
    assert (moved.norm, moved.parameters) == (pytest.approx(1e-3 * 3, rel=1e-3), 9)
    assert moved.effective(1e-3) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("power", "scale", "least"),
    [(1.0, 40.0, 0.0), (2.0, 0.3, 0.0), (3.0, 1e-6, 0.0), (2.0, 1e-9, 1e-6), (4.0, 0.005, 0.0), (12.0, 3.0, 0.0)],
)
@pytest.mark.parametrize("rounded", [0.0, -1e-9])
def test_the_multiple_reaches_the_target(power: float, scale: float, least: float, rounded: float) -> None:
    """A step whose divergence is lost in rounding is lengthened, one that breaks the policy is shortened."""

    parameter, start = torch.ones(2), torch.zeros(2)

    def moved() -> float:
        kl = scale * float(parameter[0]) ** power
        if kl >= 100:
            return math.inf
        return kl if kl > least else rounded

    size = movement.move([parameter], [start], moved, 0.02)
    assert moved() == pytest.approx(0.02, rel=movement.TOLERANCE)
    assert float(parameter[0]) == pytest.approx(size)


def test_of_sizes_that_all_miss_the_target_the_nearest_stays() -> None:
    parameter, start = torch.ones(2), torch.zeros(2)
    measured: list[float] = []

    def stair() -> float:
        measured.append(float(parameter[0]))
        return 0.012 if measured[-1] < 0.7 else 0.05

    size = movement.move([parameter], [start], stair, 0.02)
    assert 0 < float(parameter[0]) < 0.7
    assert parameter[0] == parameter[1] == measured[-1]
    assert len(measured) == movement.TRIES + 1
    assert movement.aim(0.02, size, 0.012) == {"kl_target": 0.02, "kl_scale": size, "kl_missed": 1}
    assert [movement.aim(0.02, 1.0, reached)["kl_missed"] for reached in (0.0191, 0.0209, None)] == [0, 0, 1]


def test_a_change_that_meets_the_target_keeps_its_bits_and_a_target_of_zero_removes_it() -> None:
    torch.manual_seed(0)
    start = torch.randn(1000)
    parameter = torch.randn(1000)
    trained = parameter.clone()
    assert not torch.equal(start + (trained - start), trained)  # the sum rounds
    assert movement.move([parameter], [start], lambda: 0.0201, 0.02) == 1.0
    assert torch.equal(parameter, trained)
    assert movement.move([parameter], [start], lambda: 1.0, 0.0) == 0.0
    assert torch.equal(parameter, start)
    assert movement.move([parameter], [start], lambda: pytest.fail("nothing to measure"), 0.02) == 1.0
