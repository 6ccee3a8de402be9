"""C1, C2, C8 for verl: what its workers compute is `Method.loss` and what TRL computes, whole, split, over ranks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.provenance import ROOT
from methods import catalog
from methods.adapters.verl.processes import environment, free_port
from methods.batch import Batch
from methods.training.spec import check
from tests.adapters import worlds
from tests.adapters.test_trl_loss import KEYS as TRL_KEYS
from tests.adapters.test_trl_loss import leaves

KEYS = tuple(key for key in TRL_KEYS if "full_logp" not in catalog.parse(key).needs)
SPLITTABLE = (*KEYS, "tepo+dh-def=cov_sign", "tepo+mask-norm=masked")
STATISTICS = tuple(key for key in SPLITTABLE if catalog.parse(key).parts.statistics)


def through(key: str, batch: Batch, parts: int = 1, ranks: int = 1, **options: Any) -> list[object]:
    """verl's loss of the batch and its gradients by log-probs and entropies."""
    from tests.adapters.trl_conformance import through_workers

    return gradients(through_workers(catalog.parse(key), batch, parts, ranks, **options), batch)


def gradients(loss: object, batch: Batch) -> list[object]:
    import torch

    wanted = [batch.logp, batch.entropy]
    return [loss.detach(), *torch.autograd.grad(loss, wanted, allow_unused=True, materialize_grads=True)]  # type: ignore


def same(one: list[object], other: list[object], case: object, **tolerance: float) -> None:
    import torch

    torch.testing.assert_close(one, other, **tolerance, msg=lambda text: f"{case}: {text}")  # type: ignore[arg-type]


CLOSE = {"rtol": 1e-12, "atol": 1e-14}


def test_verls_loss_is_trls_bit_for_bit(captured: list[Batch]) -> None:
    """And TRL's is `Method.loss` bit for bit (test_trl_loss.py)."""
    from tests.adapters.trl_conformance import through_trainer

    for key in SPLITTABLE:
        for batch in captured[::3]:  # the first and the last update: on policy and off it
            for double in (False, True):
                one, other = leaves(batch, double), leaves(batch, double)
                trls = gradients(through_trainer(catalog.parse(key), other), other)
                same(through(key, one), trls, key, rtol=0, atol=0)


def test_a_split_over_micro_batches_and_ranks_changes_nothing(captured: list[Batch]) -> None:
    """For statistics also rows of equal reward side by side, one row alone, ranks that hold one prompt: the whole
    minibatch decides, and by the other reading of R15 the cut does."""
    import torch

    batch = captured[-1]
    by_reward = sorted(range(len(batch.mask)), key=lambda row: float(batch.advantage[row]))
    for key in SPLITTABLE:
        whole = through(key, leaves(batch, True))
        for parts, ranks in ((4, 1), (2, 2)):
            same(through(key, leaves(batch, True), parts, ranks), whole, (key, parts, ranks), **CLOSE)
        if key not in STATISTICS:
            continue
        for parts, ranks in ((8, 1), (1, 8)):
            found = through(key, leaves(batch, True), parts, ranks, order=by_reward)
            same(found, whole, (key, parts, ranks, "by reward"), **CLOSE)
        # agg-scope=microbatch has no statistic and is the other reading by its own name
        cut = [through(key, leaves(batch, True), parts=parts, whole=False) for parts in (1, 4)]
        assert not all(torch.equal(one, other) for one, other in zip(*cut, strict=True)), key  # type: ignore[call-overload]


def test_rows_that_only_fill_up_count_for_nothing(captured: list[Batch]) -> None:
    """verl's filling, a whole micro-batch of it: the same loss as without those rows."""
    import torch

    for key in SPLITTABLE:
        whole = leaves(captured[-1], True)
        rows = len(whole.mask)
        filled = torch.cat([whole.mask, torch.zeros_like(whole.mask)])
        names = "logp", "old_logp", "advantage", "group", "entropy", "old_entropy", "ref_logp", "sampling_logp"
        values = {name: getattr(whole, name) for name in names}
        twice = {name: torch.cat([x, x]) if isinstance(x, torch.Tensor) else x for name, x in values.items()}
        twice["group"][rows:] = -1
        padded = Batch(**twice, mask=filled, dropped=~filled.any(1), max_tokens=whole.max_tokens)
        loss, logp, entropy = through(key, leaves(padded, True), parts=2)
        same([loss, logp[:rows], entropy[:rows]], through(key, whole), key, **CLOSE)  # type: ignore[index]
        assert not logp[rows:].any(), key  # type: ignore[index]


