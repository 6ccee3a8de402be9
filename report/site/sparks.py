"""Small curves of a run page as SVG text: the run in colour, what it is compared with in grey behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 660, 288  # fine enough that whole numbers will do: they keep the page small
LEFT, RIGHT, TOP, BOTTOM = 102, 18, 24, 48

Values = Sequence[float | None]


@dataclass(frozen=True)
class Spark:
    """One small picture. `path` and `behind` are SVG path data; low, high and last are what stands at the axes."""

    title: str
    unit: str
    path: str
    behind: str
    low: str
    high: str
    last: str
    end: int


def spark(title: str, unit: str, values: Values, behind: Values) -> Spark | None:
    """None for a run without any figure of this kind. The axis begins at 0 unless figures lie below it."""
    known = [value for value in [*values, *behind] if value is not None]
    if not any(value is not None for value in values):
        return None
    low, high = min(0.0, *known), max(known)
    if high == low:
        high = low + 1
    count = max(len(values), len(behind))

    def line(series: Values) -> str:
        return _path(series, count, low, high)

    last = next(value for value in reversed(values) if value is not None)
    return Spark(title, unit, line(values), line(behind), _short(low), _short(high), _short(last), count)


def _path(values: Values, count: int, low: float, high: float) -> str:
    """Path data; an unknown value is a gap, and a value between two gaps a dot."""
    parts, pen = [], "M"
    for number, value in enumerate(values):
        if value is None:
            pen = "M"
            continue
        x = LEFT + (WIDTH - LEFT - RIGHT) * (number / (count - 1) if count > 1 else 0.5)
        y = TOP + (HEIGHT - TOP - BOTTOM) * (1 - (value - low) / (high - low))
        alone = pen == "M" and (number + 1 == len(values) or values[number + 1] is None)
        parts.append(f"{pen}{x:.0f} {y:.0f}" + ("h1" if alone else ""))
        pen = "L"
    return "".join(parts)


def _short(value: float) -> str:
    return f"{value:.3g}"
