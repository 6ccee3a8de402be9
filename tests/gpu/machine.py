"""Check 0: what the machine has."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import yaml

from core.provenance import ROOT
from tests.gpu.checks import GIGA, Figures, Place


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
