"""How lines look. Colours are Okabe and Ito's (distinguishable with the common colour-vision deficiencies); every line
also has its own dash pattern, so that a grey print still tells them apart."""

from __future__ import annotations

INK, SOFT, GRID, PAPER = "#1f2328", "#57606a", "#d8dee4", "#ffffff"

# Colour, dash pattern (on, off, ...; empty: solid), width in points; figures.yaml names them by place.
STYLES: tuple[tuple[str, tuple[float, ...], float], ...] = (
    ("#0072b2", (), 1.5),
    ("#d55e00", (), 2.2),
    ("#009e73", (5, 1.6), 1.5),
    ("#cc79a7", (1.2, 1.4), 2.0),
    ("#e69f00", (6, 1.5, 1.2, 1.5), 1.5),
    ("#56b4e9", (3, 1.2), 1.5),
    ("#7f7f7f", (8, 2, 1.2, 2, 1.2, 2), 1.5),
    (INK, (), 1.8),
)
ALONE = len(STYLES) - 1  # the line that a panel is named after: ink


def css_colours() -> dict[str, str]:
    """Colour in our SVG files -> variable of the page's style sheet, which has light and dark values for it."""
    lines = {colour: f"--line-{place}" for place, (colour, _, _) in enumerate(STYLES)}
    return {**lines, INK: "--ink", SOFT: "--soft", GRID: "--grid", PAPER: "--paper"}
