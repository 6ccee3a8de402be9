"""What an engine knows about a response and lm-eval does not hand on: token count and why it stopped.

lm-eval returns texts. Encoding a text again undercounts where the model spelled a token by its bytes and overcounts
where it wrote broken UTF-8, so a response cut at the limit could pass for a finished one. Engines therefore note what
they saw under the text they return; a text seen twice gives its notes in turn.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from typing import NamedTuple


class Observed(NamedTuple):
    """tokens: of the response, end token not counted. stop: stop | length | unknown."""

    tokens: int | None
    stop: str


class Observations:
    """Notes of one run over one benchmark. report: called with the number of responses and of tokens so far."""

    def __init__(self) -> None:
        self._notes: dict[str, deque[Observed]] = defaultdict(deque)
        self._responses = self._tokens = 0
        self.report: Callable[[int, int], None] | None = None

    def clear(self) -> None:
        self._notes.clear()
        self._responses = self._tokens = 0

    def note(self, text: str, tokens: int | None, stop: str) -> None:
        self._notes[text].append(Observed(tokens, stop))
        self._responses += 1
        self._tokens += tokens or 0

    def say(self) -> None:
        """Let the progress line know; called once per batch."""
        if self.report is not None:
            self.report(self._responses, self._tokens)

    def take(self, text: str) -> Observed | None:
        notes = self._notes.get(text)
        return notes.popleft() if notes else None
