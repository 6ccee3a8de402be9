"""`python -m paper.audit --out FOLDER/audit.csv`: what follows from the printed numbers, and what does not.

Needs no results: only the tables as printed (`tables/`) and the sentences about them (`sentences.yaml`). Every number
on the page (`--page`) comes from the findings of the CSV; the words around them say how to read it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from paper import arithmetic, chance, printed, sentences, versions
from paper.arithmetic import CLEAN, FAR, OTHERS, RESPONSES, STATUS, Finding, as_csv
from paper.chance import RARE, SPREAD
from paper.printed import COLUMN, COPIES, HEADINGS, Paper, measured
from paper.sentences import Sentence
from paper.versions import Version, Versions
from records import digests, used_code
from records.errors import Parser
from records.files import write_text


def audit(paper: Paper, prose: list[Sentence], both: Versions | None = None) -> list[Finding]:
    """All findings, check by check, in printed order; both: the paper's versions, where they are compared."""
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
        *versions.findings(paper, both),
    ]


COMMAND = "python -m paper.audit --out audit.csv --page docs/audit.md"

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


PAGE = """# The arithmetic of the printed tables

What follows, and what does not, from the numbers that the paper prints: {rows} rows of Tables 1-4, {runs} different
evaluations. This page is arithmetic on print. It cannot tell a misprint from a measurement, says nothing about how a
number came about, and changes none. Every line is computed by `{COMMAND}`.
The CSV holds all checks, passed ones too.

Responses behind each column: {columns}.
"Avg." is one mean over all {RESPONSES:,} responses, which are the columns' and {COPIES} more: two copies each of five
OMNI-MATH problems, in no column. A printed percentage may be rounded or truncated; both count as right.

## Summary

{summary}

## Averages

S is the number of right responses in the row's columns; S to S + {COPIES} over {RESPONSES:,} are possible. A row is
called unlikely when it needs a number of right copies more than {FAR} away from the median of the model's other rows
(at least {OTHERS} of them).

{averages}
The same averages under other weightings, as a control: how many are reproduced.

{weightings}
The denominators, as a control: how many of a column's distinct printed values are counts over each.

{denominators}
## What would change

If a printed average is off and its row's cells are right, the average is in the interval above. What is said with it
would change, at the ends of that interval:

{consequences}
## Cells that no count gives

{cells}
## Differences and means

Delta rows against the row they name and, where that does not fit, against every other row of the block; means over the
printed seeds within .01.

{derived}
## Repeated rows and equal cells

{repeated} cells print one evaluation again. Those that differ from the first print:

{repeats}
Equal cells of different evaluations occur by chance; {ties} such values are in the CSV, each with its chance. Pairs of
evaluations that share two columns or more:

{tie_rows}
## Seeds

Distance of two seeds beside what generation alone would give: two draws of every answer of one checkpoint, difficulty
of problems Beta-distributed with spread {SPREAD}. Training adds to it. Listed is what has a chance under
{rare:.0f} % on either side; of {distances} distances about {by_chance:.0f} would be by chance.

{seeds}
## Sentences

Numbers, ranks and orders in the prose, recomputed from the tables as printed.

{sentences}{moved}"""

# An earlier version exists of this paper alone: other tables have no such section.
MOVED = """
## What moved between versions

- earlier: {earlier}
- later: {later}, whose tables are audited above

Of the earlier version three figures are known here (`paper/versions.yaml`), but not of which model; all else is
unknown. Later cells are Qwen2.5-7B's. Print does not say whether a figure moved with the run, the evaluation or the
method.

{figures}"""


def page(paper: Paper, findings: Sequence[Finding], both: Versions | None = None) -> str:
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
    return PAGE.format(
        rows=len(paper),
        runs=len(measured(paper, distinct=True)),
        COMMAND=COMMAND,
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
        moved="" if both is None else _moved(of["version"], both),
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


def _moved(findings: Sequence[Finding], both: Versions) -> str:
    def named(version: Version) -> str:
        return f'arXiv {version.arxiv} (version {version.version or versions.UNKNOWN}), "{version.title}"'

    head = ("row of the later version", "cell", "earlier", "later", "difference", "remark")
    lines = [f"| {' | '.join(head)} |", "| " + " | ".join(["---"] * len(head)) + " |"]
    for finding in findings:
        difference, _, remark = finding.note.partition("; ")
        cells = (finding.row, finding.cell, finding.printed, finding.admissible, difference, remark)
        lines.append(f"| {' | '.join(cells)} |")
    return MOVED.format(earlier=named(both.earlier), later=named(both.later), figures="\n".join(lines) + "\n")


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
    parser.add_argument("--out", required=True, type=Path, help="CSV to write: one line per check of a cell or row")
    parser.add_argument("--page", type=Path, help="Markdown page to write as well")
    parser.add_argument("--tables", type=Path, default=printed.TABLES, help="folder of table<k>.csv and rows.csv")
    parser.add_argument("--sentences", type=Path, default=sentences.SENTENCES)
    parser.add_argument("--versions", type=Path, default=versions.VERSIONS, help="figures of an earlier version")
    args = parser.parse_args(arguments)

    paper = printed.read(args.tables)
    both = versions.read(args.versions)
    findings = audit(paper, sentences.read(args.sentences), both)
    write_text(args.out, as_csv(findings))
    paths = [args.out]
    if args.page:
        write_text(args.page, page(paper, findings, both))
        # A page elsewhere, such as docs/audit.md, is no part of a results tree.
        paths += [args.page] if args.page.parent == args.out.parent else []
    digests.write_list(args.out.with_suffix(digests.SUFFIX), paths)
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{args.out}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    used_code.run(main)
