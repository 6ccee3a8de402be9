"""C5, C6: verl's own trainer under Ray on a CPU, by our adapter and by the example. A start takes most of a minute."""

import importlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

import tepo_bench
from core.files import read_growing_csv, read_json
from core.provenance import ROOT
from methods.adapters import SHORT
from methods.train import STOPPED
from tests import planted
from tests.adapters import worlds
from tests.adapters.worlds import numbers
from tests.core.test_digests import flip
from tests.methods.batches import random_fields

pytestmark = pytest.mark.slow


Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """`start(spec, out)`; whatever a failing test started is ended."""
    started: list[subprocess.Popen[str]] = []

    def go(spec: dict[str, Any], out: Path) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "methods.train", "--spec", json.dumps(spec), "--out", str(out)]
        home = Path(f"{out}.home")
        home.mkdir(exist_ok=True)
        # By itself a run that stalls ends after four hours. The slowest wait here takes a minute.
        patience = {"TEPO_VERL_WAIT_SECONDS": "600", "PYTHONFAULTHANDLER": "1", "OMP_NUM_THREADS": "1"}
        variables = {**os.environ, **planted.ENVIRONMENT, "HOME": str(home), **patience}
        # not a pipe: workers that outlive the driver would hold it
        with open(f"{out}.log", "a", encoding="utf-8") as log:
            started.append(subprocess.Popen(line, cwd=ROOT, env=variables, stdout=log, stderr=log, text=True))
        return started[-1]

    yield go
    for process in started:
        if process.poll() is None:
            for child in descendants(process):
                child.kill()
            process.kill()
            process.wait()


def said(out: Path) -> str:
    return Path(f"{out}.log").read_text(encoding="utf-8", errors="replace")


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def until(process: subprocess.Popen[str], out: Path, rows: int) -> list[dict[str, str]]:
    """The curve's rows as soon as there are so many."""
    deadline = time.monotonic() + 900
    while len(found := read_growing_csv(out / "state" / "curve.csv")) < rows:
        assert process.poll() is None, said(out)[-3000:]
        assert time.monotonic() < deadline, said(out)[-3000:]
        time.sleep(0.01)
    return found


@pytest.mark.chain
def test_a_run_trains_and_leaves_a_curve_and_a_model(world: Path, tmp_path: Path, start: Start) -> None:
    """Two rollouts of TEPO. Half of the groups are constant: minibatches are filled up, some are not trained on."""
    from transformers import AutoModelForCausalLM

    out = tmp_path / "run"
    spec = worlds.spec(world, trainer="verl", filter="mask", reward="tests.adapters.worlds:rarely")
    process = start(spec, out)
    assert process.wait(timeout=1800) == 0, said(out)[-3000:]
    rows = numbers(out)
    assert [int(row["update"]) for row in rows] == list(range(8))
    assert {row["groups_sampled"] for row in rows} == {"4"}
    for row in rows:
        kept = int(row["groups_kept"])
        assert int(row["sequences"]) == 4 * len(range(int(row["minibatch"]) % 2, kept, 2))
        assert (row["loss"] == "") == (row["sequences"] == "0")
        assert (float(row["update_norm"]) == 0) == (row["grad_clipped"] == "") == (row["sequences"] == "0")
        ended = row["minibatch"] == "3"  # nothing is trained with a reference model, so that the base is unknown
        assert (row["kl_step"] != "", row["kl_base"]) == (ended, "")
        assert not ended or (float(row["kl_step"]) > 0) == (kept > 0)
    trained = [row for row in rows if row["sequences"] != "0"]
    assert trained
    for row in trained:
        on_policy = (row["mask_fraction"], row["kl_old"], row["ratio_spread"]) == ("0.0", "0.0", "0.0")
        assert on_policy == (row["minibatch"] == "0"), row
        assert 0 < float(row["sampling_gap_mean"]) <= float(row["sampling_gap_p99"]) < 1e-5, row
        assert float(row["sampling_correlation"]) > 0.9999999, row
    AutoModelForCausalLM.from_pretrained(out / "checkpoints/step2")
    record = read_json(out / "run.json")
    assert (record["updates"], record["collapsed_at"]) == (8, None)
    assert record["cpu_seconds"] > 0


