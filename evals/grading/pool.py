"""Worker processes that can be killed: the only timeout that holds inside C code.

The limit is in CPU seconds of the worker, so a busy machine gives the same verdicts as an idle one. A much larger
wall-clock limit only catches a worker that does not run at all. A comparison that used up its CPU seconds would do so
again, so that is final. A batch has a budget beside (`compare`), so that many such answers cannot hold up a training.
One that ended otherwise (memory, a signal) may have been killed for what came before it, and is tried once more, in a
process that has compared nothing yet. The caller's side has no threads and no signal handlers, so the pool also works
outside the main thread and inside frameworks that own the signals.

    python -m evals.grading.pool        a worker: lines of JSON in, lines of JSON out; ends when its input ends

A worker has two processes. The first loads the algebra once, forks the second, and waits; when the second is killed,
the first reports it and forks another within milliseconds. The second compares. Before it reads model text it restricts
itself: CPU seconds per comparison (a kernel timer on its own CPU clock, whose signal kills even inside C code), memory,
no file but the installation's to read, no subprocess, no socket, no `eval` of text.
"""

import gc
import json
import mmap
import os
import resource
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from core.errors import BenchError
from core.provenance import ROOT, cores
from evals.grading.decide import Gold, gold

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
    grader: str = "ours"  # a name that the worker knows: ours, or one of `evals.grading.others`


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
    compiles: whether text may be evaluated, as other people's graders do. packages: folder searched first for modules.
    """

    def __init__(
        self,
        *,
        workers: int | None = None,
        cpu_seconds: float = CPU_SECONDS,
        wall_seconds: float = WALL_SECONDS,
        memory_bytes: int = MEMORY_BYTES,
        module: str = "evals.grading.pool",
        compiles: bool = False,
        packages: str | None = None,
    ):
        self.most = workers or cores()
        self.cpu_seconds = cpu_seconds
        self.limits = {"memory_bytes": memory_bytes, "compiles": compiles, "packages": packages}
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
                for worker, late in _wait(self.workers[:most]):
                    index = worker.index
                    answer = worker.end("wall clock") if late else worker.read()
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
        message = self._message()
        if message is None:
            return self.end("worker ended")
        if "fatal" in message:
            raise BenchError(f"grading worker cannot start: {message['fatal']}")
        if "ready" in message:
            self.ready, self.deadline = True, float("inf")
            return None
        if message["id"] != self.tasks_sent or self.index is None:
            return self.end("wall clock") if time.monotonic() > self.deadline else None  # killed after it had answered
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

    def end(self, reason: str) -> Answer:
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


def _wait(workers: Sequence[_Worker]) -> list[tuple[_Worker, bool]]:
    """Wait until a worker has written, died or run out of time; those to read from, and whether each is late.

    One that has written is not late: an earlier call may have ended without it, so that its message has been waiting.
    """
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            if worker.unread:
                return [(worker, False)]
            selector.register(worker.output, selectors.EVENT_READ, worker)
        nearest = min(worker.deadline for worker in workers) - time.monotonic()
        # at most an hour at once, because `select` takes no infinite time; the caller's loop waits again
        readable = [key.data for key, _ in selector.select(max(0.0, min(nearest, 3600.0)))]
    late = [worker for worker in workers if worker not in readable and time.monotonic() > worker.deadline]
    return [(worker, False) for worker in readable] + [(worker, True) for worker in late]


def _killed(code: int, cpu_seconds: float) -> Answer:
    """How a comparing process ended, by its exit code; negative: by a signal."""
    if code == -signal.SIGPROF:
        return Answer("timeout", cpu_seconds, TOO_SLOW)
    if code == FORBIDDEN_EXIT:
        return Answer("error", 0.0, "forbidden operation")
    if code < 0:
        return Answer("error", 0.0, f"killed by {signal.Signals(-code).name}")
    return Answer("error", 0.0, f"ended with exit code {code}")


# The worker: the first process loads and forks, the second compares.

# Exit codes of the comparing process, apart from 0 (the input ended) and from those that Python and shells use.
FORBIDDEN_EXIT = 87
RETIRED_EXIT = 86
RECURSION, STACK = 20_000, 2**29  # frames and bytes: no text within `symbolic.LONGEST_OBJECT` needs as many (measured)
TASKS_PER_PROCESS = 2000  # then a fresh one: the algebra's caches grow
FAST_INTEGERS = ("gmpy2", "gmpy", "flint")  # hidden: their C code cannot be interrupted, their answers may differ

_FORBIDDEN_EVENTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.", "socket.",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "shutil.", "urllib.", "http.", "ftplib.", "smtplib.", "ctypes.dlopen", "pty.", "webbrowser.", "tempfile.",
)  # fmt: skip
_UNROLLED = os.path.join("sympy", "polys", "monomials.py")

_READABLE = [f"{os.path.abspath(path)}{os.sep}" for path in (*sys.path, sys.prefix, sys.base_prefix) if path]

Compare = Callable[[Any, str], str]
"""(gold, normalised answer) -> the verdict `correct`, `wrong` or `unparsed_gold`."""


def algebra() -> dict[str, Compare]:
    """The graders by name, loaded and warm."""
    for name in FAST_INTEGERS:
        sys.modules[name] = None  # type: ignore[assignment]
    from evals.grading import symbolic

    symbolic.forbid_evaluation()
    _warm_up(symbolic.outcome)
    return {"ours": symbolic.outcome}


def work(load: Callable[[], dict[str, Compare]] = algebra) -> None:
    """The first process: load, then keep one comparing process alive until the input ends."""
    channel = os.dup(1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # what a library prints must not be taken for an answer
        os.dup2(nowhere.fileno(), 1)
    limits = json.loads(_line() or "null")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # killing a comparison is normal and must not leave core files
    if limits and limits["packages"]:
        sys.path.insert(0, limits["packages"])
        _READABLE.append(f"{os.path.abspath(limits['packages'])}{os.sep}")
    gc.disable()  # until everything is loaded, and rarely afterwards: parsing makes many short-lived objects
    try:
        graders = load()
    except ImportError as error:
        _send(channel, fatal=str(error))
        return
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    _send(channel, ready=True)
    current = mmap.mmap(-1, 8)  # the number of the comparison under way, seen by both processes; 0 for none
    while True:
        current[:] = struct.pack("q", 0)
        child = os.fork()
        if child == 0:
            _restrict(limits)
            _on_a_large_stack(lambda: _compare_all(graders, limits, current, channel))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code == 0:
            return
        number = struct.unpack("q", current[:])[0]
        if number:
            _send(channel, id=number, killed=code)
        elif code != RETIRED_EXIT:
            return  # it died without a comparison, and the next might as well: the parent starts another worker


def _on_a_large_stack(work: Callable[[], None]) -> None:
    """Do `work` where recursion is not what ends it, and leave the process: 0 when it came to its end."""
    ended: list[bool] = []

    def whole() -> None:
        work()
        ended.append(True)

    sys.setrecursionlimit(RECURSION)
    threading.stack_size(STACK)  # of a new thread; the main thread's was fixed when the process began
    thread = threading.Thread(target=whole)
    thread.start()
    thread.join()
    os._exit(0 if ended else 1)


def _restrict(limits: dict[str, Any]) -> None:
    """What the second process may not do, before it reads model text."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a second guard against writing, below Python's audit hook
    sys.addaudithook(_refuse_but_compile if limits["compiles"] else _refuse)


