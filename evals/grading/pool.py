"""Worker processes that can be killed: the only timeout that holds inside C code.

The limit is in CPU seconds of the worker, so a busy machine gives the same verdicts as an idle one. A much larger
wall-clock limit only catches a worker that does not run at all. A comparison that used up its CPU seconds would do so
again, so that is final. A batch has a budget beside (`compare`), so that many such answers cannot hold up a training.
One that ended otherwise (memory, a signal) may have been killed for what came before it, and is tried once more, in a
process that has compared nothing yet. There are no threads and no signal handlers here, so the pool also works
outside the main thread and inside frameworks that own the signals.
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
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from evals.grading.decide import Gold
from evals.grading.worker import FORBIDDEN_EXIT
from records.errors import BenchError
from records.provenance import ROOT, cores

CPU_SECONDS = 2.0  # of one comparison; of 17,000 on the seven benchmarks' golds the slowest took 0.4 s (measured)
WALL_SECONDS = 120.0
TOO_SLOW = "CPU seconds"  # the reason of an answer that used them up
# The budget of a batch: its comparisons share FIRST_SECONDS equally, and those that need more share SLOW_SECONDS; both
# grow with the comparisons beyond 512. So 10 in 512 may take CPU_SECONDS, where of 2602 on the seven benchmarks' golds
# 30 take more than their first share of 0.04 s, and 6 more than 0.4 s (measured).
FIRST_SECONDS, SLOW_SECONDS, SHARING = 20.0, 20.0, 512
QUICK = FIRST_SECONDS / SHARING  # what takes no longer is never cut short by a budget
MEMORY_BYTES = 4 * 2**30  # none of 52 adversarial inputs passed 600 MB (measured)
START_SECONDS = 180.0  # importing the algebra is slow on a busy machine or network file system
# Variables that a worker gets, so that its Python starts, and no other: it reads text that a model wrote, and the
# caller's may hold tokens and keys. None of the caller's Python: they could change what is imported.
PASSED_ON = frozenset(
    ("PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
)
TASKS_PER_START = 8  # one more worker per so many tasks: for a handful, starting it takes longer than comparing


@dataclass(frozen=True)
class Task:
    """A gold and a normalised answer that only algebra can compare."""

    gold: Gold
    answer: str
    grader: Literal["ours", "lineage"] = "ours"  # lineage: `evals.grading.prime`


@dataclass(frozen=True)
class Answer:
    """How a comparison ended."""

    outcome: str  # a `Verdict`
    seconds: float  # of CPU
    reason: str | None = None  # of a timeout or an error


Report = Callable[[int, Answer], object]
"""(index of the task, its answer), when that is final."""


class Pool(AbstractContextManager["Pool"]):
    """Started on the first task; `close` it, or use it as a context manager.

    workers: by default one per core this process may use. cpu_seconds: limit of one comparison, on the worker's own
    clock. wall_seconds: for one that does not run at all. memory_bytes: address space. module: what a worker runs.
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
        self.most = workers or cores()
        self.cpu_seconds = cpu_seconds
        self.limits = {"memory_bytes": memory_bytes}
        self.wall_seconds = wall_seconds
        self.module = module
        self.workers: list[_Worker] = []

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers."""
        for worker in self.workers:
            worker.kill()
        self.workers.clear()

    def compare(
        self, tasks: Sequence[Task], *, batch: int | None = None, report: Report = lambda *_: None
    ) -> list[Answer]:
        """One answer per task, in order. `report(index, answer)` is called as each becomes final, in no order.

        batch: comparisons in the batch that the tasks are of; without it there is no budget. What a comparison gets
        follows from how many need more than their first share, and so neither from their order nor from the workers.
        """
        growth = max(1.0, (batch or 0) / SHARING)
        first = min(self.cpu_seconds, FIRST_SECONDS * growth / batch) if batch else self.cpu_seconds
        if first == self.cpu_seconds:
            return list(self._round(tasks, range(len(tasks)), first, report).values())
        answers = self._round(
            tasks, range(len(tasks)), first, lambda index, answer: answer.reason == TOO_SLOW or report(index, answer)
        )
        slow = [index for index, answer in answers.items() if answer.reason == TOO_SLOW]
        limit = min(self.cpu_seconds, SLOW_SECONDS * growth / max(1, len(slow)))
        if limit >= 2 * first:  # less would decide few of them
            answers |= self._round(tasks, slow, limit, report)
        else:
            for index in slow:
                report(index, answers[index])
        return list(answers.values())

    def _round(
        self, tasks: Sequence[Task], indices: Sequence[int], cpu_seconds: float, report: Report
    ) -> dict[int, Answer]:
        """The answers to some of the tasks, by index and in order, with one limit for all."""
        answers: dict[int, Answer] = {}
        waiting = deque(indices)
        tried: set[int] = set()
        most = min(self.most, 1 + len(indices) // TASKS_PER_START)
        try:
            while len(answers) < len(indices):
                while len(self.workers) < min(most, len(waiting)):
                    self.workers.append(_Worker(self.module, self.limits))
                for worker in self.workers[:most]:
                    if worker.ready and worker.index is None and waiting:
                        worker.give(waiting.popleft(), tasks, self.wall_seconds, cpu_seconds)
                for worker in _wait(self.workers[:most]):
                    index = worker.index
                    answer = worker.read()
                    if not worker.alive:
                        self.workers.remove(worker)
                    if answer is None or index is None:
                        continue
                    if answer.outcome in ("timeout", "error") and answer.reason != TOO_SLOW and index not in tried:
                        tried.add(index)
                        if worker.alive:  # the process that compared is gone, and the next has compared nothing yet
                            worker.give(index, tasks, self.wall_seconds, cpu_seconds)
                        else:
                            waiting.appendleft(index)
                        continue
                    answers[index] = answer
                    report(index, answer)
        except BaseException:  # an interrupt as well: no worker may outlive the call that failed
            self.close()
            raise
        return {index: answers[index] for index in indices}


class _Worker:
    """One worker (two processes, one group) and what the parent knows of it."""

    def __init__(self, module: str, limits: dict[str, Any]):
        # One hash seed, and integers in Python: equal verdicts wherever it runs.
        environment = {
            **{name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")},
            "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
            "SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        # bufsize=0, because bytes left in a buffer of Python would not wake the selector. A session of its own, because
        # `kill` ends both processes of the worker by their group.
        self.process = subprocess.Popen(
            [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd=ROOT, env=environment, bufsize=0, start_new_session=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.output = self.process.stdout
        self.unread = b""
        self.ready, self.alive = False, True
        self.index: int | None = None
        self.tasks_sent = 0  # also the id of the comparison under way: an answer to an older one is ignored
        self.cpu_seconds = 0.0  # the limit of the comparison under way
        self.deadline = time.monotonic() + START_SECONDS
        self._send(limits)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        data = memoryview((json.dumps(message, default=str) + "\n").encode())  # a tolerance is a fraction
        with suppress(BrokenPipeError):  # the worker has died; `read` will find its output closed
            while data:
                data = data[self.process.stdin.write(data) :]

    def give(self, index: int, tasks: Sequence[Task], wall_seconds: float, cpu_seconds: float) -> None:
        """Send a comparison; one at a time."""
        task, self.cpu_seconds = tasks[index], cpu_seconds
        self.index, self.deadline = index, time.monotonic() + wall_seconds
        self.tasks_sent += 1
        self._send({"id": self.tasks_sent, "cpu_seconds": cpu_seconds, **asdict(task)})

    def read(self) -> Answer | None:
        """The end of the comparison under way; None for a message about something else."""
        if time.monotonic() > self.deadline:
            return self._end("wall clock")
        message = self._message()
        if message is None:
            return self._end("worker ended")
        if "fatal" in message:
            raise BenchError(f"grading worker cannot start: {message['fatal']}")
        if "ready" in message:
            self.ready, self.deadline = True, float("inf")
            return None
        if message["id"] != self.tasks_sent or self.index is None:
            return None  # killed after it had answered
        self.index, self.deadline = None, float("inf")
        if "killed" in message:
            return _killed(message["killed"], self.cpu_seconds)
        if "died" in message:
            return Answer("error", message["seconds"], message["died"])
        return Answer(message["outcome"], message["seconds"])

    def _message(self) -> dict[str, Any] | None:
        """The next line, None when the worker has closed its end."""
        while b"\n" not in self.unread:
            data = self.output.read(65536)
            if not data:
                return None
            self.unread += data
        line, self.unread = self.unread.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _end(self, reason: str) -> Answer:
        """End a worker that is late or gone."""
        self.kill()
        if not self.ready:
            code = self.process.returncode
            raise BenchError(f"grading worker: did not start (exit code {code}, limit {START_SECONDS:.0f} s)")
        return Answer("timeout" if reason == "wall clock" else "error", 0.0, reason)

    def kill(self) -> None:
        """End both processes and close the pipes."""
        self.alive = False
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()


def _wait(workers: Sequence[_Worker]) -> list[_Worker]:
    """Wait until a worker has written, died or run out of time; those to read from."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.unread:
                return [worker]
            selector.register(worker.output, selectors.EVENT_READ, worker)
        nearest = min(worker.deadline for worker in workers) - time.monotonic()
        # at most an hour at once, because `select` takes no infinite time; the caller's loop waits again
        readable = [key.data for key, _ in selector.select(max(0.0, min(nearest, 3600.0)))]
    late = [worker for worker in workers if worker not in readable and time.monotonic() > worker.deadline]
    return readable + late


def _killed(code: int, cpu_seconds: float) -> Answer:
    """How a comparing process ended, by its exit code; negative: by a signal."""
    if code == -signal.SIGPROF:
        return Answer("timeout", cpu_seconds, TOO_SLOW)
    if code == FORBIDDEN_EXIT:
        return Answer("error", 0.0, "forbidden operation")
    if code < 0:
        return Answer("error", 0.0, f"killed by {signal.Signals(-code).name}")
    return Answer("error", 0.0, f"ended with exit code {code}")
