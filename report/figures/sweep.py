"""The picture of a sweep: each method against the swept value, with intervals over its seeds."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

LETTERS = "abcdefghijklmnopqrstuvwxyz"
# Panel -> column of sweep.csv, its factor, title, label of the axis
PANELS: Mapping[str, tuple[str, float, str, str]] = {
    "area": ("area", 100, "Area under reward", "percent"),
    "score": ("score", 100, "Avg. (pooled)", "percent"),
    "rank": ("rank", 1, "Rank among the methods", "rank, 1 is best"),
    "best": ("best", 100, "Probability of being best", "percent"),
    "regret": ("regret", 100, "Below its own best value", "percent"),
}
ACROSS = 2
DODGE = 0.3  # of the distance between two values: methods stand side by side, so that their intervals can be read

Row = Mapping[str, Any]


def draw(
    axis: str, values: Sequence[Any], models: Sequence[Mapping[str, Any]], rows: Sequence[Row]
) -> dict[str, bytes]:
    """SVG, PNG and PDF: panels of a model, in each a line for every method (and value of further axes), 95 % intervals.

    A point at which a run failed has no mean: its seeds are drawn as crosses and the line is broken.
    axis: the first one of the sweep, with its `values`; rows: of sweep.csv, their values as numbers.
    """
    import matplotlib
    from matplotlib.figure import Figure

    from report.figures.draw import IN_TEX, SETTINGS, WIDTH
    from report.figures.spec import PAPER

    matplotlib.use("agg")
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    places = {value: float(value) if numbers else float(n) for n, value in enumerate(values)}
    shown = [model for model in models if any(row["model"] == model["key"] for row in rows)]
    scored = any(row["score"] is not None for row in rows)
    panels = [panel for key, panel in PANELS.items() if scored or key != "score"]
    own_rows = math.ceil(len(panels) / ACROSS)
    down = own_rows * len(shown)
    log = numbers and is_geometric([float(v) for v in values])
    with matplotlib.rc_context(SETTINGS):
        methods = len({row["title"] for row in rows})  # lines of the legend below, at most
        figure = Figure(figsize=(WIDTH, 2.3 * down + 0.5 + 0.1 * methods), layout="constrained")
        axes = figure.subplots(down, ACROSS, squeeze=False)
        for line, model in enumerate(shown):
            own = [row for row in rows if row["model"] == model["key"]]
            for number, (column, factor, title, label) in enumerate(panels):
                panel = axes[own_rows * line + number // ACROSS][number % ACROSS]
                _fill(panel, own, column, factor, places, log)
                if log:
                    panel.set_xscale("log")
                    panel.minorticks_off()
                panel.set_xticks(list(places.values()), [f"{v:g}" if numbers else str(v) for v in values])
                panel.set_xlabel(axis.removeprefix("training.").replace("_", " "))
                panel.set_ylabel(label)
                if column == "rank":
                    panel.invert_yaxis()
                    panel.yaxis.get_major_locator().set_params(integer=True)
                letter = LETTERS[len(panels) * line + number]
                panel.set_xlim(*limits(list(places.values()), log))
                panel.set_title(f"({letter}) {title}, {model['title']}", loc="left")
            for empty in range(len(panels), own_rows * ACROSS):
                axes[own_rows * line + empty // ACROSS][empty % ACROSS].set_axis_off()
        handles, labels = axes[0][0].get_legend_handles_labels()
        # Titles of methods are long: three of them side by side are wider than the page.
        columns = 3 if max(map(len, labels)) < 24 else 2
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)
        svg, png, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
        with matplotlib.rc_context(IN_TEX):
            origin = {"CreationDate": None, "Creator": None, "Producer": None}
            figure.savefig(pdf, format="pdf", facecolor=PAPER, metadata=origin)
    return {"svg": svg.getvalue(), "png": png.getvalue(), "pdf": pdf.getvalue()}


def _fill(panel: Any, rows: Sequence[Row], column: str, factor: float, places: Mapping[Any, float], log: bool) -> None:
    from report.figures.spec import GRID, looks

    lines: dict[str, list[Row]] = {}
    for row in rows:
        rest = row["values"].partition(" ")[2]  # of further axes
        lines.setdefault(row["title"] + (f", {rest}" if rest else ""), []).append(row)
    # Some looks share colour and dashes and differ in width alone: the first of them is taken.
    unlike: dict[tuple[str, tuple[float, ...]], float] = {}
    for colour, dashes, width in looks():
        unlike.setdefault((colour, dashes), width)
    styles = [(*look, width) for look, width in unlike.items()]
    for number, (name, own) in enumerate(lines.items()):
        colour, dashes, width = styles[number % len(styles)]
        style: Any = {"color": colour, "linewidth": width, "marker": "o", "markersize": 3, "label": name}
        style |= {"dashes": dashes} if dashes else {}
        x = dodged(list(places.values()), (number + 0.5) / len(lines) - 0.5, log)
        y = [_figure(row, column, row[column], factor) for row in own]
        panel.plot(x, y, **style)
        low = [_figure(row, column, row.get(f"{column}_low"), factor) for row in own]
        high = [_figure(row, column, row.get(f"{column}_high"), factor) for row in own]
        panel.vlines(x, low, high, color=colour, linewidth=0.7)
        if f"{column}s_by_seed" in own[0]:
            for place, row in zip(x, own, strict=True):
                if row["failed"]:
                    seeds = [factor * float(pair.partition(":")[2]) for pair in row[f"{column}s_by_seed"].split()]
                    panel.plot([place] * len(seeds), seeds, "x", color=colour, markersize=4)
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def dodged(places: Sequence[float], share: float, log: bool) -> list[float]:
    """Places on an axis, each moved by `share` (-1/2 to 1/2) of `DODGE` times the smallest distance between two.

    >>> dodged([1.0, 2.0, 4.0], 0.5, log=False)
    [1.15, 2.15, 4.15]
    """
    scaled = [math.log(place) for place in places] if log else list(places)
    step = min((b - a for a, b in pairwise(sorted(scaled))), default=0.0)
    moved = [place + share * DODGE * step for place in scaled]
    return [math.exp(place) for place in moved] if log else moved


def _figure(row: Row, column: str, value: float | None, factor: float) -> float:
    """nan breaks the line: no value, or a mean over runs of which some failed."""
    broken = value is None or (row["failed"] and column != "rank")
    return math.nan if broken or value is None else factor * value


def limits(places: Sequence[float], log: bool) -> tuple[float, float]:
    """The same for every panel, whatever is missing in it: half a step beyond the values."""
    room = 0.5 / DODGE
    return min(dodged(places, -room, log)), max(dodged(places, room, log))


def is_geometric(values: Sequence[float]) -> bool:
    """Whether positive values lie more evenly on a logarithmic axis than on a linear one.

    >>> is_geometric([5e-5, 1e-4, 2e-4]), is_geometric([0.1, 0.2, 0.3])
    (True, False)
    """
    ordered = sorted(values)
    if len(ordered) < 3 or ordered[0] <= 0:
        return len(ordered) == 2 and ordered[0] > 0 and ordered[1] / ordered[0] >= 5

    def unevenness(places: Sequence[float]) -> float:
        steps = [b - a for a, b in pairwise(places)]
        return max(steps) / min(steps)

    return unevenness([math.log(value) for value in ordered]) < unevenness(ordered)
