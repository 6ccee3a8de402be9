"""What the runners share; a runner is one program a framework, run by `studies.atlas` in a process of its own with that
framework's version in front, and imports nothing of this project.

`python run_X.py IN.npz OUT.npz` reads batches and writes for each name that the framework has, and each batch,
`<name>|<batch>|value` and `<name>|<batch>|gradient`: the loss at the framework's own defaults and its gradient by the
log-probs (B, T), float64. OUT.json beside it has, for each name, the defaults in force and the function that was
called. `python micro_X.py IN.json OUT.npz` takes one optimizer step in each of the settings asked for and writes
`<loss>|<setting>`: the gradient. Every process runs the settings of its number of ranks (WORLD_SIZE, as torchrun sets
it).
"""

from __future__ import annotations

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

Fields = dict[str, torch.Tensor]
# (fields, leaf of the log-probs) -> loss
Loss = Callable[[Fields, torch.Tensor], torch.Tensor]


class Answers:
    """Losses by name; what a framework refuses is recorded with its words."""

    def __init__(self) -> None:
        with np.load(sys.argv[1]) as stored:
            self.batches: dict[str, Fields] = {}
            for key in stored.files:
                batch, field = key.split("|")
                self.batches.setdefault(batch, {})[field] = torch.from_numpy(stored[key])
        self.arrays: dict[str, np.ndarray] = {}
        self.facts: dict[str, dict] = {}

    def add(self, name: str, function: str, defaults: dict, loss: Loss) -> None:
        self.facts[name] = {"function": function, "defaults": defaults}
        for batch, fields in self.batches.items():
            leaf = fields["logp"].clone().requires_grad_()
            try:
                value = loss(fields, leaf)
                (gradient,) = torch.autograd.grad(value, leaf)
            except Exception as error:  # a framework may refuse in any way; which one is part of the answer
                self.facts[name].setdefault("refused", {})[batch] = f"{type(error).__name__}: {error}"[:200]
                continue
            self.arrays[f"{name}|{batch}|value"] = value.detach().numpy()
            self.arrays[f"{name}|{batch}|gradient"] = gradient.numpy()

    def write(self) -> None:
        out = Path(sys.argv[2])
        np.savez(out, **self.arrays)
        out.with_suffix(".json").write_text(json.dumps(self.facts, indent=1, default=str), encoding="utf-8")


def plain(value: object) -> object:
    """A default as JSON can hold it."""
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)


def expanded(fields: Fields, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """The advantage of each valid token, and the mask, both (B, T)."""
    mask = fields["mask"].to(dtype)
    return fields["advantage"][:, None] * mask, mask


def estimate(function: Callable, fields: Fields, leaf: torch.Tensor, **words: object) -> torch.Tensor:
    """Sum of an estimator's advantages times the log-probs, whose gradient is the advantages.

    words: what only some estimators take, beside rewards (at a response's last token), mask and groups.
    """
    mask = fields["mask"].to(leaf.dtype)
    last = (mask.cumsum(1) == mask.sum(1, keepdim=True)) & fields["mask"]
    words |= {
        "token_level_rewards": torch.where(last, fields["reward"][:, None], 0.0),
        "response_mask": mask,
        "index": fields["group"].numpy(),
    }
    names = inspect.signature(function).parameters
    return (function(**{name: word for name, word in words.items() if name in names})[0] * mask * leaf).sum()


# One update, split in several ways: rows, settings and gradients.

PROMPTS, COPIES, LONGEST = 8, 2, 10  # prompts of an update, responses to each, most tokens of a response
WORDS, END, PAD = 14, 14, 15  # prompts and responses are words 0 to 13
VOCABULARY = 16


def response(prompt: int, copy: int) -> list[int]:
    """The words of a fixed response, 1 to 10 with the end; the first prompts have at most 5."""
    length = 1 + (7 * prompt + 4 * copy) % (LONGEST // 2 if prompt < PROMPTS // 2 else LONGEST)
    return [(3 * prompt + 5 * copy + 2 * place) % WORDS for place in range(length - 1)] + [END]


def reward_of(words: list[int]) -> float:
    return float(sum(word for word in words if word != END) % 7)


def run(losses: dict[str, dict], gradient: Callable[..., torch.Tensor], *, generations: bool = False) -> None:
    """Write `<loss>|<setting>` -> gradient (float64) for every loss and setting asked for; rank 0 writes.

    gradient(accumulation=, **changes) of one optimizer step, reduced over ranks. generations: it gets
    steps_per_generation= too; a framework without it has one entry for each accumulation.
    """
    asked = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = {}
    for label, setting in asked["settings"].items():
        apart = setting["accumulation"] != setting["steps_per_generation"]
        if setting.pop("ranks") != int(os.environ["WORLD_SIZE"]) or (apart and not generations):
            continue
        split = setting if generations else {"accumulation": setting["accumulation"]}
        for name in asked["losses"] or losses:
            found[f"{name}|{label}"] = gradient(**split, **losses[name]).double().numpy()
    if os.environ["RANK"] == "0":
        np.savez(sys.argv[2], **found)
