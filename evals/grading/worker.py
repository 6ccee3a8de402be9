"""Worker of `evals.grading.pool`: batches of comparisons in, answers out, as JSON messages over its standard input.

    python -m evals.grading.worker

It loads the algebra once and forks comparing processes; where one is killed, its replacement starts within
milliseconds. Before reading model text they restrict themselves: CPU seconds per comparison (a kernel timer on the
process's CPU clock, whose signal kills even inside C code), memory, reads only from the installation, no subprocess,
no socket, no `eval` of text.
"""

import gc
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from evals.grading.decide import gold
from evals.grading.pool import TOO_SLOW, Task

TASKS_PER_PROCESS = 8  # tasks per additional comparing process
MEMORY_BYTES = 4 * 2**30  # none of 52 adversarial inputs passed 600 MB (measured)
FORBIDDEN_EXIT = 87  # of a process that attempted a refused operation (`_restrict`)
RECURSION, STACK = 20_000, 2**29  # frames and bytes: no text within `symbolic.LONGEST_OBJECT` needs as many (measured)
FAST_INTEGERS = ("gmpy2", "gmpy", "flint")  # hidden: their C code cannot be interrupted, their answers may differ

Compare = Callable[[Any, str], str]
"""(gold, normalised answer) -> the verdict `correct`, `wrong` or `unparsed_gold`."""


