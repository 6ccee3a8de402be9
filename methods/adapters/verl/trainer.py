"""verl's synchronous trainer with our loss, advantages, prompt order and filter. Every override calls `super()`, except
those for the order of prompts (`_next_train_batch`), the buffer (`_build_replay_buffer`) and the number of rows that
verl pads a rollout to (`_get_required_batch_multiple`).

Imports verl, so it is imported only in the driver, when a run starts. Differences from stock verl:

- loss and advantages are `Method.loss` and `Method.advantage`;
- the order of prompts is that of the TRL adapter and depends only on the run's seed and the rollout;
- a complete rollout is drawn, then filtered (`GroupBuffer`); prompt groups stay whole in minibatches, as with TRL;
- ranks are balanced by length within each minibatch, not over the rollout;
- a minibatch without an informative group is skipped: AdamW would move on momentum alone;
- nothing depends on the order in which responses arrive.

verl has hooks (`on_step_begin`, `on_step_end`, ...), but not for these. The private methods overridden here are pinned
by tests/adapters/test_canaries.py.
"""

from __future__ import annotations

import math
import secrets
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import transfer_queue as tq
from tensordict import TensorDict
from verl.single_controller.ray import RayWorkerGroup
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.v1 import trainer_base
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_base import TRAINER_REGISTRY
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils import tensordict_utils as tu
from verl.utils.dataset.rl_dataset import collate_fn
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions
from verl.workers.utils.padding import response_from_nested

from core.errors import CorruptInputError
from methods.adapters.verl import checkpoint, processes
from methods.adapters.verl.config import ADVANTAGE, TRAINER
from methods.adapters.verl.worker import (
    MINIBATCH_ROWS,
    REFERENCE,
    RESPONSE_FIELDS,
    RESULT,
    SEED_FIELD,
    SIZE_FIELD,
    TOTALS_FIELD,
    MethodLoss,
    MicroBatchResult,
    MinibatchTotals,
    Response,
    responses,
)
from methods.method import Method
from methods.training import movement, rollouts
from methods.training.curve import Recorder
from methods.training.spec import Spec, Training

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from transfer_queue import KVBatchMeta

# --- Sampling one rollout: draw, wait for all of it, keep informative groups ------------------------------------------
# verl's filter takes groups as they finish, so the training data would depend on timing. Here all responses are
# complete before groups are filtered. `methods.training.rollouts` chooses the groups: one rule for both trainers.

# Seconds between two polls of the queue: a twentieth of the wait so far, within these bounds. verl's fixed 2 s is most
# of a tiny model's step; a short fixed interval would keep the driver busy during a long rollout.
POLL_SECONDS, POLL_LONGEST = 0.05, 2.0


class NothingToLearnError(Exception):
    """Exception with the batch of a rollout of constant groups, which has no update. The trainer catches it and returns
    the batch for verl to clear, because a step of verl always has rows."""


