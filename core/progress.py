"""Running figures of a long job: one line at a time, because several jobs share one terminal."""

from __future__ import annotations

import sys
import time
from typing import TextIO

AFFECTS_RESULTS = False  # what a terminal shows


class Progress:
    """Print `[label] done/total figure value ... time left` at most every `every` seconds, and always at the end."""

    def __init__(self, label: str, total: int, *, every: float = 3.0, start: int = 0, stream: TextIO | None = None):
        self.label, self.total, self.every = label, total, every
        self.start, self.done = start, start
        self.stream = stream or sys.stderr
        self.began = time.monotonic()
        self.last = float("-inf")

    def update(self, done: int, **figures: float | int | str | None) -> None:
        """Report that `done` of `total` are finished; figures that are None are left out."""
        self.done = done
        now = time.monotonic()
        if done < self.total and now - self.last < self.every:
            return
        self.last = now
        shown = "  ".join(
            f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}"
            for name, value in figures.items()
            if value is not None
        )
        print(
            f"[{self.label}] {done}/{self.total}  {shown}{'  ' if shown else ''}{self._time(now)}",
            file=self.stream,
            flush=True,
        )

    def _time(self, now: float) -> str:
        elapsed, fresh = now - self.began, self.done - self.start
        if self.done >= self.total:
            return f"done in {elapsed:.0f} s"
        if fresh <= 0:
            return ""
        return f"{elapsed / fresh * (self.total - self.done):.0f} s left"
