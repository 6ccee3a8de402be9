"""`python -m paper.audit`: write `paper/audit.csv`, what follows from the printed numbers and what does not.

Reads the tables as printed (`tables/`), and no results. Counts behind cells and averages are computed. All else
(differences, means, chance, the paper's sentences) is constant and read from audit.csv itself: `paper/audit.py` of
commit 40d696d computed it, and the page docs/notebook/audit.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from core import errors
from core.errors import Parser
from core.files import read_csv, to_csv, write_text
from core.provenance import ROOT
from paper import arithmetic, printed
from paper.arithmetic import Finding
from paper.printed import Paper

KEPT = ROOT / "paper" / "audit.csv"


def audit(paper: Paper) -> list[Finding]:
    """All findings, check by check: those of cells and averages computed, the others as they are kept."""
    found: dict[str, list[Finding]] = {}
    for row in read_csv(KEPT, "audit of the printed tables", Finding._fields):
        found.setdefault(row["check"], []).append(Finding(**row))
    found |= {"count": arithmetic.cells(paper), "average": arithmetic.averages(paper)}
    return [finding for findings in found.values() for finding in findings]


def as_csv(findings: Iterable[Finding]) -> str:
    return to_csv(Finding._fields, (finding._asdict() for finding in findings))


def main() -> None:
    Parser(description="Audit the arithmetic of the paper's printed tables.").parse_args()
    findings = audit(printed.read())
    write_text(KEPT, as_csv(findings))
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{KEPT}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
