"""One tiny world per session, and real tensors out of one real rollout for the conformance tests."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from methods.batch import Batch
from methods.train import StopRequest, execute
from tests.adapters import worlds


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with `base` and `prompts.jsonl`."""
    return worlds.build(tmp_path_factory.mktemp("world"))


class StopAfter(StopRequest):
    """Asks to stop once it was asked `calls` times."""

    def __init__(self, calls: int):
        super().__init__()
        self.calls = calls

    def __call__(self) -> bool:
        self.calls -= 1
        return self.calls < 0


@pytest.fixture(scope="session")
def train(world: Path) -> Callable[..., int]:
    """`train(out, method, **changes)` -> exit code, in this process."""

    def go(out: Path, method: str = "tepo", stop: StopRequest | None = None, **changes: Any) -> int:
        return execute(json.dumps(worlds.spec(world, method, **changes)), out, stop or StopRequest())

    return go


LONGER = {"rollouts": 3, "checkpoints": (1, 3)}
RARE = {"filter": "refill", "refill_rounds": 8, "reward": "tests.adapters.worlds:rarely"}  # most groups are constant


@pytest.fixture(scope="session")
def trained(train: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three finished runs of TRL with one seed, three rollouts each: TEPO, GRPO, and TEPO that refills its rollouts.

    A test that changes a folder copies it.
    """
    folder = tmp_path_factory.mktemp("trained")
    runs: dict[str, dict[str, Any]] = {"tepo": {}, "grpo": {}, "refill": RARE}
    for name, changes in runs.items():
        assert train(folder / name, "grpo" if name == "grpo" else "tepo", **LONGER, **changes) == 0
    return {name: folder / name for name in runs}


@pytest.fixture(scope="session")
def captured(train: Callable[..., int], tmp_path_factory: pytest.TempPathFactory) -> list[Batch]:
    """The minibatches of a real run, with every optional tensor any method reads, detached: 4 updates of 2 rollouts."""

    from methods.adapters.trl.trainer import MethodTrainer

    seen: list[Batch] = []
    original = MethodTrainer._compute_loss

    def spy(self: Any, model: Any, inputs: Any) -> Any:
        scored = self._score(model, inputs.rows)
        seen.append(inputs.batch(*scored, "captured", self.training_sizes.max_completion_tokens))
        return original(self, model, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MethodTrainer, "_compute_loss", spy)
        out = tmp_path_factory.mktemp("captured") / "run"
        assert train(out, "tepo+kl-anchor=ref", filter="none", max_completion_tokens=6) == 0
    return [replace(batch, logp=batch.logp.detach(), entropy=batch.entropy.detach()) for batch in seen[:4]]
