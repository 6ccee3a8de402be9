"""Draw a figure as SVG, PNG and PDF. How lines look is in `report.figures.spec`."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from report.figures.drawing import Drawing, Line, Panel
from report.figures.spec import GRID, INK, PAPER, SOFT, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXIS = "step (one rollout)"  # the paper says step, and not which: reading R34
WIDTH = 6.5  # inches: the text width of a letter or A4 page, so that print keeps the sizes below
TEXT = 8.0  # points, the smallest
ROW, HEADER, LEGEND_ROW, LEGEND_GAP = 2.3, 0.25, 0.19, 0.12  # inches: a row of panels, a line of words above, legend
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
    from matplotlib.lines import Line2D

    matplotlib.use("agg")  # no display on a compute node
    entries = {line.title: line.style for panel in drawing.panels for line in panel.lines}
    widths = [len(label) + HANDLE_CHARACTERS for label in entries]
    abreast = len(widths) if sum(widths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(widths))
    rows, legend_rows = -(-len(drawing.panels) // ACROSS), -(-len(entries) // abreast)
    with matplotlib.rc_context(SETTINGS):
        height = HEADER + rows * ROW + legend_rows * LEGEND_ROW + LEGEND_GAP
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        axes = figure.subplots(rows, ACROSS, squeeze=False).ravel()
        for place, (axis, panel) in enumerate(zip(axes, drawing.panels, strict=False)):
            _panel(axis, panel, "abcdefgh"[place])
        for axis in axes[len(drawing.panels) :]:
            axis.set_visible(False)
        figure.suptitle(_origin(drawing), x=0.995, ha="right", fontsize=TEXT, color=SOFT)
        figure.legend(
            [Line2D([], [], **_style(style)) for style in entries.values()],
            list(entries),
            loc="outside lower center",
            ncols=abreast,
            handlelength=3.2,  # long enough to show a dash pattern twice
            columnspacing=1.6,
        )
        return saved(figure)


def saved(figure: Figure) -> dict[str, bytes]:
    """The picture as `svg`, `png` and `pdf` bytes, without matplotlib's date and version."""
    import matplotlib
    from PIL import Image

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
