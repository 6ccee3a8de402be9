"""The loss library as others get it: the wheel, where the harness and most of its packages cannot be imported."""

import dataclasses
import doctest
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch

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
    results = {}
    for key in tepo_bench.catalog.keys():
        given = {name: value.clone() for name, value in fields.items()}
        leaves = [given[name].requires_grad_() for name in ("logp", "entropy")]
        method = tepo_bench.parse(key)
        given["advantage"] = method.advantage(given["advantage"], given["group"], given["mask"].sum(1))
        batch = tepo_bench.Batch(**given, max_tokens=17)
        loss = method.loss(batch, generator=torch.Generator().manual_seed(0))
        gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
        sums = [float(g.square().sum()) for g in gradients if g is not None]
        results[key] = [loss.item(), *sums, method.diagnostics(batch)]
    hidden, head = torch.linspace(-1, 1, 12).view(2, 2, 3), torch.linspace(-2, 1, 15).view(5, 3)
    chunked = tepo_bench.logp_and_entropy(hidden, head, torch.tensor([[0, 1], [4, 2]]))
    return results | {"chunked": [x.tolist() for x in chunked]}
"""
MAIN = """
import json
results = losses(torch.load(sys.argv[1]))
loaded = [name for name, module in sys.modules.items() if module]
print(json.dumps({"results": results, "loaded": loaded, "file": tepo_bench.__file__}))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = checkout(tmp_path_factory.mktemp("wheel") / "tree")
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir")  # setuptools is the one installed here
    line = [sys.executable, "-m", "pip", "wheel", *options, str(tree.parent), str(tree)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return next(tree.parent.glob("*.whl"))


def test_the_wheel_holds_the_library_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith("METADATA"))
    files = {name.removeprefix("tepo_bench/") for name in names if ".dist-info/" not in name}
    packaged = [path for room in ("catalog", "parts") for path in (ROOT / "methods" / room).glob("*.py")]
    assert {path.relative_to(ROOT).as_posix() for path in packaged} | {"py.typed", "methods/batch.py"} <= files
    harness = ("methods/adapters", "methods/training", "methods/train")
    assert not [name for name in files if name.startswith(harness)]
    assert {name for name in files if name.startswith("core/")} == {"core/__init__.py", "core/errors.py"}
    assert wheel.name.split("-")[1] == tepo_bench.__version__
    required = re.findall(r"^Requires-Dist: (.*)$", metadata, re.MULTILINE)
    assert [line for line in required if "extra ==" not in line] == ["torch>=2.11"]


def test_every_method_gives_the_same_with_torch_alone(wheel: Path, tmp_path: Path) -> None:
    """Away from the repository, in an interpreter in which the packages named here cannot be imported."""
    fields = random_fields(3)
    torch.save(fields, tmp_path / "fields.pt")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    absent = ("methods", "core", "pydantic", "yaml", "numpy", "transformers", "trl", "verl", "snakemake")
    hidden = f"import sys\nsys.path.insert(0, 'site')\nsys.modules.update(dict.fromkeys({absent}))\n"
    (tmp_path / "probe.py").write_text(hidden + PROBE + MAIN)
    line = [sys.executable, "-I", "probe.py", "fields.pt"]
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert (tmp_path / there["file"]).is_relative_to(tmp_path / "site")
    here: dict[str, object] = {}
    exec(PROBE, here)
    assert there["results"] == here["losses"](fields)  # type: ignore[operator]
    assert set(there["results"]) == {*tepo_bench.catalog.keys(), "chunked"}
    assert not {name.split(".")[0] for name in there["loaded"]} & {"pandas", "scipy", "accelerate", "datasets"}


def test_the_api_page_runs_and_is_complete() -> None:
    page = ROOT / "docs/extend.md"
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)", text))
    assert {*tepo_bench.__all__, *(field.name for field in dataclasses.fields(tepo_bench.Batch))} <= named
    # A traceback names the module of an error's class, which is another one in the wheel.
    text = re.sub(r"^tepo_bench\.(\w+Error):", r"core.errors.\1:", text, flags=re.MULTILINE)
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test)
    assert result.attempted > 20
    assert result.failed == 0
