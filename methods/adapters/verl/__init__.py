"""The verl adapter: PPOTrainer samples, scores and steps; the loss is `Method.loss`. Protocol: `methods.adapters`."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from methods.adapters.verl.plan import plan, sizes

if TYPE_CHECKING:
    from torch import Tensor

    from methods.adapters import Outcome
    from methods.batch import Batch
    from methods.method import Method
    from methods.training.run_folder import RunFolder
    from methods.training.spec import Spec

__all__ = ["loss", "plan", "sizes", "train"]


def train(spec: Spec, run: RunFolder, stop: Callable[[], bool]) -> Outcome:
    """Train until the end, a collapse or a stop request; see the protocol."""
    from methods.adapters.verl import versions
    from methods.adapters.verl.processes import environment

    plan(spec)
    versions.check(spec.training.device)
    # read when verl, Ray and datasets are imported; the latter would copy every prompt table into the home folder
    os.environ.update(environment(spec.training) | {"HF_DATASETS_CACHE": str(run.state / "datasets")})
    from methods.adapters.verl.driver import drive

    return drive(spec, run, stop)


def loss(method: Method, batch: Batch, parts: int = 1) -> Tensor:
    """`batch`'s loss through the function verl's workers call, in `parts` micro-batches; for conformance tests."""
    from tests.adapters.verl_conformance import through_workers

    return through_workers(method, batch, parts)
