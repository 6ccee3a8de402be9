"""Compare in processes that can be killed: the only timeout that works inside C code.

Limits are CPU seconds of the comparing process, so a busy machine gives the same verdicts as an idle one. A much larger
wall-clock limit only catches a process that does not run at all. A comparison that exhausts its CPU seconds would do
so again: its timeout is final. A batch also has a budget (`Pool.compare`), so that many such answers cannot delay a
training run. A comparison that ended otherwise (memory, a signal) may have been killed for an earlier one, and is
retried once in a fresh process. The caller's side has no threads and no signal handlers, so the pool
also works outside the main thread and inside frameworks that own the signals. `evals.grading.worker` compares.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, Self

from core.errors import BenchError
from core.provenance import ROOT, cores
from evals.grading.decide import Gold

CPU_SECONDS = 2.0  # of one comparison; of 17,000 on the seven benchmarks' golds the slowest took 0.4 s (measured)
WALL_SECONDS = 120.0
TOO_SLOW = "CPU seconds"  # the reason of an answer that exhausted them
# The budget of a batch: its comparisons share FIRST_SECONDS equally, and those that need more share SLOW_SECONDS; both
# grow with the comparisons beyond 512. So 10 in 512 may take CPU_SECONDS, where of 2602 on the seven benchmarks' golds
# 30 take more than their first share of 0.04 s, and 6 more than 0.4 s (measured).
FIRST_SECONDS, SLOW_SECONDS, SHARING = 20.0, 20.0, 512
START_SECONDS = 180.0  # importing the algebra is slow on a busy machine or network file system
# The only variables of the caller that a worker inherits. It reads text that a model wrote, and others may hold tokens
# and keys, or change Python's imports.
PASSED_ON = frozenset(
    ("PATH", "HOME", "TMPDIR", "LANG", "LANGUAGE", "TZ", "VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH")
)


@dataclass(frozen=True)
class Task:
    """A gold and a normalised answer that only algebra can compare."""

    gold: Gold
    answer: str
    grader: str = "ours"  # a grader's name: ours, or one of `evals.others`
    box: str | None = field(default=None, compare=False, repr=False)  # the answer as written


class Answer(NamedTuple):
    """The outcome of a comparison."""

    outcome: str  # a `Verdict`
    seconds: float  # of CPU
    reason: str | None = None  # of a timeout or an error


@dataclass
class Pool:
    """Started on the first task; `close` it, or use it as a context manager."""

    workers: int | None = None  # parallel comparing processes, by default one per core available to this process
    cpu_seconds: float = CPU_SECONDS  # of one comparison, on its process's CPU clock
    wall_seconds: float = WALL_SECONDS  # for a process that does not run at all
    module: str = "evals.grading.worker"
    packages: Path | None = None  # folder that workers search first for modules
    worker: tuple[subprocess.Popen[bytes], Connection] | None = field(default=None, init=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker and its processes."""
        if self.worker:
            process, channel = self.worker
            self.worker = None
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            channel.close()

    def compare(
        self, tasks: Sequence[Task], *, batch: int | None = None, report: Callable[[Task], object] = lambda task: None
    ) -> list[Answer]:
        """Return one answer per task, in order. `report(task)` is called as each becomes final, in any order.

        batch: number of comparisons in the tasks' batch; without it there is no budget. A comparison's share depends on
        how many need more than their first share, and so neither on their order nor on the processes.
        Raises BenchError when the worker cannot start.
        """
        growth = max(1.0, (batch or 0) / SHARING)
        first = min(self.cpu_seconds, FIRST_SECONDS * growth / batch) if batch else self.cpu_seconds
        answers: dict[int, Answer] = {}
        try:
            for index, answer in self._answers(dict(enumerate(tasks)), first):
                answers[index] = answer
                if answer.reason != TOO_SLOW:
                    report(tasks[index])
            slow = {index: answer for index, answer in answers.items() if answer.reason == TOO_SLOW}
            limit = min(self.cpu_seconds, SLOW_SECONDS * growth / max(1, len(slow)))
            again = limit >= 2 * first  # less would decide few of them
            for index, answer in self._answers({n: tasks[n] for n in slow}, limit) if again else slow.items():
                answers[index] = answer
                report(tasks[index])
        except BaseException:  # an interrupt as well: no process may outlive the call that failed
            self.close()
            raise
        return [answers[index] for index in range(len(tasks))]

    def _answers(self, tasks: dict[int, Task], cpu_seconds: float) -> Iterator[tuple[int, Answer]]:
        """Yield and remove each task, as its comparison ends. A worker that is killed from outside is replaced once."""
        lost = False
        while tasks:
            try:
                channel = self._start()
                channel.send((tasks, self.workers or cores(), cpu_seconds, self.wall_seconds))
                # JSON, because unpickling could run what a process that has read model text sends
                while message := json.loads(channel.recv_bytes()):
                    index, *answer = message
                    del tasks[index]
                    yield index, Answer(*answer)
            except (EOFError, ConnectionError) as error:
                self.close()
                if lost:
                    raise BenchError("grading worker: ended twice; is there too little memory?") from error
                lost = True

    def _start(self) -> Connection:
        """Return the channel to the worker, starting it if necessary."""
        if self.worker:
            return self.worker[1]
        searched = [*filter(None, [self.packages and self.packages.resolve()]), ROOT]
        # One hash seed, and integers in Python: equal verdicts on every machine.
        environment = {
            **{name: value for name, value in os.environ.items() if name in PASSED_ON or name.startswith("LC_")},
            "PYTHONPATH": os.pathsep.join(map(str, searched)), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1",
            "SYMPY_GROUND_TYPES": "python", "MPMATH_NOGMPY": "1", "OMP_NUM_THREADS": "1",
        }  # fmt: skip
        ours, theirs = Pipe()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", self.module], stdin=theirs.fileno(), stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL, cwd=ROOT, env=environment,
                start_new_session=True,  # `close` ends its processes by their group
            )  # fmt: skip
        self.worker = process, ours
        try:
            ready = self.worker[1].poll(START_SECONDS)
            reason = json.loads(self.worker[1].recv_bytes()) if ready else f"{START_SECONDS:.0f} s"
        except (EOFError, ConnectionError):
            reason = f"exit code {process.wait()}"
        if reason:
            raise BenchError(f"grading worker: did not start ({reason})")
        return self.worker[1]
