"""`python -m paper.audit`: write what follows from the printed numbers, and what does not.

Reads the tables as printed (`tables/`) and the sentences about them (`sentences.yaml`); no results. What it writes is
the same for all results and part of this repository: every check in `paper/audit.csv`, the page in
`docs/notebook/audit.md` from the words in `pages/audit.md`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from core import errors
from core.errors import Parser
from core.files import read_text, write_text
from core.provenance import ROOT
from paper import arithmetic, chance, printed, sentences
from paper.arithmetic import CLEAN, FAR, OTHERS, RESPONSES, STATUS, Finding, as_csv
from paper.chance import RARE, SPREAD
from paper.printed import COLUMN, COPIES, HEADINGS, Paper, measured
from paper.sentences import Sentence

PAGE = ROOT / "paper" / "pages" / "audit.md"
KEPT = ROOT / "paper" / "audit.csv"
KEPT_PAGE = ROOT / "docs" / "notebook" / "audit.md"


def audit(paper: Paper, prose: list[Sentence]) -> list[Finding]:
    """All findings, check by check, in printed order."""
    return [
        *arithmetic.cells(paper),
        *arithmetic.denominators(paper),
        *arithmetic.averages(paper),
        *arithmetic.controls(paper),
        *arithmetic.deltas(paper),
        *arithmetic.means(paper),
        *chance.repeated(paper),
        *chance.ties(paper),
        *chance.together(paper),
        *chance.seeds(paper),
        *sentences.findings(paper, prose),
        *sentences.consequences(paper, prose),
    ]


# Checks that give a verdict, in the order of the summary.
TITLES = {
    "count": "cell is a count over its denominator",
    "average": "average follows from the row's cells",
    "delta": "cell of a Delta row",
    "mean": "cell of a mean over seeds",
    "repeat": "cell of a row printed again",
    "seeds": "distance of two seeds",
    "sentence": "number, rank or order in the prose",
}


def page(paper: Paper, findings: Sequence[Finding]) -> str:
    """The findings as a Markdown page."""
    of: dict[str, list[Finding]] = defaultdict(list)  # check -> its findings
    defects: dict[str, list[Finding]] = defaultdict(list)
    for finding in findings:
        of[finding.check].append(finding)
        if finding.status not in CLEAN:
            defects[finding.check].append(finding)
    cells = {"row": "row", "cell": "cell", "printed": "printed"}
    derived = [*defects["delta"], *defects["mean"]]
    # "approximate" is no defect, but a reader of the page wants the exact value
    inexact = [finding for finding in of["sentence"] if finding.status != "ok"]
    distances = {"printed": "distance", "admissible": "95 % by generation", "status": "status", "note": "how"}
    return read_text(PAGE, "the audit's page").format(
        rows=len(paper),
        runs=len(measured(paper, distinct=True)),
        columns=", ".join(f"{HEADINGS[key]} {n}" for key, n in COLUMN.items()),
        RESPONSES=RESPONSES,
        COPIES=COPIES,
        summary=_summary(of),
        FAR=FAR,
        OTHERS=OTHERS,
        averages=_table(
            defects["average"], row="row", printed="printed", admissible="its cells imply", status="status", note="how"
        ),
        weightings=_table(of["weighting"], printed="weighting", admissible="rows reproduced", note="how"),
        denominators=_table(
            of["denominator"], cell="column", printed="responses", admissible="values decoded", note="how"
        ),
        consequences=_consequences(of["consequence"]),
        cells=_table(defects["count"], **cells, note="how"),
        derived=_table(derived, **cells, admissible="recomputed", note="how"),
        repeated=len(of["repeat"]),
        repeats=_table(defects["repeat"], **cells, admissible="first printed", note="how"),
        ties=len(of["tie"]),
        tie_rows=_table(of["tie_rows"], row="rows", printed="equal", note="chance"),
        SPREAD=SPREAD,
        rare=100 * RARE,
        distances=len(of["seeds"]),
        by_chance=2 * RARE * len(of["seeds"]),
        seeds=_table(defects["seeds"], row="rows", cell="cell", **distances),
        sentences=_table(
            inexact, row="row", cell="cell", printed="says", admissible="follows", status="status", note="where"
        ),
    )


def _summary(by_check: Mapping[str, Sequence[Finding]]) -> str:
    lines = ["| check | tested | follow | do not |", "| --- | --- | --- | --- |"]
    occurring = set()
    for check, title in TITLES.items():
        states = Counter(finding.status for finding in by_check[check])
        if states:
            failing = {state: n for state, n in states.items() if state not in ("ok", "not_run")}
            occurring |= set(failing)
            failures = ", ".join(f"{n} {_word(state)}" for state, n in failing.items())
            tested = sum(states.values()) - states["not_run"]
            lines.append(f"| {title} | {tested} | {states['ok']} | {failures or 'none'} |")
    lines.append("")
    lines += [f"- *{_word(state)}*: {meaning}" for state, meaning in STATUS.items() if state in occurring]
    return "\n".join(lines)


def _consequences(findings: Sequence[Finding]) -> str:
    alone = [finding for finding in findings if finding.table]
    together = [finding for finding in findings if not finding.table]
    table = _table(alone, row="row", printed="printed", admissible="its cells imply", note="statement")
    if not together:
        return table
    rows = together[0].row.replace(" ", ", ")
    notes = "\n".join(f"- {finding.note}" for finding in together)
    return f"""{table}
With {rows} replaced together, each by the middle of its interval
(its ends are {100 * COPIES / RESPONSES / 2:.2f} points away):

{notes}
"""


def _table(findings: Sequence[Finding], **headings: str) -> str:
    """A Markdown table, or a line saying that there is nothing; ends with a newline. headings: field -> heading."""
    if not findings:
        return "None.\n"
    lines = [f"| {' | '.join(headings.values())} |", "| " + " | ".join(["---"] * len(headings)) + " |"]
    for finding in findings:
        cells = [getattr(finding, field).replace("|", "\\|") for field in headings]
        if "status" in headings:
            cells[list(headings).index("status")] = _word(finding.status)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _word(status: str) -> str:
    return status.replace("_", " ")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Audit the arithmetic of the paper's printed tables.")
    parser.add_argument("--out", type=Path, default=KEPT, help="CSV: one line per check (default: paper/audit.csv)")
    parser.add_argument("--page", type=Path, help="Markdown page (default, without --out: docs/notebook/audit.md)")
    parser.add_argument("--tables", type=Path, default=printed.TABLES, help="folder of table<k>.csv and rows.csv")
    parser.add_argument("--sentences", type=Path, default=sentences.SENTENCES)
    args = parser.parse_args(arguments)

    paper = printed.read(args.tables)
    findings = audit(paper, sentences.read(args.sentences))
    write_text(args.out, as_csv(findings))
    target = args.page or (KEPT_PAGE if args.out == KEPT else None)
    if target:
        write_text(target, page(paper, findings))
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{args.out}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
