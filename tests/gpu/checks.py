"""What is checked: a function, what it must show, how long it takes on a GPU. Everything else follows from this list.

Imports nothing heavy: the command reads it before it knows whether there is a GPU.
"""

import operator
import os
import platform
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.provenance import ROOT, version
from models.registry import Shape
from tests.gpu.models import MEDIUM_0_5B, MEDIUM_1_5B, SMALL, TOY

GIGA = 1e9
Figures = dict[str, Any]  # name -> number, text, or None where it could not be had


@dataclass(frozen=True)
class Size:
    """Models and runs of the checks, by the memory of the card."""

    card: float  # bytes from which this is taken
    small: Shape  # for the engine's checks
    medium: Shape  # trained end to end
    rollout_memory: float
    prompts: int  # of a rollout; 8 samples each
    response: int  # tokens
    rollouts: int
    max_tokens: int  # of one pass


SIZES = (
    Size(70e9, SMALL, MEDIUM_1_5B, 0.5, 16, 1024, 3, 20480),
    Size(40e9, SMALL, MEDIUM_1_5B, 0.4, 16, 1024, 3, 12288),
    Size(0, SMALL, MEDIUM_0_5B, 0.45, 16, 512, 3, 6144),
)
ON_CPU = Size(0, TOY, TOY, 0.5, 4, 12, 2, 64)


@dataclass(frozen=True)
class Place:
    """Where a check runs."""

    folder: Path  # for all checks: later ones read what earlier ones trained
    device: str  # cpu or cuda
    card: float | None  # bytes
    model: Path | None = None  # a folder to train in place of random weights

    @property
    def size(self) -> Size:
        return ON_CPU if self.card is None else next(s for s in SIZES if self.card >= s.card)

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"


@dataclass(frozen=True)
class Check:
    number: int
    title: str
    minutes: float  # on a GPU; provisional until one has run it
    function: str  # module:name, called with a Place; returns Figures
    criteria: tuple[str, ...]  # `figure sign limit`
    needs: tuple[int, ...] = ()  # checks whose results it reads
    on_gpu: tuple[str, ...] = ()  # figures that say nothing of a CPU


# Packages whose other versions compute or fail otherwise; of the rest any version will do.
PIN = r"^(torch|transformers|tokenizers|trl|verl|tensordict|ray)(?:\[\S+\])?==(\S+)"
SPEED = "tepo_over_grpo_seconds"  # its limit is for the random weights' size

CHECKS = (
    Check(
        0, "The machine", 0.3, "tests.gpu.checks:look",
        (
            "driver >= 580", "torch_sees_the_gpu = true", "packages_differ = 0", "compiler = true", "cpus >= 6",
            "shared_memory_gb >= 2", "disk_free_gb >= 60",
        ),
        on_gpu=(
            "driver", "torch_sees_the_gpu", "packages_differ", "compiler", "cpus", "shared_memory_gb", "disk_free_gb",
        ),
    ),
    Check(
        1, "Loss and gradient of every method through verl's engine, packed, against the plain float32 model",
        1.5, "tests.gpu.engine:losses",
        ("float32_gradient_worst <= 0.0001", "float32_loss_worst <= 0.0001", "bfloat16_cosine_worst >= 0.99"),
    ),
    Check(
        2, "Entropy differences with unchanged weights in bfloat16", 1, "tests.gpu.engine:unchanged_weights",
        ("masked_in_the_first_minibatch <= 0.01", "changed_in_the_first_minibatch <= 0.01"),
    ),
    Check(
        3, "verl end to end: GRPO and TEPO", 8, "tests.gpu.runs:train",
        (
            "losses_finite = true", "first_ratio_spread <= 0.02", "first_mask_fraction <= 0.01",
            "sampling_gap_mean <= 0.02", "sampling_correlation >= 0.99", f"{SPEED} <= 1.1",
        ),
        on_gpu=(SPEED,),
    ),
    Check(
        4, "TEPO killed after a rollout and resumed", 3, "tests.gpu.runs:resume",
        ("rows_before_differ = 0", "reward_gap_in_standard_errors <= 3", "sampling_gap_mean <= 0.02"),
        needs=(3,),
    ),
    Check(
        5, "The trained checkpoint is evaluated: drawn, drawn again, graded", 3, "tests.gpu.runs:evaluate",
        (
            "equal_texts >= 0.95", "distinct_fraction >= 0.5", "graded_rows_missing = 0",
            "greedy_equal_to_transformers >= 0.9",
        ),
        needs=(3,),
        on_gpu=("greedy_equal_to_transformers",),
    ),
)  # fmt: skip


def holds(criterion: str, figures: Figures) -> bool:
    """A figure that is not there does not hold."""
    figure, sign, limit = criterion.split()
    value = figures.get(figure)
    compare = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}[sign]
    return value is not None and bool(compare(float(value), float(limit) if limit != "true" else 1.0))


def look(place: Place) -> Figures:
    import torch

    smi = nvidia_smi("name", "driver_version")
    pins = re.findall(PIN, (ROOT / "requirements/gpu.txt").read_text(encoding="utf-8"), re.MULTILINE)
    differ = {name: have for name, pin in pins if (have := (version(name) or "missing").partition("+")[0]) != pin}
    return {
        "gpu": smi[0] if smi else None,
        "driver": float(".".join(smi[1].split(".")[:2])) if smi else None,  # 580.65 of 580.65.06
        "torch_sees_the_gpu": torch.cuda.is_available(),
        "packages_differ": len(differ),
        "packages": differ,
        "capability": ".".join(map(str, torch.cuda.get_device_capability())) if place.cuda else None,
        "glibc": platform.libc_ver()[1],
        "compiler": any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "x86_64-conda-linux-gnu-cc", "clang"))),
        "cpus": len(os.sched_getaffinity(0)),
        "shared_memory_gb": shutil.disk_usage("/dev/shm").total / GIGA if Path("/dev/shm").is_dir() else 0.0,
        "disk_free_gb": shutil.disk_usage(place.folder).free / GIGA,
    }


def nvidia_smi(*fields: str) -> list[str] | None:
    """What the driver reports of the first GPU that this process may use; None where there is no driver.

    Not asked through torch, which would take memory of the GPU for as long as the process lives.
    """
    if shutil.which("nvidia-smi") is None:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    words = ["nvidia-smi", f"--id={first}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return values if done.returncode == 0 and len(values) == len(fields) else None
