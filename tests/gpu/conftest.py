"""The checks' list, their places and sizes, and the record of figures that `make gpu` writes after each check.

TEPO_GPU_OUT      folder of acceptance.json; with it checks run on a GPU if there is one, without it on the CPU
TEPO_GPU_MINUTES  for all of them: a check that no longer fits is skipped
TEPO_GPU_VLLM     not empty: also what needs vLLM
TEPO_GPU_MODEL    model folder to train in place of random weights
"""

import operator
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from core.caches import engine_caches
from core.files import write_json
from core.provenance import ROOT, environment
from models.registry import Shape
from tests.gpu.models import MEDIUM, SMALL, TOY

Figures = dict[str, Any]  # name -> number, text, or None where it could not be had
BEGAN = time.monotonic()
OUT, MINUTES, VLLM, MODEL = (os.environ.get(f"TEPO_GPU_{name}", "") for name in ("OUT", "MINUTES", "VLLM", "MODEL"))


class Listed(NamedTuple):
    title: str
    minutes: float  # on a GPU; provisional until one has run it
    criteria: tuple[str, ...]  # `figure sign limit`
    on_gpu: tuple[str, ...] = ()  # criteria that say nothing of a CPU
    on_cpu: tuple[str, ...] = ()  # criteria of a CPU alone: what they limit was never measured on a GPU


ON_POLICY = (
    "losses_finite = true", "first_ratio_spread <= 0.02", "first_mask_fraction <= 0.01", "sampling_gap_mean <= 0.02",
    "sampling_correlation >= 0.99",
)  # fmt: skip
SPEED = ("tepo_over_grpo_seconds <= 1.1",)
RESUMED = ("rows_before_differ = 0", "reward_gap_in_standard_errors <= 3")
SAME_BITS = ("rows_differ = 0", "weights_equal = true")
CHECKS = {
    "machine": Listed("Versions, driver, compiler", 0.1, ("packages_differ = 0",), ("torch_sees_the_gpu = true",)),
    "losses": Listed(
        "Loss and gradient of every method against float64 on the CPU", 0.5,
        ("float32_gradient_worst <= 0.0001", "float32_loss_worst <= 0.0001", "bfloat16_cosine_worst >= 0.98"),
    ),
    "head": Listed(
        "Seconds and GB of 65,536 tokens at 152,064 words, by chunk", 0.7, ("gradient_gap_of_chunks <= 0.01",),
        ("tepo_over_grpo_head <= 1.1",),
    ),
    "determinism": Listed(
        "Again, with gradient, and in parts: log-probs, entropies, gradient", 0.2,
        ("changed_with_gradient <= 0.01",), on_cpu=("gradient_repeats = true",),
    ),
    "trl": Listed("TRL: GRPO and TEPO", 1.2, ON_POLICY, SPEED),
    "trl resumed": Listed("TRL: TEPO killed after a rollout and resumed", 0.7, RESUMED, on_cpu=SAME_BITS),
    "trl paths": Listed("TRL: shared prefix, reference model, split minibatch", 0.8, ON_POLICY),
    "evaluated": Listed(
        "A trained checkpoint by transformers: drawn twice, graded, greedily as on the CPU", 0.7,
        ("equal_texts >= 0.95", "distinct_fraction >= 0.5", "graded_rows_missing = 0"), ("greedy_equal >= 0.9",),
    ),
    "verl losses": Listed(
        "verl's engine, packed: loss and gradient of every method against the plain float32 model", 1.0,
        ("float32_gradient_worst <= 0.0001", "float32_loss_worst <= 0.0001", "bfloat16_cosine_worst >= 0.99"),
    ),
    "verl unchanged": Listed(
        "verl's engine: entropy differences with unchanged weights in bfloat16", 0.5,
        ("masked_in_the_first_minibatch <= 0.01", "changed_in_the_first_minibatch <= 0.01"),
    ),
    "verl": Listed("verl end to end, sampled by transformers on the CPU: TEPO", 1.5, ON_POLICY),
    "verl vllm": Listed("verl end to end with vLLM: GRPO and TEPO", 8, ON_POLICY, SPEED),
    "verl resumed": Listed("The same, killed after a rollout and resumed", 3, RESUMED),
    "evaluated vllm": Listed(
        "A trained checkpoint by vLLM: drawn twice, graded, greedily as by transformers", 3,
        ("equal_texts >= 0.95", "distinct_fraction >= 0.5", "graded_rows_missing = 0"), ("greedy_equal >= 0.9",),
    ),
}  # fmt: skip


class Size(NamedTuple):
    small: Shape  # for the engine's checks
    trained: Shape
    head: tuple[int, int, int, int]  # rows, tokens of a row, words, width
    prompts: int  # of a rollout
    samples: int
    response: int  # tokens
    rollouts: int
    pass_tokens: int


ON_GPU = Size(SMALL, MEDIUM, (16, 4096, 152064, 3584), 16, 8, 128, 3, 6144)
ON_CPU = Size(TOY, TOY, (4, 64, 2000, 64), 4, 4, 12, 2, 64)