class GroupBuffer(ReplayBuffer):
    """Buffer whose `sample` returns the rows of the kept groups; `rows` has those of all groups, in the order drawn."""

    rows: list[Response]
    kept: list[list[Response]]  # groups that are trained on
    kept_groups: list[int]  # their numbers

    def __init__(
        self, training: Training, end_tokens: Sequence[int], refill: Callable[[int], int], check: Callable[[], None]
    ):
        # trainer_config and the next three configure verl's `sample`, which is replaced
        super().__init__(
            trainer_mode="sync", trainer_config=None, max_off_policy_threshold=None, max_off_policy_strategy="drop",
            sampler_kwargs=None, poll_interval=POLL_SECONDS,
        )  # fmt: skip
        self.training, self.end_tokens = training, end_tokens
        self.refill = refill  # dispatches at most this many more prompts; returns their number
        self.check = check  # raises if the wait was too long or a worker has died

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Return the rows of the kept groups; replaces verl's `sample`, which waits only for `batch_size` groups."""
        t, n = self.training, self.training.samples_per_prompt
        rows = self._wait_for_rows(partition_id)
        for _ in range(t.refill_rounds if t.filter == "refill" else 0):
            # twice the missing number, because some of the new groups will be constant too
            missing = batch_size - len(self._choose(rows, batch_size))
            if not missing or not self.refill(min(2 * missing, batch_size)):
                break
            rows = self._wait_for_rows(partition_id)
        self.rows, self.kept_groups = rows, self._choose(rows, batch_size)
        self.kept = [rows[number * n : (number + 1) * n] for number in self.kept_groups]
        # One group is kept even if none is informative: verl's step must have rows to clear at its end.
        staying = {group[0].uid for group in self.kept} or {rows[0].uid}
        self._clear_groups(partition_id, {row.uid for row in rows} - staying)
        batch = self._materialize_batch(partition_id, sorted(staying), dict(self.partitions[partition_id]))
        if not self.kept:
            raise NothingToLearnError(batch)
        # verl returns rows in the order in which they finished; minibatches need the order in which they were drawn.
        position = {key: index for index, key in enumerate(batch.keys)}
        batch.reorder([position[row.key] for group in self.kept for row in group])
        return batch, {}

    def _choose(self, rows: list[Response], wanted: int) -> list[int]:
        """Return the numbers of at most `wanted` groups to train on."""
        t = self.training
        return rollouts.choose([row.reward for row in rows], t.samples_per_prompt, wanted, t.filter)

    def _wait_for_rows(self, partition_id: str) -> list[Response]:
        """Wait until no request is open; return all responses, in the order of draws, prompts and samples."""
        began = time.monotonic()
        while True:
            self._sync_metadata_from_transfer_queue()
            if not self.pending_keys[partition_id] and not self.running_keys[partition_id]:
                break
            self.check()
            self.poll_interval = min(POLL_LONGEST, max(POLL_SECONDS, (time.monotonic() - began) / 20))
            self._wait_for_next_poll(partition_id, float("inf"))
        keys = sorted(self.partitions[partition_id], key=_place)
        uids = self.finished_keys[partition_id] | self.failure_keys[partition_id]
        # verl silently drops a failed sample from its group; an incomplete group must not be trained on.
        if self.failure_keys[partition_id] or len(keys) != len(uids) * self.training.samples_per_prompt:
            raise CorruptInputError(
                f"verl: {len(self.failure_keys[partition_id])} of {len(uids)} prompt groups failed while they were "
                "sampled; the worker's exception stands above in this log"
            )
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=list(RESPONSE_FIELDS))
        return responses(keys, data, self.training.max_completion_tokens, self.end_tokens)


def _place(key: str) -> tuple[str, int]:
    """Return a row's sort key: its prompt's uid, which sorts as drawn, then its sample as a number (10 after 9)."""
    uid, sample, _ = key.rsplit("_", 2)
    return uid, int(sample)


# --- The trainer ------------------------------------------------------------------------------------------------------


