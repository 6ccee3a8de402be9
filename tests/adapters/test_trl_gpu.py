"""What a run by TRL does on a GPU and nowhere else, on a CPU: passes in bfloat16, checkpointed layers, our head."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError
from methods.adapters import trl
from methods.adapters.trl import shared_prefix
from methods.train import STOPPED
from methods.training import movement
from tests.adapters.conftest import StopAfter
from tests.adapters.worlds import assert_same, numbers

Train = Callable[..., int]
CUDA = {"device": "cuda", "precision": "bfloat16"}


@pytest.fixture
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this process take what `device: cuda` takes, apart from the device."""
    arguments, build = trl.arguments, trl.build

    def given(spec: Any, *rest: Any) -> dict[str, Any]:
        on_gpu = spec.model_copy(update={"training": spec.training.model_copy(update=CUDA)})
        on_gpu._document = spec.document
        return arguments(on_gpu, *rest) | {"use_cpu": True, "tf32": None, "dataloader_pin_memory": False}

    def built(*args: Any) -> Any:
        trainer = build(*args)
        trainer.training_sizes = trainer.training_sizes.model_copy(update=CUDA)
        return trainer

    monkeypatch.setattr(trl, "arguments", given)
    monkeypatch.setattr(trl, "build", built)


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("shared", [False, True])
def test_a_run_begins_on_policy_and_goes_on_to_the_same_bits(
    shared: bool, train: Train, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    changes: dict[str, Any] = {"shared_prefix": shared, "filter": "none", "micro_batches": 2}
    assert train(tmp_path / "whole", "tepo+kl-anchor=ref", **changes) == 0
    assert capfd.readouterr().out.count("dH of unchanged weights: {'precision': 'bfloat16', 'share': 0.0, ") == 1
    rows = numbers(tmp_path / "whole")
    assert {(float(row["kl_old"]), float(row["mask_fraction"])) for row in rows[::4]} == {(0.0, 0.0)}
    assert all(float(row["kl_old"]) > 0 for row in rows[1::4])
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", StopAfter(4), **changes) == STOPPED
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", **changes) == 0
    assert_same(tmp_path / "cut", tmp_path / "whole", 2)


@pytest.mark.usefixtures("as_on_a_gpu")
def test_another_kernel_without_gradient_ends_the_run(
    train: Train, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rounding would be dH of every later minibatch."""
    import torch

    score = shared_prefix.score

    def other(*args: Any, **options: Any) -> Any:
        logp, entropy = score(*args, **options)
        return logp, entropy if torch.is_grad_enabled() else entropy + 1e-3

    monkeypatch.setattr(shared_prefix, "score", other)
    with pytest.raises(ConfigError, match=r"tepo: dh-tol: 100.0% .* rounding in bfloat16; allowed: 1%, which dh-tol=1"):
        train(tmp_path / "run", "tepo")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_our_head_on_rows_of_their_own_is_trls(precision: str, train: Train, tmp_path: Path) -> None:
    """Log-probs and entropies of a real rollout, and the gradient of both, by either head."""
    import torch

    seen: list[Any] = []
    build = trl.build
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trl, "build", lambda *of: seen.append(build(*of)) or seen[-1])
        assert train(tmp_path / "run", "tepo", filter="none") == 0
    (trainer,) = seen
    if precision == "bfloat16":
        trainer.accelerator.autocast = lambda: torch.autocast("cpu", torch.bfloat16)
    found = []
    for device in ("cpu", "cuda"):
        trainer.training_sizes = trainer.training_sizes.model_copy(update={"device": device})
        trainer.model.zero_grad()
        logp, entropy = trainer._score(trainer.model, trainer.present.kept)
        mask = trainer.present.kept.completion_mask
        ((logp + entropy.square()) * mask).sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in trainer.model.parameters()])
        found.append((logp * mask, entropy * mask, gradient))
    assert torch.equal(*(x[2] for x in found)) is False, "one head twice"
    for ours, theirs in zip(*found, strict=True):
        near = 1e-5 if precision == "float32" else 2e-2
        assert float((ours - theirs).detach().norm() / theirs.detach().norm()) < near


def test_a_norm_of_shards_on_the_host_is_summed_on_the_ranks_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """`offload`: NCCL sums no tensor of the host."""
    import torch

    moved: list[str] = []
    norm = SimpleNamespace(device_mesh=SimpleNamespace(device_type="cuda"), full_tensor=lambda: torch.tensor(3.0))
    norm.to = lambda device: moved.append(device) or norm
    monkeypatch.setattr(torch.nn.utils, "get_total_norm", lambda _: norm)
    assert movement.update([torch.zeros(2)], [torch.ones(2)]) == (3.0, 2)
    assert moved == ["cuda"]
