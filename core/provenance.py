"""Provenance of a result: versions, hardware, commit, hashes. Unknown is None, never an empty string or 0."""

import hashlib
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from core.errors import MissingInputError

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "torch", "trl", "verl", "vllm", "transformers", "tokenizers", "accelerate", "datasets", "lm-eval", "math-verify",
    "latex2sympy2-extended", "antlr4-python3-runtime", "sympy", "numpy", "pandas", "pyarrow", "scipy", "matplotlib",
    "snakemake",
)  # fmt: skip


def sha256_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def sha256_file(path: Path | str) -> str:
    """Return the hex digest of a file's content; MissingInputError without the file."""
    try:
        with open(path, "rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except FileNotFoundError:
        raise MissingInputError(f"{path}: missing") from None


@cache
def version(package: str) -> str | None:
    """Return a package's version, cached for the process: imported code does not change."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git(*arguments: str) -> str | None:
    try:
        said = subprocess.check_output(
            ["git", *arguments], cwd=ROOT, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, encoding="utf-8",
            timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return said.strip()


def cores() -> int:
    """Return how many cores this process may use; all on macOS, which has no affinity call."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str | None:
    """Return the processor's name, family and model: libraries choose kernels by generation, and round differently."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or None
    facts: dict[str, str] = {}
    for name, _, value in (line.partition(":") for line in lines):
        facts.setdefault(name.strip(), value.strip())  # of the first core
    words = {"model name": "", "cpu family": "family ", "model": "model "}
    return ", ".join(f"{word}{facts[key]}" for key, word in words.items() if facts.get(key)) or None


def environment() -> dict[str, Any]:
    """Return commit and dirty flag, package versions, interpreter, hardware, thread settings."""
    status = _git("status", "--porcelain")
    return {
        "commit": _git("rev-parse", "HEAD"),
        "dirty": None if status is None else bool(status),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
    }
