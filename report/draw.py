"""Pictures as SVG, PNG and PDF: a figure of `figures.yaml`, which `report.figure` fills, and that of `report.frontier`.

A figure's two files beside its picture:

<key>.csv    means and bands, one row per point of a line
<key>.json   the words: scale, models, what is left out

How lines look is in `report.figures`.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, zip_longest
from typing import TYPE_CHECKING, Any

from core.files import json_text, to_csv
from report import figures
from report.figures import GRID, INK, PAPER, SOFT, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

HEADER = (
    "figure", "panel", "quantity", "model", "method", "title", "rollout", "value", "low", "high", "seeds", "band",
    "unit", "line",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """One point of a line; the fields are columns of <key>.csv."""

    rollout: int
    value: float | None  # mean over all seeds of the line; None: one of them has no value here
    low: float | None  # smallest and largest seed; None for a single seed
    high: float | None
    seeds: int  # that have a value here


def points(seeds: Iterable[Sequence[float | None]]) -> tuple[Point, ...]:
    """Mean and range over seeds, each with a value by rollout.

    No mean where a seed has no value or has ended: it would be a mean over other seeds than the point before.
    """
    found = []
    for rollout, values in enumerate(zip_longest(*seeds), 1):
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            found.append(Point(rollout, None, None, None, len(known)))
            continue
        low, high = (min(known), max(known)) if len(known) > 1 else (None, None)
        found.append(Point(rollout, math.fsum(known) / len(known), low, high, len(known)))
    return tuple(found)


@dataclass(frozen=True)
class Line:
    """A method in a panel."""

    name: str  # in figures.yaml
    style: int  # position in `report.figures.STYLES`
    model: str
    method: str
    title: str
    points: tuple[Point, ...]
    by_seed: Mapping[int, tuple[float | None, ...]]  # what is drawn of each seed, by rollout
    ended: Mapping[int, int]  # seeds that collapsed, and at which rollout


@dataclass(frozen=True)
class Panel:
    id: str
    key: str  # of the quantity
    quantity: figures.Quantity
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class Drawing:
    figure: figures.Figure
    scale: str
    model: str  # title
    panels: tuple[Panel, ...]
    notes: tuple[str, ...]  # what could not be drawn, and why


def texts(drawing: Drawing) -> dict[str, str]:
    """The two files beside a picture, `csv` and `json`."""
    rows = (
        {"figure": drawing.figure.key, "panel": panel.id, "quantity": panel.key, "unit": panel.quantity.label}
        | {"model": line.model, "method": line.method, "title": line.title, "line": line.name}
        | asdict(point)
        | {"band": "smallest to largest seed" if point.low is not None else ""}
        for panel in drawing.panels
        for line in panel.lines
        for point in line.points
    )
    words = {"scale": drawing.scale, "models": [drawing.model], "notes": drawing.notes}
    return {"csv": to_csv(HEADER, rows), "json": json_text(words)}


# The picture of a figure.

AXIS = "step (one rollout)"  # the paper says step, and not which: reading R34
WIDTH = 6.5  # inches: the text width of a letter or A4 page, so that print keeps the sizes below
TEXT = 8.0  # points, the smallest
ROW, HEADLINE, LEGEND_ROW, LEGEND_GAP = 2.3, 0.25, 0.19, 0.12  # inches: a row of panels, a line of words above, legend
LEGEND_CHARACTERS, HANDLE_CHARACTERS = 96, 8  # in one line of the legend; a handle and its gaps
ACROSS = 2  # panels side by side
COLOURS = 64  # of the PNG: a third of the bytes, and no visible difference
RANGES = 6  # rollouts at which the range over seeds is drawn, at most
SPREAD = 0.4  # of the way from one of them to the next: taken up by the ranges of all lines, side by side
SETTINGS: Any = {
    "svg.hashsalt": "tepo-bench",  # ids in the file follow from the data instead of from chance
    "svg.fonttype": "none",  # text stays text: sharp, selectable, read aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": TEXT,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.titlesize": TEXT + 0.5,
    "axes.labelsize": TEXT,
    "xtick.labelsize": TEXT,
    "ytick.labelsize": TEXT,
    "legend.fontsize": TEXT,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "path.simplify": False,  # every point of the CSV is in the picture
}
# The PDF stands in a paper set in TeX: Times-like STIX, which comes with matplotlib, embedded as TrueType, since some
# publishers refuse Type 3. The family is looked up when text is drawn, so the same figure takes it.
IN_TEX: Any = {"font.sans-serif": ["STIXGeneral", "DejaVu Sans"], "pdf.fonttype": 42}


def render(drawing: Drawing) -> dict[str, bytes]:
    """The figure as `svg`, `png` and `pdf` bytes, without dates and random ids: equal data gives equal bytes."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("agg")  # no display on a compute node
    entries = {line.title: line.style for panel in drawing.panels for line in panel.lines}
    widths = [len(label) + HANDLE_CHARACTERS for label in entries]
    abreast = len(widths) if sum(widths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(widths))
    rows, legend_rows = -(-len(drawing.panels) // ACROSS), -(-len(entries) // abreast)
    with matplotlib.rc_context(SETTINGS):
        height = HEADLINE + rows * ROW + legend_rows * LEGEND_ROW + LEGEND_GAP
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, ACROSS, squeeze=False).ravel()
        for place, (axis, panel) in enumerate(zip(axes, drawing.panels, strict=False)):
            _panel(axis, panel, "abcdefgh"[place])
        for axis in axes[len(drawing.panels) :]:
            axis.set_visible(False)
        styles = {title: _style(place) for title, place in entries.items()}
        return _finished(figure, _origin(drawing), styles, abreast, 1.6)


