"""`python -m report.paper.audit --out FOLDER/audit.csv`: what follows from the printed numbers, and what does not.

Needs no results: only the tables as printed (`tables/`) and the sentences about them (`sentences.yaml`).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from records import cli
from report.paper import averages, consequences, counts, derived, printed, repairs, repeats, seedpairs, sentences
from report.paper.finding import Finding, as_csv
from report.paper.printed import Paper
from report.paper.sentences import Sentence


def audit(paper: Paper, said: list[Sentence]) -> list[Finding]:
    """All findings, check by check, in printed order."""
    return [
        *counts.cells(paper),
        *counts.denominators(paper),
        *averages.check(paper),
        *averages.controls(paper),
        *repairs.check(paper),
        *derived.deltas(paper),
        *derived.means(paper),
        *repeats.repeated(paper),
        *repeats.ties(paper),
        *repeats.together(paper),
        *seedpairs.check(paper),
        *(sentences.check(paper, said) if said else ()),
        *consequences.check(paper, said),
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Audit the arithmetic of the paper's printed tables.")
    parser.add_argument("--out", required=True, type=Path, help="CSV to write: one line per check of a cell or row")
    parser.add_argument("--page", type=Path, help="Markdown page to write as well")
    parser.add_argument("--tables", type=Path, default=printed.TABLES, help="folder of table<k>.csv and rows.csv")
    parser.add_argument("--sentences", type=Path, default=sentences.SENTENCES)
    given = parser.parse_args(arguments)

    from records.write import write_text
    from report.paper.page import render

    paper = printed.read(given.tables)
    findings = audit(paper, sentences.read(given.sentences))
    write_text(given.out, as_csv(findings))
    if given.page:
        write_text(given.page, render(paper, findings))
    open_ones = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{given.out}  {len(findings)} lines, {open_ones} of them do not follow or are only approximate")


if __name__ == "__main__":
    cli.run(main)
