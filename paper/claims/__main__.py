"""`python -m paper.claims --results results/embedded`: claims.csv and claims.md of a results tree, both ledgers.

`--page docs/claims.md` writes the ledger of the printed numbers again: the page, and paper/claims.csv, which every tree
takes it from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from core import used_code
from core.errors import ConfigError, Parser

if TYPE_CHECKING:
    from paper.claims.claims import Margin
    from paper.claims.entries import Entry

DATA = ("paper/pages/claims.md", "paper/claims.csv")


def paper_page(printed: Sequence[Entry], margins: Mapping[str, Margin]) -> str:
    """docs/claims.md: how verdicts come about (`paper/pages/claims.md`), and the ledger of the printed numbers."""
    from core.files import read_text
    from core.provenance import ROOT
    from paper.claims.entries import DECIDED, MEANING, figure, table

    counts = Counter(entry.verdict for entry in printed)
    count = ", ".join(f"{counts[verdict]} {verdict}" for verdict in MEANING if counts[verdict])
    rows = [
        (
            f"{e.statement} (`{e.id}`)",
            e.where.replace("Section ", "§"),
            e.kind.replace("_", " "),
            figure(e),
            e.verdict + "*" * bool(e.untested),
        )
        for e in printed
        if e.verdict in DECIDED
    ]
    parts = {
        "VERDICTS": "\n".join(f"- *{verdict}*: {meaning}" for verdict, meaning in MEANING.items()),
        "MARGINS": table(list(margins), [[f"{each.around:g} ± {each.within:g}" for each in margins.values()]]),
        "COUNT": f"{len(printed)} claims: {count}",
        "TABLE": table(("tested statement", "where printed", "test", "estimate", "verdict"), rows),
    }
    text = read_text(ROOT / DATA[0], "the page of claims")
    for word, part in parts.items():
        text = text.replace(word, part)
    return text


def main() -> None:
    parser = Parser(description="Give each claim of the paper a verdict.")
    parser.add_argument("--results", type=Path, help="results/<scale>: write claims.csv and claims.md there")
    parser.add_argument("--page", type=Path, help="Markdown page of the printed numbers' ledger; needs no results")
    args = parser.parse_args()
    if bool(args.results) == bool(args.page):
        raise ConfigError("command line: give --results or --page")

    from core import digests
    from core.files import write_text
    from core.provenance import ROOT
    from core.results_tree import open_tree
    from paper.claims import entries, ledger
    from paper.claims.claims import declared, read_claims

    kept = ROOT / DATA[1]
    if args.page:
        printed = ledger.printed_entries()
        write_text(kept, entries.to_text(printed))
        write_text(args.page, paper_page(printed, declared().margins))
        print(args.page)
        raise SystemExit(0)  # it has written a file that other commands read: no result of theirs follows from this one
    tree, claims = open_tree(args.results), read_claims()
    printed = entries.read(kept)
    if [(e.id, e.statement) for e in printed] != [(claim.id, claim.declared.tests) for claim in claims]:
        raise ConfigError(
            f"{kept}: holds other claims than claims.yaml; run python -m paper.claims --page docs/claims.md"
        )
    ours = ledger.run_entries(tree, claims)
    title, note = str(tree.matrix["title"]), str(tree.matrix.get("note", ""))
    texts = {
        tree.root / "claims.csv": entries.to_text([*printed, *ours]),
        tree.root / "claims.md": entries.results_page([*printed, *ours], title, note),
    }
    digests.write_together(tree.layout.sums("claims"), texts)
    counts = Counter(entry.verdict for entry in ours)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    print(f"{tree.root / 'claims.md'}  {len(ours)} entries: {summary}")


if __name__ == "__main__":
    used_code.run(main)
