"""The loss library as others get it: the wheel, installed where there is torch and nothing else."""

import dataclasses
import doctest
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import tepo_bench
from tests.methods.batches import random_fields
from tests.workflow.conftest import checkout

ROOT = Path(__file__).resolve().parent.parent
# Runs in the empty environment, and here: every method on the same tensors.
PROBE = """
import sys
import torch
import tepo_bench

def losses(fields):
    said = {}
    for key in tepo_bench.catalog.keys():
        given = {name: value.clone() for name, value in fields.items()}
        leaves = [given[name].requires_grad_() for name in ("logp", "entropy", "full_logp")]
        method = tepo_bench.parse(key)
        given["advantage"] = method.advantage(given["advantage"], given["group"], given["mask"].sum(1))
        batch = tepo_bench.Batch(**given, max_tokens=17)
        loss = method.loss(batch, generator=torch.Generator().manual_seed(0))
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        sums = [float(g.square().sum()) for g in gradients if g is not None]
        said[key] = [loss.item(), *sums, method.diagnostics(batch)]
    hidden, head = torch.linspace(-1, 1, 12).view(2, 2, 3), torch.linspace(-2, 1, 15).view(5, 3)
    chunked = tepo_bench.logp_and_entropy(hidden, head, torch.tensor([[0, 1], [4, 2]]))
    return said | {"chunked": [x.tolist() for x in chunked]}
"""
MAIN = """
import json
said = losses(torch.load(sys.argv[1]))
print(json.dumps({"said": said, "loaded": sorted(sys.modules), "file": tepo_bench.__file__}))
"""


def pip(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """pip without the network: setuptools is the one installed here."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def requirements(package: str) -> set[str]:
    """The package and all that it needs, as far as it is installed here: no extras."""
    found, waiting = set(), [package]
    while waiting:
        name = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # torch names CUDA packages that a build for CPUs does not have
        if distribution.name in found:
            continue
        found.add(distribution.name)
        for line in distribution.requires or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, in which an earlier build left the file of a method that is gone."""
    tree = checkout(tmp_path_factory.mktemp("wheel") / "tree")
    left = tree / "build/lib/tepo_bench/methods/catalog/gone.py"
    left.parent.mkdir(parents=True)
    left.write_text("METHODS = []\n")
    done = pip("wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", tree.parent, tree)
    assert done.returncode == 0, done.stderr
    return next(tree.parent.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel, torch and what torch needs; torch is linked, which costs no time."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    executable = folder / "bin/python"
    done = pip("--python", executable, "install", "--no-deps", "--no-index", wheel)
    assert done.returncode == 0, done.stderr
    site = folder / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for name in requirements("torch"):
        distribution = importlib.metadata.distribution(name)
        for top in {Path(file).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            (site / top).symlink_to(Path(str(distribution.locate_file(top))))
    return executable


def run(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Away from the repository, and with nothing of this environment on the path."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return subprocess.run([python, *arguments], cwd=cwd, env=clean, capture_output=True, text=True, check=False)


def test_the_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    files = {name.removeprefix("tepo_bench/") for name in names if ".dist-info/" not in name}
    assert {"__init__.py", "py.typed", "methods/batch.py"} <= files
    rooms = {path.relative_to(ROOT).as_posix() for path in (ROOT / "methods").glob("**/*.py")}
    assert {name for name in rooms if name.startswith(("methods/catalog/", "methods/parts/"))} <= files
    assert not {name for name in files if name.startswith(("methods/adapters", "methods/training", "methods/train"))}
    assert {name for name in files if name.startswith("core/")} == {
        f"core/{name}.py" for name in ("__init__", "errors")
    }
    assert "methods/catalog/gone.py" not in files
    assert wheel.name.split("-")[1] == tepo_bench.__version__
    required = [line.removeprefix("Requires-Dist: ") for line in metadata.splitlines() if line.startswith("Requires-")]
    assert [line for line in required if "extra ==" not in line and not line.startswith("Requires-Python")] == [
        "torch>=2.11"
    ]


def test_every_method_gives_the_same_in_an_environment_with_torch_alone(python: Path, tmp_path: Path) -> None:
    fields = random_fields(3)
    torch.save(fields, tmp_path / "fields.pt")
    (tmp_path / "probe.py").write_text(PROBE + MAIN)
    done = run(python, "probe.py", "fields.pt", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert Path(there["file"]).is_relative_to(python.parent.parent)
    here: dict[str, object] = {}
    exec(PROBE, here)
    assert there["said"] == here["losses"](fields)  # type: ignore[operator]
    assert set(there["said"]) == {*tepo_bench.catalog.keys(), "chunked"}
    # nothing under a common name, nothing of the harness, nothing that torch does not need
    roots = {name.split(".")[0] for name in there["loaded"]}
    assert not roots & {"methods", "core", "pydantic", "yaml", "numpy", "transformers", "trl", "verl", "snakemake"}


def test_in_the_repository_both_names_are_one_class() -> None:
    from methods.batch import Batch
    from methods.method import Method

    assert tepo_bench.Batch is Batch
    assert tepo_bench.Method is Method
    assert all(hasattr(tepo_bench, name) for name in tepo_bench.__all__)


API = ROOT / "docs/extend.md"


def test_the_api_page_runs() -> None:
    text = API.read_text(encoding="utf-8")
    # a traceback names the module of an error's class, which is another one in the wheel
    text = re.sub(r"^tepo_bench\.(\w+Error):", r"core.errors.\1:", text, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, API.name, str(API), 0)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.attempted > 20
    assert result.failed == 0


def test_the_api_page_is_complete() -> None:
    text = API.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)", text))
    assert set(tepo_bench.__all__) <= named
    assert {field.name for field in dataclasses.fields(tepo_bench.Batch)} <= named