@dataclass(frozen=True)
class Place:
    """Where checks run."""

    folder: Path  # for all checks: later ones read what earlier ones trained
    device: str  # cpu or cuda

    @property
    def cuda(self) -> bool:
        return self.device == "cuda"

    @property
    def size(self) -> Size:
        return ON_GPU if self.cuda else ON_CPU

    def environment(self) -> dict[str, str]:
        """Of a process of a check: no network, one thread on a CPU, everything written under its folder."""
        given = {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "NVIDIA_TF32_OVERRIDE": "0",
            "TOKENIZERS_PARALLELISM": "false", "PYTHONUTF8": "1", **engine_caches(self.folder / "cache"),
        }  # fmt: skip
        if not self.cuda:
            given |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        return {**os.environ, **given}

    def start(self, *words: object) -> subprocess.Popen[bytes]:
        """Start a module of the project in a session of its own."""
        command = [sys.executable, "-m", *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment(), start_new_session=True)

    def run(self, *words: object, seconds: float = 1500) -> float:
        """Run it to its end and return its seconds; a crash or the time limit is the check's failure."""
        began, process = time.monotonic(), self.start(*words)
        try:
            assert process.wait(timeout=seconds) == 0, f"{words[0]} ended with {process.returncode}"
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)  # a session that this check started
                process.wait()
        return time.monotonic() - began


@dataclass
class Check:
    """A check's figures, and which criteria hold."""

    listed: Listed
    cuda: bool
    figures: Figures = field(default_factory=dict)
    criteria: dict[str, bool] = field(default_factory=dict)

    def holds(self, **figures: Any) -> None:
        """Record the figures; fail with every criterion that does not hold. A figure that is not there does not."""
        self.figures |= figures
        for criterion in (*self.listed.criteria, *(self.listed.on_gpu if self.cuda else self.listed.on_cpu)):
            figure, sign, limit = criterion.split()
            value, compare = self.figures.get(figure), {"<=": operator.le, ">=": operator.ge, "=": operator.eq}[sign]
            held = value is not None and compare(float(value), 1.0 if limit == "true" else float(limit))
            self.criteria[criterion] = bool(held)
        failed = [f"{one}: {self.figures.get(one.split()[0])}" for one, held in self.criteria.items() if not held]
        assert not failed, "; ".join(failed)


RECORD: dict[str, Any] = {}


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu(name): a check of `make gpu`")


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    import torch

    return Place(tmp_path_factory.mktemp("gpu"), "cuda" if OUT and torch.cuda.is_available() else "cpu")


@pytest.fixture
def check(request: pytest.FixtureRequest, place: Place) -> Iterator[Check]:
    name = request.node.get_closest_marker("gpu").args[0]
    left = float(MINUTES or "inf") - (time.monotonic() - BEGAN) / 60
    if place.cuda and CHECKS[name].minutes > left:
        pytest.skip(f"takes {CHECKS[name].minutes:g} minutes, {left:.1f} of {MINUTES} are left")
    if "vllm" in name and not VLLM:
        pytest.skip("needs vLLM: VLLM=1")
    request.node.check = made = Check(CHECKS[name], place.cuda)
    yield made
    if place.cuda:
        import torch

        torch.cuda.empty_cache()  # other processes need it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write the record after each check, and print a line of what was found."""
    report = yield
    if OUT and (mark := item.get_closest_marker("gpu")) and (report.when == "call" or not report.passed):
        keep(item, mark.args[0], report)
    return report


def keep(item: pytest.Item, name: str, report: pytest.TestReport) -> None:
    made: Check | None = getattr(item, "check", None)
    figures, criteria = (made.figures, made.criteria) if made else ({}, {})
    why = None if report.passed else str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    checks = RECORD.setdefault("checks", {})
    checks[name] = {
        "title": CHECKS[name].title, "state": report.outcome, "why": why and why[-6000:], "figures": figures,
        "criteria": criteria, "seconds": round(report.duration, 1),
    }  # fmt: skip
    about = {"schema": 2, "made": datetime.now(UTC).isoformat(timespec="seconds"), "environment": environment()}
    states = {one["state"] for one in checks.values()}
    write_json(Path(OUT) / "acceptance.json", about | RECORD | {"passed": "failed" not in states})
    printer = item.config.pluginmanager.get_plugin("terminalreporter")
    said = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items())
    printer.write_line(f"\n{name}: {report.outcome} in {report.duration:.1f} s: {said or (why or '')[-200:]}")


def nvidia_smi(*fields: str) -> list[str] | None:
    """What the driver reports of the first GPU that this process may use; None where there is no driver."""
    if shutil.which("nvidia-smi") is None:
        return None
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0] or "0"
    words = ["nvidia-smi", f"--id={first}", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", timeout=60, check=False)
    values = [value.strip() for value in done.stdout.strip().split(",")]
    return values if done.returncode == 0 and len(values) == len(fields) else None
