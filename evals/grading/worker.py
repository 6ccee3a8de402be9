"""The worker process: reads a comparison per line, answers with a line, and may be killed at any moment.

    python -m evals.grading.worker        lines of JSON in, lines of JSON out; ends when its input ends

It binds itself before it reads model text: CPU seconds per comparison (a kernel timer on its own CPU clock, whose signal
kills even inside C code), memory, no file writing, no subprocess, no socket, no `eval` of text.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from fractions import Fraction
from typing import Any

FORBIDDEN_EXIT = 87
FAST_INTEGERS = ("gmpy2", "gmpy", "flint")  # their C code cannot be interrupted, and their answers may differ

_FORBIDDEN_EVENTS = (
    "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "subprocess.", "socket.", "os.remove",
    "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.chown", "os.truncate", "shutil.",
    "urllib.", "http.", "ftplib.", "smtplib.", "ctypes.dlopen", "pty.", "webbrowser.", "tempfile.",
)  # fmt: skip
_UNROLLED = os.path.join("sympy", "polys", "monomials.py")


def main() -> None:
    """Bind the process, load the algebra, then answer until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    with open(os.devnull, "w") as nowhere:  # a library that prints must not be read as an answer
        os.dup2(nowhere.fileno(), 1)
    limits = json.loads(sys.stdin.readline())
    for name in FAST_INTEGERS:
        sys.modules[name] = None  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (limits["memory_bytes"],) * 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    try:
        from evals.grading import symbolic, symbolic_lineage
    except ImportError as error:
        _say(answers, fatal=f"{error}")
        return
    graders = {"ours": symbolic, "lineage": symbolic_lineage}
    symbolic.forbid_evaluation()
    _warm_up(symbolic)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    sys.addaudithook(_refuse)
    _say(answers, ready=True)
    for line in sys.stdin:
        task = json.loads(line)
        _say(answers, **_answer(graders[task["grader"]], task, limits["cpu_seconds"]))


def _answer(grader: Any, task: dict[str, Any], cpu_seconds: float) -> dict[str, Any]:
    from evals.grading.decide import Gold

    tolerance = None if task["tolerance"] is None else Fraction(task["tolerance"])
    gold = Gold(task["gold"], task["kind"], tolerance, task["multiple"])
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        found = {"outcome": str(grader.outcome(gold, task["answer"]))}
    except MemoryError:
        found = {"died": "memory"}
    except RecursionError:
        found = {"outcome": "different"}  # the gold was read (or is unparsed); an answer nested this deep is none
    except Exception as error:  # a bug or an odd object: this item's verdict, never the end of the evaluation
        found = {"died": f"{type(error).__name__}: {error}"[:200]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    return {**found, "seconds": time.process_time() - began}


def _say(stream: Any, **message: Any) -> None:
    stream.write(json.dumps(message) + "\n")
    stream.flush()


def _warm_up(symbolic: Any) -> None:
    """Load what sympy imports lazily, so that the first items are judged under the same clock as the last."""
    from evals.grading.decide import gold

    pairs = (
        (r"\sqrt{2}+x", r"x+2^{\frac{1}{2}}"),
        (r"\frac{\sin x}{x}", r"\cos x"),
        (r"\binom{n}{2}", r"\frac{n(n-1)}{2}"),
    )
    for expected, answer in (*pairs, (r"\begin{pmatrix}1\\2\end{pmatrix}", r"(1,2)"), ("x<2", "(-\\infty,2)")):
        symbolic.outcome(gold(expected), answer)


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Audit hook: what a comparison of two expressions never needs ends the process."""
    if event == "open":
        mode, flags = arguments[1], arguments[2]
        writing = isinstance(mode, str) and set(mode) & set("wax+")
        forbidden = bool(writing) or bool(isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    elif event == "compile":
        if arguments[0] is not None and not _generated_by_library():
            raise PermissionError("text is not compiled here")
        return
    else:
        forbidden = event.startswith(_FORBIDDEN_EVENTS)
    if forbidden:
        os._exit(FORBIDDEN_EXIT)


def _generated_by_library() -> bool:
    """Whether the text to compile comes from an import, or from sympy's unrolled loops over a polynomial's exponents."""
    frame = sys._getframe(2)
    if frame.f_code.co_filename.endswith(_UNROLLED):
        return True
    while frame.f_back is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame.f_back is not None


if __name__ == "__main__":
    main()
