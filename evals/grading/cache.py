"""Comparisons that were made before: one file per writing process, so that any number of jobs share a folder unlocked.

    <folder>/<grader version>/<process>-<time>.jsonl      one comparison per line

Only what reached a worker is kept; the cheap stages are faster than a look-up. A line is appended as soon as it is
known: a killed job goes on where it was.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import TextIO

from evals.grading.pool import Answer, Task
from evals.grading.verdict import grader_version
from records.errors import CorruptInputError

MOST_IN_MEMORY = 100_000


def key(task: Task) -> str:
    """Digest of the normalised gold, how it is to be read, and the answer."""
    gold = task.gold
    facts = [
        gold.text,
        gold.kind,
        None if gold.tolerance is None else str(gold.tolerance),
        gold.multiple,
        task.answer,
        task.grader,
    ]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


class Cache:
    """Known comparisons of this grader version; `folder` None keeps them in memory only."""

    def __init__(self, folder: Path | str | None):
        self.folder = None if folder is None else Path(folder) / grader_version()
        self.known: dict[str, Answer] = {}
        self.stream: TextIO | None = None
        for path in sorted(self.folder.glob("*.jsonl")) if self.folder is not None else ():
            self._load(path)

    def _load(self, path: Path) -> None:
        lines = path.read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines[:-1], 1):  # what follows the last newline was cut off by a kill
            try:
                entry = json.loads(line)
                self.known[entry["key"]] = Answer(entry["outcome"], entry["seconds"], entry["reason"])
            except (json.JSONDecodeError, KeyError, TypeError) as error:
                raise CorruptInputError(f"{path}: line {number}: no comparison ({error}); delete the file") from error

    def get(self, task: Task) -> Answer | None:
        return self.known.get(key(task))

    def __getitem__(self, task: Task) -> Answer:
        return self.known[key(task)]

    def trim(self) -> None:
        """Forget all when there is no folder and a long training has filled the memory."""
        if self.folder is None and len(self.known) >= MOST_IN_MEMORY:
            self.known.clear()

    def put(self, task: Task, answer: Answer) -> None:
        """Remember a final answer. Errors are not kept: their cause may be gone next time."""
        name = key(task)
        self.known[name] = answer
        if self.folder is None or answer.outcome == "error":
            return
        if self.stream is None:
            self.folder.mkdir(parents=True, exist_ok=True)
            ignore = self.folder.parent / ".gitignore"  # a cache inside the repository must not make it dirty
            if not ignore.exists():
                ignore.write_text("*\n", encoding="utf-8")
            path = self.folder / f"{os.getpid()}-{time.time_ns()}.jsonl"
            self.stream = open(path, "a", encoding="utf-8")  # noqa: SIM115 - lives as long as the cache
        entry = {"key": name, "outcome": answer.outcome, "seconds": answer.seconds, "reason": answer.reason}
        self.stream.write(json.dumps(entry) + "\n")
        self.stream.flush()

    def close(self) -> None:
        if self.stream is not None:
            self.stream.close()
            self.stream = None
