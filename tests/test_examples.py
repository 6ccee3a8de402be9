"""The example runs as it is, on a CPU, and gives TRL's own numbers where TRL has the loss; README's lines run."""

import ast
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import tepo_bench

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples/trl_drop_in.py"


@pytest.fixture(autouse=True)
def _examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a script, not in a package: `python examples/trl_drop_in.py`."""
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))


def test_the_example_uses_the_public_names_only() -> None:
    """Somebody copies it to a machine that has the wheel and no repository."""
    tree = ast.parse(EXAMPLE.read_text(encoding="utf-8"))
    roots = {name.name.split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    roots |= {str(node.module).split(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert "tepo_bench" in roots
    assert not roots & {room.parent.name for room in ROOT.glob("*/__init__.py")} - {"tepo_bench"}
    attributes = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "tepo_bench"}
    assert used <= set(tepo_bench.__all__)


def test_the_lines_in_the_readme_run() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = text.partition("```python\n")[2].partition("```")[0]
    assert len(code.splitlines()) <= 12
    torch.manual_seed(0)
    states = torch.randn(4, 5, 4, requires_grad=True)  # of two tokens of a prompt and three of a response
    names: dict[str, Any] = {
        "model": SimpleNamespace(
            lm_head=torch.nn.Linear(4, 5), model=lambda ids: SimpleNamespace(last_hidden_state=states)
        ),
        "ids": torch.randint(5, (4, 5)),
        "P": 2,
        "old_logp_BT": -torch.rand(4, 3),
        "old_entropy_BT": torch.rand(4, 3),
        "mask_BT": torch.ones(4, 3, dtype=torch.bool),
        "reward_B": torch.tensor([1.0, 0, 0, 1]),
        "group_B": torch.tensor([0, 0, 1, 1]),
    }
    exec(code, names)
    reached = states.grad.abs().sum((0, 2)) > 0  # the states that predict the response, and no other
    assert reached.tolist() == [False, True, True, True, False]
    assert names["model"].lm_head.weight.grad.abs().max() > 0


# --- TRL --------------------------------------------------------------------------------------------------------------

TRAIN = {"max_steps": 4, "disable_tqdm": True, "logging_steps": 1000}
# our key -> what to set in GRPOConfig, so that TRL computes the same loss itself
SAME: dict[str, dict[str, Any]] = {
    "grpo+adv-std=unbiased-1e-4": {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28},
    # k3_is: TRL multiplies its k3 by the ratio (use_bias_correction_kl, on by default)
    "grpo_2024+kl-estimator=k3_is+adv-std=unbiased-1e-4": {
        "loss_type": "grpo", "epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.04,
    },
    "grpo+correction=tis+correction-cap=1.5+adv-std=unbiased-1e-4": {
        "loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28, "use_vllm": True,
        "vllm_importance_sampling_correction": True,
    },
    "gspo+low=0.0003+high=0.0004+adv-std=unbiased-1e-4": {
        "loss_type": "grpo", "epsilon_low": 3e-4, "epsilon_high": 4e-4, "importance_sampling_level": "sequence",
    },
}  # fmt: skip
RUNS: dict[str, dict[str, Any]] = {
    "two updates of a rollout": {},
    "accumulation": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "steps_per_generation": 4},
    "two passes": {"num_iterations": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "run"), [(key, run) for key in SAME for run in RUNS if run == "accumulation" or key.startswith("grpo+adv")]
)
def test_trl_computes_the_same_loss_advantage_and_gradient(key: str, run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every update of a run, on the very tensors of that update."""
    import trl_drop_in
    from trl import GRPOTrainer

    ours, draw = trl_drop_in.CatalogTrainer._compute_loss, trl_drop_in.CatalogTrainer._generate_and_score_completions
    seen: list[tuple[float, float]] = []  # loss and KL of each update

    def both(trainer: Any, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        if "correction" in key:  # as if vLLM had sampled
            old = inputs["old_per_token_logps"]
            gap = 0.5 * torch.randn(old.shape, generator=torch.Generator().manual_seed(trainer._step))
            gap[0, 0] = float("nan")
            inputs["sampling_per_token_logps"] = old - gap
            inputs["importance_sampling_ratio"] = gap.nan_to_num(nan=0.0).exp().clamp(max=1.5)
        loss = ours(trainer, model, inputs)
        with monkeypatch.context() as patch:  # TRL's own settings, which our trainer does not read
            for name, value in SAME[key].items():
                patch.setattr(trainer, name, value)
            expected = GRPOTrainer._compute_loss(trainer, model, inputs)
        parameters = list(model.parameters())
        mine = torch.autograd.grad(loss, parameters, retain_graph=True)
        its = torch.autograd.grad(expected, parameters)
        # float32 sums of a few hundred terms of size 1, added up in another order
        torch.testing.assert_close(loss, expected, rtol=0, atol=1e-6)
        error, norm = (
            torch.cat([g.flatten() for g in grads]).norm()
            for grads in ([a - b for a, b in zip(mine, its, strict=True)], its)
        )
        assert error <= 1e-5 * norm + 1e-7
        seen.append((abs(loss.item()), trainer._metrics["train"]["kl_old"][-1]))
        return loss

    def advantages(trainer: Any, inputs: Any) -> Any:
        output = draw(trainer, inputs)
        own = torch.tensor(list(trainer._logs["advantages"])[-len(inputs) :])
        torch.testing.assert_close(output["advantages"], own, rtol=1e-5, atol=1e-5)
        return output

    monkeypatch.setattr(trl_drop_in.CatalogTrainer, "_compute_loss", both)
    monkeypatch.setattr(trl_drop_in.CatalogTrainer, "_generate_and_score_completions", advantages)
    trl_drop_in.main(key, **TRAIN | {"learning_rate": 0.05} | RUNS[run])
    assert all(max(values) > 1e-3 for values in zip(*seen, strict=True)), "without off-policy updates no clip is seen"


@pytest.mark.parametrize("key", ["reinforce_pp", "reinforce_pp_baseline", "opo", "grpo"])
def test_truncated_and_unscored_responses_are_left_out(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import trl_drop_in

    seen: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    draw = trl_drop_in.CatalogTrainer._generate_and_score_completions

    def some(completions: list[str], **_: Any) -> list[float | None]:
        return [None if number % 5 == 0 else text.count("a") / 8 for number, text in enumerate(completions)]

    def drawn(trainer: Any, inputs: Any) -> Any:
        output = draw(trainer, inputs)
        seen.append((output["advantages"], output["completion_mask"].sum(1), trainer._rewards.clone()))
        return output

    monkeypatch.setattr(trl_drop_in, "share_of_a", some)
    monkeypatch.setattr(trl_drop_in.CatalogTrainer, "_generate_and_score_completions", drawn)
    # every third response or so ends before its fourth letter
    trainer = trl_drop_in.main(key, **TRAIN | {"mask_truncated_completions": True, "max_completion_length": 4})
    assert any(bool((lengths == 0).any()) for _, lengths, _ in seen), "nothing was truncated"
    for advantage, lengths, reward in seen:
        kept = ~reward.isnan() if key == "grpo" else ~reward.isnan() & (lengths > 0)
        assert bool(advantage.isfinite().all())
        assert not advantage[~kept].any()
        for a, n, r, k in zip(*(x.view(-1, 8) for x in (advantage, lengths, reward, kept)), strict=True):
            if key in ("grpo", "opo") and k.sum() > 1:
                expected = trainer.method.advantage(r[k], torch.zeros(int(k.sum())).long(), n[k])
                torch.testing.assert_close(a[k], expected, rtol=0, atol=1e-6)
