"""`python -m report.table --results results/quick --table 1`: fill one table, then write every rendering of it."""

from __future__ import annotations

from pathlib import Path

from core import digests, used_code
from core.errors import Parser
from core.files import write_text
from core.results_tree import Tree, open_tree
from report.tables import fill, render, spec, tidy


def write(tree: Tree, key: str, specification: Path = spec.TABLES) -> tuple[list[Path], tidy.Table]:
    """Write `tables/table<key>.*` and the list of their hashes; returns the paths and the table."""
    declared = tidy.declaration(tree, key, specification)
    stem = f"{tree.layout.tables}/table{key}"
    write_text(f"{stem}.tidy.csv", tidy.tidy_csv(fill.fill(declared, tree)))
    table = tidy.read_table(tree, key, specification)
    for suffix, text in render.RENDERINGS.items():
        write_text(f"{stem}{suffix}", text(table))
    paths = [Path(f"{stem}{suffix}") for suffix in (".tidy.csv", *render.RENDERINGS)]
    digests.write_list(tree.layout.sums(f"tables/table{key}"), paths)
    return paths, table


def main() -> None:
    parser = Parser(description="Fill a table of report/tables.yaml from finished results; render it.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in the specification, such as 1")
    parser.add_argument("--spec", type=Path, default=spec.TABLES, help="another specification file of the same form")
    args = parser.parse_args()
    paths, table = write(open_tree(args.results), args.table.removeprefix("table"), args.spec)
    print("\n".join([*map(str, paths), *(f"note: {note}" for note in table.notes)]))


if __name__ == "__main__":
    used_code.run(main)
