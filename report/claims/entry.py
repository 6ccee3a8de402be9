"""One line of a ledger, and what its words mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal, get_args

from report.claims.contrast import POINTS

Verdict = Literal["supported", "contradicted", "undecided", "not testable at this scale"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
MEANING: dict[Verdict, str] = {
    "supported": "the 95 % interval excludes the null on the claimed side, after Holm over the claims of its family",
    "contradicted": "it excludes the null on the other side, after the same correction",
    "undecided": "neither, or there is no figure; the smallest difference that would have been seen is given",
    "not testable at this scale": "the numbers of this scale cannot speak about the claim; what they are is shown",
}


@dataclass(frozen=True)
class Entry:
    """A claim and its verdict.

    statement: what exactly was tested here; at embedded scale this is not the paper's sentence. estimate, low, high,
    null, detectable: in `unit`, of the contrast that decides (`tested`, one of `parts`). claimed: the side of `null` on
    which the claim puts it. p_holm: p corrected for the `tests` claims of the family. n: units drawn at `level`; seeds:
    training seeds behind it. variant: other training settings (None: the scale's own), learning_rate: theirs.
    runs: folders below the results folder, or rows of the printed tables. reason: why no verdict, or what to know.
    """

    ledger: Literal["paper", "ours"]
    id: str
    family: str
    where: str
    quote: str
    statement: str
    scale: str
    variant: str | None
    learning_rate: float | None
    reading: str | None
    kind: str
    verdict: Verdict
    reason: str
    tested: str = ""
    parts: int = 0
    claimed: str = ""
    estimate: float | None = None
    null: float | None = None
    low: float | None = None
    high: float | None = None
    unit: str = ""
    level: str = ""
    how: str = ""
    n: int | None = None
    seeds: tuple[int, ...] = ()
    p: float | None = None
    p_holm: float | None = None
    tests: int | None = None
    detectable: float | None = None
    needs: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"{self.id}: verdict {self.verdict!r} is none of {', '.join(VERDICTS)}")
        if self.verdict in ("supported", "contradicted"):
            ends = (self.low, self.high, self.null)
            if None in ends or self.low <= self.null <= self.high:  # type: ignore[operator]
                raise ValueError(f"{self.id}: {self.verdict} with an interval {self.low} to {self.high}: not outside")


def amount(value: float | None, unit: str) -> str:
    """A figure as it is shown: points with two decimals, everything else with three digits. Unknown is empty."""
    if value is None:
        return ""
    return f"{100 * value:.2f}" if unit == POINTS else f"{value:.3g}"


COLUMNS = tuple(field.name for field in fields(Entry))
"""Columns of claims.csv."""


def row(entry: Entry) -> dict[str, object]:
    """The entry as a line of claims.csv: several things of a cell stand apart by a blank."""
    values = {name: getattr(entry, name) for name in COLUMNS}
    return {name: " ".join(map(str, v)) if isinstance(v, tuple) else v for name, v in values.items()}