def _compare_all(graders: dict[str, Compare], limits: dict[str, Any], current: mmap.mmap, channel: int) -> None:
    """The second process compares until the input ends."""
    for _ in range(TASKS_PER_PROCESS):
        line = _line()
        if not line:
            return
        task = json.loads(line)
        current[:] = struct.pack("q", task["id"])
        answer = _answer(graders[task["grader"]], task)
        current[:] = struct.pack("q", 0)
        _send(channel, id=task["id"], **answer)
        if "died" in answer:
            break  # the state of the algebra is unknown: the next comparison gets a fresh process
    os._exit(RETIRED_EXIT)


def _answer(grader: Compare, task: dict[str, Any]) -> dict[str, Any]:
    tolerance = task["gold"]["tolerance"]
    gold = Gold(**{**task["gold"], "tolerance": tolerance and Fraction(tolerance)})
    began = time.process_time()
    # ITIMER_PROF counts CPU time, and SIGPROF at its default action ends the process even inside C code.
    signal.setitimer(signal.ITIMER_PROF, task["cpu_seconds"])
    try:
        answer = {"outcome": str(grader(gold, task["answer"]))}
    except MemoryError:
        answer = {"died": "memory"}
    except RecursionError:
        answer = {"died": "recursion"}
    except Exception as error:  # a bug or an odd object: this item's verdict, never the end of the evaluation
        answer = {"died": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**answer, "seconds": time.process_time() - began}


def _line() -> bytes:
    """The next line of the input, read so that nothing is held back from the process that reads the next one.

    Only one line is ever under way: the parent sends a task when the last one is answered.
    """
    parts: list[bytes] = []
    while not (parts and parts[-1].endswith(b"\n")):
        part = os.read(0, 65536)
        if not part:
            return b""
        parts.append(part)
    return b"".join(parts)


def _send(channel: int, **message: Any) -> None:
    os.write(channel, (json.dumps(message) + "\n").encode())


def _warm_up(compare: Compare) -> None:
    """Load what sympy imports lazily, so that the first items have as much CPU time as the last."""
    pairs = (
        (r"\sqrt{2}+x", r"x+2^{\frac{1}{2}}"),
        (r"\frac{\sin x}{x}", r"\cos x"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
        ("x<2", r"(-\infty,2)"),
    )
    for expected, answer in pairs:
        compare(gold(expected), answer)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: end the process on an operation that a comparison of two expressions never needs."""
    if event == "open":
        forbidden = not _is_library(*arguments)
    elif event == "compile":
        if arguments[0] is not None and not _generated_by_library():
            raise PermissionError("text is not compiled here")
        return
    else:
        forbidden = event.startswith(_FORBIDDEN_EVENTS)
    if forbidden:
        os._exit(FORBIDDEN_EXIT)


def _refuse_but_compile(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "compile":
        _refuse(event, arguments)


def _is_library(path: Any, mode: Any, flags: Any) -> bool:
    """Whether an `open` reads a file of the installation, as a late import does."""
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return False
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return False
    return isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(tuple(_READABLE))


def _generated_by_library() -> bool:
    """Whether the text to compile comes from an import, or from sympy's unrolled loops over exponents."""
    frame = sys._getframe(2)  # 0 is this function, 1 the audit hook, 2 the caller of `compile`
    if frame.f_code.co_filename.endswith(_UNROLLED):
        return True
    while frame.f_back is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_back is not None


if __name__ == "__main__":
    work()
