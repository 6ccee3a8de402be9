"""Draw sweep/frontier.csv and matched.csv.

Left: the area under the reward curve against movement, a line for each method. Right: each method minus the baseline,
at the scale's own settings and at equal movement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

from report.figures.draw import HANDLE_CHARACTERS, LEGEND_CHARACTERS, LEGEND_ROW, SETTINGS, TEXT, WIDTH, saved
from report.figures.spec import GRID, INK, SOFT, STYLES, given, looks

PANEL, METHOD = 3.0, 0.24  # inches: the height of a model at least, and of a method on its right


def draw(
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
    from matplotlib.lines import Line2D

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
        words = f"large points: the scale's own settings; {scale} scale"
        figure.suptitle(words, x=0.995, ha="right", fontsize=TEXT, color=SOFT)
        handles = [Line2D([], [], **style) for style in styles.values()]
        figure.legend(handles, titles, loc="outside lower center", ncols=abreast, handlelength=3.2)
        return saved(figure)


def line_styles(rows: Sequence[Mapping[str, Any]], baseline: str) -> dict[str, dict[str, Any]]:
    """Title -> how its line looks: black the baseline, the others as in every picture of the page.

    A method without a look in figures.yaml gets none that another has there: the overview shows both pictures.
    """
    taken = given()
    own = {row["title"]: STYLES[taken[row["row"]]] for row in rows if row["row"] in taken}
    free = cycle(look for place, look in enumerate(looks()) if look[0] != INK and place not in taken.values())
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
