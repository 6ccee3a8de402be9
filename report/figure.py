"""`python -m report.figure --results results/quick --figure 2`: a figure's numbers as CSV, and its picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core import used_code
from core.errors import Parser
from report.figures import spec

if TYPE_CHECKING:
    from core.results_tree import Tree


def write(figure: spec.Figure, tree: Tree) -> tuple[list[Path], tuple[str, ...]]:
    """Write `figures/<key>.{csv,seeds.csv,json,svg,png,pdf}`; returns the paths, and what could not be drawn."""
    from core import digests
    from core.files import atomic
    from report.figures import draw, drawing, fill

    folder = tree.layout.figures
    drawn = fill.fill(figure, tree)
    paths = drawing.write(drawn, folder)
    for kind, data in draw.render(drawn).items():
        paths.append(folder / f"{figure.key}.{kind}")
        with atomic(paths[-1]) as temporary:
            temporary.write_bytes(data)
    digests.write_list(tree.layout.sums(f"figures/{figure.key}"), paths)
    return paths, drawn.notes


def main() -> None:
    parser = Parser(description="Draw a figure of report/figures.yaml from finished runs.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--figure", required=True, help="key in the specification: figure2 (or 2), models")
    parser.add_argument("--spec", type=Path, default=spec.FIGURES, help="another specification file of the same form")
    args = parser.parse_args()

    from core.results_tree import open_tree

    paths, notes = write(spec.figure(args.figure, args.spec), open_tree(args.results))
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in notes)]))


if __name__ == "__main__":
    used_code.run(main)