def test_without_a_worker_stopped_killed_damaged_and_resumed(world: Path, tmp_path: Path, start: Start) -> None:
    """Most groups are constant: each rollout draws one and a half times its prompts, then more.

    A worker is killed; the next run is stopped after a rollout; the next killed after the third, and its newest state
    damaged: the last process resumes from the one before it and computes the third rollout again, bit for bit. No
    process and no secret is left behind.
    """
    changes = {"filter": "refill", "reward": "tests.adapters.worlds:rarely", "refill_rounds": 2, "rollouts": 4}
    spec = worlds.spec(world, "tepo", trainer="verl", checkpoints=(4,), **changes)
    out = tmp_path / "run"

    bereft = start(spec, out)
    until(bereft, out, 4)
    # the one that samples is waited for by nobody: its prompts would be running for ever
    children = descendants(bereft)
    (worker,) = [child for child in children if "ray::AgentLoopWorkerTQ" in " ".join(child.cmdline())]
    assert worker.nice() == psutil.Process(bereft.pid).nice(), "it would stand still beside any busy process"
    worker.kill()
    assert bereft.wait(timeout=1800) not in (0, STOPPED)
    assert re.search(r"^error: verl: a worker died \(", said(out), re.MULTILINE), said(out)[-3000:]

    stopped = start(spec, out)
    until(stopped, out, 8)
    stopped.terminate()
    assert stopped.wait(timeout=1800) == STOPPED, said(out)[-3000:]

    killed = start(spec, out)
    newest, older = (out / f"state/checkpoint-{updates}" for updates in (12, 8))
    while not (newest / "SHA256SUMS").is_file():  # written last: from then on the state is whole
        assert killed.poll() is None, said(out)[-3000:]
        time.sleep(0.01)
    before = numbers(out / "state")
    children += descendants(killed)
    killed.kill()
    killed.wait()
    assert not (out / "run.json").exists()
    (moments,) = newest.glob("global_step_*/actor/optim_world_size_1_rank_0.pt")
    flip(moments, 0.5)

    resumed = start(spec, out)
    with planted.told_by_arguments(resumed.pid) as in_arguments:
        while resumed.poll() is None:  # all the time: on a busy machine the last rollouts pass between two looks
            with suppress(psutil.NoSuchProcess):
                children += descendants(resumed)
            time.sleep(0.1)
    assert resumed.returncode == 0, said(out)[-3000:]
    assert f"{out}: resuming from {older}" in said(out).partition(str(moments))[2]
    home = Path(f"{out}.home")
    assert not (home / ".ray").exists(), "Ray's own token, for every program of the user"
    assert in_arguments | planted.told_by_files(out, Path(f"{out}.log"), home) == set()
    for process in (bereft, stopped, killed, resumed):  # what the killed one left, too
        assert list(SHORT.glob(f"tepo-{process.pid}-*")) == []
    assert len(set(children)) > 10, "Ray's processes were not seen"
    assert psutil.wait_procs(children, timeout=90)[1] == []

    after = numbers(out)
    assert after[: len(before)] == before
    sampled = {int(row["groups_sampled"]) for row in after}
    assert min(sampled) >= 6
    assert max(sampled) > 6


KEYS = (*tepo_bench.catalog.entries(), "tepo+dh-def=theorem", "tepo+dh-def=cov_sign")
MAX_TOKENS = 10


def test_the_registered_losses_and_advantages_are_the_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Losses whole, on two ranks, and in micro-batches where the method allows a split."""
    import torch
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn, get_policy_loss_fn

    monkeypatch.syspath_prepend(ROOT / "examples")
    verl_register: Any = importlib.import_module("verl_register")
    for method in map(tepo_bench.parse, KEYS):
        if method.needs - {"max_tokens"}:  # which verl hands to no loss
            continue
        loss = get_policy_loss_fn(verl_register.register(method.key))
        fields = random_fields(5)
        fields["logp"].requires_grad_()
        whole = tepo_bench.Batch(**fields, max_tokens=MAX_TOKENS)
        expected = method.loss(whole, generator=torch.Generator().manual_seed(0))
        cases = [(rows, ranks) for rows in ([slice(None)], [slice(0, 2), slice(2, None)]) for ranks in (1, 2)]
        cases = cases[:2] if method.scope == "batch" else cases
        for split, ranks in cases[:1] if method.key == "clip_cov" else cases:  # another call draws other tokens
            totals = {"dp_size": ranks, "batch_num_tokens": int(whole.mask.sum()) * ranks}
            totals["global_batch_size"] = len(whole.mask) * ranks
            config = SimpleNamespace(global_batch_info=totals, loss_scale_factor=MAX_TOKENS)
            advantage_BT = whole.advantage.unsqueeze(1) * whole.mask
            columns = whole.old_logp, whole.logp, advantage_BT, whole.mask  # as verl's `ppo_loss` passes them
            parts = [loss(*(column[rows] for column in columns), config=config) for rows in split]
            pairs = [(sum(value for value, _ in parts), expected)]
            pairs += [[torch.autograd.grad(x, whole.logp, retain_graph=True)[0] for x in pairs[0]]]
            for ours, theirs in pairs:
                torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-14, msg=method.key)
            assert {"tepo_bench/kl_old", "tepo_bench/effective_sample_size"} <= parts[0][1].keys(), method.key
    reward_B, mask = torch.tensor([1.0, 0, 0, 0, 0.5, 1]), torch.ones(6, 3)
    mask[3] = 0  # a row that only fills up
    rewards_BT = torch.zeros(6, 3)
    rewards_BT[:, -1] = reward_B
    advantages, _ = get_adv_estimator_fn("tepo_bench/grpo")(rewards_BT, mask, index=["b"] * 4 + ["a"] * 2, config=None)
    kept = torch.tensor([0, 1, 2, 4, 5])
    advantage_B = tepo_bench.parse("grpo").advantage(reward_B[kept], torch.tensor([0, 0, 0, 1, 1]))
    torch.testing.assert_close(advantages[kept], advantage_B.unsqueeze(1).expand(5, 3), rtol=0, atol=0)
    assert not advantages[3].any()
