"""Progress of a long job, printed one line at a time, because several jobs share one terminal."""

import math
import sys
import time

EVERY = 3.0  # seconds between two lines


class Progress:
    """Print `[label] done/total  figure value  ...  time left` at most every `EVERY` seconds, and always at the end."""

    def __init__(self, label: str, total: int, *, start: int = 0):
        self.label, self.total, self.start, self.done = label, total, start, start
        self.began, self.last = time.monotonic(), -math.inf

    def update(self, done: int, **figures: float | int | str | None) -> None:
        """Report that `done` of `total` are finished; figures that are None are omitted."""
        self.done, now = done, time.monotonic()
        if done < self.total and now - self.last < EVERY:
            return
        self.last = now
        elapsed, fresh = now - self.began, done - self.start
        left = f"{elapsed / fresh * (self.total - done):.0f} s left" if fresh > 0 else ""
        left = f"done in {elapsed:.0f} s" if done >= self.total else left
        shown = {n: f"{v:.3g}" if isinstance(v, float) else str(v) for n, v in figures.items() if v is not None}
        parts = [f"[{self.label}] {done}/{self.total}", *(f"{name} {value}" for name, value in shown.items()), left]
        print(*parts, sep="  ", file=sys.stderr, flush=True)
