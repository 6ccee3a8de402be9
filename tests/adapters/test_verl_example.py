"""examples/verl_register.py: our losses under verl's registries, alone and in verl's own, unmodified `main_ppo`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import tepo_bench
from core.provenance import ROOT
from methods.adapters.verl import dataset, processes
from methods.adapters.verl.config import Files, compose, overrides
from methods.training.spec import check
from tests.adapters import worlds
from tests.methods.batches import random_fields

pytestmark = pytest.mark.slow
KEYS = (*tepo_bench.catalog.entries(), "tepo+dh-def=theorem", "tepo+dh-def=cov_sign")
REFUSED = {key for key in KEYS if tepo_bench.parse(key).needs - {"max_tokens"}}
MAX_TOKENS = 10


@pytest.fixture(scope="module")
def verl_register() -> Any:
    import importlib

    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module("verl_register")
    finally:
        sys.path.remove(str(ROOT / "examples"))


def call(
    name: str, fields: dict[str, Any], rows: slice, ranks: int = 1, **changes: Any
) -> tuple[Any, dict[str, float]]:
    """What verl's `ppo_loss` does with a micro-batch."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn

    whole = {
        "dp_size": ranks,
        "batch_num_tokens": int(fields["mask"].sum()) * ranks,
        "global_batch_size": len(fields["mask"]) * ranks,
    }
    arguments = {
        "old_log_prob": fields["old_logp"][rows],
        "log_prob": fields["logp"][rows],
        "advantages": (fields["advantage"].unsqueeze(1) * fields["mask"])[rows],
        "response_mask": fields["mask"][rows],
        "loss_agg_mode": "token-mean",
        "config": SimpleNamespace(global_batch_info=whole, loss_scale_factor=MAX_TOKENS),
        "rollout_is_weights": None,
    }
    return get_policy_loss_fn(name)(**arguments | changes)  # type: ignore[no-any-return]


def test_the_registered_loss_is_the_methods(verl_register: Any) -> None:
    """Whole, on two ranks, and in micro-batches where the method allows a split."""
    import torch

    for key in [key for key in KEYS if key not in REFUSED]:
        method, name = tepo_bench.parse(key), verl_register.register(key)
        fields = random_fields(5)
        fields["logp"].requires_grad_()
        expected = method.loss(
            tepo_bench.Batch(**fields, max_tokens=MAX_TOKENS), generator=torch.Generator().manual_seed(0)
        )
        (gradient,) = torch.autograd.grad(expected, fields["logp"])
        splits = [[slice(None)]] if method.scope == "batch" else [[slice(None)], [slice(0, 2), slice(2, None)]]
        cases = [(rows, ranks) for rows in splits for ranks in (1, 2)]
        for split, ranks in cases[:1] if key == "clip_cov" else cases:  # another call of Clip-Cov draws other tokens
            loss = sum(call(name, fields, rows, ranks)[0] for rows in split)
            (mine,) = torch.autograd.grad(loss, fields["logp"], retain_graph=True)
            for ours, theirs in ((loss, expected), (mine, gradient)):
                torch.testing.assert_close(
                    ours, theirs, rtol=1e-12, atol=1e-14, msg=lambda text, key=key: f"{key}: {text}"
                )
        metrics = call(name, fields, slice(None))[1]
        assert {"tepo_bench/kl_old", "tepo_bench/effective_sample_size"} <= metrics.keys(), key
        assert all(isinstance(value, float) for value in metrics.values()), key


def test_the_registered_advantage_is_the_methods(verl_register: Any) -> None:
    import torch
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    reward_B, mask = torch.tensor([1.0, 0, 0, 0, 0.5, 1]), torch.ones(6, 3)
    mask[3] = 0  # a row that only fills up
    rewards_BT = torch.zeros(6, 3)
    rewards_BT[:, -1] = reward_B
    estimate = get_adv_estimator_fn("tepo_bench/grpo")
    advantages, _ = estimate(rewards_BT, mask, index=["b", "b", "b", "b", "a", "a"], config=None)
    kept = torch.tensor([0, 1, 2, 4, 5])
    expected = tepo_bench.parse("grpo").advantage(reward_B[kept], torch.tensor([0, 0, 0, 1, 1]))
    torch.testing.assert_close(advantages[kept], expected.unsqueeze(1).expand(5, 3), rtol=0, atol=0)
    assert not advantages[3].any()


