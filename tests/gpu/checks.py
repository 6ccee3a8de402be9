"""What is checked: a function, what it must show, how long it takes on a GPU. Everything else follows from this list.

Imports nothing heavy: the command reads it before it knows whether there is a GPU.
"""

import operator
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {"<=": operator.le, ">=": operator.ge, "=": operator.eq}


@dataclass(frozen=True)
class Criterion:
    figure: str
    sign: str  # a key of _SIGNS
    limit: float | bool
    only: str | None = None  # why it is not asked on a CPU; None: it is

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {str(self.limit).lower() if isinstance(self.limit, bool) else self.limit}"

    def holds(self, figures: Figures) -> bool:
        """A figure that is not there does not hold."""
        value = figures.get(self.figure)
        return value is not None and _SIGNS[self.sign](value, self.limit)


@dataclass(frozen=True)
class Check:
    number: int
    title: str
    minutes: float  # on a GPU; provisional until one has run it
    function: str  # module:name, called with a Place; returns Figures
    criteria: tuple[Criterion, ...]
    needs: tuple[int, ...] = ()  # checks whose results it reads


SPEED, DRIVER = "the speed of a CPU says nothing", "there is no driver"
SMALL_MODELS, ENGINE = "small models need none", "vLLM is not run on a CPU here"
_c = Criterion

CHECKS = (
    Check(
        0, "The machine", 0.3, "tests.gpu.checks:look",
        (
            _c("driver", ">=", 580, DRIVER), _c("torch_sees_the_gpu", "=", True, DRIVER),
            _c("compiler", "=", True, "only vLLM's kernels are compiled"),
            _c("cpus", ">=", 6, "Ray counts pretended ones"), _c("shared_memory_gb", ">=", 2, SMALL_MODELS),
            _c("disk_free_gb", ">=", 60, SMALL_MODELS),
        ),
    ),
    Check(
        1, "Loss and gradient of every method through verl's engine, packed, against the plain float32 model",
        1.5, "tests.gpu.engine:losses",
        (
            _c("float32_gradient_worst", "<=", 1e-4), _c("float32_loss_worst", "<=", 1e-4),
            _c("bfloat16_cosine_worst", ">=", 0.99),
        ),
    ),
    Check(
        2, "Entropy differences with unchanged weights in bfloat16", 1, "tests.gpu.engine:unchanged_weights",
        (_c("masked_in_the_first_minibatch", "<=", 0.01), _c("changed_in_the_first_minibatch", "<=", 0.01)),
    ),
    Check(
        3, "verl end to end: GRPO and TEPO", 8, "tests.gpu.runs:train",
        (
            _c("losses_finite", "=", True), _c("first_ratio_spread", "<=", 0.02), _c("first_mask_fraction", "<=", 0.01),
            _c("sampling_gap_mean", "<=", 0.02), _c("sampling_correlation", ">=", 0.99),
            _c("tepo_over_grpo_seconds", "<=", 1.1, SPEED),
        ),
    ),
    Check(
        4, "TEPO killed after a rollout and resumed", 3, "tests.gpu.runs:resume",
        (
            _c("rows_before_differ", "=", 0),
            _c("reward_gap_in_standard_errors", "<=", 3), _c("sampling_gap_mean", "<=", 0.02),
        ),
        needs=(3,),
    ),
    Check(
        5, "The trained checkpoint is evaluated: drawn, kept, drawn again, graded", 3, "tests.gpu.runs:evaluate",
        (
            _c("drawn_again_by_a_second_call", "=", 0), _c("drawn_again_after_half", "=", 1),
            _c("equal_texts", ">=", 0.95), _c("distinct_fraction", ">=", 0.5), _c("graded_rows_missing", "=", 0),
            _c("greedy_equal_to_transformers", ">=", 0.9, ENGINE),
        ),
        needs=(3,),
    ),
)  # fmt: skip


def look(place: Place) -> Figures:
    import torch

    smi = nvidia_smi("name", "driver_version")
    return {
        "gpu": smi[0] if smi else None,
        "driver": float(".".join(smi[1].split(".")[:2])) if smi else None,  # 580.65 of 580.65.06
        "torch_sees_the_gpu": torch.cuda.is_available(),
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
