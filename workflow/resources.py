"""What a job requests of the machine it runs on, from the settings that decide it. The site's part is in the profile.

Memory and times on GPUs are assumed: none of them has been measured.
"""

import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from core.declared import Where, validated
from core.errors import ConfigError
from core.used_code import NUMERIC
from methods.training.spec import Training
from models.registry import Shape
from workflow import matrix
from workflow.matrix import Planned
from workflow.memory import on_cpu


@dataclass(frozen=True)
class Need:
    """What one job requests."""

    gpus: int  # on all nodes
    nodes: int
    cores: int  # of a node
    memory: int  # of a node, MB
    minutes: int  # of the first attempt; a rule gives later attempts more


def train(settings: Mapping[str, Any], shape: Shape | None = None) -> Need:
    """For a run with these `training` settings (`workflow.matrix.training`). shape: of a model that is fetched."""
    nodes, per_node = settings.get("nodes", 1), settings.get("gpus_per_node", 1)
    if settings.get("device", "cpu") == "cpu":
        memory = 4_000 if shape is None else ceil(1074 * on_cpu(shape, validated(Training, settings, "training")))
        return Need(gpus=0, nodes=1, cores=1, memory=memory, minutes=60 if shape is None else 480)
    # Figure 2 prints 338 and 357 s a step for 7B: ten minutes leave room for slower GPUs, larger models and saving
    return Need(
        gpus=nodes * per_node, nodes=nodes, cores=8 * per_node, memory=100_000 * per_node,
        minutes=60 + 10 * settings["rollouts"],
    )  # fmt: skip


def check(config: Mapping[str, Any], plan: Iterable[Planned], where: Where, *, here: bool) -> None:
    """Raise for sizes that do not divide, and for cuda where jobs run `here`, on a machine without a GPU."""
    cuda = shutil.which("nvidia-smi") is not None or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))
    for planned in plan:
        at = ["training"] if planned.run.variant is None else ["variants", planned.run.variant, "training"]
        settings = matrix.training(config, planned)
        validated(Training, settings, where(at), ".".join(at))
        if here and not cuda and config["cluster"] is None and settings.get("device") == "cuda":
            raise ConfigError(
                f"{where([*at, 'device'])}: {'.'.join(at)}.device: 'cuda': this machine has no GPU; allowed: cpu"
            )


def memory_here() -> int | None:
    """MB of memory that programs may still take on this machine, or in its container; None where no file has it."""
    kib = re.search(r"^MemAvailable:\s+(\d+) kB", _text("/proc/meminfo"), re.MULTILINE)
    limit, used, stat = (_text(f"/sys/fs/cgroup/memory.{name}").strip() for name in ("max", "current", "stat"))
    # A container's figure has cached files in it, which the kernel gives up first; MemAvailable has not.
    cached = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)
    found = [int(kib[1]) * 1024] if kib else []
    if limit.isdigit() and used.isdigit():
        found.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
    return min(found) // 10**6 if found else None


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8") if os.path.isfile(path) else ""


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
    """The prefix of a command that needs Ray on all nodes of its job."""
    return f"workflow/ray_nodes.sh {need.nodes} {need.gpus // need.nodes} {need.cores}"


def generate(config: Mapping[str, Any]) -> Need:
    """For drawing the responses of one checkpoint; a second attempt keeps the benchmarks that are finished."""
    # transformers takes a GPU where it finds one, so it asks for one wherever training has some.
    gpus = config["cluster"] is not None or config["training"].get("device") == "cuda"
    if gpus or config["evaluation"]["backend"] == "vllm":
        return Need(gpus=1, nodes=1, cores=8, memory=100_000, minutes=480)
    return Need(gpus=0, nodes=1, cores=1, memory=4_000, minutes=60)


def shell_prefix(loggers: Iterable[str]) -> str:
    """The environment of a job's shell, as Snakemake formats it, and the function `quiet LOG COMMAND` for cheap jobs.

    What takes long or is looked at goes to terminal and log (tee); of a cheap job only a failure's log is printed.
    """
    # One thread per process and parallelism by jobs: OpenMP threads that spin against each other cost 3-30x on busy
    # cores. Another value of NUMERIC is another result, so it is in the `code` of a rule, as TEPO_CODE is.
    variables = NUMERIC | {
        "OMP_WAIT_POLICY": "PASSIVE",
        "TOKENIZERS_PARALLELISM": "false",
        # Everything a job needs is on disk; rules that fetch go by the user's own HF_HUB_OFFLINE.
        "TEPO_HUB_OFFLINE": "${{HF_HUB_OFFLINE:-0}}",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TEPO_LOG": ",".join(loggers),  # not in a rule's params: asking for a logger makes nothing again
        "PYTHONUNBUFFERED": "1",
        "PYTHONUTF8": "1",  # libraries open files of theirs in the locale's encoding, and under LC_ALL=C that is ASCII
        "MPLCONFIGDIR": "${{MPLCONFIGDIR:-.snakemake/matplotlib}}",  # a container may forbid to write the user's home
        "PYTHONPATH": ".",
    }
    exports = " ".join(f"{name}={value}" for name, value in variables.items())
    # A prefix replaces Snakemake's own strict mode: without pipefail, `| tee {log}` would hide that a command failed.
    quiet = 'quiet() {{ local log=$1; shift; "$@" > "$log" 2>&1 || {{ cat "$log" >&2; exit 1; }}; }}; '
    return f"set -euo pipefail; export {exports}; {quiet}"
