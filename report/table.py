"""`python -m report.table --results results/quick --table 1`: one table, every rendering."""

from __future__ import annotations

import argparse
from pathlib import Path

from records import errors
from report.tables import spec


def main() -> None:
    parser = argparse.ArgumentParser(description="Render a table of report/tables.yaml from finished results.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--table", required=True, help="key in the specification, such as 1")
    parser.add_argument("--spec", type=Path, default=spec.TABLES, help="another specification file of the same form")
    arguments = parser.parse_args()

    from records.results_tree import open_tree
    from report.tables import fill, render

    tree = open_tree(arguments.results)
    key = arguments.table.removeprefix("table")
    filled = fill.fill(spec.table(key, arguments.spec), tree)
    for path in render.write(filled, tree.layout):
        print(path)
    for note in filled.notes:
        print(f"note: {note}")


if __name__ == "__main__":
    errors.run(main)
