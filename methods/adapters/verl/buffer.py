"""Sampling one rollout: draw, wait for all of it, keep informative groups.

verl's own filter takes groups as they finish, so what a run trains on depends on timing. Here all responses are
complete before groups are judged. `methods.training.rollouts` chooses the groups: one rule for both trainers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import transfer_queue as tq
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer

from methods.adapters.verl import tensors
from methods.training.rollouts import choose, informative
from methods.training.spec import Training
from records.errors import CorruptInputError

if TYPE_CHECKING:
    from transfer_queue import KVBatchMeta

# Seconds between two looks at the queue: a twentieth of the wait so far, between these. verl's fixed 2 s is most of a
# tiny model's step; a short fixed interval would keep a long rollout's driver busy.
POLL_SECONDS, POLL_LONGEST = 0.05, 2.0


class NothingToLearnError(Exception):
    """All groups of a rollout are constant: there is nothing to update on. Caught by the trainer, which gives verl
    `batch` to clear: a step of verl's always has rows."""

    def __init__(self, batch: KVBatchMeta):
        super().__init__("all groups are constant")
        self.batch = batch


@dataclass(frozen=True)
class Rollout:
    """A rollout's responses, group by group in the order drawn, and which groups are trained on."""

    rows: list[tensors.Response]
    kept_groups: list[int]  # their numbers
    samples: int  # per group

    @property
    def groups(self) -> int:
        """How many groups were sampled."""
        return len(self.rows) // self.samples

    def group(self, number: int) -> list[tensors.Response]:
        """The responses of one group; rows lie group by group."""
        return self.rows[number * self.samples : (number + 1) * self.samples]

    @property
    def kept_rows(self) -> list[tensors.Response]:
        """The responses that are trained on, group by group."""
        return [row for number in self.kept_groups for row in self.group(number)]


class GroupBuffer(ReplayBuffer):
    """`sample` returns the rows of the kept groups; `rollout` describes all groups, kept or not."""

    rollout: Rollout

    def __init__(
        self, training: Training, end_tokens: Sequence[int], refill: Callable[[int], int], check: Callable[[], None]
    ):
        super().__init__(
            trainer_mode="sync",
            trainer_config=None,  # this and the next three configure verl's own `sample`, which is replaced
            max_off_policy_threshold=None,
            max_off_policy_strategy="drop",
            sampler_kwargs=None,
            poll_interval=POLL_SECONDS,
        )
        self.training, self.end_tokens = training, end_tokens
        self.refill = refill  # asks for so many prompts more; returns how many were sent
        self.check = check  # raises when the wait has been too long or a worker has died

    def sample(self, global_steps: int, partition_id: str, batch_size: int) -> tuple[KVBatchMeta, dict[str, Any]]:
        """Replaces verl's own, which waits for `batch_size` groups and no longer."""
        t = self.training
        rows = self._wait_for_rows(partition_id)
        for _ in range(t.refill_rounds if t.filter == "refill" else 0):
            # asks for twice what is missing, because some of the new groups will be constant too
            missing = batch_size - len(self._choose(rows, batch_size))
            if not missing or not self.refill(min(2 * missing, batch_size)):
                break
            rows = self._wait_for_rows(partition_id)
        self.rollout = Rollout(rows, self._choose(rows, batch_size), t.samples_per_prompt)
        # One group stays even if none is informative: verl's step must have rows to clear at its end.
        staying = {row.uid for row in self.rollout.kept_rows} or {rows[0].uid}
        self._clear_groups(partition_id, {row.uid for row in rows} - staying)
        batch = self._materialize_batch(partition_id, sorted(staying), dict(self.partitions[partition_id]))
        if not self.rollout.kept_groups:
            raise NothingToLearnError(batch)
        # verl gives rows in the order in which they finished; minibatches need the order in which they were drawn.
        position = {key: index for index, key in enumerate(batch.keys)}
        batch.reorder([position[row.key] for row in self.rollout.kept_rows])
        return batch, {}

    def _choose(self, rows: list[tensors.Response], wanted: int) -> list[int]:
        """Numbers of at most `wanted` groups to train on."""
        import torch

        n = self.training.samples_per_prompt
        ungraded = {index // n for index, row in enumerate(rows) if row.reward is None}
        # float64 holds each reward exactly, so that equal rewards stay equal and different ones different
        reward = torch.tensor([row.reward or 0.0 for row in rows], dtype=torch.float64)
        return choose(informative(reward, n), wanted, self.training.filter, ungraded)

    def _wait_for_rows(self, partition_id: str) -> list[tensors.Response]:
        """Wait until no request is open; returns all responses, in the order of draws, prompts and samples."""
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
        # verl drops a failed sample from its group in silence; a group that is not whole must not be trained on.
        if self.failure_keys[partition_id] or len(keys) != len(uids) * self.training.samples_per_prompt:
            raise CorruptInputError(
                f"verl: {len(self.failure_keys[partition_id])} of {len(uids)} prompt groups failed while they were "
                "sampled; the worker's exception stands above in this log"
            )
        data = tq.kv_batch_get(keys=keys, partition_id=partition_id, select_fields=list(tensors.RESPONSE_FIELDS))
        rows = tensors.responses(keys, data, self.training.max_completion_tokens, self.end_tokens)
        for row in rows:
            if row.error is not None:
                raise CorruptInputError(row.error)
        return rows


def _place(key: str) -> tuple[str, int]:
    """Order of a row: its prompt's uid, which sorts as drawn, then its sample as a number (10 comes after 9)."""
    uid, sample, _ = key.rsplit("_", 2)
    return uid, int(sample)
