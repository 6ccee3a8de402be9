"""What a job asks of the machine it runs on, from the settings that decide it. What a site is like is in the profile.

Only requests: too little memory or time costs an attempt (training goes on where it stopped), too much costs waiting in
the queue. Memory and times on GPUs are assumed, none of them has been measured.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from records.errors import ConfigError
from workflow import matrix
from workflow.matrix import Planned


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


def several_nodes(config: Mapping[str, Any], plan: Iterable[Planned]) -> set[str]:
    """Models whose runs lie on several nodes; `ConfigError` if a variant of one does not, since rules go by model."""
    nodes: dict[str, int] = {}
    for planned in plan:
        wanted, model = train(matrix.training(config, planned)).nodes, planned.run.model
        if (nodes.setdefault(model, wanted) > 1) != (wanted > 1):
            raise ConfigError(f"config: nodes: runs of {model} need {nodes[model]} and {wanted}; one node, or several")
    return {model for model, wanted in nodes.items() if wanted > 1}


def pattern(models: Iterable[str]) -> str:
    """A wildcard constraint that matches these names, and nothing if there are none."""
    return "|".join(sorted(re.escape(model) for model in models)) or "(?!)"


def launch(need: Need) -> str:
    """What stands before a command that needs Ray on all nodes of its job."""
    return (
        f"python -m workflow.scripts.ray_nodes --nodes {need.nodes} --gpus-per-node {need.gpus // need.nodes}"
        f" --cores {need.cores} --"
    )


def generate(backend: str) -> Need:
    """Of drawing the responses of one checkpoint; finished benchmarks are kept, so a second attempt goes on."""
    if backend == "vllm":
        return Need(gpus=1, nodes=1, cores=8, memory=100_000, minutes=480)
    return Need(gpus=0, nodes=1, cores=1, memory=4_000, minutes=60)
