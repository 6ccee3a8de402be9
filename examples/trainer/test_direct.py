"""The bare loop computes Method.loss, and a stopped run continues to the same curve and weights."""

import pytest

from methods import catalog
from methods.adapters import direct
from methods.train import STOPPED
from methods.training.rollouts import derive
from tests.adapters.conftest import StopAfter
from tests.adapters.worlds import numbers, weights


@pytest.mark.parametrize("key", catalog.keys())
def test_the_loss_is_the_methods(key, captured):
    import torch

    method, batch = catalog.parse(key), captured[-1]
    expected = method.loss(batch, generator=torch.Generator().manual_seed(derive(0, "selection", 3)))
    torch.testing.assert_close(direct.loss_of(method, batch, seed=0, update=3), expected, rtol=0, atol=0)


def test_stopped_and_resumed_is_bit_equal(train, tmp_path):
    sizes = {"trainer": "direct", "rollouts": 3, "checkpoints": (1, 3)}
    assert train(tmp_path / "straight", "tepo", **sizes) == 0
    assert train(tmp_path / "stopped", "tepo", stop=StopAfter(2), **sizes) == STOPPED
    assert train(tmp_path / "stopped", "tepo", **sizes) == 0
    assert numbers(tmp_path / "stopped") == numbers(tmp_path / "straight")
    assert weights(tmp_path / "stopped", 3) == weights(tmp_path / "straight", 3)
