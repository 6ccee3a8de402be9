"""Run in processes of its own (`test_loss.py`): verl's training worker on a CPU, one process per rank.

    python -m tests.adapters.verl_worker WORLD OUT [OTHER...]    with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT set

Each method's loss and gradient through the engine, for WORLD and for OTHER worlds, whose models have other
architectures, compared with the same loss on the plain model; a first minibatch, states, the largest tensors. Figures
go to OUT.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from methods import catalog
from methods.adapters.verl import checkpoint
from methods.adapters.verl import worker as verl_worker
from methods.adapters.verl.config import compose, overrides
from methods.adapters.verl.worker import MINIBATCH_ROWS, RESULT, MethodLoss
from methods.batch import Batch
from methods.training.rollouts import derive
from methods.training.spec import Spec, check
from tests.adapters import worlds
from tests.adapters.trl_conformance import as_verl


def training_worker(spec: Spec, folder: Path, changes: Mapping[str, Any] | None = None) -> Any:
    """verl's training worker, as `ActorRolloutRefWorker` builds it from our configuration. changes: of verl's keys."""
    from verl.workers.engine_workers import ActorRolloutRefWorker

    config = compose(overrides(spec, folder) | dict(changes or {}))
    worker = ActorRolloutRefWorker(config.actor_rollout_ref, role="actor")
    worker.init_model()
    return worker.actor


PROMPT, LENGTHS = 3, (6, 1, 8, 3, 5, 2, 8, 4)  # tokens; two prompt groups of four
MAX_TOKENS = 10  # a limit that no response reaches
# passes in bfloat16, which a specification has on GPUs only
_ENGINE = "actor_rollout_ref.actor.fsdp_config"
HALF = {f"{_ENGINE}.dtype": "bfloat16", f"{_ENGINE}.mixed_precision.param_dtype": "bf16"}
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def sequences() -> tuple[list[torch.Tensor], torch.Tensor]:
    """Token ids of each row, prompt first, and the mask of its response, (B, T)."""
    draw = torch.Generator().manual_seed(3)
    rows = [torch.randint(10, 200, (PROMPT + n,), generator=draw) for n in LENGTHS]
    return rows, torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS).unsqueeze(1)


def plain(model: Any, rows: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probs and entropies of the responses, (B, T), by the textbook."""
    width = PROMPT + max(LENGTHS)
    ids = torch.stack([torch.nn.functional.pad(row, (0, width - len(row))) for row in rows])
    mask = torch.arange(width) < torch.tensor([len(row) for row in rows]).unsqueeze(1)
    logp_BTV = model(input_ids=ids, attention_mask=mask.long()).logits[:, PROMPT - 1 : -1].log_softmax(-1)
    logp_BT = logp_BTV.gather(2, ids[:, PROMPT:].unsqueeze(2)).squeeze(2)
    return logp_BT, -(logp_BTV.exp() * logp_BTV).sum(2)


def minibatch(logp_BT: torch.Tensor, entropy_BT: torch.Tensor, mask_BT: torch.Tensor) -> Batch:
    """Off-policy by up to a fifth, so that clips and masks have something to act on."""
    noise = torch.Generator().manual_seed(5)
    old = logp_BT.detach() + 0.2 * (torch.rand(logp_BT.shape, generator=noise) - 0.5)
    return Batch(
        logp=logp_BT,
        old_logp=old,
        advantage=torch.tensor([1.0, -1.0, 0.5, -0.5, 1.5, -0.3, -0.7, -0.5]),
        mask=mask_BT,
        group=torch.arange(len(LENGTHS)) // 4,
        entropy=entropy_BT,
        old_entropy=entropy_BT.detach() + 0.02 * (torch.rand(logp_BT.shape, generator=noise) - 0.5),
        ref_logp=old - 0.1,
        sampling_logp=old + (torch.rand(logp_BT.shape, generator=noise) - 0.5),
        max_tokens=MAX_TOKENS,
    )


