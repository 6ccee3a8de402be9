"""Workers that are killed: by their own clock, by memory, by signals, by what they must not do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from evals.grading.decide import gold
from evals.grading.pool import Answer, Pool, Task
from records.errors import BenchError
from records.provenance import ROOT
from tests import planted

pytestmark = pytest.mark.slow

FRAGILE = "tests.evals.grading.fragile_worker"
GOLD = gold("7")


def compare(answers: list[str], pool: Pool) -> list[Answer]:
    return pool.compare([Task(GOLD, answer) for answer in answers])


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    folder = tmp_path_factory.mktemp("forbidden")
    bad = [
        "burn 5",
        "kill 9",
        "kill 11",
        "exit 3",
        "memory",
        "raise",
        f"write {folder}/a",
        "read /etc/hostname",
        f"shell {folder}/b",
        "eval 1+1",
    ]
    with Pool(workers=2, cpu_seconds=0.4, module=FRAGILE) as pool:
        found = compare(["fine 1", *bad, "fine 2"], pool)
    assert not list(folder.iterdir())
    return dict(zip(["fine 1", *(b.split("/")[0] for b in bad), "fine 2"], found, strict=True))


ENDINGS = {
    "burn 5": ("timeout", "CPU seconds"),
    "kill 9": ("error", "killed by SIGKILL"),
    "kill 11": ("error", "killed by SIGSEGV"),
    "exit 3": ("error", "ended with exit code 3"),
    "memory": ("error", "memory"),
    "raise": ("error", "KeyError: 'a bug'"),
    "write ": ("error", "forbidden operation"),
    "read ": ("error", "forbidden operation"),
    "shell ": ("error", "forbidden operation"),
    "eval 1+1": ("error", "PermissionError: text is not compiled here"),
}


@pytest.mark.parametrize(("answer", "ending"), ENDINGS.items())
def test_every_death_has_its_reason(answer: str, ending: tuple[str, str], endings: dict[str, Answer]) -> None:
    assert (endings[answer].outcome, endings[answer].reason) == ending


def test_other_comparisons_go_on(endings: dict[str, Answer]) -> None:
    assert endings["fine 1"].outcome == endings["fine 2"].outcome == "correct"


def test_a_killed_comparison_is_tried_once_more_alone() -> None:
    seen: list[tuple[int, str]] = []
    with Pool(workers=2, module=FRAGILE) as pool:
        thread = threading.Thread(target=lambda: _kill_first_worker(pool))
        thread.start()
        found = pool.compare(
            [Task(GOLD, "sleep 1.0")], report=lambda index, answer: seen.append((index, answer.outcome))
        )
        thread.join()
    assert [answer.outcome for answer in found] == ["correct"]
    assert seen == [(0, "correct")]


def _kill_first_worker(pool: Pool) -> None:
    while not (pool.workers and pool.workers[0].index is not None):
        time.sleep(0.01)
    os.kill(_comparing(pool.workers[0].process.pid), signal.SIGKILL)


def _comparing(worker: int) -> int:
    """The process that a worker has forked, as soon as it has."""
    for _ in range(3000):
        children = Path(f"/proc/{worker}/task/{worker}/children").read_text(encoding="utf-8").split()
        if children:
            return int(children[0])
        time.sleep(0.01)
    raise TimeoutError(f"worker {worker} compares nothing")


def test_what_used_up_its_cpu_seconds_is_not_tried_again_and_all_workers_share_such_answers() -> None:
    """n of them take n times the limit over the workers: 12 at 0.3 s took 7.2 s when each ran twice and alone."""
    with Pool(workers=2, cpu_seconds=0.3, module=FRAGILE) as pool:
        compare(["fine"] * 20, pool)  # both have started
        began = [_cpu(worker.process.pid) for worker in pool.workers]
        found = compare([f"burn {5 + n}" for n in range(12)], pool)
        spent = [_cpu(worker.process.pid) - start for worker, start in zip(pool.workers, began, strict=True)]
    assert [answer.outcome for answer in found] == ["timeout"] * 12
    assert 12 * 0.3 * 0.8 < sum(spent) < 12 * 0.3 * 1.6
    assert min(spent) > 0.3


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("backwards", [False, True])
def test_a_batch_shares_its_budget_whatever_the_order_and_the_workers(
    workers: int, backwards: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First 0.05 s each; then 0.8 s for those that need more: all of 2, and too little for each of 10."""
    monkeypatch.setattr("evals.grading.pool.FIRST_SECONDS", 0.6)
    monkeypatch.setattr("evals.grading.pool.SLOW_SECONDS", 0.8)
    few = [*(f"fine {n}" for n in range(10)), "burn 0.2", "burn 9"]
    many = ["fine", "burn 0.2", *(f"burn {n}" for n in range(8, 18))]
    tasks = [[Task(GOLD, answer) for answer in answers] for answers in (few, many)]
    with Pool(workers=workers, cpu_seconds=0.5, module=FRAGILE) as pool:
        found = []
        for batch in tasks:
            order = batch[::-1] if backwards else batch
            seen: list[int] = []
            answers = pool.compare(order, batch=len(order), report=lambda index, _, seen=seen: seen.append(index))  # type: ignore[misc]
            assert sorted(seen) == list(range(len(order)))
            found.append(dict(zip([task.answer for task in order], answers, strict=True)))
    assert [found[0][answer].outcome for answer in few] == ["correct"] * 11 + ["timeout"]
    assert [found[1][answer].outcome for answer in many] == ["correct"] + ["timeout"] * 11
    assert found[0]["burn 9"].seconds > 0.3 > 0.1 > found[1]["burn 9"].seconds


