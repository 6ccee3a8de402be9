"""Draw a figure: SVG and PNG, the same bytes for the same data.

Colours are Okabe and Ito's (distinguishable with the common colour-vision deficiencies); every line also has its own
dash pattern, so a grey print still tells them apart.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from report.curves import Drawing, Line
from report.figure_spec import Panel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colour, dash pattern (on, off, ...; empty: solid), width in points. Line n of figures.yaml takes entry n everywhere.
STYLES: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("#0072b2", (), 1.5),
    ("#d55e00", (), 2.2),
    ("#009e73", (5, 1.6), 1.5),
    ("#cc79a7", (1.2, 1.4), 2.0),
    ("#e69f00", (6, 1.5, 1.2, 1.5), 1.5),
    ("#56b4e9", (3, 1.2), 1.5),
    ("#7f7f7f", (8, 2, 1.2, 2, 1.2, 2), 1.5),
)
INK, SOFT, GRID, PAPER = "#1f2328", "#57606a", "#d8dee4", "#ffffff"
LEGEND_CHARACTERS, HANDLE_CHARACTERS = 112, 8  # one line below a figure of this width; a handle and its gaps
SETTINGS: Any = {
    "svg.hashsalt": "tepo-bench",
    "svg.fonttype": "none",  # text stays text: sharp, selectable, read aloud
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": SOFT,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.titlesize": 9.5,
    "axes.linewidth": 0.7,
    "legend.frameon": False,
    "path.simplify": False,
}


def render(drawing: Drawing) -> dict[str, bytes]:
    """The figure as `svg` and `png` bytes; no dates, no random ids."""
    import matplotlib

    matplotlib.use("agg")
    with matplotlib.rc_context(SETTINGS):
        figure = _figure(drawing)
        svg, png = io.BytesIO(), io.BytesIO()
        figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
        figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
    return {"svg": svg.getvalue(), "png": png.getvalue()}


def css_colours() -> dict[str, str]:
    """Colour in our SVG files -> variable of the page's style sheet, which has light and dark values for it."""
    lines = {colour: f"--line-{place}" for place, (colour, _, _) in enumerate(STYLES)}
    return {INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper", **lines}


def _figure(drawing: Drawing) -> Figure:
    from matplotlib.figure import Figure

    panels = drawing.figure.panels
    across = 2
    down = -(-len(panels) // across)
    figure = Figure(figsize=(7.4, 0.75 + 2.35 * down), layout="constrained")
    axes = figure.subplots(down, across, squeeze=False).ravel()
    for letter, panel, axis in zip("abcdefgh", panels, axes, strict=False):
        lines = [line for line in drawing.lines if line.panel == panel]
        _panel(axis, panel, lines, f"({letter}) {panel.title}")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    handles, labels = axes[0].get_legend_handles_labels()
    widths = [len(label) + HANDLE_CHARACTERS for label in labels]
    fitting = len(labels) if sum(widths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(widths))
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=fitting,
        handlelength=3.2,
        columnspacing=1.6,
    )
    figure.suptitle(_origin(drawing), x=0.995, ha="right", fontsize=7.5, color=SOFT)
    return figure


def _origin(drawing: Drawing) -> str:
    """A figure taken out of its page still says where it comes from and what its bands are."""
    several = any(len(line.seeds) > 1 for line in drawing.lines)
    band = "band: smallest to largest seed; " if several else ""
    return f"{band}{drawing.scale} scale, {drawing.model['title']}"


def _panel(axis: Axes, panel: Panel, lines: Sequence[Line], title: str) -> None:
    from matplotlib.ticker import MaxNLocator

    for line in lines:
        colour, dashes, width = STYLES[line.place % len(STYLES)]
        x = [point.rollout for point in line.points]
        style: dict[str, Any] = {"color": colour, "linewidth": width, "solid_capstyle": "round"}
        if dashes:
            style["dashes"] = dashes
        axis.plot(x, _floats(p.value for p in line.points), label=legend(line), **style)
        if any(point.low is not None for point in line.points):
            low, high = _floats(p.low for p in line.points), _floats(p.high for p in line.points)
            axis.fill_between(x, low, high, color=colour, alpha=0.16, linewidth=0)
    axis.set_title(title, loc="left")
    axis.set_xlabel("rollout")
    axis.set_ylabel(panel.label)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=7))
    axis.yaxis.set_major_locator(MaxNLocator(nbins=5))
    axis.grid(axis="y", color=GRID, linewidth=0.6)
    axis.set_axisbelow(True)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)
    if all((p.value or 0) >= 0 for line in lines for p in line.points):
        axis.set_ylim(bottom=0)
    axis.margins(x=0.02)


def legend(line: Line) -> str:
    """`TEPO (1 seed)`: a single seed is said to be one."""
    return f"{line.title} ({len(line.seeds)} seed{'s' if len(line.seeds) > 1 else ''})"


def _floats(values: Any) -> list[float]:
    """Unknown becomes nan here and only here: matplotlib leaves a gap in the line."""
    return [float("nan") if value is None else value for value in values]