def _finished(figure: Figure, words: str, styles: Mapping[str, Any], abreast: int, between: float) -> dict[str, bytes]:
    """The picture with words above and a legend below, as `svg`, `png` and `pdf` bytes without matplotlib's date and
    version.

    styles: by title in the legend. abreast: its entries in a line. between: their distance, in heights of its text.
    """
    import matplotlib
    from matplotlib.lines import Line2D
    from PIL import Image

    figure.suptitle(words, x=0.995, ha="right", fontsize=TEXT, color=SOFT)
    figure.legend(
        [Line2D([], [], **style) for style in styles.values()],
        list(styles),
        loc="outside lower center",
        ncols=abreast,
        handlelength=3.2,  # long enough to show a dash pattern twice
        columnspacing=between,
    )
    svg, png, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # the same places in all three; it would be solved again for each
    figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
    small = io.BytesIO()
    Image.open(png).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    with matplotlib.rc_context(IN_TEX):
        origin = {"CreationDate": None, "Creator": None, "Producer": None}
        figure.savefig(pdf, format="pdf", facecolor=PAPER, metadata=origin)
    return {"svg": svg.getvalue(), "png": small.getvalue(), "pdf": pdf.getvalue()}


def _origin(drawing: Drawing) -> str:
    """Where a figure comes from and what its thin lines are, for one that is taken out of its page."""
    lines = [line for panel in drawing.panels for line in panel.lines]
    counts = sorted({len(line.by_seed) for line in lines})
    seeds = f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seed{'s' if counts[-1] > 1 else ''}"
    if counts[-1] > 1:
        seeds = f"mean and range (thin) of {seeds}"
    marks = ["×: collapsed"] if any(line.ended for line in lines) else []
    return "; ".join([seeds, *marks, f"{drawing.scale} scale, {drawing.model}"])


def _style(place: int) -> dict[str, Any]:
    colour, dashes, width = STYLES[place]
    style: dict[str, Any] = {"color": colour, "linewidth": width}
    return {**style, "dashes": dashes} if dashes else {**style, "solid_capstyle": "round"}


def _panel(axis: Axes, panel: Panel, letter: str) -> None:
    """Draw a panel's lines; the axis begins at 0 where nothing lies below it, with room to see a 0."""
    from matplotlib.ticker import MaxNLocator

    for place, line in enumerate(panel.lines):
        _line(axis, line, (place + 0.5) / len(panel.lines) - 0.5)
    axis.set_title(f"({letter}) {panel.quantity.title}", loc="left")
    axis.set_xlabel(AXIS)
    axis.set_ylabel(panel.quantity.label)
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 4, 5, 10]))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.margins(x=0.02)
    if axis.dataLim.y0 >= 0:
        axis.set_ylim(-0.03 * axis.get_ylim()[1], axis.get_ylim()[1])