def as_engine(batch: Batch, rows: list[torch.Tensor], parts: int) -> Any:
    """This rank's rows of a minibatch, as `train_mini_batch` gives them to the engine."""
    from verl.utils import tensordict_utils as tu

    share = len(rows) // RANKS
    at = slice(RANK * share, (RANK + 1) * share)
    _, data = as_verl(batch, at)
    mine = rows[at]
    nested = {
        "prompts": [row[:PROMPT] for row in mine],
        "responses": [row[PROMPT:] for row in mine],
        "input_ids": mine,
        "position_ids": [torch.arange(len(row)) for row in mine],
        "loss_mask": [torch.ones(len(row) - PROMPT, dtype=torch.long) for row in mine],
    }
    for name, value in nested.items():
        data[name] = torch.nested.as_nested_tensor(value, layout=torch.jagged)
    for name in ("batch_num_tokens", "dp_size"):
        del data[name]  # the engine's to say
    tu.assign_non_tensor(
        data, temperature=1.0, calculate_entropy=True, use_remove_padding=True, use_dynamic_bsz=False,
        use_fused_kernels=True, micro_batch_size_per_gpu=share // parts,
    )  # fmt: skip
    return data


def through_engine(actor: Any, data: Any, loss: MethodLoss) -> tuple[float, list[torch.Tensor], list[Any]]:
    """Sum of the losses over micro-batches, whole gradients, what the loss sent back."""
    engine = actor.engine
    with engine.train_mode():
        engine.optimizer_zero_grad()
        output = engine.forward_backward_batch(data, loss)
        gradients = [p.grad.full_tensor().clone() for p in engine.module.parameters()]
    return sum(output["loss"]), gradients, output["metrics"][RESULT]


def compared(actor: Any, model: Any, parts: int, loss: MethodLoss) -> dict[str, float]:
    """Through the engine against the plain model: the differences of loss and gradient, over the largest value, and
    the cosine between the gradients."""
    rows, mask = sequences()
    batch = minibatch(*plain(model, rows), mask)
    expected = loss.method.loss(batch, generator=torch.Generator().manual_seed(derive(loss.run_seed, "selection", 0)))
    model.zero_grad()
    expected.backward()
    value, found, _ = through_engine(actor, as_engine(batch, rows, parts), loss)
    mean = torch.tensor(float(value), device=found[0].device)
    torch.distributed.all_reduce(mean)
    one = torch.cat([g.flatten().double().cpu() for g in found])
    other = torch.cat([p.grad.flatten().double() for p in model.parameters() if p.grad is not None])
    return {
        # relative to 0.01 where a loss is smaller
        "loss": abs(float(mean) / RANKS - float(expected)) / max(abs(float(expected)), 0.01),
        "gradient": float((one - other).abs().max() / other.abs().max()),
        "cosine": float(torch.nn.functional.cosine_similarity(one, other, dim=0)),
    }


class LargestLogits(TorchDispatchMode):
    """The most tokens of which any tensor held something for the whole vocabulary, in forward and backward passes."""

    def __init__(self, model: Any):
        super().__init__()
        self.vocabulary, self.hidden, self.tokens = model.config.vocab_size, model.config.hidden_size, 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and self.vocabulary in x.shape:
                tokens = x.numel() // self.vocabulary
                if tokens != self.hidden:  # the head itself and its gradient
                    self.tokens = max(self.tokens, tokens)
        return result


def gradients(world: Path, all_parts: bool) -> tuple[dict[str, float], dict[str, float]]:
    """How far losses and gradients of every method are from the plain model's, by method and number of parts (2 only,
    or all)."""
    # here, not above: it imports pytest, and the acceptance of a GPU uses this module where there is none
    from tests.adapters.test_loss import KEYS

    spec = check(worlds.spec(world, trainer="verl"))
    model = plain_model(spec)
    actor = training_worker(spec, world / "run")
    of_loss, of_gradient = {}, {}
    for key in KEYS:
        # with statistics over the minibatch also one row at a time, on two ranks and one
        for parts in ((1, 2, 4) if catalog.parse(key).parts.statistics else (1, 2)) if all_parts else (2,):
            found = compared(actor, model, parts, MethodLoss(key, 1, 4, MAX_TOKENS, whole_minibatch=True))
            of_loss[f"{key} in {parts}"], of_gradient[f"{key} in {parts}"] = found["loss"], found["gradient"]
    return of_loss, of_gradient


PLAIN: dict[type, Any] = {}  # model class -> its forward before verl replaced it


def plain_model(spec: Spec) -> Any:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(spec.base, dtype=torch.float32, attn_implementation="sdpa")
    # bound now: verl gives the class another one when it builds its engine
    model.forward = PLAIN.setdefault(type(model), type(model).forward).__get__(model)
    return model


