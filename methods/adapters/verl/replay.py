"""One recorded rollout through verl's training worker (FSDP2, one process): no Ray, no inference engine, no reward.

What the driver does between sampling and the update, `MethodTrainer` in `trainer`, is followed here step by step with
its own functions: advantages, minibatches and their totals, the pass over the old policy; the updates are verl's.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from methods import catalog
from methods.adapters import verl
from methods.adapters.verl.processes import environment
from methods.replay import Record, Updates
from methods.training.rollouts import deal, together

if TYPE_CHECKING:
    from tensordict import TensorDict

    from methods.training.spec import Spec


def replay(record: Record, folder: Path) -> None:
    """The record through verl; into `folder` an update<u>.safetensors for each update.

    Sets variables of this process before verl is imported: verl must not have been imported before.
    """
    spec = record.spec("verl")
    verl.preflight(spec)
    verl.check_versions(spec.training.device)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}  # any port: nobody else joins
    if "WORLD_SIZE" not in os.environ:  # a second replay in this process joins the group of the first
        os.environ |= environment(spec.training, folder) | address | {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}

    import torch
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    from methods.adapters.verl.trainer import advantages, method_loss
    from methods.adapters.verl.worker import MINIBATCH_ROWS, RESULT, TOTALS_FIELD, MicroBatchResult

    if spec.training.device == "cpu":
        torch.set_num_threads(1)
    t, method = spec.training, catalog.parse(spec.method)
    actor = training_worker(spec, folder)
    data, rewards_BT = _rows(record, spec)
    # as `_compute_old_log_prob` does
    asked = data.copy()
    tu.assign_non_tensor(
        asked,
        calculate_entropy=True,
        compute_loss=False,
        temperature=t.temperature,
        **{MINIBATCH_ROWS: t.rows_per_minibatch},
    )
    old = actor.infer_batch(asked)
    data["old_log_probs"] = response_from_nested(old["log_probs"], data["response_mask"])
    data["entropy"] = response_from_nested(old["entropy"], data["response_mask"])
    # as `_compute_advantage` does
    mask_BT = torch.nested.to_padded_tensor(data["response_mask"], 0)
    uids = [f"{int(group):06d}" for group in data[TOTALS_FIELD][:, 0]]
    advantage_BT, _ = advantages(method)(rewards_BT, mask_BT, uids)
    data["advantages"] = _nested([row[:n] for row, n in zip(advantage_BT, mask_BT.sum(1).tolist(), strict=True)])

    # verl hands out neither gradients nor the weights between updates: its optimiser's step is watched
    loss_function, seen = method_loss(spec, method), list[MicroBatchResult]()

    def watched_loss(*args: Any, **kwargs: Any) -> Any:
        loss, metrics = loss_function(*args, **kwargs)
        seen.append(metrics[RESULT])
        return loss, metrics

    engine, optimizer_step = actor.engine, actor.engine.optimizer_step
    updates = Updates(record, folder, t.updates_per_rollout)

    def watched_step() -> Any:
        named = dict(engine.module.named_parameters())
        gradients = {name: p.grad.full_tensor().clone() for name, p in named.items() if p.grad is not None}
        norm = optimizer_step()
        # of one rank: its part is the whole parameter
        parameters = {name: p.data.to_local() for name, p in named.items()}
        batch = together([result.batch for result in seen])
        updates.add(batch, sum(result.loss for result in seen), gradients, parameters)
        seen.clear()
        return norm

    engine.optimizer_step = watched_step
    actor.set_loss_fn(watched_loss)
    # as `_update_actor` does
    tu.assign_non_tensor(
        data,
        calculate_entropy=True,
        global_batch_size=t.rows_per_minibatch,
        mini_batch_size=t.rows_per_minibatch,
        epochs=t.passes,
        seed=spec.seed,
        dataloader_kwargs={"shuffle": False},
        temperature=t.temperature,
        global_steps=1,
    )
    actor.train_mini_batch(data)


def training_worker(spec: Spec, folder: Path, changes: Mapping[str, Any] | None = None) -> Any:
    """verl's own, as `ActorRolloutRefWorker` builds it out of our configuration. changes: of keys of verl's."""
    from verl.workers.engine_workers import ActorRolloutRefWorker

    from methods.adapters.verl.config import Files, compose, overrides

    files = Files(train_parquet=folder, val_parquet=folder, checkpoints=folder, log=folder, reward_module=folder)
    config = compose(overrides(spec, files) | dict(changes or {}))
    worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    return worker.actor


def _rows(record: Record, spec: Spec) -> tuple[TensorDict, Any]:
    """The rows, minibatch by minibatch, in verl's own layout (nested, without padding); their rewards (B, T)."""
    import torch
    from tensordict import TensorDict

    from methods.adapters.verl.trainer import with_totals
    from methods.adapters.verl.worker import REFERENCE, SAMPLED, TOTALS_FIELD, MinibatchTotals

    t, rollout = spec.training, record.rollout
    lengths = rollout["completion_mask"].sum(1).tolist()
    placed: list[tuple[int, MinibatchTotals]] = []
    for members in deal(range(t.prompts_per_rollout), t.minibatches):
        groups = {group: (rollout["group"] == group).nonzero().squeeze(1).tolist() for group in members}
        placed += with_totals({group: [(row, lengths[row]) for row in rows] for group, rows in groups.items()})
    order = [row for row, _ in placed]
    prompts = [rollout["prompt_ids"][row][rollout["prompt_mask"][row].bool()] for row in order]
    responses = [rollout["completion_ids"][row, : lengths[row]] for row in order]
    whole = [torch.cat(pair) for pair in zip(prompts, responses, strict=True)]
    masks = [rollout["completion_mask"][row, : lengths[row]] for row in order]
    fields: dict[str, Any] = {
        "prompts": _nested(prompts),
        "responses": _nested(responses),
        "input_ids": _nested(whole),
        "position_ids": _nested([torch.arange(len(ids)) for ids in whole]),
        "loss_mask": _nested(masks),
        "response_mask": _nested(masks),
        TOTALS_FIELD: torch.tensor([totals.row() for _, totals in placed]),
    }
    for ours, theirs in (("sampling_logp", SAMPLED), ("ref_logp", REFERENCE)):
        if ours in rollout:
            fields[theirs] = _nested([rollout[ours][row, : lengths[row]] for row in order])
    rewards_BT = torch.zeros(len(order), max(lengths))
    for at, row in enumerate(order):
        rewards_BT[at, lengths[row] - 1] = rollout["reward"][row]  # on the last token, as verl has them
    return TensorDict(fields, batch_size=len(order)), rewards_BT


def _nested(rows: list[Any]) -> Any:
    import torch

    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)
