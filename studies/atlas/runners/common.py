"""What the runners share: reading batches, writing answers."""

from __future__ import annotations

import json
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
