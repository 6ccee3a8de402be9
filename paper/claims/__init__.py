"""The claims of the paper (`paper/claims.yaml`), each with a verdict from printed numbers and from ours.

    paper_ledger() -> list[Entry]        is the printed difference outside noise? needs no results
    ledger(tree) -> list[Entry]          what the runs of a results tree say; one entry per claim and training settings
    python -m paper.claims --results results/<scale>       claims.csv and claims.md, both ledgers

`declared` reads the claims, `kinds` holds the tests, `printed` and `measured` are the two sources of their numbers,
`judge` makes verdicts. How each verdict comes about: docs/claims.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paper.claims.render import Entry
    from records.results_tree import Tree


def paper_ledger() -> list[Entry]:
    """One entry per claim, in the order of the paper, from the printed numbers alone."""
    from paper.claims import ledger as ledgers

    return ledgers.paper()


def ledger(tree: Tree) -> list[Entry]:
    """Entries of `tree`: every claim under the scale's own settings, then under each variant or reading that has it."""
    from paper.claims import ledger as ledgers

    return ledgers.ours(tree)
