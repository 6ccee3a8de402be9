"""`python -m paper.audit --out FOLDER/audit.csv`: what follows from the printed numbers, and what does not.

Needs no results: only the tables as printed (`tables/`) and the sentences about them (`sentences.yaml`). Every number
on the page (`--page`) comes from the findings of the CSV; the words around them say how to read it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from paper import arithmetic, chance, printed, sentences
from paper.arithmetic import FAR, OTHERS, RESPONSES
from paper.chance import RARE, SPREAD
from paper.finding import CLEAN, STATUS, Finding, as_csv
from paper.printed import COLUMN, COPIES, HEADINGS, Paper, measured
from paper.sentences import Sentence
from records import errors


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
        *sentences.check(paper, prose),
        *sentences.consequences(paper, prose),
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


def page(paper: Paper, findings: Sequence[Finding]) -> str:
    """The findings as a Markdown page."""
    by_check: dict[str, list[Finding]] = {}
    for finding in findings:
        by_check.setdefault(finding.check, []).append(finding)
    sections = (
        _head(paper),
        _summary(by_check),
        _averages(by_check),
        _consequences(by_check.get("consequence", [])),
        _cells(by_check),
        _repeats(by_check),
        _seeds(by_check),
        _sentences(by_check),
    )
    return "\n".join(sections)


ByCheck = dict[str, list[Finding]]


def _head(paper: Paper) -> str:
    rows, runs = len(paper), len(measured(paper, distinct=True))
    sizes = ", ".join(f"{HEADINGS[key]} {n}" for key, n in COLUMN.items())
    return f"""# The arithmetic of the printed tables

What follows, and what does not, from the numbers that the paper prints: {rows} rows of Tables 1-4, {runs} different
evaluations. This page is arithmetic on print. It cannot tell a misprint from a measurement, says nothing about how a
number came about, and changes none. Every line is computed by `{COMMAND}`.
The CSV holds all checks, passed ones too.

Responses behind each column: {sizes}.
"Avg." is one mean over all {RESPONSES:,} responses, which are the columns' and {COPIES} more: two copies each of five
OMNI-MATH problems, in no column. A printed percentage may be rounded or truncated; both count as right.
"""


def _summary(by_check: ByCheck) -> str:
    rows = []
    occurring = set()
    for check, title in TITLES.items():
        states = Counter(finding.status for finding in by_check.get(check, []))
        if states:
            failing = {state: n for state, n in states.items() if state not in ("ok", "not_run")}
            occurring |= set(failing)
            failures = ", ".join(f"{n} {_word(state)}" for state, n in failing.items())
            tested = sum(states.values()) - states["not_run"]
            rows.append((title, str(tested), str(states["ok"]), failures or "none"))
    meanings = [f"- *{_word(state)}*: {meaning}" for state, meaning in STATUS.items() if state in occurring]
    table = _table(("check", "tested", "follow", "do not"), rows)
    return f"## Summary\n\n{table}\n" + "\n".join(meanings) + "\n"


def _averages(by_check: ByCheck) -> str:
    rows = _cells_of(_open(by_check, "average"), "row", "printed", "admissible", "status", "note")
    weightings = _cells_of(by_check.get("weighting", []), "printed", "admissible", "note")
    sizes = _cells_of(by_check.get("denominator", []), "cell", "printed", "admissible", "note")
    return f"""## Averages

S is the number of right responses in the row's columns; S to S + {COPIES} over {RESPONSES:,} are possible. A row is
called unlikely when it needs a number of right copies more than {FAR} away from the median of the model's other rows
(at least {OTHERS} of them).

{_table(("row", "printed", "its cells imply", "status", "how"), rows)}
The same averages under other weightings, as a control: how many are reproduced.

{_table(("weighting", "rows reproduced", "how"), weightings)}
The denominators, as a control: how many of a column's distinct printed values are counts over each.

{_table(("column", "responses", "values decoded", "how"), sizes)}"""


def _consequences(findings: Sequence[Finding]) -> str:
    alone = _cells_of([f for f in findings if f.table], "row", "printed", "admissible", "note")
    together = [finding for finding in findings if not finding.table]
    text = f"""## What would change

If a printed average is off and its row's cells are right, the average is in the interval above. What is said with it
would change, at the ends of that interval:

