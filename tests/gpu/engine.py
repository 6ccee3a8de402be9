"""Checks 1 and 2: verl's training engine on this device, built out of our configuration as a run's worker is.

The module is imported in a process of its own (`python -m tests.gpu.accept --in-process`), and sets its environment
before verl is imported. Sequences, minibatches and the plain model are those of the conformance tests.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from methods import catalog
from methods.adapters.verl.processes import environment
from methods.training.spec import Spec, check
from models.registry import Shape
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.checks import Figures, Place

LIMIT = 10  # of a response, in check 1
TOLERANCE = 1e-6  # nats: reading R6, the default of dh-tol


def spec_of(place: Place, base: Path, **training: Any) -> Spec:
    """A run of TEPO on this device; `training` keys as given. On a CPU a pass in bfloat16 is asked of the engine alone,
    because a specification refuses it."""
    sizes: dict[str, Any] = {"device": place.device, "filter": "none", "oversample": 1.0} | training
    world = base.parent
    return check({**worlds.spec(world, trainer="verl", **sizes), "base": str(base)})


# Of a group of one process. Port 0 is any: no other process joins.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def worker(spec: Spec, folder: Path, *, half: bool) -> Any:
    """verl's training worker in float32, or with passes in bfloat16, by the configuration of a run."""
    os.environ |= environment(spec.training, folder) | ALONE

    import torch

    from tests.adapters.verl_worker import HALF, training_worker

    # TF32 has ten bits of mantissa: float32 on the GPU would then not be float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    if spec.training.device == "cpu":
        torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    return training_worker(spec, folder, HALF if half else None)


# --- 1: losses and gradients ------------------------------------------------------------------------------------


def losses(place: Place) -> Figures:
    """Each method's loss and gradient through the engine in float32 and bfloat16, against autograd on the plain model
    in float32 on the CPU."""
    base = models.save(place.folder / "losses" / "base", place.size.small, spread=0.2)
    spec = spec_of(place, base, max_completion_tokens=LIMIT)
    os.environ |= environment(spec.training, place.folder) | ALONE
    model = plain_model(base)
    single = gradients(model, spec, place.folder / "losses" / "float32", half=False)
    half = gradients(model, spec, place.folder / "losses" / "bfloat16", half=True)
    # A method that ranks tokens may take another one after rounding, and one of these few dozen is percents of the
    # gradient: recorded, without a limit.
    ranking = {key for key in half if catalog.parse(key).scope == "batch"}
    worst = max(single, key=lambda key: single[key]["gradient"])
    least = min(half.keys() - ranking, key=lambda key: half[key]["cosine"])
    return {
        "methods": len(single),
        "float32_gradient_worst": single[worst]["gradient"],
        "float32_gradient_worst_method": worst,
        "float32_loss_worst": max(found["loss"] for found in single.values()),
        "bfloat16_cosine_worst": half[least]["cosine"],
        "bfloat16_cosine_worst_method": least,
        "bfloat16_cosine_worst_of_ranking_methods": min(half[key]["cosine"] for key in ranking),
    }


