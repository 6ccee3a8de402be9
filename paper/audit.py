"""`python -m paper.audit`: write what follows from the printed numbers, and what does not.

Reads the tables as printed (`tables/`), and no results. Every check is in `paper/audit.csv`; the words of the page in
`docs/notebook/audit.md` are in `pages/audit.md`. Counts behind cells and averages are computed. All else (differences,
means, chance, the paper's sentences) is constant and read from audit.csv itself: `paper/audit.py` of commit 40d696d
computed it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields

from core import errors
from core.errors import Parser
from core.files import read_csv, read_text, write_text
from core.provenance import ROOT
from paper import arithmetic, printed
from paper.arithmetic import CLEAN, FAR, OTHERS, RESPONSES, STATUS, Finding, as_csv
from paper.printed import COLUMN, COPIES, HEADINGS, Paper, measured

PAGE = ROOT / "paper" / "pages" / "audit.md"
KEPT = ROOT / "paper" / "audit.csv"
KEPT_PAGE = ROOT / "docs" / "notebook" / "audit.md"


def audit(paper: Paper) -> list[Finding]:
    """All findings, check by check: those of cells and averages computed, the others as they are kept."""
    found: dict[str, list[Finding]] = {}
    for row in read_csv(KEPT, "audit of the printed tables", [field.name for field in fields(Finding)]):
        found.setdefault(row["check"], []).append(Finding(**row))
    found |= {"count": arithmetic.cells(paper), "average": arithmetic.averages(paper)}
    return [finding for findings in found.values() for finding in findings]


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
        repeats=_table(defects["repeat"], **cells, admissible="first printed", note="how"),
        tie_rows=_table(of["tie_rows"], row="rows", printed="equal", note="chance"),
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


def main() -> None:
    Parser(description="Audit the arithmetic of the paper's printed tables.").parse_args()
    paper = printed.read()
    findings = audit(paper)
    write_text(KEPT, as_csv(findings))
    write_text(KEPT_PAGE, page(paper, findings))
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{KEPT}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
