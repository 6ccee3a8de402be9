"""`python -m report.table --results results/quick --table 1`: fill one table, then write every rendering of it."""

from __future__ import annotations

from pathlib import Path

from core import used_code
from core.errors import Parser
from report.tables import spec


def main() -> None:
    parser = Parser(description="Fill a table of report/tables.yaml from finished results; render it.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in the specification, such as 1")
    parser.add_argument("--spec", type=Path, default=spec.TABLES, help="another specification file of the same form")
    args = parser.parse_args()

    # After the arguments: `--help` and a mistyped option are answered before anything slow is imported.
    from core import digests
    from core.results_tree import open_tree
    from report.tables import fill, render, tidy

    tree = open_tree(args.results)
    declared = tidy.declaration(tree, args.table.removeprefix("table"), args.spec)
    paths = [fill.write(declared, tree)]
    table = tidy.read_table(tree, declared.key, args.spec)
    paths += render.write(table, tree.layout)
    digests.write_list(tree.layout.sums(f"tables/table{declared.key}"), map(Path, paths))
    for path in paths:
        print(path)
    for note in table.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    used_code.run(main)
