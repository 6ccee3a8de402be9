"""The audit as a Markdown page. Every number on it comes from the findings; the words around them how to read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from paper.arithmetic import FAR, NO_SLIP, OTHERS, RESPONSES
from paper.chance import RARE, SPREAD
from paper.finding import CLEAN, STATUS, Finding
from paper.printed import COLUMN, COPIES, HEADINGS, Paper, measured

COMMAND = "python -m paper.audit --out audit.csv --page docs/audit.md"

TITLES = {
    "count": "cell is a count over its denominator",
    "average": "average follows from the row's cells",
    "delta": "cell of a Delta row",
    "mean": "cell of a mean over seeds",
    "repeat": "cell of a row printed again",
    "seeds": "distance of two seeds",
    "sentence": "number, rank or order in the prose",
}
"""Checks that give a verdict, in the order of the summary."""


def render(paper: Paper, findings: Sequence[Finding]) -> str:
    """The whole page."""
    sections = (
        _head(paper),
        _summary(findings),
        _averages(findings),
        _repairs(findings),
        _consequences(findings),
        _cells(findings),
        _derived(findings),
        _repeats(findings),
        _seeds(findings),
        _sentences(findings),
    )
    return "\n".join(sections)


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


def _summary(findings: Sequence[Finding]) -> str:
    rows = []
    for check, title in TITLES.items():
        states = Counter(finding.status for finding in findings if finding.check == check)
        if states:
            open_ones = [f"{n} {_word(state)}" for state, n in states.items() if state not in ("ok", "not_run")]
            tested = sum(states.values()) - states["not_run"]
            rows.append((title, str(tested), str(states["ok"]), ", ".join(open_ones) or "none"))
    words = [f"- *{_word(state)}*: {meaning}" for state, meaning in STATUS.items() if _used(findings, state)]
    table = _table(("check", "tested", "follow", "do not"), rows)
    return f"## Summary\n\n{table}\n" + "\n".join(words) + "\n"


def _averages(findings: Sequence[Finding]) -> str:
    rows = _columns(_open(findings, "average"), "row", "printed", "admissible", "status", "note")
    weightings = _columns(_of(findings, "weighting"), "printed", "admissible", "note")
    sizes = _columns(_of(findings, "denominator"), "cell", "printed", "admissible", "note")
    return f"""## Averages

S is the number of right responses in the row's columns; S to S + {COPIES} over {RESPONSES:,} are possible. A row is
called unlikely when it needs a number of right copies more than {FAR} away from the median of the model's other rows
(at least {OTHERS} of them).

{_table(("row", "printed", "its cells imply", "status", "how"), rows)}
The same averages under other weightings, as a control: how many are reproduced.

{_table(("weighting", "rows reproduced", "how"), weightings)}
The denominators, as a control: how many of a column's distinct printed values are counts over each.

{_table(("column", "responses", "values decoded", "how"), sizes)}"""


def _repairs(findings: Sequence[Finding]) -> str:
    found = [finding for finding in _of(findings, "repair") if not finding.note.endswith((NO_SLIP, "average follow"))]
    rows = _columns(found, "row", "cell", "printed", "admissible", "note")
    return f"""## Single-cell hypotheses

For a row above, and for a cell that no count can give: the values of *one* cell, all others as printed, with which the
average follows. Several cells of a row can usually be changed so, and more than one may be off. Shown are cells where
such a value is one slip away (a digit changed, added or dropped, or two neighbours swapped); all others are in the CSV.

{_table(("row", "cell", "printed", "would follow with", "how"), rows)}"""


def _consequences(findings: Sequence[Finding]) -> str:
    found = _of(findings, "consequence")
    alone = _columns([f for f in found if f.table], "row", "printed", "admissible", "note")
    together = [f"- {finding.note}" for finding in found if not finding.table]
    rows = next((f.row.replace(" ", ", ") for f in found if not f.table), "")
    text = f"""## What would change

If a printed average is off and its row's cells are right, the average is in the interval above. What is said with it
would change, at the ends of that interval:

{_table(("row", "printed", "its cells imply", "statement"), alone)}"""
    if together:
        text += f"""
With {rows} replaced together, each by the middle of its interval
(its ends are {100 * COPIES / RESPONSES / 2:.2f} points away):

{chr(10).join(together)}
"""
    return text


def _cells(findings: Sequence[Finding]) -> str:
    rows = _columns(_open(findings, "count"), "row", "cell", "printed", "note")
    return f"## Cells that no count gives\n\n{_table(('row', 'cell', 'printed', 'how'), rows)}"


def _derived(findings: Sequence[Finding]) -> str:
    rows = _columns(
        [*_open(findings, "delta"), *_open(findings, "mean")], "row", "cell", "printed", "admissible", "note"
    )
    return f"""## Differences and means

Delta rows against the row they name and, where that does not fit, against every other row of the block; means over the
printed seeds within .01.

{_table(("row", "cell", "printed", "recomputed", "how"), rows)}"""


def _repeats(findings: Sequence[Finding]) -> str:
    broken = _columns(_open(findings, "repeat"), "row", "cell", "printed", "admissible", "note")
    pairs = _columns(_of(findings, "tie_rows"), "row", "printed", "note")
    ties = len(_of(findings, "tie"))
    return f"""## Repeated rows and equal cells

Rows that print one evaluation again:

{_table(("row", "cell", "printed", "first printed", "how"), broken)}
Equal cells of different evaluations occur by chance; {ties} such values are in the CSV, each with its chance. Pairs of
evaluations that share two columns or more:

{_table(("rows", "equal", "chance"), pairs)}"""


def _seeds(findings: Sequence[Finding]) -> str:
    found = _of(findings, "seeds")
    rows = _columns(_open(findings, "seeds"), "row", "cell", "printed", "admissible", "status", "note")
    return f"""## Seeds

Distance of two seeds beside what generation alone would give: two draws of every answer of one checkpoint, difficulty
of problems Beta-distributed with spread {SPREAD}. Training adds to it. Listed is what has a chance under
{100 * RARE:.0f} % on either side; of {len(found)} distances about {2 * RARE * len(found):.0f} would be by chance.

{_table(("rows", "cell", "distance", "95 % by generation", "status", "how"), rows)}"""


def _sentences(findings: Sequence[Finding]) -> str:
    found = [f for f in _of(findings, "sentence") if f.status != "ok"]
    rows = _columns(found, "row", "cell", "printed", "admissible", "status", "note")
    return f"""## Sentences

Numbers, ranks and orders in the prose, recomputed from the tables as printed.

{_table(("row", "cell", "says", "follows", "status", "where"), rows)}"""


def _of(findings: Iterable[Finding], check: str) -> list[Finding]:
    return [finding for finding in findings if finding.check == check]


def _open(findings: Iterable[Finding], check: str) -> list[Finding]:
    return [finding for finding in _of(findings, check) if finding.status not in CLEAN]


def _used(findings: Iterable[Finding], status: str) -> bool:
    return status not in ("ok", "not_run", "listed") and any(finding.status == status for finding in findings)


def _columns(findings: Iterable[Finding], *names: str) -> list[tuple[str, ...]]:
    return [
        tuple(_word(getattr(finding, name)) if name == "status" else getattr(finding, name) for name in names)
        for finding in findings
    ]


def _word(status: str) -> str:
    return status.replace("_", " ")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, or a line saying that there is nothing; ends with a newline."""
    if not rows:
        return "None.\n"
    lines = [header, ["---"] * len(header), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
