"""`training.shared_prefix`: a prompt in one row with its responses gives the log-probs and gradients of rows of their
own, for every method and every way of cutting a minibatch."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import ConfigError
from methods import catalog
from methods.adapters import trl, verl
from methods.adapters.trl import shared_prefix
from methods.training.spec import Training
from tests.adapters import worlds
from tests.adapters.conftest import StopAfter
from tests.adapters.test_trl_loss import KEYS

MODELS = ("qwen2", "llama", "qwen3", "mistral")


@pytest.fixture(scope="module", params=MODELS)
def trainer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A trainer after a real run, with its last rollout: 4 prompts of several lengths, 4 responses to each."""
    from methods.adapters.trl.trainer import MethodTrainer
    from methods.train import StopRequest, execute

    world = worlds.build(tmp_path_factory.mktemp(request.param), model_type=request.param)
    seen: list[Any] = []
    original = MethodTrainer._compute_loss

    def spy(self: Any, model: Any, inputs: Any) -> Any:
        seen.append(self)
        return original(self, model, inputs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MethodTrainer, "_compute_loss", spy)
        spec = worlds.spec(world, "tepo+kl-anchor=ref", filter="none", learning_rate=1e-2)
        assert execute(json.dumps(spec), world / "run", StopRequest()) == 0
    return seen[-1]


def gradient(trainer: Any, key: str, parts: int, shared: bool) -> Any:
    """The gradient of a minibatch of two groups, over all parameters, with the policy moved since it was sampled."""
    import torch

    from methods.adapters.trl.microbatches import micro_batches
    from methods.adapters.trl.trainer import RolloutState

    trainer.method = catalog.parse(key)
    trainer.training_sizes = trainer.training_sizes.model_copy(update={"shared_prefix": shared})
    trainer.recorder = SimpleNamespace(micro_batch=lambda *_: None)
    rows = trainer.old
    rows = replace(rows, advantage=trainer.method.advantage(rows.reward, rows.group, rows.lengths))
    trainer.present = RolloutState(parts=micro_batches(rows, 4, 2, parts)[:parts])
    trainer.model.zero_grad()
    for part in trainer.present.parts:
        trainer._compute_loss(trainer.model, part).backward()
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()]).double()


def test_every_method_and_cut_has_the_gradient_of_plain_rows(trainer: Any) -> None:
    import torch

    rows = trainer.present.kept
    with torch.no_grad():
        trainer.method = catalog.parse("tepo+kl-estimator=full")
        logp, entropy, full = trainer._score(trainer.model, rows)
        trainer.old = replace(rows, old_logp=logp, old_entropy=entropy, old_full_logp=full)
        generator = torch.Generator().manual_seed(0)
        for p in trainer.model.parameters():
            p += 0.02 * torch.randn(p.shape, generator=generator)
        found = []
        for shared in (False, True):
            trainer.training_sizes = trainer.training_sizes.model_copy(update={"shared_prefix": shared})
            found.append(trainer._score(trainer.model, rows))
    valid = rows.completion_mask.bool()
    for plain, one_row in zip(*found, strict=True):
        torch.testing.assert_close(one_row[valid], plain[valid], rtol=1e-5, atol=1e-5)
    assert float((found[0][0] - logp)[valid].abs().max()) > 0.05, "the policy has not moved"
    assert len(set(rows.prompt_mask.sum(1).tolist())) > 1
    assert len(set(rows.lengths.tolist())) > 2
    for key in KEYS[MODELS.index(trainer.model.config.model_type) :: len(MODELS)]:  # four models share the methods
        for parts in (1, 2, 8) if catalog.parse(key).splittable else (1,):
            plain, one_row = (gradient(trainer, key, parts, shared) for shared in (False, True))
            assert float(plain.norm()) > 0, key
            error = float((one_row - plain).norm() / plain.norm())
            assert error < 5e-6, f"{key} in {parts} parts: {error}"


def test_a_row_holds_a_prompt_once_and_hides_responses_from_each_other() -> None:
    import torch

    # two groups of two and one response alone: prompts 1 2, 3, 3 4; the second prompt is padded with its own token
    ids = torch.tensor([[1, 2, 5, 6], [1, 2, 7, 0], [3, 3, 5, 6], [3, 3, 8, 9], [3, 4, 5, 6]])
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 1, 1], [0, 1, 1, 1], [1, 1, 1, 1]])
    packed = shared_prefix.pack(ids, mask, 2)
    assert packed.ids.tolist() == [[1, 2, 5], [3, 5, 8], [3, 4, 5]]
    assert packed.positions.tolist() == [[0, 1, 2], [0, 1, 1], [0, 1, 2]]
    assert packed.state.tolist() == [[1, 2], [1, 0], [3, 4], [3, 5], [7, 8]]
    assert packed.seen[1].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 0, 1]]


def test_a_run_goes_on_to_the_same_bits_and_begins_at_the_old_policy(train: Callable[..., int], tmp_path: Path) -> None:
    changes: dict[str, Any] = {"filter": "none", "micro_batches": 2}
    assert train(tmp_path / "plain", "tepo+kl-anchor=ref", **changes) == 0
    assert train(tmp_path / "whole", "tepo+kl-anchor=ref", shared_prefix=True, **changes) == 0
    train(tmp_path / "cut", "tepo+kl-anchor=ref", StopAfter(4), shared_prefix=True, **changes)
    assert not (tmp_path / "cut" / "run.json").exists()
    assert train(tmp_path / "cut", "tepo+kl-anchor=ref", shared_prefix=True, **changes) == 0
    assert worlds.weights(tmp_path / "cut") == worlds.weights(tmp_path / "whole") != worlds.weights(tmp_path / "plain")
    whole, plain = (worlds.numbers(tmp_path / name) for name in ("whole", "plain"))
    assert whole == worlds.numbers(tmp_path / "cut")
    assert {float(row["kl_old"]) for row in (whole[0], whole[4])} == {0.0}
    for name in ("loss", "grad_norm", "entropy"):
        assert float(whole[1][name]) == pytest.approx(float(plain[1][name]), rel=1e-4), name


def test_a_model_or_trainer_that_cannot_is_one_line(world: Path, tmp_path: Path) -> None:
    from methods.training.spec import check

    config = json.loads((world / "base" / "config.json").read_text())
    own = {"architectures": ["Qwen2ForCausalLM"], "layer_types": [], "use_sliding_window": False}
    refused = {
        r"architectures: 'GPT2LMHeadModel': allowed: Llama.*set training\.shared_prefix to false": {
            "architectures": ["GPT2LMHeadModel"]
        },
        r"sliding_window: 4096: training\.shared_prefix needs": {
            "architectures": ["MistralForCausalLM"],
            "sliding_window": 4096,
        },
        r"sliding_window: 8: ": {"use_sliding_window": True, "sliding_window": 8},
        r"sliding_window: None: ": {"layer_types": ["full_attention", "sliding_attention"]},
    }
    spec = check(worlds.spec(world, shared_prefix=True))
    assert trl.preflight(spec).updates == 8
    base = tmp_path / "base"
    base.mkdir()
    (base / "tokenizer_config.json").write_text("{}")
    for line, changes in refused.items():
        (base / "config.json").write_text(json.dumps(config | own | changes))
        with pytest.raises(ConfigError, match=line):
            trl.preflight(spec.model_copy(update={"base": str(base)}))
    training = Training(**worlds.TRAINING, shared_prefix=True)
    with pytest.raises(ConfigError, match=r"training\.shared_prefix: True: verl"):
        verl.plan(training, catalog.parse("tepo"))
