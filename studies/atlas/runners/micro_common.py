"""What the runners of micro-batches share: the rows, the settings asked for, and the gradients returned.

Every process runs the settings of its number of ranks (WORLD_SIZE, as torchrun sets it).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

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
