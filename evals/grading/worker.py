"""The worker: reads a comparison per line, answers with a line; the comparing process may be killed at any moment.

    python -m evals.grading.worker        lines of JSON in, lines of JSON out; ends when its input ends

There are two processes. The first loads the algebra once, forks the second, and waits; when the second is killed, the
first reports it and forks another within milliseconds. The second compares. Before it reads model text it restricts
itself: CPU seconds per comparison (a kernel timer on its own CPU clock, whose signal kills even inside C code), memory,
no file but the installation's to read, no subprocess, no socket, no `eval` of text.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import resource
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

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

_READABLE = tuple(f"{os.path.abspath(path)}{os.sep}" for path in (*sys.path, sys.prefix, sys.base_prefix) if path)

Compare = Callable[[Any, str], str]
"""(gold, normalised answer) -> the verdict `correct`, `wrong` or `unparsed_gold`."""


def algebra() -> dict[str, Compare]:
    """The graders by name, loaded and warm."""
    for name in FAST_INTEGERS:
        sys.modules[name] = None  # type: ignore[assignment]
    from evals.grading import prime, symbolic  # symbolic imports all that prime's algebra needs

    symbolic.forbid_evaluation()
    _warm_up(symbolic.outcome)
    return {"ours": symbolic.outcome, "lineage": prime.outcome}


def main(load: Callable[[], dict[str, Compare]] = algebra) -> None:
    """The first process: load, then keep one comparing process alive until the input ends."""
    channel = os.dup(1)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # what a library prints must not be taken for an answer
        os.dup2(nowhere.fileno(), 1)
    limits = json.loads(_line() or "null")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # killing a comparison is normal and must not leave core files
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
    sys.addaudithook(_refuse)


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
    from evals.grading.decide import Gold

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
    from evals.grading.decide import gold

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


def _is_library(path: Any, mode: Any, flags: Any) -> bool:
    """Whether an `open` reads a file of the installation, as a late import does."""
    if isinstance(mode, str) and set(mode) & set("wax+"):
        return False
    if isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        return False
    return isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(_READABLE)


def _generated_by_library() -> bool:
    """Whether the text to compile comes from an import, or from sympy's unrolled loops over exponents."""
    frame = sys._getframe(2)  # 0 is this function, 1 the audit hook, 2 the caller of `compile`
    if frame.f_code.co_filename.endswith(_UNROLLED):
        return True
    while frame.f_back is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_back is not None


if __name__ == "__main__":
    main()
