"""A worker whose comparisons do what their answer says: `python -m tests.evals.grading.fragile_worker`."""

import os
import signal
import time
from typing import Any

from evals.grading import Verdict, worker


def burn(seconds: str) -> None:
    end = time.process_time() + float(seconds)
    while time.process_time() < end:
        sum(range(1000))


# `kill 9`, `burn 0.5` (CPU seconds), `sleep 5`, `write PATH`, ...
ACTIONS = {
    # to this thread: a signal to the process may go to another, and the answer be out before it ends
    "kill": lambda number: signal.raise_signal(signal.Signals(int(number))),
    "exit": lambda code: os._exit(int(code)),
    "burn": burn,
    "sleep": lambda seconds: time.sleep(float(seconds)),
    "memory": lambda _: bytearray(64 * 2**30),
    "raise": lambda _: {}["a bug"],
    "write": lambda path: open(path, "w", encoding="utf-8").close(),
    "read": lambda path: open(path, encoding="utf-8").close(),
    "shell": lambda path: os.system(f"touch {path}"),
    "eval": eval,
    "fine": lambda _: None,
}


def outcome(gold: Any, answer: str) -> Verdict:
    action, _, argument = answer.partition(" ")
    ACTIONS[action](argument)
    return Verdict.CORRECT


if __name__ == "__main__":
    worker.work(lambda: {"ours": outcome})