class MethodTrainer(PPOTrainerSync):
    """Trainer of the recorder's run that reports every rollout to the recorder."""

    # Class attributes, set by the adapter, because verl builds the trainer from its configuration only.
    recorder: Recorder
    end_tokens: Sequence[int]
    refill: rollouts.Refill
    watchdog: processes.Watchdog

    def __init__(self, config: DictConfig):
        config.trainer.v1.trainer_mode = "sync"  # verl compares this name; another would make it asynchronous
        self.spec, self.method = self.recorder.run.spec, self.recorder.method
        core_algos.ADV_ESTIMATOR_REGISTRY[ADVANTAGE] = advantages(self.method)
        super().__init__(config)
        # For the current rollout:
        self._drawn: set[int] = set()  # indices of its prompts
        self._draws = 0
        self._results: list[MicroBatchResult] = []
        self._gradient_norms: list[float] = []
        self._began = self._sampled = self._updated = 0.0  # seconds of `perf_counter`

    # --- 1. loss --------------------------------------------------------------------------------------------------

    def on_init_end(self) -> None:
        """Send our loss to the workers, which now exist, in place of the one in verl's configuration."""
        self.actor_rollout_wg.set_loss_fn(method_loss(self.spec, self.method))
        self.actor_rollout_wg.update_actor = self._keeping_results(self.actor_rollout_wg.update_actor)
        super().on_init_end()

    def _keeping_results(self, update: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Wrap verl's call into the workers, to extract our loss's results before verl averages its metrics.

        The call is wrapped because `_update_actor` averages immediately and returns nothing else.
        """

        def call(batch: KVBatchMeta) -> Any:
            self.watchdog.restart(f"rollout {self.global_steps}: updating")
            self._sampled = time.perf_counter()
            output = update(batch)
            metrics = output["metrics"]
            self._results = metrics.pop(RESULT)
            self._gradient_norms = [float(norm) for norm in metrics["grad_norm"]]
            self._updated = time.perf_counter()
            return output

        return call

    # --- 2. prompts, sampling, filter -----------------------------------------------------------------------------

    def _build_replay_buffer(self) -> GroupBuffer:
        """Return a buffer that waits for all groups of a rollout; verl's returns groups as they finish."""
        return GroupBuffer(self.spec.training, self.end_tokens, self._refill, self._check_workers)

    def on_step_begin(self) -> None:
        """Start a step of verl, which is a rollout with all its updates."""
        super().on_step_begin()
        self.watchdog.restart(f"rollout {self.global_steps}: sampling")
        self._began = self._sampled = self._updated = time.perf_counter()
        self._drawn, self._draws = set(), 0
        self._results, self._gradient_norms = [], []

    def _next_train_batch(self, num_prompts: int | None = None) -> TensorDict:
        """Return the rollout's prompts, by its number: a data loader's position would have to be saved."""
        drawn = self.spec.training.prompts_drawn
        order = rollouts.order(len(self.train_dataset), self.global_steps * drawn, self.spec.seed)
        return self._batch(order[-drawn:])

    def _refill(self, wanted: int) -> int:
        """Dispatch up to `wanted` more prompts, for filter `refill`; return their number."""
        indices = self.refill.draw(wanted, self._drawn)
        return self._submit_batch_to_rollout(self._batch(indices)) if indices else 0

    def _batch(self, indices: Sequence[int]) -> TensorDict:
        """Return these prompts as verl dispatches them.

        verl's uids are random. Ours sort as drawn and have no underscore, since row keys are <uid>_<sample>_<part>.
        """
        rows = collate_fn([self.train_dataset[index] for index in indices])
        step, draw = self.global_steps, self._draws
        uids = [f"{step:06d}-{draw:02d}-{position:06d}" for position in range(len(indices))]
        rows["uid"] = np.array(uids, dtype=object)
        rows[SEED_FIELD] = torch.full((len(indices),), rollouts.stream_seed(self.spec))
        rows[SIZE_FIELD] = torch.full((len(indices),), len(indices))
        self._drawn |= set(indices)
        self._draws += 1
        batch = tu.get_tensordict(rows)
        tu.assign_non_tensor_data(batch, "global_steps", step)
        return batch

    def _check_workers(self) -> None:
        """Raise for a dead sampling or reward worker, whose prompts would never finish."""
        servers = [server for replica in self.llm_server_manager.get_replicas() for server in replica.servers]
        loops = self.agent_loop_manager.agent_loop_workers, self.reward_loop_manager.reward_loop_workers
        self.watchdog.check_alive([*loops[0], *loops[1], *servers])

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        """Run verl's step, which always makes an update: a rollout of constant groups leaves it by an exception."""
        self._divergences = dict(movement.NOTHING_TRAINED)
        try:
            batch = super()._step_once(metrics, timing_raw, sample_batch_size)
            self._divergences = self._measured(batch)
            return batch
        except NothingToLearnError as nothing:
            self._sampled = self._updated = time.perf_counter()
            self.on_sample_end()  # skipped by the exception: removes the inference engines from the devices
            return nothing.args[0]

    def _measured(self, batch: KVBatchMeta) -> dict[str, float | None]:
        """Return how far the rollout's updates moved the policy, by the sampled tokens; `base` needs a reference model.

        Costs one additional pass over every fourth row of each rank.
        """
        size = len(batch) // self._ranks
        keys = [
            key for rank in range(self._ranks) for key in batch.keys[rank * size : (rank + 1) * size : movement.SHARE]
        ]
        share = batch.select_keys(keys)
        temperature = self.config.actor_rollout_ref.rollout.temperature
        share.extra_info = {"calculate_entropy": False, "compute_loss": False, "temperature": temperature}
        # If a micro-batch is sized in rows rather than tokens, its size must divide a rank's rows.
        rows = self.spec.training.rows_per_minibatch // self.spec.training.micro_batches // self._ranks
        share.extra_info["micro_batch_size_per_gpu"] = math.gcd(len(keys) // self._ranks, rows)
        self.actor_rollout_wg.compute_log_prob(share)
        names = ["log_probs", "response_mask", "old_log_probs", *([REFERENCE] if self.use_reference_policy else [])]
        data = tq.kv_batch_get(keys=keys, partition_id=batch.partition_id, select_fields=names)
        data["log_probs"] = response_from_nested(data["log_probs"], data["response_mask"])
        masks = [mask.bool() for mask in data["response_mask"].unbind()]
        before, after, *base = (
            torch.cat([row[mask] for row, mask in zip(data[name].unbind(), masks, strict=True)])
            for name in ("old_log_probs", "log_probs", *names[3:])
        )
        uids = [key.rsplit("_", 2)[0] for key in keys]
        number = {uid: index for index, uid in enumerate(dict.fromkeys(uids))}
        group_N = torch.tensor(
            [number[uid] for uid, mask in zip(uids, masks, strict=True) for _ in range(int(mask.sum()))]
        )
        return movement.divergences(before, after, base[0] if base else None, group_N)

    # --- 3. minibatches -------------------------------------------------------------------------------------------

    def _minibatches(self) -> list[list[int]]:
        """Return the positions in `replay_buffer.kept` of each nonempty minibatch's groups."""
        dealt = rollouts.deal(range(len(self.replay_buffer.kept)), self.spec.training.minibatches)
        return [groups for groups in dealt if groups]

    def _get_required_batch_multiple(self, dp_size: int) -> int:
        """Return the rows of all trained minibatches: verl pads up to this number with filling rows."""
        self._ranks = dp_size
        return len(self._minibatches()) * self.spec.training.rows_per_minibatch

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict[str, Any], **options: Any) -> KVBatchMeta:
        """Let verl pad and balance the rollout, then assign rows to our minibatches, balancing ranks in each."""
        batch = super()._balance_batch(batch, metrics, **options)
        position = {key: index for index, key in enumerate(batch.keys)}
        length = {key: int(tag["seq_len"]) for key, tag in zip(batch.keys, batch.tags, strict=True)}
        kept = self.replay_buffer.kept
        real = {row.key for group in kept for row in group}
        # Filling rows are ordered by number, so that the same ones always go into the same minibatch.
        filling = iter(sorted((key for key in position if key not in real), key=lambda key: int(key.rsplit("_", 2)[1])))
        size = self.spec.training.rows_per_minibatch
        placed: list[tuple[str, MinibatchTotals]] = []  # minibatch by minibatch
        for members in self._minibatches():
            rows = sum(len(kept[number]) for number in members)
            placed += with_totals({number: [(row.key, row.tokens) for row in kept[number]] for number in members})
            fill = MinibatchTotals(-1, 0, len(members), rows, -1)
            placed += [(next(filling), fill) for _ in range(size - rows)]
        placed = [placed[index] for index in by_rank([length[key] for key, _ in placed], size, self._ranks)]
        batch.reorder([position[key] for key, _ in placed])
        totals_B5 = torch.tensor([totals for _, totals in placed])
        fields = TensorDict({TOTALS_FIELD: totals_B5}, batch_size=len(placed))
        tq.kv_batch_put(keys=batch.keys, partition_id=batch.partition_id, fields=fields)
        return batch

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        """Compute old log-probs minibatch by minibatch, like the updates: see `worker.infer_batch`."""
        batch.extra_info[MINIBATCH_ROWS] = self.spec.training.rows_per_minibatch
        return super()._compute_old_log_prob(batch, metrics)

    # --- 4. what the curve and a resumed run need -----------------------------------------------------------------

    def on_step_end(self) -> None:
        """Record the rollout and save if due; only its end can be saved, because states do not contain its samples."""
        super().on_step_end()
        t, step = self.spec.training, self.global_steps
        buffer = self.replay_buffer
        figures = rollouts.figures(
            step, [row.reward for row in buffer.rows], buffer.kept_groups, t.samples_per_prompt,
            [row.tokens for row in buffer.rows], [row.truncated for row in buffer.rows],
        )  # fmt: skip
        updates: dict[int, list[MicroBatchResult]] = {}
        for result in self._results:
            updates.setdefault(result.update, []).append(result)
        in_order = [updates[number] for number in sorted(updates)]
        # A minibatch without an informative group has no update; such minibatches come last in each pass.
        trained = min(figures["groups_kept"], t.minibatches)
        for index in range(t.updates_per_rollout):
            passes_before, minibatch = divmod(index, t.minibatches)
            update = passes_before * trained + minibatch if minibatch < trained else None
            results = [] if update is None else in_order[update]
            batch = rollouts.together([result.batch for result in results]) if results else None
            self.recorder.write_row(
                figures,
                index,
                batch,
                None if update is None else self._gradient_norms[update],
                moved=results[0].moved if results else movement.Update(0.0, 1),
                divergences=self._divergences if index == t.updates_per_rollout - 1 else None,
                loss=sum(result.loss for result in results) if results else None,
                learning_rate=float(self.config.actor_rollout_ref.actor.optim.lr),
                tokens=batch.tokens if batch else 0,
                sequences=batch.sequences if batch else 0,
                # verl makes all updates of a rollout in one call: its time is divided equally among them
                seconds_update=(self._updated - self._sampled) / t.updates_per_rollout,
                seconds_rollout=None if index else self._sampled - self._began,
            )
        self.watchdog.restart(f"rollout {step}: saving")
        due, save = self.recorder.end_rollout(figures)
        if due or save:  # checkpoints are made from a state
            self._save_state(due)
        if self.recorder.stopped or self.recorder.collapsed_at is not None:
            self.total_training_steps = step  # verl's loop ends after this step

    def _save_state(self, due: Sequence[int]) -> None:
        """Save weights for evaluation, then the state: a complete state never lacks an earlier checkpoint."""
        run, update = self.recorder.run, self.global_steps * self.spec.training.updates_per_rollout
        state, base = run.state / f"checkpoint-{update}", Path(self.spec.base)
        shutil.rmtree(state, ignore_errors=True)
        state.mkdir(parents=True)
        self.config.trainer.default_local_dir = str(state)
        super()._save_checkpoint()
        actor = checkpoint.step_of(state) / "actor"
        for step in due:
            run.publish(step, lambda folder: checkpoint.write_model(actor, base, folder))
        run.workers_cpu_seconds = processes.workers_cpu_seconds()
        run.save(state, update=update, rollout=self.global_steps, refill_position=self.refill.position)

    def _save_checkpoint(self) -> None:
        """Do nothing: verl calls it before the rollout's rows are written; `on_step_end` saves instead."""

    def _compute_metrics(self, batch: KVBatchMeta, metrics: dict[str, Any], *args: Any, **options: Any) -> None:
        if self.replay_buffer.kept:  # without an update there is nothing to measure
            super()._compute_metrics(batch, metrics, *args, **options)


def method_loss(spec: Spec, method: Method) -> MethodLoss:
    """Return the loss for the workers."""
    t = spec.training
    lengths, whole = (t.updates_per_rollout, t.max_completion_tokens), t.cov_scope == "minibatch"
    return MethodLoss(method.key, rollouts.stream_seed(spec), *lengths, whole_minibatch=whole)


def with_totals(groups: Mapping[int, Sequence[tuple[Any, int]]]) -> list[tuple[Any, MinibatchTotals]]:
    """Return the rows of one minibatch, each with its totals. groups: number -> key and token count of each row."""
    sequences = sum(map(len, groups.values()))
    placed: list[tuple[Any, MinibatchTotals]] = []
    for number, rows in groups.items():
        of_group = number, sum(tokens for _, tokens in rows), len(groups), sequences
        placed += [(key, MinibatchTotals(*of_group, len(placed) + nth)) for nth, (key, _) in enumerate(rows)]
    return placed


def by_rank(lengths: Sequence[int], size: int, ranks: int) -> list[int]:
    """Return the order in which to send rows, given minibatch by minibatch (`size` each), so that verl trains on the
    same minibatches: verl sends each rank an equal run of rows, which the rank splits into minibatches.

    lengths: tokens of each row, prompt included. All ranks wait for the slowest at every update, so each gets equally
    many rows of a minibatch and about equally many tokens, by which verl splits micro-batches: all ranks run as many
    as the rank with the most. A prompt's rows may be separated. With one rank the order is unchanged.

    >>> by_rank([9, 8, 1, 2, 5, 5, 5, 5], 4, 2)
    [1, 3, 4, 7, 0, 2, 5, 6]
    """
    shares = []  # of each minibatch, the rows of each rank
    for start in range(0, len(lengths), size):
        parts = balanced(lengths[start : start + size], ranks)
        shares.append([[start + row for row in part] for part in parts])
    return [row for rank in range(ranks) for share in shares for row in share[rank]]


def balanced(lengths: Sequence[int], parts: int) -> list[list[int]]:
    """Split rows into parts with equally many rows and nearly equal sums of lengths; each part's rows in order.

    Starts from verl's partition (Karmarkar-Karp), whose largest part of equally many rows is up to 20 % above the
    mean; exchanges between the largest and the smallest part, while they help, reduce this to less than 1 %.
    """
    found = get_seqlen_balanced_partitions(list(lengths), k_partitions=parts, equal_size=True)
    sums = [sum(lengths[row] for row in part) for part in found]
    while True:
        most, least = sums.index(max(sums)), sums.index(min(sums))
        gap = sums[most] - sums[least]
        # the exchange that makes the two most equal: the one that moves closest to half the gap
        rest, one, other = min(
            (abs(gap - 2 * (lengths[one] - lengths[other])), one, other)
            for one in found[most]
            for other in found[least]
        )
        if rest >= gap:
            return [sorted(part) for part in found]
        found[most][found[most].index(one)], found[least][found[least].index(other)] = other, one
        moved = lengths[one] - lengths[other]
        sums[most], sums[least] = sums[most] - moved, sums[least] + moved


def advantages(method: Method) -> Callable[..., tuple[torch.Tensor, torch.Tensor]]:
    """Wrap `Method.advantage` as an estimator of verl; filling rows have no tokens and get 0."""

    def estimate(
        token_level_rewards: torch.Tensor, response_mask: torch.Tensor, index: Sequence[str], **_: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        real = response_mask.bool().any(1)  # filling rows must not form a group
        group_B = np.unique(np.asarray(index, dtype=str)[real.numpy()], return_inverse=True)[1]
        advantage_B = token_level_rewards.new_zeros(len(real))
        lengths_B = response_mask.sum(1)
        advantage_B[real] = method.advantage(
            token_level_rewards.sum(1)[real], torch.from_numpy(group_B), lengths_B[real]
        )
        advantage_BT = advantage_B.unsqueeze(1) * response_mask
        return advantage_BT, advantage_BT  # advantages and returns; nothing reads the returns without a critic

    return estimate


TRAINER_REGISTRY[TRAINER] = MethodTrainer


# Between the ports of Ray's workers and those of connections: one that the system chose may be a connection's by the
# time that a process listens on it.
PORTS = range(20_000, 32_768)


def worker_group(*arguments: Any, **options: Any) -> RayWorkerGroup:
    """Return verl's worker group. Its first process listens on a free port, searched from a random one on.

    Runs that start together would choose the same one.
    """
    return RayWorkerGroup(*arguments, master_port_range=[secrets.choice(PORTS), PORTS.stop], **options)


trainer_base.RayWorkerGroup = worker_group  # verl's configuration has no key for this argument
