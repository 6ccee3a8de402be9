"""`python -m report.table --results results/quick --table 1`: fill one table, then write every rendering of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from core import used_code
from core.errors import Parser
from report.tables import spec

if TYPE_CHECKING:
    from core.results_tree import Tree
    from report.tables.tidy import Table


def write(tree: Tree, key: str, specification: Path = spec.TABLES) -> tuple[list[Path], Table]:
    """Write `tables/table<key>.*` and the list of their hashes; returns the paths and the table."""
    # Here and in `main`: `--help` and a mistyped option are answered before anything slow is imported.
    from core import digests
    from report.tables import fill, render, tidy

    declared = spec.declaration(tree, key, specification)
    cells = fill.fill(declared, tree)
    table = tidy.view(declared, tree, cells)
    texts = {".tidy.csv": tidy.tidy_csv(cells)} | {end: text(table) for end, text in render.RENDERINGS.items()}
    contents = {tree.layout.tables / f"table{key}{end}": text for end, text in texts.items()}
    return digests.write_together(tree.layout.sums(f"tables/table{key}"), contents), table


def main() -> None:
    parser = Parser(description="Fill a table of report/tables.yaml from finished results; render it.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in the specification, such as 1")
    parser.add_argument("--spec", type=Path, default=spec.TABLES, help="another specification file of the same form")
    args = parser.parse_args()

    from core.results_tree import open_tree

    paths, table = write(open_tree(args.results), args.table.removeprefix("table"), args.spec)
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in table.notes)]))


if __name__ == "__main__":
    used_code.run(main)
