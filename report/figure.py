"""`python -m report.figure --results results/quick --figure 2`: a figure's numbers as CSV, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from records import used_code
from records.errors import Parser
from report.figures import spec

if TYPE_CHECKING:
    from records.results_tree import Tree


def write(figure: spec.Figure, tree: Tree) -> list[Path]:
    """Write `figures/<key>.{csv,seeds.csv,json,svg,png,pdf}`; returns the paths."""
    from records import digests
    from records.files import atomic
    from report.figures import draw, drawing, fill

    folder = tree.layout.figures
    paths = drawing.write(fill.fill(figure, tree), folder)
    # The picture is drawn from the files, as the page is: what is published is all there is to it.
    for kind, data in draw.render(drawing.read(figure, folder)).items():
        paths.append(folder / f"{figure.key}.{kind}")
        with atomic(paths[-1]) as temporary:
            temporary.write_bytes(data)
    digests.write_list(tree.layout.sums(f"figures/{figure.key}"), paths)
    return paths


def main() -> None:
    parser = Parser(description="Draw a figure of report/figures.yaml from finished runs.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--figure", required=True, help="key in the specification: figure2 (or 2), models")
    parser.add_argument("--spec", type=Path, default=spec.FIGURES, help="another specification file of the same form")
    args = parser.parse_args()

    from records.results_tree import open_tree
    from report.figures import drawing

    tree = open_tree(args.results)
    figure = spec.figure(args.figure, args.spec)
    for path in write(figure, tree):
        print(path)
    for note in drawing.read(figure, tree.layout.figures).notes:
        print(f"note: {note}")


if __name__ == "__main__":
    used_code.run(main)
