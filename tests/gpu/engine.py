"""Checks 1 and 2: verl's training engine on this device, built out of our configuration as a run's worker is.

The module is imported in a process of its own (`python -m tests.gpu.accept --in-process`), and sets its environment
before verl is imported. Sequences, minibatches and the plain model are those of the conformance tests.
"""

import os
from pathlib import Path
from typing import Any

from methods import catalog
from methods.adapters.verl.processes import environment
from methods.training.spec import Spec, check
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.checks import Figures, Place

LIMIT = 10  # of a response, in check 1


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

    from tests.adapters.verl_worker import plain_model

    model = plain_model(spec)
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


def gradients(model: Any, spec: Spec, folder: Path, *, half: bool) -> dict[str, dict[str, float]]:
    """Method -> largest relative difference of loss and gradient, and the cosine between the two gradients."""
    actor = worker(spec, folder, half=half)

    from methods.adapters.verl.trainer import method_loss
    from tests.adapters.verl_worker import compared

    methods = [catalog.parse(key) for key in catalog.entries()]
    return {
        method.key: compared(actor, model, 1, method_loss(spec, method))
        for method in methods
        if "full_logp" not in method.needs  # verl hands no whole distribution to a loss
    }


# --- 2: entropies -----------------------------------------------------------------------------------------------------


def unchanged_weights(place: Place) -> Figures:
    """dH between two passes over the same weights in bfloat16. As a run has it in its first minibatch: old entropies by
    the trainer's own way, new ones from the update. And, for comparison, with other micro-batches."""
    size, prompt = place.size, 64 if place.cuda else 5
    longest = size.max_tokens // 2 - prompt
    base = models.save(place.folder / "unchanged" / "base", size.small, spread=0.1)
    spec = spec_of(
        place, base, max_prompt_tokens=prompt, max_completion_tokens=longest, max_tokens_per_gpu=size.max_tokens,
        precision="bfloat16" if place.cuda else "float32",
    )  # fmt: skip
    actor = worker(spec, place.folder / "unchanged" / "engine", half=True)

    from tests.adapters.verl_worker import unchanged

    first, other = (unchanged(actor, by_minibatch, longest, size.max_tokens) for by_minibatch in (True, False))
    return {
        "masked_in_the_first_minibatch": first["masked"],
        "changed_in_the_first_minibatch": first["share"],
        "largest_change": first["largest"],
        "changed_in_other_micro_batches": other["share"],
    }