def unchanged(actor: Any, by_minibatch: bool, longest: int = 40, budget: int = 90) -> dict[str, float]:
    """Of four minibatches with unchanged weights in bfloat16: the share of tokens with |dH| > 1e-6, the largest |dH|,
    and the share that TEPO masks. longest: response; budget: tokens of a pass."""
    from verl.utils import tensordict_utils as tu

    draw = torch.Generator().manual_seed(7)
    lengths = torch.randint(2, longest, (32 * RANKS,), generator=draw).tolist()
    rows = [torch.randint(10, 200, (PROMPT + n,), generator=draw) for n in lengths]
    mask = torch.arange(max(lengths)) < torch.tensor(lengths).unsqueeze(1)
    zeros, sign = torch.zeros(mask.shape), torch.tensor([1.0, -1.0]).repeat(len(rows) // 2)
    data = as_engine(
        Batch(
            logp=zeros, old_logp=zeros, advantage=sign, mask=mask, group=torch.arange(len(rows)) // 4, entropy=zeros,
            old_entropy=zeros, max_tokens=longest + 10,
        ), rows, 1,
    )  # fmt: skip
    tu.assign_non_tensor(data, use_dynamic_bsz=True, max_token_len_per_gpu=budget)
    with_old_pass(actor, data, **({MINIBATCH_ROWS: len(rows) // 4} if by_minibatch else {}))
    loss = MethodLoss("tepo", 1, 4, longest + 10, whole_minibatch=True)
    batches = [result.batch for part in tu.chunk_tensordict(data, 4) for result in through_engine(actor, part, loss)[2]]
    assert {b.precision for b in batches} == {"bfloat16"}
    change = torch.cat([(b.entropy - b.old_entropy).abs()[b.mask] for b in batches])
    masked = [catalog.parse("tepo").diagnostics(b)["mask_fraction"] or 0.0 for b in batches]
    return {"share": float((change > 1e-6).float().mean()), "largest": float(change.max()), "masked": max(masked)}


def with_old_pass(actor: Any, data: Any, **more: int) -> None:
    """Add log-probs and entropies of the policy that sampled, from verl's pass without gradient."""
    from verl.utils import tensordict_utils as tu

    asked = data.copy()
    tu.assign_non_tensor(asked, compute_loss=False, global_token_num=None, **more)
    old = actor.infer_batch(asked)
    for ours, theirs in (("old_log_probs", "log_probs"), ("entropy", "entropy")):
        kept = [x[PROMPT - 1 : -1].cpu() for x in old[theirs].unbind()]
        data[ours] = torch.nested.as_nested_tensor(kept, layout=torch.jagged)


def main(world: Path, out: Path, *others: Path) -> None:
    found: dict[str, Any] = {"gradient": {}, "loss": {}}
    for other in (world, *others):
        found["loss"][other.name], found["gradient"][other.name] = gradients(other, all_parts=other == world)
    spec = check(worlds.spec(world, trainer="verl"))
    model = plain_model(spec)
    actor = training_worker(spec, world / "run")
    rows, mask = sequences()
    # the policy that sampled is the policy that is trained: at the first minibatch nothing may differ
    data = as_engine(minibatch(*plain(model, rows), mask), rows, 1)
    verl_worker.CHUNK, chunk = 5, verl_worker.CHUNK
    with LargestLogits(model) as largest:
        with_old_pass(actor, data)
        (only,) = through_engine(actor, data, MethodLoss("tepo", 1, 4, MAX_TOKENS, whole_minibatch=True))[2]
    verl_worker.CHUNK, first = chunk, only.batch
    found["tokens with logits"] = largest.tokens
    found["first"] = catalog.parse("tepo").diagnostics(first)
    found["dH"] = float((first.entropy - first.old_entropy).abs()[first.mask].max())
    half = training_worker(spec, world / "run", HALF)
    found["unchanged"] = {str(same): unchanged(half, same) for same in (True, False)}
    # states merge to what was trained
    actor.save_checkpoint(str(out.parent / "actor"), None, 1, None)
    trained = dict(actor.engine.get_per_tensor_param()[0])
    if RANK == 0:
        merged = checkpoint.merged(out.parent / "actor")
        found["merged"] = sorted(trained) == sorted(merged) and all(torch.equal(merged[n], trained[n]) for n in trained)
        out.write_text(json.dumps(found), encoding="utf-8")
    torch.distributed.barrier()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
