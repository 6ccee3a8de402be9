"""Draw a figure as SVG, PNG and PDF. How lines look is in `report.figures.spec`."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from report.figures.drawing import Drawing, DrawnBlock, DrawnPanel, Line
from report.figures.spec import ALONE, GRID, INK, LETTERS, PAPER, SOFT, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

AXIS = "step (one rollout)"  # the paper says step, and not which: reading R34
WIDTH = 6.5  # inches: the text width of a letter or A4 page, so that print keeps the sizes below
TEXT = 8.0  # points, the smallest
ROW, NARROW_ROW, HEADER = 1.95, 1.45, 0.25  # inches: a row of panels, of repeated ones; a line of words above
LEGEND_ROW, LEGEND_GAP = 0.19, 0.12
CHARACTER = 5.3  # points: a wide average of the smallest text
LEGEND_CHARACTERS, HANDLE_CHARACTERS = 96, 8  # one line below a block of this width; a handle and its gaps
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
    heights = [_height(block) for block in drawing.blocks]
    with matplotlib.rc_context(SETTINGS):
        figure = Figure(figsize=(WIDTH, HEADER + sum(heights)), layout="constrained")
        parts = figure.subfigures(len(heights), 1, height_ratios=heights, squeeze=False).ravel()
        letters = iter(LETTERS)
        for part, block in zip(parts, drawing.blocks, strict=True):
            _block(part, block, letters)
        figure.suptitle(_origin(drawing), x=0.995, ha="right", fontsize=TEXT, color=SOFT)
        return saved(figure)


def saved(figure: Figure) -> dict[str, bytes]:
    """The picture as `svg`, `png` and `pdf` bytes, without matplotlib's date and version."""
    import matplotlib

    svg, png, pdf = io.BytesIO(), io.BytesIO(), io.BytesIO()
    figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # the same places in all three; it would be solved again for each
    figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
    with matplotlib.rc_context(IN_TEX):
        origin = {"CreationDate": None, "Creator": None, "Producer": None}
        figure.savefig(pdf, format="pdf", facecolor=PAPER, metadata=origin)
    return {"svg": svg.getvalue(), "png": png.getvalue(), "pdf": pdf.getvalue()}


