"""Lay out what scores.csv has beside the scores: pass@k, maj@k, lengths, and responses without an answer.

`python -m report.show details --results results/quick` and the page show it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from core.layout import Checkpoint, Run
from core.scores import AVERAGES, NOT_RUN

AFFECTS_RESULTS = False  # shows what is computed elsewhere

HEADS = ("checkpoint", "benchmark", "k", "avg@k", "pass@k", "maj@k", "tokens", "truncated", "no answer")
NOTE = (
    "Percent, k responses to each problem: mean right, any right, most frequent answer right; mean length in tokens;"
    " responses cut at the token limit before an answer, and ended without one."
)


def lines(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """One line of HEADS for each checkpoint and benchmark that was run. rows: of `core.scores.read_rows`."""
    return [
        (
            Checkpoint(Run(row["model"], row["method"], row["seed"]), row["step"]).path.as_posix(),
            row["benchmark"],
            str(row["samples"]),
            *(_percent(row[name]) for name in ("score", "pass_at_k", "maj_at_k")),
            "-" if row["response_tokens"] is None else f"{row['response_tokens']:.1f}",
            *(_percent(row[name] / row["responses"]) for name in ("truncated", "no_answer")),
        )
        for row in rows
        if row["benchmark"] not in AVERAGES and row["how"] != NOT_RUN
    ]


def text(rows: Iterable[Mapping[str, Any]]) -> str:
    """The lines in columns under their headings, and what the headings mean."""
    table = [HEADS, *lines(rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    form = " ".join(f"{{:{'<' if place < 2 else '>'}{width}}}" for place, width in enumerate(widths))
    return "\n".join([*(form.format(*line) for line in table), NOTE])


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.2f}"