def algebra() -> dict[str, Compare]:
    """Load and return the graders by name, and sympy's lazy imports, which would use CPU time of the first items."""
    sys.modules.update(dict.fromkeys(FAST_INTEGERS))  # type: ignore[arg-type]
    from evals.grading import symbolic

    symbolic.forbid_evaluation()
    for expected, answer in (
        (r"\sqrt{2}+x", r"x+2^{\frac{1}{2}}"),
        (r"\frac{\sin x}{x}", r"\cos x"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
        (r"\begin{pmatrix}1\\2\end{pmatrix}", "(1,2)"),
        ("x<2", r"(-\infty,2)"),
    ):
        symbolic.outcome(gold(expected), answer)
    return {"ours": symbolic.outcome}


def work(load: Callable[[], Mapping[str, Compare]] = algebra) -> None:
    """Load the graders, then answer batches until the channel closes."""
    channel = Connection(os.dup(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when to stop
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # killing a comparison is normal and must not leave core files
    sys.setrecursionlimit(RECURSION)
    threading.stack_size(STACK)  # of new threads
    gc.disable()  # until everything is loaded, and rarely afterwards: parsing makes many short-lived objects
    try:
        graders = load()
    except ImportError as error:
        _send(channel, str(error))
        return
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()
    with suppress(EOFError):  # the caller has closed the channel
        while True:
            _send(channel, None)  # ready; the processes of a batch have ended
            for answer in _answers(graders, *channel.recv()):
                _send(channel, answer)


def _send(channel: Connection, message: object) -> None:
    """Send a message as JSON: unpickling could run what a process that has read model text sends."""
    channel.send_bytes(json.dumps(message).encode())


def _answers(
    graders: Mapping[str, Compare], tasks: Mapping[int, Task], most: int, *limits: float
) -> Iterator[tuple[int, str, float, str | None]]:
    """Yield index, verdict, CPU seconds and reason of tasks, as each comparison ends.

    most: processes that compare at a time. limits: CPU and wall-clock seconds of each comparison.
    """
    tried = set[int]()
    processes: dict[Connection, tuple[int, deque[int]]] = {}  # process id, and the indices of tasks without an answer

    def start(share: deque[int]) -> None:
        channel, inside = Pipe(duplex=False)
        process = os.fork()
        if process == 0:
            for other in (channel, *processes):  # else it would not detect the worker's end
                other.close()
            _restrict(compiles="ours" not in graders)  # others evaluate text
            todo = [tasks[index] for index in share]
            thread = threading.Thread(target=_compare, args=(graders, todo, inside, *limits))
            thread.start()  # on a stack too large to overflow; the main thread's was fixed when the process began
            thread.join()
            os._exit(0)
        inside.close()
        processes[channel] = process, share

    count = min(most, 1 + len(tasks) // TASKS_PER_PROCESS)
    for first in range(count):
        start(deque([*tasks][first::count]))
    while processes:
        ready = wait(list(processes))
        for channel in [one for one in processes if one in ready]:
            process, share = processes[channel]
            try:
                answer = json.loads(channel.recv_bytes())
            except (EOFError, ConnectionError):
                answer = None
            ended = not answer or answer[-1]
            if ended:
                del processes[channel]
                channel.close()
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                if not share:
                    continue
            outcome, seconds, reason = answer or _ending(code, limits[0])
            if reason not in (None, TOO_SLOW) and share[0] not in tried:
                tried.add(share[0])
            else:
                yield share.popleft(), outcome, seconds, reason
            if ended and share:
                start(share)  # also what failed, once more


def _ending(code: int, cpu_seconds: float) -> tuple[str, float, str]:
    """Return verdict, CPU seconds and reason for a process's exit code; negative: by a signal."""
    if code == -signal.SIGPROF:
        return "timeout", cpu_seconds, TOO_SLOW
    if code == -signal.SIGALRM:
        return "timeout", 0.0, "wall clock"
    if code == FORBIDDEN_EXIT:
        return "error", 0.0, "forbidden operation"
    return "error", 0.0, f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


# In a comparing process


def _compare(
    graders: Mapping[str, Compare], tasks: Iterable[Task], channel: Connection, cpu_seconds: float, wall_seconds: float
) -> None:
    """Compare tasks in turn, until the algebra has failed: its state is then unknown."""
    for task in tasks:
        outcome, reason, began = "error", None, time.process_time()
        # SIGPROF and SIGALRM at their default action end the process even inside C code; ITIMER_PROF counts CPU time.
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, wall_seconds)
        try:
            outcome = str(graders[task.grader](task.gold, task.answer))
        except MemoryError:
            reason = "memory"
        except RecursionError:
            reason = "recursion"
        except Exception as error:  # a bug or an unusual object: a verdict, never the end of the evaluation
            reason = f"{type(error).__name__}: {error}"[:200]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        _send(channel, (outcome, time.process_time() - began, reason))
        if reason:
            break


_FORBIDDEN_EVENTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.", "socket.",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate",
    "shutil.", "urllib.", "http.", "ftplib.", "smtplib.", "ctypes.dlopen", "pty.", "webbrowser.", "tempfile.",
)  # fmt: skip
_UNROLLED = os.path.join("sympy", "polys", "monomials.py")
_READABLE = [f"{os.path.abspath(path)}{os.sep}" for path in (*sys.path, sys.prefix, sys.base_prefix) if path]


def _restrict(compiles: bool) -> None:
    """Set limits and audit hook before model text is read."""
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # a second guard against writing, below Python's audit hook

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        """End the process on an operation that comparing two expressions never needs."""
        if event == "compile":
            if not (compiles or arguments[0] is None or _generated_by_library()):
                raise PermissionError("text is not compiled here")
        elif (event == "open" and not _is_library(*arguments)) or event.startswith(_FORBIDDEN_EVENTS):
            os._exit(FORBIDDEN_EXIT)

    sys.addaudithook(refuse)


def _is_library(path: Any, _: Any, flags: Any) -> bool:
    """Return whether an `open` reads a file of the installation, as a late import does."""
    if not isinstance(flags, int) or flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return False
    return isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(tuple(_READABLE))


def _generated_by_library() -> bool:
    """Return whether the text to compile comes from an import, or from sympy's unrolled loops over exponents."""
    frame = sys._getframe(2)  # 0 is this function, 1 the audit hook, 2 the caller of `compile`
    if frame.f_code.co_filename.endswith(_UNROLLED):
        return True
    while frame.f_back is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_back is not None


if __name__ == "__main__":
    work()
