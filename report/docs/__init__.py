"""Pages of docs/ that are written from code."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    names = list(head)
    first, *others = ("| " + " | ".join(str(x).replace("|", "\\|") for x in line) + " |\n" for line in (names, *rows))
    return "".join([first, "|---" * len(names) + "|\n", *others])
