"""Draw pictures as SVG, PNG and PDF: line styles, and the frame of all pictures.

Equal data gives equal bytes: files contain neither dates nor random ids.
"""

import io
from collections.abc import Callable, Iterable, Mapping
from itertools import cycle
from typing import Any

from core.provenance import ROOT

# Okabe and Ito's colours are distinguishable with the common colour-vision deficiencies. Every line also has a
# distinct dash pattern, so that lines stay distinguishable in grey print.
INK, SOFT, PAPER = "#1f2328", "#57606a", "#ffffff"

# Colour, dash pattern (on, off, ...; empty: solid), width in points; figures.yaml gives each line's index here.
Look = tuple[str, tuple[float, ...], float]
STYLES: tuple[Look, ...] = (
    ("#0072b2", (), 1.5),
    ("#d55e00", (), 2.2),
    ("#009e73", (5, 1.6), 1.5),
    ("#cc79a7", (1.2, 1.4), 2.0),
    ("#e69f00", (6, 1.5, 1.2, 1.5), 1.5),
    ("#56b4e9", (3, 1.2), 1.5),
    ("#7f7f7f", (8, 2, 1.2, 2, 1.2, 2), 1.5),
    (INK, (), 1.8),
)
WIDTH = 6.5  # inches: the text width of a letter or A4 page, so that print keeps the sizes below
TEXT = 8.0  # points, the smallest
LEGEND_ROW = 0.19  # inches
LEGEND_CHARACTERS, HANDLE_CHARACTERS = 96, 8  # in one line of the legend; a handle and its gaps
COLOURS = 64  # of the PNG: a third of the bytes without a visible difference
SETTINGS = ROOT / "report/figures.mplstyle"
# The PDF is for papers set in TeX. Its font is STIX (like Times, part of matplotlib), embedded as TrueType: some
# publishers reject Type 3. matplotlib looks up the family when it draws text, so this works on an existing figure.
IN_TEX: Any = {"font.sans-serif": ["STIXGeneral", "DejaVu Sans"], "pdf.fonttype": 42}


def looks(keys: Iterable[str], given: Mapping[str, int]) -> dict[str, Look]:
    """Return one look for each key: that of figures.yaml (`given`: position in STYLES), else the next one that no
    figure uses. After STYLES come its colours with the other dash patterns: enough distinct looks for a readable chart.
    """
    coloured = STYLES[:-1]
    more = [
        (colour, coloured[(place + turn) % len(coloured)][1], width)
        for turn in range(1, len(coloured))
        for place, (colour, _, width) in enumerate(coloured)
    ]
    every = list(dict.fromkeys([*STYLES, *more]))  # two patterns are solid: some rotations repeat a look
    free = cycle(look for place, look in enumerate(every) if place not in given.values())
    return {key: every[given[key]] if key in given else next(free) for key in dict.fromkeys(keys)}


def style(look: Look, scale: float = 1.0) -> dict[str, Any]:
    """Return a look as matplotlib's arguments; `scale` multiplies the width."""
    colour, dashes, width = look
    return {"color": colour, "linewidth": scale * width} | ({"dashes": dashes} if dashes else {})


def picture(
    rows: int,
    columns: int,
    row_height: float,
    styles: Mapping[str, Mapping[str, Any]],
    words: str,
    fill: Callable[[Any], None],
) -> dict[str, bytes]:
    """Return a picture as `svg`, `png` and `pdf` bytes: a grid of axes that `fill` draws on, with words above and a
    legend (title -> style) below. row_height: in inches."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from PIL import Image

    matplotlib.use("agg")  # compute nodes have no display
    widths = [len(label) + HANDLE_CHARACTERS for label in styles]
    abreast = len(widths) if sum(widths) <= LEGEND_CHARACTERS else max(1, LEGEND_CHARACTERS // max(widths))
    height = 0.37 + rows * row_height - (-len(widths) // abreast) * LEGEND_ROW
    svg, png, pdf, small = io.BytesIO(), io.BytesIO(), io.BytesIO(), io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "tepo-bench"}, SETTINGS):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        grid = figure.subplots(rows, columns, squeeze=False)
        fill(grid)
        figure.suptitle(words, x=0.995, ha="right", fontsize=TEXT, color=SOFT)
        handles = [Line2D([], [], **look) for look in styles.values()]
        figure.legend(handles, list(styles), loc="outside lower center", ncols=abreast)
        figure.savefig(svg, format="svg", facecolor=PAPER, metadata={"Date": None, "Creator": None})
        figure.set_layout_engine("none")  # keep positions equal in all three; each save would solve the layout again
        figure.savefig(png, format="png", facecolor=PAPER, dpi=160, metadata={"Software": None})
        Image.open(png).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
        with matplotlib.rc_context(IN_TEX):
            origin = {"CreationDate": None, "Creator": None, "Producer": None}
            figure.savefig(pdf, format="pdf", facecolor=PAPER, metadata=origin)
    return {"svg": svg.getvalue(), "png": small.getvalue(), "pdf": pdf.getvalue()}
