"""The checks' list, their places and sizes, and the record of figures that `make gpu` writes after each check.

TEPO_GPU_OUT      folder of acceptance.json; with it checks run on a GPU if there is one, without it on the CPU
TEPO_GPU_MINUTES  for all of them on a GPU: a check that no longer fits is skipped
TEPO_GPU_VLLM     not empty: also what needs vLLM
TEPO_GPU_MODEL    model folder to train in place of random weights
"""

import operator
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from core.caches import engine_caches
from core.files import write_json
from core.provenance import ROOT, environment
from methods import catalog
from models.registry import Shape
from tests.gpu.models import MEDIUM, SMALL, TOY

Figures = dict[str, Any]  # name -> number, text, or None where it could not be had
BEGAN = time.monotonic()
OUT, MINUTES, VLLM, MODEL = (os.environ.get(f"TEPO_GPU_{name}", "") for name in ("OUT", "MINUTES", "VLLM", "MODEL"))


def left() -> float:
    """Minutes of those given."""
    return float(MINUTES or "inf") - (time.monotonic() - BEGAN) / 60


class Listed(NamedTuple):
    minutes: float  # on a GPU; provisional until one has run it
    criteria: tuple[str, ...]  # `figure sign limit`
    on_gpu: tuple[str, ...] = ()  # criteria that say nothing of a CPU
    on_cpu: tuple[str, ...] = ()  # criteria of a CPU alone: what they limit was never measured on a GPU


LOSSES = ("float32_gradient_worst <= 0.0001", "float32_loss_worst <= 0.0001", "bfloat16_cosine_worst >= 0.98")
ON_POLICY = (
    "losses_finite = true", "first_ratio_spread <= 0.02", "first_mask_fraction <= 0.01", "sampling_gap_mean <= 0.02",
    "sampling_correlation >= 0.99",
)  # fmt: skip
SPEED, EQUAL = ("tepo_over_grpo_seconds <= 1.1",), ("greedy_equal >= 0.9",)
RESUMED = ("rows_before_differ = 0", "reward_gap_in_standard_errors <= 3")
DRAWN = ("equal_texts >= 0.95", "distinct_fraction >= 0.5", "graded_rows_missing = 0")
UNCHANGED = ("masked_in_the_first_minibatch <= 0.01", "changed_in_the_first_minibatch <= 0.01")
CHECKS = {
    "machine": Listed(0.1, ("packages_differ = 0",), ("torch_sees_the_gpu = true",)),
    "losses": Listed(0.5, LOSSES),
    "head": Listed(0.7, ("gradient_gap_of_chunks <= 0.01",), SPEED),
    "determinism": Listed(
        0.2, ("changed_with_gradient <= 0.01",), on_cpu=("passes_repeat = true", "gradient_repeats = true")
    ),
    "trl": Listed(1.2, ON_POLICY, SPEED),
    "trl paths": Listed(0.8, ON_POLICY),
    "trl resumed": Listed(0.7, RESUMED, on_cpu=("rows_differ = 0", "weights_equal = true")),
    "evaluated": Listed(0.7, DRAWN, EQUAL),
    "verl losses": Listed(1.0, LOSSES),
    "verl unchanged": Listed(0.5, UNCHANGED),
    "verl": Listed(1.5, ON_POLICY),
    "verl vllm": Listed(8, ON_POLICY, SPEED),
    "verl resumed vllm": Listed(3, RESUMED),
    "evaluated vllm": Listed(3, DRAWN, EQUAL),
}


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
        one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
        return {**os.environ, **given, **({} if self.cuda else one)}

    def start(self, *words: object) -> subprocess.Popen[bytes]:
        """Start a module of the project in a session of its own."""
        command = [sys.executable, "-m", *map(str, words)]
        return subprocess.Popen(command, cwd=ROOT, env=self.environment(), start_new_session=True)

    def run(self, *commands: tuple[object, ...]) -> float:
        """Run modules at once to their ends; return the seconds. A crash or the end of the time fails the check."""
        began, started = time.monotonic(), [self.start(*words) for words in commands]
        try:
            limit = max(30.0, 60 * left()) if self.cuda else 1500.0
            ends = [process.wait(timeout=min(limit, 1500.0)) for process in started]
        finally:
            for process in started:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)  # a session that this check started
                    process.wait()
        assert not any(ends), f"{commands}: exit codes {ends}"
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


