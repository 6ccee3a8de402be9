"""verl's training engine on a device, as a run's worker builds it: `python -m tests.gpu.engine CHECK DEVICE FOLDER`.

A process of its own, because verl reads its environment when it is imported. Figures go to FOLDER/CHECK.json.
"""

import os
import sys
from pathlib import Path
from typing import Any

from core.files import write_json
from methods import catalog
from methods.adapters.verl.processes import environment
from methods.training.spec import Spec, check
from tests.adapters import worlds
from tests.gpu import models
from tests.gpu.conftest import Figures, Place, worst_of

# Of a group of one process. Port 0 is any: no other process joins.
ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def spec_of(place: Place, spread: float, **training: Any) -> Spec:
    """A run of TEPO. On a CPU a pass in bfloat16 is asked of the engine alone: a specification refuses it."""
    base = models.save(place.folder / "base", place.size.small, spread=spread)
    sizes: dict[str, Any] = {"device": place.device, "filter": "none", "oversample": 1.0} | training
    return check({**worlds.spec(place.folder, trainer="verl", **sizes), "base": str(base)})


def worker(spec: Spec, folder: Path, *, half: bool) -> Any:
    """verl's training worker in float32, or with passes in bfloat16, by the configuration of a run."""
    import torch

    from tests.adapters.verl_worker import HALF, training_worker

    # TF32 has ten bits of mantissa: float32 on the GPU would then not be float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    folder.mkdir(parents=True, exist_ok=True)
    return training_worker(spec, folder, HALF if half else None)


def losses(place: Place) -> Figures:
    """Each method in float32 and bfloat16, packed, against autograd on the plain model in float32 on the CPU."""
    spec = spec_of(place, 0.2, max_completion_tokens=10)
    os.environ |= environment(spec.training, place.folder) | ALONE

    from methods.adapters.verl.trainer import method_loss
    from tests.adapters.verl_worker import compared, plain_model

    model, found = plain_model(spec), list[dict[str, dict[str, float]]]()
    for half in (False, True):
        actor = worker(spec, place.folder / str(half), half=half)
        keys = [*catalog.entries()]
        found.append({key: compared(actor, model, 1, method_loss(spec, catalog.parse(key))) for key in keys})
    return worst_of(*found)


def unchanged(place: Place) -> Figures:
    """dH between two passes over the same weights in bfloat16. As a run has it in its first minibatch: old entropies by
    the trainer's own way, new ones from the update. And, for comparison, with other micro-batches."""
    tokens, prompt = place.size.pass_tokens, 64 if place.cuda else 5
    longest = tokens // 2 - prompt
    spec = spec_of(
        place, 0.1, max_prompt_tokens=prompt, max_completion_tokens=longest, max_tokens_per_gpu=tokens,
        precision="bfloat16" if place.cuda else "float32",
    )  # fmt: skip
    os.environ |= environment(spec.training, place.folder) | ALONE
    actor = worker(spec, place.folder / "engine", half=True)

    from tests.adapters.verl_worker import unchanged

    first, other = (unchanged(actor, by_minibatch, longest, tokens) for by_minibatch in (True, False))
    return {
        "masked_in_the_first_minibatch": first["masked"], "changed_in_the_first_minibatch": first["share"],
        "largest_change": first["largest"], "changed_in_other_micro_batches": other["share"],
    }  # fmt: skip


if __name__ == "__main__":
    name, device, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    write_json(folder / f"{name}.json", {"losses": losses, "unchanged": unchanged}[name](Place(folder, device)))