{_table(("row", "printed", "its cells imply", "statement"), alone)}"""
    if not together:
        return text
    rows = together[0].row.replace(" ", ", ")
    notes = "\n".join(f"- {finding.note}" for finding in together)
    return f"""{text}
With {rows} replaced together, each by the middle of its interval
(its ends are {100 * COPIES / RESPONSES / 2:.2f} points away):

{notes}
"""


def _cells(by_check: ByCheck) -> str:
    undecodable = _cells_of(_open(by_check, "count"), "row", "cell", "printed", "note")
    derived = [*_open(by_check, "delta"), *_open(by_check, "mean")]
    rows = _cells_of(derived, "row", "cell", "printed", "admissible", "note")
    return f"""## Cells that no count gives

{_table(("row", "cell", "printed", "how"), undecodable)}
## Differences and means

Delta rows against the row they name and, where that does not fit, against every other row of the block; means over the
printed seeds within .01.

{_table(("row", "cell", "printed", "recomputed", "how"), rows)}"""


def _repeats(by_check: ByCheck) -> str:
    broken = _cells_of(_open(by_check, "repeat"), "row", "cell", "printed", "admissible", "note")
    pairs = _cells_of(by_check.get("tie_rows", []), "row", "printed", "note")
    ties = len(by_check.get("tie", []))
    return f"""## Repeated rows and equal cells

Rows that print one evaluation again:

{_table(("row", "cell", "printed", "first printed", "how"), broken)}
Equal cells of different evaluations occur by chance; {ties} such values are in the CSV, each with its chance. Pairs of
evaluations that share two columns or more:

{_table(("rows", "equal", "chance"), pairs)}"""


def _seeds(by_check: ByCheck) -> str:
    distances = len(by_check.get("seeds", []))
    rows = _cells_of(_open(by_check, "seeds"), "row", "cell", "printed", "admissible", "status", "note")
    return f"""## Seeds

Distance of two seeds beside what generation alone would give: two draws of every answer of one checkpoint, difficulty
of problems Beta-distributed with spread {SPREAD}. Training adds to it. Listed is what has a chance under
{100 * RARE:.0f} % on either side; of {distances} distances about {2 * RARE * distances:.0f} would be by chance.

{_table(("rows", "cell", "distance", "95 % by generation", "status", "how"), rows)}"""


def _sentences(by_check: ByCheck) -> str:
    # "approximate" is no defect, but a reader of the page wants the exact value
    findings = [finding for finding in by_check.get("sentence", []) if finding.status != "ok"]
    rows = _cells_of(findings, "row", "cell", "printed", "admissible", "status", "note")
    return f"""## Sentences

Numbers, ranks and orders in the prose, recomputed from the tables as printed.

{_table(("row", "cell", "says", "follows", "status", "where"), rows)}"""


def _open(by_check: ByCheck, check: str) -> list[Finding]:
    return [finding for finding in by_check.get(check, []) if finding.status not in CLEAN]


def _cells_of(findings: Sequence[Finding], *fields: str) -> list[list[str]]:
    rows = []
    for finding in findings:
        values = {field: getattr(finding, field) for field in fields}
        if "status" in values:
            values["status"] = _word(finding.status)
        rows.append(list(values.values()))
    return rows


def _word(status: str) -> str:
    return status.replace("_", " ")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, or a line saying that there is nothing; ends with a newline."""
    if not rows:
        return "None.\n"
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Audit the arithmetic of the paper's printed tables.")
    parser.add_argument("--out", required=True, type=Path, help="CSV to write: one line per check of a cell or row")
    parser.add_argument("--page", type=Path, help="Markdown page to write as well")
    parser.add_argument("--tables", type=Path, default=printed.TABLES, help="folder of table<k>.csv and rows.csv")
    parser.add_argument("--sentences", type=Path, default=sentences.SENTENCES)
    args = parser.parse_args(arguments)

    from records.files import write_text

    paper = printed.read(args.tables)
    findings = audit(paper, sentences.read(args.sentences))
    write_text(args.out, as_csv(findings))
    if args.page:
        write_text(args.page, page(paper, findings))
    defects = sum(finding.status not in ("ok", "not_run", "listed") for finding in findings)
    print(f"{args.out}  {len(findings)} lines, {defects} of them do not follow or are only approximate")


if __name__ == "__main__":
    errors.run(main)