def _height(block: DrawnBlock) -> float:
    rows = -(-len(block.cells) // block.across)
    legend_rows = -(-len(_entries(block)) // _abreast(block))
    title = HEADER if block.block.title else 0.0
    return rows * (NARROW_ROW if block.block.repeated else ROW) + legend_rows * LEGEND_ROW + LEGEND_GAP + title


def _origin(drawing: Drawing) -> str:
    """A figure taken out of its page still says where it comes from and what its bands are."""
    counts = sorted({len(line.by_seed) for line in drawing.lines})
    seeds = f"{' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))} seed{'s' if counts[-1] > 1 else ''}"
    if counts[-1] > 1:
        seeds = f"mean and range of {seeds}"
    marks = ["×: collapsed"] if any(line.ended for line in drawing.lines) else []
    models = [drawing.models[0]] if len(drawing.models) == 1 else []
    return "; ".join([seeds, *marks, ", ".join([f"{drawing.scale} scale", *models])])


def _block(part: SubFigure, drawn: DrawnBlock, letters: Iterator[str]) -> None:
    from matplotlib.lines import Line2D

    across, cells = drawn.across, drawn.cells
    axes = part.subplots(-(-len(cells) // across), across, squeeze=False).ravel()
    for place, axis in enumerate(axes):
        cell = cells[place] if place < len(cells) else None
        if cell is None:
            axis.set_visible(False)
            continue
        # In a grid, titles stand above the first row only, the axis title below the last, units at the left.
        above = cells[place - across] if place >= across else None
        title = cell.title if drawn.block.repeated else f"({next(letters)}) {cell.title}"
        _panel(axis, cell, drawn, "" if above and above.title == title else title)
        if place + across < len(cells) and cells[place + across] is not None:
            axis.tick_params(labelbottom=False)
        else:
            axis.set_xlabel(AXIS)
        if not drawn.block.repeated or not any(cells[place - place % across : place]):
            axis.set_ylabel("\n".join(filter(None, (cell.panel.quantity.label, cell.setting))))
        else:
            axis.tick_params(labelleft=False)
    for quantity in dict.fromkeys(cell.panel.quantity for cell in drawn.panels):
        same = [axis for axis, cell in zip(axes, cells, strict=False) if cell and cell.panel.quantity == quantity]
        _share(same, log=quantity.log)
    if drawn.block.title:
        part.suptitle(drawn.block.title, x=0.01, ha="left", fontsize=TEXT + 0.5)
    entries = _entries(drawn)
    part.legend(
        [Line2D([], [], **_style(place)) for place in entries.values()],
        list(entries),
        loc="outside lower center",
        ncols=_abreast(drawn),
        handlelength=3.2,  # long enough to show a dash pattern twice
        columnspacing=1.6,
    )


def _entries(block: DrawnBlock) -> dict[str, int]:
    """Text and style of every line in the legend; lines that stand alone are named by their panels' titles."""
    lines = [line for drawn in block.panels for line in drawn.lines]
    entries = {line.title: line.place for line in lines if not line.alone}
    if any(line.alone for line in lines):
        entries["the method named above"] = ALONE
    return entries


def _abreast(block: DrawnBlock) -> int:
    """Legend entries in one row: all where they fit, or as many as fit at the widest one's width."""
    widths = [len(label) + HANDLE_CHARACTERS for label in _entries(block)]
    return len(widths) if sum(widths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(widths))


def _style(place: int) -> dict[str, Any]:
    colour, dashes, width = STYLES[place]
    style: dict[str, Any] = {"color": colour, "linewidth": width}
    return {**style, "dashes": dashes} if dashes else {**style, "solid_capstyle": "round"}


def _panel(axis: Axes, cell: DrawnPanel, drawn: DrawnBlock, title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    narrow = drawn.across > 2  # three panels or more in a row: fewer ticks, smaller titles
    for line in cell.lines:
        _line(axis, line)
    if cell.panel.quantity.log:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")  # powers would be set smaller than the rest
        axis.yaxis.set_minor_formatter("")
    else:
        axis.yaxis.set_major_locator(MaxNLocator(nbins=4 if narrow else 5, steps=[1, 2, 2.5, 5, 10]))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4 if narrow else 8, steps=[1, 2, 4, 5, 10]))
    width = int(WIDTH * 72 / drawn.across / CHARACTER)
    axis.set_title(textwrap.fill(title, width), loc="left", fontsize=TEXT if narrow else TEXT + 0.5)
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    axis.margins(x=0.02)


def _line(axis: Axes, line: Line) -> None:
    """Mean and band; every seed for itself where a run collapsed, since its mean would end there too."""
    style = _style(line.place)
    if not line.ended:
        x = [point.rollout for point in line.points]
        axis.plot(x, _floats(p.value for p in line.points), **style)
        if any(point.low is not None for point in line.points):
            low, high = _floats(p.low for p in line.points), _floats(p.high for p in line.points)
            axis.fill_between(x, low, high, color=style["color"], alpha=0.16, linewidth=0)
        return
    single = style | {"linewidth": style["linewidth"] * (0.7 if len(line.by_seed) > 1 else 1.0)}
    for seed, values in line.by_seed.items():
        axis.plot(range(1, len(values) + 1), _floats(values), **single)
        if seed in line.ended:
            axis.plot([len(values)], _floats(values[-1:]), marker="x", markersize=6, color=style["color"], zorder=5)


def _share(axes: Sequence[Axes], *, log: bool) -> None:
    """The same range for every panel of one quantity; from 0 where nothing lies below it, with room to see a 0."""
    low, high = min(axis.get_ylim()[0] for axis in axes), max(axis.get_ylim()[1] for axis in axes)
    from_zero = not log and all(axis.dataLim.y0 >= 0 for axis in axes)
    for axis in axes:
        axis.set_ylim(-0.03 * high if from_zero else low, high)


def _floats(values: Iterable[float | None]) -> list[float]:
    """Unknown becomes nan here and only here: matplotlib leaves a gap in the line."""
    return [float("nan") if value is None else value for value in values]
