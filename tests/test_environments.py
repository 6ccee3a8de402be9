"""pyproject.toml (CPU) and environment.yml (GPU) are one set of pins but for torch, vLLM and what they force."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent

# Why a pin may differ or exist on one side only. Everything else must be equal.
FORCED = {
    "torch": "vLLM 0.24.0 is built for torch 2.11.0",
    "triton": "comes with torch 2.11.0",
    "vllm": "CUDA only",
    "numba": "vLLM 0.24.0",
    "numpy": "vLLM 0.24.0, through mistral-common, needs numpy < 2.4",
    "fastapi": "vLLM 0.24.0",
    "flashinfer-python": "vLLM 0.24.0",
    "xgrammar": "vLLM 0.24.0",
}


def _pins(requirements: list[str]) -> dict[str, str]:
    pins = {}
    for requirement in requirements:
        match = re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", requirement)
        assert match, f"{requirement}: not an exact pin"
        pins[match[1].lower()] = match[2]
    return pins


@pytest.fixture(scope="module")
def cpu() -> dict[str, str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return _pins(project["optional-dependencies"]["harness"] + project["optional-dependencies"]["verl"])


@pytest.fixture(scope="module")
def conda() -> dict[str, list]:
    return yaml.safe_load((ROOT / "environment.yml").read_text())


@pytest.fixture(scope="module")
def gpu(conda: dict[str, list]) -> dict[str, str]:
    return _pins(next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict)))


def test_pins_differ_only_where_forced(cpu: dict[str, str], gpu: dict[str, str]) -> None:
    differ = {name for name in cpu | gpu if cpu.get(name) != gpu.get(name)}
    assert differ == set(FORCED), {name: (cpu.get(name), gpu.get(name)) for name in differ ^ set(FORCED)}


def test_the_gpu_file_is_what_conda_expects(conda: dict[str, list], gpu: dict[str, str]) -> None:
    assert conda["channels"] == ["conda-forge"]
    assert "python=3.11" in conda["dependencies"]
    assert "snakemake-executor-plugin-slurm" not in gpu, "numpy conflict: see docs/environments.md"


def test_the_login_nodes_requirements_are_the_same_pins() -> None:
    """Snakemake and its plugins talk to themselves inside the jobs: one version on both sides."""
    lines = (ROOT / "requirements.control.txt").read_text().splitlines()
    control = _pins([line for line in lines if line and not line.startswith("#")])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    everywhere = project["optional-dependencies"]["harness"] + project["optional-dependencies"]["test"]
    pins = _pins([line for line in everywhere if "==" in line])
    assert {name: pins.get(name) for name in control} == control
    assert not {"torch", "transformers", "trl", "verl"} & set(control)


def test_the_packages_the_user_fixed_are_all_there(gpu: dict[str, str]) -> None:
    fixed = {"torch", "trl", "verl", "vllm", "lm-eval", "math-verify", "pandas", "matplotlib", "snakemake"}
    assert fixed <= set(gpu)


def test_what_runs_here_is_what_is_pinned(cpu: dict[str, str]) -> None:
    wrong = {}
    for name, pinned in cpu.items():
        installed = importlib.metadata.version(name).split("+")[0]
        if installed != pinned:
            wrong[name] = (installed, pinned)
    assert not wrong, f"installed, pinned: {wrong}; run make install-test"
