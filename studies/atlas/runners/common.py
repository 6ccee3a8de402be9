"""What the runners share: reading batches, writing answers."""

from __future__ import annotations

import inspect
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
