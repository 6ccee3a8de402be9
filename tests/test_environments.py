"""pyproject.toml (CPU) and environment.yml (GPU) are one set of pins but for torch, vLLM and what they force.

Every test passes in both environments: vLLM, which only the GPU one has, tells which of them this is.
"""

import importlib.metadata
import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
# Why a pin may differ or exist on one side only. Everything else must be equal.
FORCED = {
    "torch": "vLLM 0.24.0 is built for torch 2.11.0", "triton": "comes with torch 2.11.0", "vllm": "CUDA only",
    "numba": "vLLM 0.24.0", "numpy": "vLLM 0.24.0, through mistral-common, needs numpy < 2.4", "fastapi": "vLLM 0.24.0",
    "flashinfer-python": "vLLM 0.24.0", "xgrammar": "vLLM 0.24.0",
    "pytest": "runs `make gpu`; on a CPU of the extra `test`",
}  # fmt: skip
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _pins(requirements: list[str]) -> dict[str, str]:
    """Package -> version; a requirement that is not an exact pin is an error."""
    pins = [re.fullmatch(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!]+)", requirement) for requirement in requirements]
    assert all(pins), requirements
    return {_plain(pin[1]): pin[2] for pin in pins if pin}


def _locked(name: str) -> dict[str, str]:
    """Package -> version of a lock, after a look at every line: a pin with one hash or more, and nothing else."""
    versions: dict[str, str] = {}
    hashes = 1
    for line in (ROOT / f"requirements/{name}.txt").read_text().splitlines()[1:]:
        if re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line):
            hashes += 1
            continue
        pin = re.fullmatch(r"([a-z0-9.-]+)(?:\[[a-z0-9, -]+\])?==([^ ]+)(?: ; [^\\]+)? \\", line)
        assert pin, f"{name}.txt: {line}"
        assert hashes, f"{name}.txt: {list(versions)[-1]} has no hash"
        versions[pin[1]], hashes = pin[2], 0
    assert hashes
    return versions


CPU = _pins(EXTRAS["harness"] + EXTRAS["verl"])
GPU = _pins(next(item["pip"] for item in CONDA["dependencies"] if isinstance(item, dict)))


def test_pins_differ_only_where_forced() -> None:
    differ = {name for name in CPU | GPU if CPU.get(name) != GPU.get(name)}
    assert differ == set(FORCED), {name: (CPU.get(name), GPU.get(name)) for name in differ ^ set(FORCED)}
    # Snakemake and its plugins talk to themselves inside the jobs: one version on the login node and there.
    lines = (ROOT / "requirements.control.txt").read_text().splitlines()
    control = _pins([line for line in lines if line and not line.startswith("#")])
    pins = _pins([line for line in EXTRAS["harness"] + EXTRAS["test"] if "==" in line])
    assert {name: pins.get(name) for name in control} == control
    assert not {"torch", "transformers", "trl", "verl"} & set(control)


def test_what_runs_here_is_what_is_pinned_and_locked() -> None:
    """Every pin is installed; of what is only locked, with its version, what is installed."""
    # The first of a name is the one that is imported: setuptools puts copies of its own behind the others.
    found = reversed(list(importlib.metadata.distributions()))
    installed = {_plain(d.name): d.version.split("+")[0] for d in found}
    pins, lock = (GPU, "gpu") if "vllm" in installed else (CPU, "test")
    expected = _locked(lock) | pins
    here = {name: installed.get(name, None if name in pins else pin) for name, pin in expected.items()}
    wrong = {name: (here[name], pin) for name, pin in expected.items() if here[name] != pin}
    assert not wrong, f"installed, pinned or locked: {wrong}; run make install-test, or docs/scale.md"


def test_every_pin_is_locked_as_it_is_pinned_and_the_cpu_locks_hold_no_torch() -> None:
    more = _pins([x for x in EXTRAS["test"] + EXTRAS["export"] + EXTRAS["smollm"] if re.search(r"==[^ ]+$", x)])
    cpu, test, gpu = (_locked(name) for name in ("cpu", "test", "gpu"))
    for locked, pins in ((cpu, _pins(EXTRAS["harness"])), (test, CPU | more), (gpu, GPU), (test, cpu)):
        wanted = {package: version for package, version in pins.items() if locked is gpu or package != "torch"}
        assert {package: locked.get(package) for package in wanted} == wanted
    assert not [name for name in test if name in ("torch", "triton") or name.startswith(("nvidia-", "cuda-"))]
