"""C1, C2: the trainer's own loss code equals `Method.loss`, whole and split, on tensors of a real rollout."""

from __future__ import annotations

from dataclasses import fields

import pytest

from methods import catalog
from methods.batch import Batch
from methods.method import Method

KEYS = (
    *catalog.keys(),
    "tepo+kl-anchor=ref",
    "tepo+kl-estimator=full",
    "grpo+agg-scope=group",
    "tepo+agg-scope=group",
    "grpo+correction=icepop+correction-cap=1.0000001",
    "tepo+correction=seq-tis",
)


def leaves(batch: Batch, double: bool) -> Batch:
    """A copy whose log-probs and entropies are leaves of the graph."""
    import torch

    tensors = {f.name: getattr(batch, f.name) for f in fields(batch)}
    made = {
        name: x.double() if double and isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for name, x in tensors.items()
    }
    for name in ("logp", "entropy", "full_logp"):
        made[name] = made[name].clone().requires_grad_()
    return Batch(**made)


def loss_and_gradients(method: Method, batch: Batch, parts: int | None) -> list[object]:
    """The loss (through the trainer in `parts`, or None: directly) and its gradients by log-probs and entropies."""
    import torch

    if parts is None:
        from methods.training.rollouts import derive

        loss = method.loss(batch, generator=torch.Generator().manual_seed(derive(0, "selection", 0)))
    else:
        from tests.adapters.trl_conformance import through_trainer

        loss = through_trainer(method, batch, parts)
    wanted = [batch.logp, batch.entropy, batch.full_logp]
    return [loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("double", [False, True], ids=["float32", "float64"])
@pytest.mark.parametrize("key", KEYS)
def test_the_trainers_loss_is_the_methods(key: str, double: bool, captured: list[Batch]) -> None:
    import torch

    method = catalog.parse(key)
    assert any(float((b.logp - b.old_logp).abs().max()) > 0.01 for b in captured), "all minibatches are on-policy"
    for batch in captured:
        ours = loss_and_gradients(method, leaves(batch, double), 1)
        theirs = loss_and_gradients(method, leaves(batch, double), None)
        for mine, its in zip(ours, theirs, strict=True):
            torch.testing.assert_close(mine, its, rtol=0, atol=0)


@pytest.mark.parametrize("key", ["grpo", "opo", "reinforce_pp"])
def test_advantages_are_over_the_rows_that_are_trained_on_with_their_lengths(key: str) -> None:
    from typing import Any

    import torch

    from methods.adapters.trl.microbatches import Rows
    from methods.adapters.trl.trainer import MethodTrainer

    trainer: Any = object.__new__(MethodTrainer)
    trainer.method, trainer.num_generations = catalog.parse(key), 2
    lengths = torch.tensor([3, 1, 2, 2, 1, 4])
    mask = (torch.arange(4) < lengths[:, None]).long()
    reward, group = torch.tensor([1.0, 0, 1, 1, 0, 1]), torch.arange(6) // 2
    sampled = Rows(mask[:, :1], mask[:, :1], mask, mask, reward, group)
    kept = trainer._with_advantage(sampled, [0, 2])
    rows = torch.tensor([0, 1, 4, 5])
    assert torch.equal(kept.advantage, trainer.method.advantage(reward[rows], group[rows], lengths[rows]))
    assert len(trainer._with_advantage(sampled, [])) == 0


STATISTICS = [key for key in (*KEYS, "tepo+dh-def=cov_sign") if catalog.parse(key).parts.statistics]


@pytest.mark.parametrize("parts", [2, 4, 8])
@pytest.mark.parametrize("key", [*KEYS, "tepo+dh-def=cov_sign"])
def test_a_split_changes_nothing(key: str, parts: int, captured: list[Batch]) -> None:
    import torch

    method = catalog.parse(key)
    batch = captured[-1]
    whole = loss_and_gradients(method, leaves(batch, True), 1)
    split = loss_and_gradients(method, leaves(batch, True), parts)
    for one, other in zip(whole, split, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("key", STATISTICS)
def test_by_the_other_reading_the_split_decides(key: str, captured: list[Batch]) -> None:
    import torch

    from tests.adapters.trl_conformance import through_trainer

    method, batch = catalog.parse(key), leaves(captured[-1], True)
    cut = [through_trainer(method, batch, parts, "microbatch") for parts in (1, 4)]
    assert not torch.equal(*cut)


def test_splits_are_of_unequal_length(captured: list[Batch]) -> None:
    """Otherwise the test above would pass with each part's own mean."""
    lengths = captured[-1].lengths_B.tolist()
    assert len(set(lengths)) > 2


def test_a_wrong_denominator_would_be_seen(captured: list[Batch]) -> None:
    import torch

    method, batch = catalog.parse("grpo"), leaves(captured[-1], True)
    parts = [batch.rows(slice(0, 5)), batch.rows(slice(5, 8))]
    naive = sum(method.loss(part) for part in parts) / 2
    assert not torch.allclose(naive, method.loss(batch), rtol=1e-6)