def _line(axis: Axes, line: Line, aside: float) -> None:
    """Draw the mean and thin ranges over seeds; where a run collapsed, and with it the mean, every seed for itself.

    aside: of the ranges, from -0.5 to 0.5, so that those of several lines stand beside each other.
    """
    style = _style(line.style)
    if not line.ended:
        axis.plot([point.rollout for point in line.points], _floats(p.value for p in line.points), **style)
        every = -(-len(line.points) // RANGES)
        ranges = [point for point in line.points[every - 1 :: every] if point.low is not None]
        x = [point.rollout + SPREAD * every * aside for point in ranges]
        low, high = _floats(p.low for p in ranges), _floats(p.high for p in ranges)
        axis.vlines(x, low, high, color=style["color"], linewidth=0.9)
        return
    single = style | {"linewidth": style["linewidth"] * (0.7 if len(line.by_seed) > 1 else 1.0)}
    for seed, values in line.by_seed.items():
        axis.plot(range(1, len(values) + 1), _floats(values), **single)
        if seed in line.ended:
            axis.plot([len(values)], _floats(values[-1:]), marker="x", markersize=6, color=style["color"], zorder=5)


def _floats(values: Iterable[float | None]) -> list[float]:
    """Unknown becomes nan here and only here: matplotlib leaves a gap in the line."""
    return [float("nan") if value is None else value for value in values]


# The picture of sweep/frontier.csv and matched.csv.

PANEL, METHOD = 3.0, 0.24  # inches: the height of a model at least, and of a method on its right


def frontier(
    rows: Sequence[Mapping[str, Any]],
    matched: Sequence[Mapping[str, Any]],
    scale: str,
    models: Mapping[str, str],
    baseline: str,
) -> dict[str, bytes]:
    """The picture as `svg`, `png` and `pdf` bytes; equal rows give equal bytes.

    rows: of frontier.csv; a point without movement is not drawn. matched: of matched.csv. models: key -> title.
    baseline: title of the method that the others are compared with, drawn black.
    """
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.use("agg")
    drawn = [row for row in rows if row["movement"] is not None]
    keys = list(dict.fromkeys(row["model"] for row in rows))
    titles = list(dict.fromkeys(row["title"] for row in rows))
    styles = line_styles(rows, baseline)
    with matplotlib.rc_context(SETTINGS):
        abreast = max(1, LEGEND_CHARACTERS // (max(map(len, titles)) + HANDLE_CHARACTERS))
        height = max(PANEL, METHOD * len(titles)) * len(keys) + 0.3 + -(-len(titles) // abreast) * LEGEND_ROW
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(len(keys), 2, squeeze=False)
        for (axis, beside), key in zip(axes, keys, strict=True):
            _differences(beside, [row for row in matched if row["model"] == key], baseline)
            for title, style in styles.items():
                line = sorted(
                    (row for row in drawn if (row["model"], row["title"]) == (key, title)), key=lambda r: r["movement"]
                )
                x, y = [row["movement"] for row in line], [100 * row["area"] for row in line]
                axis.plot(x, y, marker="o", markersize=3, **style)
                own = [(a, b) for a, b, row in zip(x, y, line, strict=True) if row["own"] == "yes"]
                axis.plot(*zip(*own, strict=True), "o", markersize=6, color=style["color"]) if own else None
            axis.set_xscale("log")
            axis.set_title(models[key], loc="left")
            axis.set_xlabel("movement: KL of a rollout, nats a token")
            axis.set_ylabel("area under the reward curve, %")
            axis.grid(color=GRID, linewidth=0.6)
            axis.set_axisbelow(True)
        return _finished(figure, f"large points: the scale's own settings; {scale} scale", styles, abreast, 2.0)


def line_styles(rows: Sequence[Mapping[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """Title -> how its line looks: black the baseline, the others as in every picture of the page.

    A method without a look in figures.yaml gets none that another has there: the overview shows both pictures.
    """
    taken = figures.given()
    own = {row["title"]: STYLES[taken[row["row"]]] for row in rows if row["row"] in taken}
    free = cycle(look for place, look in enumerate(figures.looks()) if look[0] != INK and place not in taken.values())
    styles: dict[str, dict[str, Any]] = {}
    for title in dict.fromkeys(row["title"] for row in rows):
        colour, dashes, width = own.get(title) or next(free)
        styles[title] = {"color": colour, "linewidth": 0.8 * width, **({"dashes": dashes} if dashes else {})}
    return styles | ({baseline: {"color": INK, "linewidth": 2.4, "zorder": 4}} if baseline in styles else {})


def _differences(axis: Any, rows: Sequence[Mapping[str, Any]], baseline: str) -> None:
    """Draw each row's two differences in points with their intervals, the largest at own settings on top."""
    rows = sorted(rows, key=lambda row: row["total"] if row["total"] is not None else float("-inf"))
    for name, place, face in (("total", 0.15, "white"), ("difference", -0.15, INK)):  # columns of matched.csv
        found = [
            (100 * row[name], 100 * row[f"{name}_low"], 100 * row[f"{name}_high"], y + place)
            for y, row in enumerate(rows)
            if row[name] is not None and row[f"{name}_low"] is not None
        ]
        if found:
            x, low, high, y = zip(*found, strict=True)
            axis.hlines(y, low, high, color=INK if face == INK else SOFT, linewidth=1)
            axis.plot(x, y, "o", markersize=4, color=INK, markerfacecolor=face)
    axis.axvline(0, color=INK, linewidth=0.8)
    axis.set_yticks(range(len(rows)), [row["title"] for row in rows])
    axis.set_xlabel(f"area − {baseline}'s, points")
    axis.set_title("○ own settings  ● equal movement", loc="right", fontsize=TEXT)
    axis.grid(axis="x", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
