"""What is checked: a function, what it must show, how long it takes on a GPU. Everything else follows from this list.

Imports nothing heavy: the command reads it before it knows whether there is a GPU.
"""

import operator
import os
import platform
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import yaml

from core.provenance import ROOT
from models.registry import Shape
from tests.gpu.models import MEDIUM_0_5B, MEDIUM_1_5B, SMALL, TOY, WIDE_1_5B, WIDE_7B

GIGA = 1e9
Figures = dict[str, Any]  # name -> number, text, or None where it could not be had


@dataclass(frozen=True)
class Size:
    """What the models and runs of a check are, by the memory of the card."""

    card: float  # bytes from which this is taken
    small: Shape
    wide: Shape  # the width of the model whose updates must fit; two layers
    layers: int  # of that model as a whole
    whole: float  # its parameters
    gpus: int  # that share its weights, gradients and optimiser
    offload: bool  # whether these lie in the host's memory
    max_tokens: int  # of one pass of the wide model
    medium: Shape  # trained end to end
    rollout_memory: float
    prompts: int  # of a rollout; 8 samples each
    response: int  # tokens
    rollouts: int


# 7B on eight GPUs where the paper's scale is meant for the card, else one_gpu.yaml's 1.5B on one.
SIZES = (
    Size(70e9, SMALL, WIDE_7B, 28, 7.6e9, 8, False, 20480, MEDIUM_1_5B, 0.5, 16, 1024, 3),
    Size(40e9, SMALL, WIDE_1_5B, 28, 1.54e9, 1, False, 12288, MEDIUM_1_5B, 0.4, 16, 1024, 3),
    Size(0, SMALL, WIDE_1_5B, 28, 1.54e9, 1, True, 6144, MEDIUM_0_5B, 0.45, 16, 512, 3),
)
ON_CPU = Size(0, TOY, TOY, 2, TOY.parameters, 1, False, 64, TOY, 0.5, 4, 12, 2)


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
    only: str | None = None  # why a CPU has nothing to run here


SPEED, DRIVER, MEMORY = "the speed of a CPU says nothing", "there is no driver", "there is no device memory"

ENGINE = "vLLM is not run on a CPU here"


_c = Criterion

CHECKS = (
    Check(
        0, "The machine", 0.3, "tests.gpu.checks:look",
        (
            _c("driver", ">=", 580, DRIVER), _c("torch_sees_the_gpu", "=", True, DRIVER),
            _c("pins_that_differ", "=", 0), _c("glibc", ">=", 2.31),
            _c("compiler", "=", True, "only vLLM's kernels are compiled"),
            _c("cpus", ">=", 6, "Ray counts pretended ones"), _c("shared_memory_gb", ">=", 2, "small models need none"),
            _c("disk_free_gb", ">=", 60, "small models need none"),
        ),
    ),
    Check(
        1, "Loss and gradient of every method through verl's engine, against the plain model in float32 on the CPU",
        1.5, "tests.gpu.engine:losses",
        (
            _c("float32_gradient_worst", "<=", 1e-4), _c("float32_loss_worst", "<=", 1e-4),
            _c("bfloat16_cosine_worst", ">=", 0.99),
        ),
    ),
    Check(
        2, "Packed sequences against each sequence alone", 1, "tests.gpu.engine:packing",
        (_c("float32_logp_worst", "<=", 1e-4), _c("bfloat16_logp_mean", "<=", 0.01)),
    ),
    Check(
        3, "Memory of the largest passes: old log-probabilities and an update of a wide model", 2,
        "tests.gpu.engine:memory",
        (_c("peak_share_of_card", "<=", 0.9),), only=MEMORY,
    ),
    Check(
        4, "Entropy differences with unchanged weights in bfloat16", 1, "tests.gpu.engine:unchanged_weights",
        (_c("masked_in_the_first_minibatch", "<=", 0.01), _c("changed_in_the_first_minibatch", "<=", 0.01)),
    ),
    Check(
        5, "verl end to end: GRPO and TEPO", 8, "tests.gpu.runs:train",
        (
            _c("losses_finite", "=", True), _c("first_ratio_spread", "<=", 0.02), _c("first_mask_fraction", "<=", 0.01),
            _c("sampling_gap_mean", "<=", 0.02), _c("sampling_correlation", ">=", 0.99),
            _c("tepo_over_grpo_seconds", "<=", 1.1, SPEED), _c("update_mfu", ">=", 0.12, SPEED),
        ),
    ),
    Check(
        6, "TEPO killed after a rollout and resumed", 3, "tests.gpu.runs:resume",
        (
            _c("shards_differ", "=", 0), _c("rows_before_differ", "=", 0), _c("refills_missing_from_the_mark", "=", 0),
            _c("reward_gap_in_standard_errors", "<=", 3), _c("sampling_gap_mean", "<=", 0.02),
        ),
        needs=(5,),
    ),
    Check(
        7, "The trained checkpoint is evaluated: drawn, kept, drawn again, graded", 3, "tests.gpu.runs:evaluate",
        (
            _c("drawn_again_by_a_second_call", "=", 0), _c("drawn_again_after_half", "=", 1),
            _c("equal_texts", ">=", 0.95), _c("distinct_fraction", ">=", 0.5), _c("graded_rows_missing", "=", 0),
            _c("greedy_equal_to_transformers", ">=", 0.9, ENGINE),
        ),
        needs=(5,),
    ),
)  # fmt: skip


