"""A worker whose comparisons do what their answer says: `python -m tests.evals.grading.fragile_worker`."""

import os
import signal
import time
from typing import Any

from evals.grading import Verdict, worker


def outcome(gold: Any, answer: str) -> Verdict:
    """`kill 9`, `burn 0.5` (CPU seconds), `sleep 5`, `write PATH`, ... do that; every other answer is equal."""
    what, _, number = answer.partition(" ")
    if what == "kill":
        # to this thread: one sent to the process may go to another, and the answer be out before it ends
        signal.raise_signal(signal.Signals(int(number)))
    if what == "exit":
        os._exit(int(number))
    if what == "burn":
        end = time.process_time() + float(number)
        while time.process_time() < end:
            sum(range(1000))
    if what == "sleep":
        time.sleep(float(number))
    if what == "memory":
        _ = bytearray(64 * 2**30)
    if what == "raise":
        raise KeyError("a bug")
    if what == "write":
        open(number, "w", encoding="utf-8").close()
    if what == "read":
        open(number, encoding="utf-8").close()
    if what == "shell":
        os.system(f"touch {number}")
    if what == "eval":
        eval(number)
    return Verdict.CORRECT


if __name__ == "__main__":
    worker.work(lambda: {"ours": outcome})
