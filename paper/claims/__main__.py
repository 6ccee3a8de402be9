"""`python -m paper.claims --results results/embedded`: claims.csv and claims.md of a results tree, both ledgers."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from records import errors
from records.errors import ConfigError


def main() -> None:
    parser = argparse.ArgumentParser(description="Give each claim of the paper a verdict.")
    parser.add_argument("--results", type=Path, help="results/<scale>: write claims.csv and claims.md there")
    parser.add_argument("--page", type=Path, help="Markdown page of the printed numbers' ledger; needs no results")
    given = parser.parse_args()
    if not (given.results or given.page):
        raise ConfigError("command line: give --results, --page or both")

    from paper.claims import claims as declared
    from paper.claims import ledger, render
    from records.files import write_text
    from records.results_tree import open_tree

    tree = open_tree(given.results) if given.results else None
    printed = ledger.from_print()
    if given.page:
        write_text(given.page, render.paper_page(printed, declared.read()))
        print(given.page)
    if tree:
        ours = ledger.from_runs(tree)
        write_text(tree.root / "claims.csv", render.as_csv([*printed, *ours]))
        write_text(tree.root / "claims.md", render.results_page(tree, printed, ours))
        found = Counter(entry.verdict for entry in ours)
        said = ", ".join(f"{count} {verdict}" for verdict, count in found.items())
        print(f"{tree.root / 'claims.md'}  {len(ours)} entries: {said}")


if __name__ == "__main__":
    errors.run(main)