def test_settings_that_nothing_would_read_are_refused(verl_register: Any) -> None:
    import torch

    fields = random_fields(5)
    cases: dict[str, dict[str, Any]] = {
        "loss_agg_mode: 'seq-mean-token-sum' is not read": {"loss_agg_mode": "seq-mean-token-sum"},
        "rollout_is: its weights are not read": {"rollout_is_weights": torch.ones_like(fields["logp"])},
    }
    for message, changes in cases.items():
        with pytest.raises(tepo_bench.ConfigError, match=message):
            call("tepo_bench/grpo", fields, slice(None), **changes)
    for key in REFUSED:  # what verl hands to no loss
        needs = ", ".join(sorted(tepo_bench.parse(key).needs))
        with pytest.raises(tepo_bench.ConfigError, match=f"needs {needs}, which verl hands to no policy loss"):
            call(f"tepo_bench/{key}", fields, slice(None))


def test_it_trains_in_verls_own_main_ppo(world: Path, tmp_path: Path) -> None:
    """Two rollouts with two updates each. Ours in it: the settings, the example, and what stands for the GPU."""
    import pyarrow.parquet
    from omegaconf import OmegaConf

    sizes = {"filter": "none", "passes": 1}
    spec = check(worlds.spec(world, trainer="verl", **sizes))
    table, log = tmp_path / "prompts.parquet", tmp_path / "metrics.jsonl"
    prompts = [json.loads(line) for line in Path(spec.prompts).read_text(encoding="utf-8").splitlines()]
    dataset.write_parquet(prompts, spec.reward, table)
    rows = pyarrow.parquet.read_table(table)
    # two columns that the CPU's sampler reads; our own trainer would add them
    for name, value in {"run_seed": 1, "dispatch_prompts": spec.training.prompts_per_rollout}.items():
        rows = rows.append_column(name, [[value] * len(rows)])
    pyarrow.parquet.write_table(rows, table)
    name = "tepo_bench/tepo+beta=0.5+dh-def=theorem"
    with processes.short_folder() as short:
        files = Files(
            train_parquet=table, val_parquet=table, checkpoints=tmp_path / "checkpoints", log=log,
            reward_module=Path(dataset.__file__), ray_temp=Path(short),
        )  # fmt: skip
        config = compose(overrides(spec, files))
        OmegaConf.set_struct(config, False)
        config.actor_rollout_ref.model.external_lib = "tests.adapters.verl_example"
        config.actor_rollout_ref.actor.policy_loss.loss_mode = name
        config.algorithm.adv_estimator = name
        config.trainer.v1.trainer_mode = "sync"
        config.trainer.save_freq = -1
        config.data.gen_batch_size = None
        del config.ray_kwargs.ray_init.runtime_env["py_executable"]
        OmegaConf.save(config, tmp_path / "run.yaml")
        variables = {**os.environ, **processes.environment(spec.training, tmp_path), "VERL_FILE_LOGGER_PATH": str(log)}
        variables["PYTHONPATH"] = os.pathsep.join([str(ROOT / "examples"), variables["PYTHONPATH"]])
        line = [sys.executable, "-m", "verl.trainer.main_ppo", "--config-path", str(tmp_path), "--config-name", "run"]
        line += [f"hydra.run.dir={tmp_path}", "hydra.output_subdir=null"]
        said = tmp_path / "said.log"
        with open(said, "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                line, cwd=ROOT, env=variables, stdout=output, stderr=output, start_new_session=True
            )
            try:
                assert process.wait(timeout=1800) == 0, said.read_text(errors="replace")[-4000:]
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
    steps = [json.loads(text) for text in log.read_text(encoding="utf-8").splitlines()]
    assert [step["step"] for step in steps] == [1, 2]
    for data in (step["data"] for step in steps):
        assert data["actor/grad_norm"] > 0
        assert data["actor/tepo_bench/mask_fraction"] > 0  # theorem: tokens of positive advantage
        assert data["actor/tepo_bench/kl_old"] > 0  # the second update of a rollout is off-policy
