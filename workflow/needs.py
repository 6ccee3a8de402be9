"""What a job asks of the machine it runs on, from the settings that decide it. What a site is like is in the profile.

Only requests: too little memory or time costs an attempt (training goes on where it stopped), too much costs waiting in
the queue. Memory and times on GPUs are assumed, none of them has been measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Need:
    """Of one job: GPUs in all, nodes they lie on; of a node: CPU cores, memory (MB); minutes of the first attempt."""

    gpus: int
    nodes: int
    cores: int
    memory: int
    minutes: int


def train(settings: Mapping[str, Any]) -> Need:
    """Of a run with these `training` settings (`workflow.matrix.training`)."""
    nodes, a_node = settings.get("nodes", 1), settings.get("gpus_per_node", 1)
    if settings.get("device", "cpu") == "cpu":
        return Need(gpus=0, nodes=1, cores=1, memory=4_000, minutes=60)
    # Figure 2 prints 338 and 357 s a step for 7B: ten minutes leave room for slower GPUs, larger models and saving
    return Need(
        gpus=nodes * a_node, nodes=nodes, cores=8 * a_node, memory=100_000 * a_node,
        minutes=60 + 10 * settings["rollouts"],
    )  # fmt: skip


def generate(backend: str) -> Need:
    """Of drawing the responses of one checkpoint; finished benchmarks are kept, so a second attempt goes on."""
    if backend == "vllm":
        return Need(gpus=1, nodes=1, cores=8, memory=100_000, minutes=480)
    return Need(gpus=0, nodes=1, cores=1, memory=4_000, minutes=60)
