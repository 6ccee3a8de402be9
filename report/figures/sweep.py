"""The picture of a sweep: each method against the swept value, with intervals over its seeds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from report.figures.spec import LETTERS

# Column of sweep.csv -> its factor, title, label of the axis
PANELS: Mapping[str, tuple[float, str, str]] = {
    "area": (100, "Area under reward", "percent"),
    "score": (100, "Avg. (pooled)", "percent"),
    "rank": (1, "Rank among the methods", "rank, 1 is best"),
    "best": (100, "Probability of being best", "percent"),
    "regret": (100, "Below its own best value", "percent"),
}
ACROSS = 2
DODGE = 0.3  # of the distance between two values: methods stand side by side, so that their intervals can be read

Row = Mapping[str, Any]


def draw(
    axis: str, values: Sequence[Any], models: Sequence[Mapping[str, Any]], rows: Sequence[Row]
) -> dict[str, bytes]:
    """SVG, PNG and PDF: panels of a model, in each a line for every method (and value of further axes), 95 % intervals.

    A point at which a run failed has no mean: its seeds are drawn as crosses and the line is broken.
    axis: the first one of the sweep, with its `values`, which stand at equal distances; rows: of sweep.csv.
    """
    import matplotlib
    from matplotlib.figure import Figure

    from report.figures.draw import SETTINGS, WIDTH, saved

    matplotlib.use("agg")
    shown = [model for model in models if any(row["model"] == model["key"] for row in rows)]
    scored = any(row["score"] is not None for row in rows)
    panels = [column for column in PANELS if scored or column != "score"]
    own_rows = math.ceil(len(panels) / ACROSS)
    names = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    letters = iter(LETTERS)
    with matplotlib.rc_context(SETTINGS):
        methods = len({row["title"] for row in rows})  # lines of the legend below, at most
        height = 2.3 * own_rows * len(shown) + 0.5 + 0.1 * methods
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(own_rows * len(shown), ACROSS, squeeze=False)
        for place, model in enumerate(shown):
            own = [row for row in rows if row["model"] == model["key"]]
            places = axes[own_rows * place : own_rows * (place + 1)].ravel()
            for panel, column in zip(places, panels, strict=False):
                factor, title, label = PANELS[column]
                _fill(panel, own, column, factor)
                panel.set_xticks(range(len(names)), names)
                panel.set_xlabel(axis.removeprefix("training.").replace("_", " "))
                panel.set_ylabel(label)
                panel.set_xlim(-0.5, len(names) - 0.5)
                panel.set_title(f"({next(letters)}) {title}, {model['title']}", loc="left")
                if column == "rank":
                    panel.invert_yaxis()
                    panel.yaxis.get_major_locator().set_params(integer=True)
            for empty in places[len(panels) :]:
                empty.set_axis_off()
        handles, labels = axes[0][0].get_legend_handles_labels()
        # Titles of methods are long: three of them side by side are wider than the page.
        columns = 3 if max(map(len, labels)) < 24 else 2
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=3.2)
        return saved(figure)


def _fill(panel: Any, rows: Sequence[Row], column: str, factor: float) -> None:
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
        x = [place + DODGE * ((number + 0.5) / len(lines) - 0.5) for place in range(len(own))]
        y, low, high = (
            [_figure(row, column, row.get(name), factor) for row in own]
            for name in (column, f"{column}_low", f"{column}_high")
        )
        panel.plot(x, y, **style)
        panel.vlines(x, low, high, color=colour, linewidth=0.7)
        for place, row in zip(x, own, strict=True):
            if row["failed"] and f"{column}s_by_seed" in row:
                seeds = [factor * float(pair.partition(":")[2]) for pair in row[f"{column}s_by_seed"].split()]
                panel.plot([place] * len(seeds), seeds, "x", color=colour, markersize=4)
    panel.grid(axis="y", color=GRID, linewidth=0.6)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def _figure(row: Row, column: str, value: float | None, factor: float) -> float:
    """nan breaks the line: no value, or a mean over runs of which some failed."""
    broken = value is None or (row["failed"] and column != "rank")
    return math.nan if broken or value is None else factor * value