def look(place: Place) -> Figures:
    import torch

    # the GPU environment may be looked at on a machine without one
    pins = gpu_pins() if place.cuda or installed("vllm") else cpu_pins()
    differ = {name: (installed(name), wanted) for name, wanted in pins.items() if installed(name) != wanted}
    smi = nvidia_smi("name", "driver_version")
    found: Figures = {
        "gpu": smi[0] if smi else None,
        "driver": float(".".join(smi[1].split(".")[:2])) if smi else None,  # 580.65 of 580.65.06
        "torch": torch.__version__,
        "torch_sees_the_gpu": torch.cuda.is_available(),
        "python": platform.python_version(),
        "pins_that_differ": len(differ),
        "glibc": glibc(),
        "compiler": compiler() is not None,
        "ninja": shutil.which("ninja") is not None,
        "flash_attn": installed("flash-attn"),
        "cpus": len(os.sched_getaffinity(0)),
        "shared_memory_gb": shutil.disk_usage("/dev/shm").total / GIGA if Path("/dev/shm").is_dir() else 0.0,
        "disk_free_gb": shutil.disk_usage(place.folder).free / GIGA,
    }
    if differ:
        found["pins"] = "; ".join(f"{name} is {have}, pinned {wanted}" for name, (have, wanted) in differ.items())
    if place.cuda:
        major, minor = torch.cuda.get_device_capability()
        found |= {"capability": f"{major}.{minor}", "card_gb": torch.cuda.mem_get_info()[1] / GIGA}
    return found


def nvidia_smi(*fields: str) -> list[str] | None:
    """What the driver says of the first GPU that this process may use; None where there is no driver.

    Not asked through torch, which would take memory of the GPU for as long as the process lives.
    """
    if shutil.which("nvidia-smi") is None:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    words = ["nvidia-smi", f"--id={first}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return values if done.returncode == 0 and len(values) == len(fields) else None


def glibc() -> float | None:
    """2.36, as a number whose order is that of versions as long as the second part has two digits; None for another C
    library."""
    name, text = platform.libc_ver()
    match = re.match(r"(\d+)\.(\d\d)", text)
    return float(match[0]) if name == "glibc" and match else None


def compiler() -> str | None:
    names = (os.environ.get("CC", "cc"), "gcc", "x86_64-conda-linux-gnu-cc", "clang")
    return next((path for name in names if (path := shutil.which(name))), None)


def installed(name: str) -> str | None:
    try:
        return version(name).partition("+")[0]  # torch says which CUDA it is built for after the plus
    except PackageNotFoundError:
        return None


def gpu_pins() -> dict[str, str]:
    """environment.yml's."""
    content = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    (pip,) = (item["pip"] for item in content["dependencies"] if isinstance(item, dict))
    return _pins(pip)


def cpu_pins() -> dict[str, str]:
    """pyproject.toml's."""
    content = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = content["project"]["optional-dependencies"]
    return _pins(extras["harness"] + extras["verl"])


def _pins(requirements: list[str]) -> dict[str, str]:
    """Name -> version of the exact ones."""
    pairs = (requirement.partition("==") for requirement in requirements)
    return {name.strip(): wanted.strip() for name, sign, wanted in pairs if sign and re.fullmatch(r"[\w.]+", wanted)}
