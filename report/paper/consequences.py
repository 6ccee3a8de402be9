"""What changes where a printed average is replaced by the one that its own columns imply: gains, ranks, sentences.

Nobody can know from print whether the average or a cell is off; this says what would follow if the cells are right.
"""

from __future__ import annotations

from decimal import Decimal

from report.paper import derived, sentences
from report.paper.averages import implied, status
from report.paper.finding import Finding
from report.paper.printed import AVERAGE, HEADINGS, Paper, Row, block, measured, with_cell
from report.paper.sentences import Sentence


def check(paper: Paper, said: list[Sentence]) -> list[Finding]:
    """For each distinct row whose average is outside: what differs at both ends of the implied interval; then for all
    of them together, each at the middle of its interval."""
    rows = [row for row in measured(paper, distinct=True) if status(paper, row) == "outside"]
    found = []
    for row in rows:
        before = _statements(paper, said, [row])
        ends = [_statements(with_cell(paper, row.id, AVERAGE, end), said, [row]) for end in implied(row)]
        a, b = implied(row)
        where = (row.table, row.id, HEADINGS[AVERAGE], "consequence", row.text(AVERAGE), f"{a}..{b}", "listed")
        found += [
            Finding(*where, _would(name, before[name], [end[name] for end in ends])) for name in _moved(before, *ends)
        ]
    if len(rows) > 1:
        together: Paper = paper
        for row in rows:
            a, b = implied(row)
            together = with_cell(together, row.id, AVERAGE, ((a + b) / 2).quantize(Decimal("0.01")))
        before, after = _statements(paper, said, rows), _statements(together, said, rows)
        where = ("", " ".join(row.id for row in rows), HEADINGS[AVERAGE], "consequence", "", "", "listed")
        found += [Finding(*where, _would(name, before[name], [after[name]])) for name in _moved(before, after)]
    return found


def _statements(paper: Paper, said: list[Sentence], changed: list[Row]) -> dict[str, str]:
    """What is said with averages, by name: comparisons in sentences, Delta rows, means, ranks of the changed rows."""
    found = {}
    for sentence, kind, answer in sentences.answers(paper, said):
        if answer.column == AVERAGE and kind != "value":
            found[f'{sentence.where} says "{answer.says}" of {answer.row} ({sentence.id})'] = answer.follows
    for line in (*derived.deltas(paper), *derived.means(paper)):
        if line.cell == HEADINGS[AVERAGE]:
            found[f"{line.row} prints {line.printed}"] = line.admissible
    runs = {row.run for row in changed}
    for row in (row for row in measured(paper) if row.run in runs):
        rows = block(paper, row)
        found[f"rank of {row.id} by average among {len(rows)} rows of Table {row.table}"] = str(_rank(row, rows))
    return found


def _rank(row: Row, rows: list[Row]) -> int:
    return 1 + sum(other.avg > row.avg for other in rows)


def _moved(before: dict[str, str], *after: dict[str, str]) -> list[str]:
    """Statements whose value is another one in every version."""
    return [name for name in before if all(version.get(name, before[name]) != before[name] for version in after)]


def _would(name: str, now: str, then: list[str]) -> str:
    return f"{name}: {now} would be {' to '.join(dict.fromkeys(then))}"