def plain_model(base: Path) -> Any:
    """The model in float32 on the CPU, before verl builds an engine: that gives the class another forward."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    model.forward = model.forward  # bound now
    return model


def gradients(model: Any, spec: Spec, folder: Path, *, half: bool) -> dict[str, dict[str, float]]:
    """Method -> largest relative difference of loss and gradient, and the cosine between the two gradients."""
    actor = worker(spec, folder, half=half)

    from methods.adapters.verl.trainer import method_loss
    from tests.adapters.verl_worker import compared

    methods = [catalog.parse(key) for key in catalog.entries()]
    return {
        method.key: compared(actor, model, method.key, 1, method_loss(spec, method))
        for method in methods
        if "full_logp" not in method.needs  # verl hands no whole distribution to a loss
    }


# --- 2: entropies -----------------------------------------------------------------------------------------------------


def lengths(count: int, limit: int) -> list[int]:
    """Of responses: a few short, most middling, some cut at the limit, as a model that reasons has them."""
    import torch

    draw = torch.Generator().manual_seed(7)
    middle = torch.tensor(limit / 2).log()
    drawn = (middle + 0.7 * torch.randn(count, generator=draw)).exp().round().clamp(2, limit)
    return [int(n) for n in drawn]


def minibatch(shape: Shape, responses: Sequence[int], prompt: int) -> Any:
    """Random tokens in the layout that the driver sends: nested rows, prompt first. Groups of four."""
    import torch
    from tensordict import TensorDict

    from methods.adapters.verl.trainer import with_totals
    from methods.adapters.verl.worker import TOTALS_FIELD

    draw = torch.Generator().manual_seed(11)
    rows = [torch.randint(3, shape.vocab_size, (prompt + n,), generator=draw) for n in responses]
    ones = [torch.ones(n, dtype=torch.long) for n in responses]
    groups = {g: [(row, responses[row]) for row in range(4 * g, 4 * g + 4)] for g in range(len(rows) // 4)}
    totals = torch.tensor([totals for _, totals in with_totals(groups)])
    sign = [1.0 if row % 2 else -1.0 for row in range(len(rows))]
    return TensorDict(
        {
            "prompts": nested([row[:prompt] for row in rows]),
            "responses": nested([row[prompt:] for row in rows]),
            "input_ids": nested(rows),
            "position_ids": nested([torch.arange(len(row)) for row in rows]),
            "loss_mask": nested(ones),
            "response_mask": nested(ones),
            "advantages": nested([torch.full((n,), a) for n, a in zip(responses, sign, strict=True)]),
            TOTALS_FIELD: totals,
        },
        batch_size=len(rows),
    )


def nested(rows: list[Any]) -> Any:
    import torch

    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def old_pass(actor: Any, data: Any, **cut: Any) -> tuple[Any, Any]:
    """Log-probs and entropies of all response tokens, (N,) each, without gradient. cut: how micro-batches are made."""
    from verl.utils import tensordict_utils as tu
    from verl.workers.utils.padding import response_from_nested

    asked = data.copy()
    tu.assign_non_tensor(asked, calculate_entropy=True, compute_loss=False, temperature=1.0, **cut)
    old = actor.infer_batch(asked)
    named = (response_from_nested(old[name], data["response_mask"]) for name in ("log_probs", "entropy"))
    logp_N, entropy_N = (x.values().float().cpu() for x in named)
    return logp_N, entropy_N


def update_pass(actor: Any, spec: Spec, data: Any, logp_N: Any, entropy_N: Any, **cut: Any) -> list[Any]:
    """TEPO's loss and gradient over these rows, without a step; what the loss sends back of each micro-batch."""
    from verl.utils import tensordict_utils as tu

    from methods.adapters.verl.trainer import method_loss
    from methods.adapters.verl.worker import RESULT

    counts = [len(row) for row in data["responses"].unbind()]
    data["old_log_probs"] = nested([row.clone() for row in logp_N.split(counts)])
    data["entropy"] = nested([row.clone() for row in entropy_N.split(counts)])
    tu.assign_non_tensor(
        data, global_batch_size=len(data), global_steps=1, temperature=1.0, calculate_entropy=True,
        use_remove_padding=True, use_fused_kernels=True, **cut,
    )  # fmt: skip
    with actor.engine.train_mode():
        output = actor.engine.forward_backward_batch(data, method_loss(spec, catalog.parse("tepo")))
    return list(output["metrics"][RESULT])


def unchanged_weights(place: Place) -> Figures:
    """Check 2: dH between two passes over the same weights in bfloat16. As a run has it in its first minibatch: old
    entropies by the trainer's own way, new ones from the update. And, for comparison, with other micro-batches."""
    size, prompt = place.size, 64 if place.cuda else 5
    longest = size.max_tokens // 2
    base = models.save(place.folder / "unchanged" / "base", size.small, spread=0.1)
    spec = spec_of(
        place, base, max_prompt_tokens=prompt, max_completion_tokens=longest - prompt,
        max_tokens_per_gpu=size.max_tokens, precision="bfloat16" if place.cuda else "float32",
    )  # fmt: skip
    actor = worker(spec, place.folder / "unchanged" / "engine", half=True)

    from methods.adapters.verl.worker import MINIBATCH_ROWS
    from methods.training.rollouts import together

    responses, rows = lengths(16, longest - prompt), 4  # four minibatches of a group
    data = minibatch(size.small, responses, prompt)
    cut = {"use_dynamic_bsz": True, "max_token_len_per_gpu": size.max_tokens}
    logp_N, old_N = old_pass(actor, data, **cut, **{MINIBATCH_ROWS: rows})
    _, other_N = old_pass(actor, data, use_dynamic_bsz=False, micro_batch_size_per_gpu=2)
    first, tokens = minibatch(size.small, responses[:rows], prompt), sum(responses[:rows])
    results = update_pass(actor, spec, first, logp_N[:tokens], old_N[:tokens], **cut)
    method, batch = catalog.parse("tepo"), together([result.batch for result in results])
    change_N = (batch.entropy - batch.old_entropy).abs()[batch.mask].double()
    return {
        "precision_of_the_pass": batch.precision,
        "masked_in_the_first_minibatch": method.diagnostics(batch)["mask_fraction"],
        "changed_in_the_first_minibatch": float((change_N > TOLERANCE).double().mean()),
        "changed_in_other_micro_batches": float(((other_N - old_N).abs() > TOLERANCE).double().mean()),
    }