def worst_of(single: dict[str, dict[str, float]], half: dict[str, dict[str, float]]) -> Figures:
    """The worst of `LOSSES` over methods: their differences in float32, and the cosine of gradients in bfloat16."""
    # A method that ranks tokens may take another one after rounding, and one of these few dozen is percents of the
    # gradient: recorded, without a limit.
    ranking = {key for key in half if catalog.parse(key).scope == "batch"}
    worst = max(single, key=lambda key: single[key]["gradient"])
    least = min(half.keys() - ranking, key=lambda key: half[key]["cosine"])
    return {
        "methods": len(single), "float32_loss_worst": max(of["loss"] for of in single.values()),
        "float32_gradient_worst": single[worst]["gradient"], "float32_gradient_worst_method": worst,
        "bfloat16_cosine_worst": half[least]["cosine"], "bfloat16_cosine_worst_method": least,
        "bfloat16_cosine_worst_of_ranking_methods": min(half[key]["cosine"] for key in ranking),
    }  # fmt: skip


RECORD: dict[str, Any] = {}


def each(argument: str, **names: str) -> pytest.MarkDecorator:
    """A test for each value of an argument, which is the check of this name."""
    return pytest.mark.parametrize(argument, [pytest.param(v, marks=pytest.mark.gpu(n)) for v, n in names.items()])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is skipped for lack of time is the last of the list."""
    if OUT:
        marks = {item: item.get_closest_marker("gpu") for item in items}
        items.sort(key=lambda item: [*CHECKS].index(mark.args[0]) if (mark := marks[item]) else -1)


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("gpu"), "cuda" if OUT and torch.cuda.is_available() else "cpu")


@pytest.fixture
def check(request: pytest.FixtureRequest, place: Place) -> Iterator[Check]:
    name = request.node.get_closest_marker("gpu").args[0]
    if place.cuda and CHECKS[name].minutes > left():
        pytest.skip(f"takes {CHECKS[name].minutes:g} minutes, {left():.1f} of {MINUTES} are left")
    if "vllm" in name and not VLLM:
        pytest.skip("needs vLLM: VLLM=1")
    if "verl" in name and find_spec("verl") is None:
        pytest.skip("verl is not installed")
    request.node.check = made = Check(CHECKS[name], place.cuda)
    yield made
    if place.cuda:
        torch.cuda.empty_cache()  # other processes need it


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Write the record after each check, and print a line of what was found."""
    report, mark = (yield), item.get_closest_marker("gpu")
    if not OUT or mark is None or (report.when != "call" and report.passed):
        return report
    made = getattr(item, "check", None) or Check(CHECKS[mark.args[0]], cuda=False)
    why = None if report.passed else str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
    RECORD[mark.args[0]] = {
        "state": report.outcome, "why": why and why[-6000:], "figures": made.figures, "criteria": made.criteria,
        "seconds": round(report.duration, 1),
    }  # fmt: skip
    states = {"passed": all(one["state"] != "failed" for one in RECORD.values()), "checks": RECORD}
    write_json(Path(OUT) / "acceptance.json", {"schema": 2, "environment": environment()} | states)
    found = ", ".join(f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in made.figures.items())
    printer = item.config.pluginmanager.get_plugin("terminalreporter")
    printer.write_line(f"\n{mark.args[0]}: {report.outcome} in {report.duration:.1f} s: {found or (why or '')[-200:]}")
    return report
