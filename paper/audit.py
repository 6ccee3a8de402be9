"""`python -m paper.audit --out FOLDER/audit.csv`: what follows from the printed numbers, and what does not.

Needs no results: only the tables as printed (`tables/`) and the sentences about them (`sentences.yaml`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from paper import arithmetic, chance, printed, sentences
from paper.finding import Finding, as_csv
from paper.printed import Paper
from paper.sentences import Sentence
from records import errors


def audit(paper: Paper, said: list[Sentence]) -> list[Finding]:
    """All findings, check by check, in printed order."""
    return [
        *arithmetic.cells(paper),
        *arithmetic.denominators(paper),
        *arithmetic.check(paper),
        *arithmetic.controls(paper),
        *arithmetic.repairs_check(paper),
        *arithmetic.deltas(paper),
        *arithmetic.means(paper),
        *chance.repeated(paper),
        *chance.ties(paper),
        *chance.together(paper),
        *chance.check(paper),
        *(sentences.check(paper, said) if said else ()),
        *sentences.consequences_check(paper, said),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Audit the arithmetic of the paper's printed tables.")
    parser.add_argument("--out", required=True, type=Path, help="CSV to write: one line per check of a cell or row")
    parser.add_argument("--page", type=Path, help="Markdown page to write as well")
    parser.add_argument("--tables", type=Path, default=printed.TABLES, help="folder of table<k>.csv and rows.csv")
    parser.add_argument("--sentences", type=Path, default=sentences.SENTENCES)
    given = parser.parse_args(arguments)

    from paper.audit_page import render
    from records.files import write_text

    paper = printed.read(given.tables)
    findings = audit(paper, sentences.read(given.sentences))
    write_text(given.out, as_csv(findings))
    if given.page:
        write_text(given.page, render(paper, findings))
    open_ones = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{given.out}  {len(findings)} lines, {open_ones} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
