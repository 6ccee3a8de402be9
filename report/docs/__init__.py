"""Pages of docs/ that are written from code."""

from __future__ import annotations

from collections.abc import Iterable


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    names = list(head)
    lines = [names, ["---"] * len(names), *rows]
    return "".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |\n" for line in lines)
