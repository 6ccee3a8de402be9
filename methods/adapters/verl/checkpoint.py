"""States of a run in verl's layout, and the weights for evaluation taken from them.

state/checkpoint-<update>/global_step_<rollout>/actor/{model,optim,extra_state}_world_size_<W>_rank_<R>.pt
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor


def step_of(state: Path) -> Path:
    """Return verl's `global_step_<rollout>` in a state."""
    (folder,) = state.glob("global_step_*")
    return folder


def merged(actor: Path) -> dict[str, Tensor]:
    """Return whole weights by name, in the precision of training."""
    # Not verl.model_merger: it rounds every weight to bfloat16, but the evaluated weights must be the trained ones.
    import torch
    from torch.distributed.tensor import DTensor

    ranks = int(json.loads((actor / "fsdp_config.json").read_text(encoding="utf-8"))["world_size"])
    # weights_only=False: shards are DTensors, which require full unpickling; the files were written by this run
    shards: list[dict[str, Any]] = [
        torch.load(actor / f"model_world_size_{ranks}_rank_{rank}.pt", map_location="cpu", weights_only=False)
        for rank in range(ranks)
    ]
    whole: dict[str, Tensor] = dict(shards[0])
    for name, first in shards[0].items():
        if isinstance(first, DTensor):
            placement: Any = first.placements[-1]  # FSDP shards over the last dimension of the device mesh
            pieces = [shard[name].to_local() for shard in shards]
            whole[name] = torch.cat(pieces, dim=placement.dim) if placement.is_shard() else pieces[0]
    return whole


def write_model(actor: Path, base: Path, folder: Path) -> None:
    """Write `folder` as an ordinary model folder: merged weights; configs and tokenizer of the base."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = merged(actor)
    model = AutoModelForCausalLM.from_pretrained(str(base), dtype=next(iter(weights.values())).dtype)
    # Not strict: a weight tied to another (the output layer to the embedding) may be listed under one name only.
    missing, unexpected = model.load_state_dict(weights, strict=False)
    tied = set(getattr(model, "_tied_weights_keys", None) or ())
    if unexpected or set(missing) - tied:
        wrong = [*unexpected, *sorted(set(missing) - tied)]
        raise CorruptInputError(f"{actor}: weights do not fit {base}: {', '.join(wrong[:3])}")
    model.save_pretrained(str(folder))
    AutoTokenizer.from_pretrained(str(base), padding_side="left").save_pretrained(str(folder))