def _cpu(worker: int) -> float:
    """CPU seconds of the processes that a worker has forked and waited for."""
    fields = Path(f"/proc/{worker}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def test_a_worker_that_does_not_run_meets_the_wall_clock() -> None:
    with Pool(workers=1, wall_seconds=0.3, module=FRAGILE) as pool:
        assert compare(["sleep 30"], pool) == [Answer("timeout", 0.0, "wall clock")]


def test_verdicts_are_the_same_on_a_busy_machine() -> None:
    answers = ["burn 0.05", "burn 0.1", "burn 3", "fine", "burn 0.15"]
    with Pool(workers=2, cpu_seconds=0.5, module=FRAGILE) as pool:
        idle = [answer.outcome for answer in compare(answers, pool)]
        spin = [sys.executable, "-c", "while True: pass"]
        busy = [subprocess.Popen(spin) for _ in range(len(os.sched_getaffinity(0)))]
        try:
            loaded = [answer.outcome for answer in compare(answers, pool)]
        finally:
            for process in busy:
                process.kill()
                process.wait()
    assert idle == loaded == ["correct", "correct", "timeout", "correct", "correct"]


def test_it_works_off_the_main_thread() -> None:
    found: list[Answer] = []

    def work() -> None:
        with Pool(workers=1, cpu_seconds=0.3, module=FRAGILE) as pool:
            found.extend(compare(["fine", "burn 5"], pool))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [answer.outcome for answer in found] == ["correct", "timeout"]


def test_a_worker_that_cannot_start_is_an_error() -> None:
    with Pool(module="tests.evals.grading.no_such_worker") as pool, pytest.raises(BenchError, match="did not start"):
        compare(["fine"], pool)


def test_no_process_is_left(endings: dict[str, Answer]) -> None:
    with Pool(workers=2, module=FRAGILE) as pool:
        compare(["fine"] * 20, pool)
        processes = [worker.process for worker in pool.workers]
        assert len(processes) == 2
    assert all(process.poll() is not None for process in processes)


def test_fast_integer_libraries_are_hidden_from_the_algebra(tmp_path: Path) -> None:
    """With gmpy2 a factorial runs in C code that no Python limit reaches; importable or not, sympy must not see it."""
    script = (
        "import sys; from evals.grading import worker; worker.algebra();"
        "import sympy; print(sympy.external.gmpy.GROUND_TYPES, sys.modules['gmpy2'])"
    )
    (tmp_path / "gmpy2.py").write_text("raise SystemExit('imported')")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout.splitlines()[-1] == "python None"


def test_workers_get_no_secret_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in planted.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LC_TIME", "C")
    with Pool(workers=1, module=FRAGILE) as pool:
        compare(["fine 1"], pool)
        worker = psutil.Process(pool.workers[0].process.pid)
        processes = [worker, *worker.children(recursive=True)]
        given = [Path(f"/proc/{process.pid}/environ").read_bytes() for process in processes]
    assert len(given) == 2
    for variables in given:
        assert planted.told(variables, planted.WORDS) == set()
        assert {b"LC_TIME=C", f"PATH={os.environ['PATH']}".encode()} <= set(variables.split(b"\0"))
