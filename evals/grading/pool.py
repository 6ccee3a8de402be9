"""Worker processes that can be killed: the only timeout that holds inside C code.

What decides is the worker's own CPU seconds, so a busy machine gives the same verdicts as an idle one; a much larger
wall-clock limit only catches a worker that does not run at all. A killed comparison is tried once more, alone and in a
fresh process; then its end is final. No threads and no signal handlers here: it works off the main thread, and inside
frameworks that own the signals.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from evals.grading.decide import Gold
from evals.grading.worker import FORBIDDEN_EXIT
from records.errors import BenchError

ROOT = Path(__file__).resolve().parents[2]
CPU_SECONDS = 8.0
WALL_SECONDS = 120.0
MEMORY_BYTES = 4 * 2**30
START_SECONDS = 180.0
TASKS_PER_WORKER = 2000  # then a fresh one: sympy's caches grow


@dataclass(frozen=True)
class Task:
    """A gold and a normalised answer that only algebra can compare."""

    gold: Gold
    answer: str
    grader: Literal["ours", "lineage"] = "ours"


@dataclass(frozen=True)
class Answer:
    """outcome: equal | different | unparsed_gold | timeout | error; reason: of an error; seconds: of CPU."""

    outcome: str
    seconds: float
    reason: str | None = None


class Pool:
    """Started on the first task; `close` it, or use it as a context manager.

    workers: processes, by default the cores this process may use. cpu_seconds: limit of one comparison, on the worker's
    own clock. wall_seconds: for one that does not run at all. memory_bytes: address space. module: what a worker runs.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        cpu_seconds: float = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        module: str = "evals.grading.worker",
    ):
        self.most = workers or len(os.sched_getaffinity(0))
        self.limits = {"cpu_seconds": cpu_seconds, "memory_bytes": memory_bytes}
        self.wall_seconds = wall_seconds
        self.module = module
        self.workers: list[_Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.kill()
            worker.release()
        self.workers.clear()

    def compare(self, tasks: Sequence[Task], *, report: Callable[[int, Answer], None] | None = None) -> list[Answer]:
        """One answer per task, in order. `report(index, answer)` is called as each becomes final, in no order."""
        answers: dict[int, Answer] = {}

        def final(index: int, answer: Answer) -> None:
            answers[index] = answer
            if report:
                report(index, answer)

        killed: list[int] = []

        def first(index: int, answer: Answer) -> None:
            if answer.outcome in ("timeout", "error"):
                killed.append(index)
            else:
                final(index, answer)

        self._run(tasks, range(len(tasks)), min(self.most, 1 + len(tasks) // 8), first)
        for index in sorted(killed):
            self.close()  # alone, and in a process without a past
            self._run(tasks, [index], 1, final)
        return [answers[index] for index in range(len(tasks))]

    def _run(
        self, tasks: Sequence[Task], indices: Sequence[int], most: int, done: Callable[[int, Answer], None]
    ) -> None:
        """Spread tasks over at most `most` workers until each has come to an end."""
        try:
            self._spread(tasks, deque(indices), most, done)
        except BaseException:  # an interrupt as well: no worker outlives the call that failed
            self.close()
            raise

    def _spread(
        self, tasks: Sequence[Task], waiting: deque[int], most: int, done: Callable[[int, Answer], None]
    ) -> None:
        with selectors.DefaultSelector() as selector:
            watched: set[_Worker] = set()
            while waiting or any(worker.index is not None for worker in watched):
                self.workers = [worker for worker in self.workers if worker.alive]
                while len(self.workers) < min(most, len(waiting) + sum(w.index is not None for w in self.workers)):
                    self.workers.append(_Worker(self.module, self.limits))
                for worker in self.workers[:most]:
                    if worker not in watched:
                        selector.register(worker.output, selectors.EVENT_READ, worker)
                        watched.add(worker)
                    if worker.ready and worker.index is None and waiting:
                        worker.give(waiting.popleft(), tasks, self.wall_seconds)
                now = time.monotonic()
                nearest = min((worker.deadline for worker in watched), default=now)
                for key, _ in selector.select(max(0.0, min(nearest - now, 5.0))):
                    self._read(key.data, done)
                for worker in [w for w in watched if w.alive and time.monotonic() > w.deadline]:
                    worker.overdue()
                for worker in [w for w in watched if not w.alive]:
                    selector.unregister(worker.output)
                    watched.remove(worker)
                    index = worker.index
                    ending = worker.bury()
                    if index is not None:
                        done(index, ending)

    def _read(self, worker: _Worker, done: Callable[[int, Answer], None]) -> None:
        message = worker.message()
        if message is None:
            worker.alive = False
        elif "fatal" in message:
            raise BenchError(f"grading worker cannot start: {message['fatal']}")
        elif "ready" in message:
            worker.ready, worker.deadline = True, float("inf")
        else:
            index, worker.index, worker.deadline = worker.index, None, float("inf")
            assert index is not None
            died = message.get("died")
            done(index, Answer("error" if died else message["outcome"], message["seconds"], died))
            worker.done += 1
            if died or worker.done >= TASKS_PER_WORKER:
                worker.kill()


class _Worker:
    """One process and what the parent knows of it."""

    def __init__(self, module: str, limits: dict[str, Any]):
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
            "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1", "SYMPY_GROUND_TYPES": "python",
            "MPMATH_NOGMPY": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT, env=environment, bufsize=0,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.unread = b""
        self.ready, self.alive = False, True
        self.index: int | None = None
        self.done = 0
        self.late = False
        self.cpu_seconds = float(limits["cpu_seconds"])
        self.deadline = time.monotonic() + START_SECONDS
        self._send(limits)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        data = memoryview((json.dumps(message) + "\n").encode())
        try:
            while data:
                data = data[self.process.stdin.write(data) :]
        except BrokenPipeError:
            self.alive = False

    def give(self, index: int, tasks: Sequence[Task], wall_seconds: float) -> None:
        gold, answer = tasks[index].gold, tasks[index].answer
        tolerance = None if gold.tolerance is None else str(gold.tolerance)
        self.index, self.deadline = index, time.monotonic() + wall_seconds
        self._send(
            {
                "gold": gold.text,
                "kind": gold.kind,
                "tolerance": tolerance,
                "multiple": gold.multiple,
                "answer": answer,
                "grader": tasks[index].grader,
            }
        )

    def message(self) -> dict[str, Any] | None:
        """The next line, None when the process has closed its end."""
        while b"\n" not in self.unread:
            data = self.output.read(65536)
            if not data:
                return None
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def overdue(self) -> None:
        self.late = True
        self.alive = False

    def kill(self) -> None:
        """End the process; safe to call twice."""
        self.alive = False
        self.process.kill()
        self.process.wait()

    def release(self) -> None:
        """Close both pipes."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def bury(self) -> Answer:
        """End the process for good and say how its comparison ended."""
        if self.late:
            self.kill()
        try:
            code = self.process.wait(timeout=10)  # its output is closed, so it is ending
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.returncode
        self.release()
        if not self.ready:
            raise BenchError(f"grading worker: did not start (exit code {code}, limit {START_SECONDS:.0f} s)")
        if self.late:
            return Answer("timeout", 0.0, "wall clock")
        if code == -signal.SIGPROF:
            return Answer("timeout", self.cpu_seconds, "CPU seconds")
        if code == FORBIDDEN_EXIT:
            return Answer("error", 0.0, "forbidden operation")
        if code < 0:
            return Answer("error", 0.0, f"killed by {signal.Signals(-code).name}")
        return Answer("error", 0.0, f"worker ended with exit code {code}")
