"""Faults planted in one trainer, and verl's replays with and without them: verl runs in a process of its own.

python -m tests.adapters.replay_faults RECORDS OUT     RECORDS: folder of the records `grpo` and `tepo`
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from methods import replay
from methods.batch import Batch
from methods.method import Method

Plant = Callable[[pytest.MonkeyPatch, str], None]


def sign(patch: pytest.MonkeyPatch, trainer: str) -> None:
    right = Method.advantage
    patch.setattr(Method, "advantage", lambda *args: -right(*args))


def denominator(patch: pytest.MonkeyPatch, trainer: str) -> None:
    """One token more than there are."""
    right = Method.loss

    def wrong(self: Method, batch: Batch, **options: Any) -> Any:
        return right(self, batch, **{**options, "tokens": batch.tokens + 1})

    patch.setattr(Method, "loss", wrong)


def stale_weights(patch: pytest.MonkeyPatch, trainer: str) -> None:
    """The old policy is scored with its last norm a thousandth larger."""
    import torch

    @contextmanager
    def other(model: Any) -> Iterator[None]:
        norm = next(p for name, p in model.named_parameters() if name.endswith("model.norm.weight"))
        with torch.no_grad():
            norm.mul_(1.001)
            yield
            norm.div_(1.001)

    if trainer == "trl":
        from methods.adapters.trl.trainer import MethodTrainer

        old_pass = MethodTrainer._with_old_policy

        def stale(self: Any, micro_batch: Any) -> Any:
            with other(self.model):
                return old_pass(self, micro_batch)

        patch.setattr(MethodTrainer, "_with_old_policy", stale)
    else:
        from verl.workers.engine_workers import TrainingWorker

        infer = TrainingWorker.infer_batch

        def stale_infer(self: Any, data: Any) -> Any:
            with other(self.engine.module):
                return infer(self, data)

        patch.setattr(TrainingWorker, "infer_batch", stale_infer)


def shifted_mask(patch: pytest.MonkeyPatch, trainer: str) -> None:
    """One token to the right."""
    import torch

    def shifted(batch: Batch) -> Batch:
        return replace(batch, mask=torch.nn.functional.pad(batch.mask, (1, 0))[:, :-1])

    if trainer == "trl":
        from methods.adapters.trl.microbatches import MicroBatch

        made = MicroBatch.batch
        patch.setattr(MicroBatch, "batch", lambda *args: shifted(made(*args)))
    else:
        from methods.adapters.verl import worker

        read = worker.micro_batch

        def wrong(*args: Any) -> Any:
            found = read(*args)
            return replace(found, batch=shifted(found.batch))

        patch.setattr(worker, "micro_batch", wrong)


def kept_gradient(patch: pytest.MonkeyPatch, trainer: str) -> None:
    """The second update still holds the first one's."""
    import torch

    patch.setattr(torch.nn.Module, "zero_grad", lambda *_, **__: None)
    patch.setattr(torch.optim.Optimizer, "zero_grad", lambda *_, **__: None)


# What is planted -> the update (from 1) and the tensor that must be named.
FAULTS: dict[Plant, tuple[int, str]] = {
    sign: (1, "advantage"),
    denominator: (1, "loss"),
    stale_weights: (1, "old log-prob"),
    shifted_mask: (1, "response mask"),
    kept_gradient: (2, "gradient"),
}


def replays(trainer: str, records: Path, out: Path) -> None:
    """`out/<trainer>-grpo`, `-tepo`, and `-<fault>` for each fault, of the record of GRPO."""
    for key in ("grpo", "tepo"):
        assert replay.main(line(trainer, records / key, out / f"{trainer}-{key}")) == 0
    for plant in FAULTS:
        with pytest.MonkeyPatch.context() as patch:
            plant(patch, trainer)
            assert replay.main(line(trainer, records / "grpo", out / f"{trainer}-{plant.__name__}")) == 0


def line(trainer: str, record: Path, out: Path) -> list[str]:
    return ["run", "--trainer", trainer, "--record", str(record), "--out", str(out)]


if __name__ == "__main__":
    replays("verl", Path(sys.argv[1]), Path(sys.argv[2]))