def test_a_loss_by_micro_batches_refuses_a_part_of_a_minibatch(captured: list[Batch]) -> None:
    message = r"verl: a worker got 4 of a minibatch's 8 sequences, but grpo.* divides by the tokens of a micro-batch"
    with pytest.raises(ConfigError, match=message):
        through("grpo+agg-scope=microbatch", leaves(captured[-1], True), parts=2)


def test_the_selection_of_an_update_is_its_own(captured: list[Batch]) -> None:
    """Counted by the rows seen: the second minibatch of a rollout draws other tokens than the first."""
    from methods.adapters.verl.worker import RESULT, MethodLoss
    from tests.adapters.trl_conformance import as_verl

    loss = MethodLoss("clip_cov", 0, 4, 6, whole_minibatch=True)
    seen = [loss(*as_verl(batch, slice(None)))[1][RESULT].update for batch in captured]
    assert seen == [0, 1, 2, 3]


Figures = dict[str, Any]


def run(world: Path, folder: Path, ranks: int, *others: Path) -> Figures:
    """The worker's figures with so many ranks; others: see `verl_worker`."""
    variables = environment(check(worlds.spec(world, trainer="verl")).training, folder)
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(ranks), "LOCAL_RANK": "0"}
    out = folder / "figures.json"
    line = [sys.executable, "-m", "tests.adapters.verl_worker", *map(str, (world, out, *others))]
    processes = [
        subprocess.Popen(
            line,
            cwd=ROOT,
            env={**os.environ, **variables, **address, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(ranks)
    ]
    said = []
    try:
        said = [process.communicate(timeout=1800)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert out.is_file(), "\n".join(said)[-3000:]
    found: Figures = json.loads(out.read_text())
    return found


OTHERS = ("qwen3", "llama", "mistral")  # beside the world's own qwen2


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [1, 2])
def test_the_engine_computes_the_methods_losses(ranks: int, world: Path, tmp_path: Path) -> None:
    others = []
    for model_type in OTHERS if ranks == 1 else ():
        (tmp_path / model_type).mkdir()
        others.append(worlds.build(tmp_path / model_type, prompts=1, model_type=model_type))
    figures = run(world, tmp_path, ranks, *others)
    # Loss and gradient of every method are the plain model's: packed, over micro-batches too, with the paper's four
    # architectures. Float32: another order of summation.
    expected = {f"{key} in {parts}" for key in KEYS for parts in (1, 2)}
    expected |= {f"{key} in 4" for key in KEYS if key in STATISTICS}
    assert set(figures["gradient"]) == {world.name, *(path.name for path in others)}
    for name, found in figures["gradient"].items():
        assert set(found) == (expected if name == world.name else {f"{key} in 2" for key in KEYS})
        assert max(found.values()) < 1e-5, (name, found)
        # relative to 0.01 where a loss is smaller: half a unit in the last place of a log-prob between 8 and 16 is 5e-7
        assert max(figures["loss"][name].values()) < 5e-5, (name, figures["loss"][name])

    # at the first minibatch nothing has changed
    assert figures["dH"] == 0.0
    first = figures["first"]
    assert (first["mask_fraction"], first["kl_old"], first["ratio_spread"]) == (0.0, 0.0, 0.0)
    assert first["effective_sample_size"] == 1.0

    # in bfloat16 too, because the old pass has the update's micro-batches: cut by tokens over all minibatches, as verl
    # would do it, the same weights give other entropies
    same, other = figures["unchanged"]["True"], figures["unchanged"]["False"]
    assert (same["share"], same["largest"]) == (0.0, 0.0)
    assert other["share"] > 0.01

    assert figures["tokens with logits"] == 5  # a chunk; the micro-batch has 61 tokens on one rank
    assert figures["merged"] is True  # a state merges to the trained weights
