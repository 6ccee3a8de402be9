"""From contrasts to a verdict: which of them decides, how sure that is, and Holm over the claims of a family."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from report.claims.contrast import Contrast
from report.claims.entry import Verdict
from report.claims.kinds import Outcome

ALPHA = 0.05


class Direction(NamedTuple):
    """What the numbers say before any correction over claims: as claimed (True), the opposite (False), or neither
    (None); the contrast that decides, and its p."""

    claimed: bool | None
    contrast: Contrast
    p: float | None


def direction(outcome: Outcome) -> Direction:
    """The weakest link. A claim about m contrasts of which a may fail holds when m - a of them do, so its p is the
    (m - a)-th smallest of those on the claimed side (an intersection-union test: no correction is due). It fails when
    a + 1 contrasts lie on the other side: its p is the (a + 1)-th smallest of theirs, after Holm over all m."""
    from evals.stats.holm import holm

    sign = 1.0 if outcome.side == "above" else -1.0
    apart = [None if c.value is None else sign * (c.value - c.null) for c in outcome.contrasts]
    adjusted = holm([c.p for c in outcome.contrasts])
    right = [(_certain(c.p), n) for n, (c, d) in enumerate(zip(outcome.contrasts, apart, strict=True)) if d and d > 0]
    wrong = [(_certain(p), n) for n, (p, d) in enumerate(zip(adjusted, apart, strict=True)) if d and d < 0]
    needed = len(outcome.contrasts) - outcome.allow
    if len(right) >= needed:
        _, n = sorted(right)[needed - 1]
        return Direction(True, outcome.contrasts[n], outcome.contrasts[n].p)
    if len(wrong) > outcome.allow:
        _, n = sorted(wrong)[outcome.allow]
        return Direction(False, outcome.contrasts[n], adjusted[n])
    n = min(range(len(apart)), key=lambda n: (apart[n] is not None, apart[n] or 0.0))
    return Direction(None, outcome.contrasts[n], None)


def family(found: Sequence[Direction]) -> list[tuple[Verdict, float | None]]:
    """Verdict and corrected p of each claim of a family."""
    from evals.stats.holm import holm

    adjusted = holm([each.p for each in found])
    return [(_verdict(each, p), p) for each, p in zip(found, adjusted, strict=True)]


def _verdict(found: Direction, p: float | None) -> Verdict:
    if found.claimed is None or p is None or p >= ALPHA or not _excludes(found.contrast):
        return "undecided"
    if found.contrast.at_least and found.contrast.value < found.contrast.null:  # type: ignore[operator]
        return "undecided"
    return "supported" if found.claimed else "contradicted"


def _excludes(contrast: Contrast) -> bool:
    """Whether the interval is there and does not hold the null."""
    low, high = contrast.low, contrast.high
    return low is not None and high is not None and not low <= contrast.null <= high


def _certain(p: float | None) -> float:
    """Contrasts without a p come last."""
    return 2.0 if p is None else p
