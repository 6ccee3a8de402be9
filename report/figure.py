"""`python -m report.figure --results results/quick --figure 2`: a figure as SVG and PNG, and its numbers as CSV."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from records import errors
from report.figures import spec

if TYPE_CHECKING:
    from records.layout import Results
    from report.figures.fill import Drawing


def write(drawing: Drawing, layout: Results) -> list[Path]:
    """Write `figures/<key>.{svg,png,csv}` and `<key>.seeds.csv`; returns the paths."""
    from records.files import atomic, write_text
    from report.figures import draw, fill

    key = drawing.figure.key
    paths = [layout.figures / f"{key}{end}" for end in (".csv", ".seeds.csv")]
    for path, text in zip(paths, (fill.csv_text(drawing), fill.seeds_csv_text(drawing)), strict=True):
        write_text(path, text)
    for kind, data in draw.render(drawing).items():
        paths.append(layout.figures / f"{key}.{kind}")
        with atomic(paths[-1]) as temporary:
            temporary.write_bytes(data)
    return paths


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw a figure of report/figures.yaml from finished runs.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--figure", required=True, help="key in the specification: figure2 (or 2), models")
    parser.add_argument("--spec", type=Path, default=spec.FIGURES, help="another specification file of the same form")
    arguments = parser.parse_args()

    from records.results_tree import open_tree
    from report.figures import fill

    tree = open_tree(arguments.results)
    drawing = fill.draw_data(spec.figure(arguments.figure, arguments.spec), tree)
    for path in write(drawing, tree.layout):
        print(path)
    for note in drawing.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    errors.run(main)
