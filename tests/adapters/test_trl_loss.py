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
        if made[name] is not None:
            made[name] = made[name].detach().clone().requires_grad_()
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


SPLITTABLE = (*KEYS, "tepo+dh-def=cov_sign")
STATISTICS = [key for key in SPLITTABLE if catalog.parse(key).parts.statistics]


def test_the_trainers_loss_is_the_methods(captured: list[Batch]) -> None:
    import torch

    assert any(float((b.logp - b.old_logp).abs().max()) > 0.01 for b in captured), "all minibatches are on-policy"
    for key in KEYS:
        method = catalog.parse(key)
        for batch in captured:
            for double in (False, True):
                ours = loss_and_gradients(method, leaves(batch, double), 1)
                theirs = loss_and_gradients(method, leaves(batch, double), None)
                torch.testing.assert_close(ours, theirs, rtol=0, atol=0, msg=lambda text, key=key: f"{key}: {text}")


@pytest.mark.parametrize("key", ["grpo", "opo", "reinforce_pp"])  # the last two weigh responses by their lengths
def test_advantages_are_over_the_rows_that_are_trained_on(key: str) -> None:
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


def test_a_split_changes_nothing(captured: list[Batch]) -> None:
    """And by the other reading of R15 it decides."""
    import torch

    from tests.adapters.trl_conformance import through_trainer

    batch = captured[-1]
    assert len(set(batch.lengths_B.tolist())) > 2, "with equal lengths each part's own mean would pass"
    for key in SPLITTABLE:
        method = catalog.parse(key)
        whole = loss_and_gradients(method, leaves(batch, True), 1)
        for parts in (2, 8):
            split = loss_and_gradients(method, leaves(batch, True), parts)
            torch.testing.assert_close(
                split, whole, rtol=1e-12, atol=1e-14, msg=lambda text, case=(key, parts): f"{case}: {text}"
            )
        if key in STATISTICS:
            cut = [through_trainer(method, leaves(batch, True), parts, "microbatch") for parts in (1, 4)]
            assert not torch.equal(*cut), key
