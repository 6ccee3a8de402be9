"""`python -m paper.claims --results results/embedded`: claims.csv and claims.md of a results tree, both ledgers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from records import used_code
from records.errors import ConfigError, Parser


def main() -> None:
    parser = Parser(description="Give each claim of the paper a verdict.")
    parser.add_argument("--results", type=Path, help="results/<scale>: write claims.csv and claims.md there")
    parser.add_argument("--page", type=Path, help="Markdown page of the printed numbers' ledger; needs no results")
    args = parser.parse_args()
    if not (args.results or args.page):
        raise ConfigError("command line: give --results, --page or both")

    from paper.claims import entries, ledger, render
    from paper.claims.claims import read_margins
    from records import digests
    from records.files import write_text
    from records.results_tree import open_tree

    tree = open_tree(args.results) if args.results else None
    printed = ledger.printed_entries()
    if args.page:
        write_text(args.page, render.paper_page(printed, read_margins()))
        print(args.page)
    if tree:
        ours = ledger.run_entries(tree)
        title, note = str(tree.matrix["title"]), str(tree.matrix.get("note", ""))
        paths = tree.root / "claims.csv", tree.root / "claims.md"
        write_text(paths[0], entries.to_text([*printed, *ours]))
        write_text(paths[1], render.results_page([*printed, *ours], title, note))
        digests.write_list(tree.layout.sums("claims"), paths)
        counts = Counter(entry.verdict for entry in ours)
        summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        print(f"{tree.root / 'claims.md'}  {len(ours)} entries: {summary}")


if __name__ == "__main__":
    used_code.run(main)
