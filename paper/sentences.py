"""Sentences of the prose against the tables: `sentences.yaml` says what they say, `checks.py` what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any, NamedTuple

from paper import arithmetic
from paper.arithmetic import implied, status
from paper.finding import Finding
from paper.printed import AVERAGE, COLUMN, HEADINGS, Paper, Row, block, measured, with_cell
from records.errors import ConfigError, unknown
from records.yaml_files import read_yaml

# What a sentence can say about the tables: each kind of check recomputes it. One function per kind, found by its name.
#
# Every check gets the paper and its own keys and answers with an `Answer`: what the sentence says, what follows,
# whether they agree. `says` is text with the digits of the sentence; `about: true` marks one that says "about" or
# "nearly".


class Answer(NamedTuple):
    """row, column: where the number stands (may be empty)."""

    says: str
    follows: str
    agrees: bool
    row: str = ""
    column: str = ""
    note: str = ""
    about: bool = False


def value(paper: Paper, *, cell: str, says: str) -> Answer:
    """The sentence repeats a cell."""
    row, column = _where(paper, cell)
    return Answer(says, paper[row].text(column), paper[row].text(column) == says, row, column)


def difference(paper: Paper, *, cell: str, minus: str, says: str) -> Answer:
    """One cell minus another. Where it disagrees, other rows of the model that would give the number are named."""
    row, column = _where(paper, cell)
    follows = _number(paper, cell) - _number(paper, minus)
    note = f"{cell} - {minus}"
    if not _agree(says, follows):
        low_row, low_column = _where(paper, minus)
        tops = [
            other.id
            for other in measured(paper, distinct=True)
            if other.model == paper[low_row].model
            and other.cells[low_column] is not None
            and _agree(says, (other.cells[low_column] or Decimal(0)) - _number(paper, minus))
        ]
        note += f"; {says} would be {' or '.join(tops)} minus {low_row}" if tops else ""
    return Answer(says, str(follows), _agree(says, follows), row, column, note)


def reduction(paper: Paper, *, says: str, **ends: str) -> Answer:
    """Percent by which `to` is below `from`."""
    if set(ends) != {"from", "to"}:
        raise ConfigError(f"reduction: needs from, to and says; got {', '.join(ends)}")
    start, end = (Decimal(ends[key]) for key in ("from", "to"))
    follows = (100 * (1 - end / start)).quantize(Decimal("0.1"))
    return Answer(says, str(follows), _agree(says, follows), note=f"1 - {end}/{start} in percent")


def product(paper: Paper, *, factors: Sequence[str], says: str) -> Answer:
    follows = Decimal(1)
    for factor in factors:
        follows *= Decimal(factor)
    return Answer(says, str(follows), _agree(says, follows), note=" x ".join(factors))


def quotient(paper: Paper, *, of: str, by: str, says: str) -> Answer:
    follows = Decimal(of) / Decimal(by)
    return Answer(says, str(follows), _agree(says, follows), note=f"{of}/{by}")


def rank(paper: Paper, *, cell: str, says: str = "", at_most: str = "", among: Sequence[str] | None = None) -> Answer:
    """1 + number of rows with a larger value: of the row's table and model, or of the rows `among`."""
    if bool(says) == bool(at_most):
        raise ConfigError("rank: needs says or at_most")
    row, column = _where(paper, cell)
    others = block(paper, paper[row]) if among is None else [paper[_row(paper, id)] for id in among]
    place, shared = _rank(paper, row, column, [other.id for other in others])
    note = f"of {len({row, *(other.id for other in others)})} rows" + (
        f"; shared with {', '.join(shared)}" if shared else ""
    )
    agrees = place == int(says) if says else place <= int(at_most)
    return Answer((says and f"rank {says}") or f"rank 1-{at_most}", f"rank {place}", agrees, row, column, note)


def firsts(paper: Paper, *, row: str, says: str) -> Answer:
    """In how many of the benchmark columns the row has rank 1 (shared counts)."""
    others = [other.id for other in block(paper, paper[_row(paper, row)])]
    ranks = {key: _rank(paper, row, key, others) for key in COLUMN if paper[row].cells[key] is not None}
    best = {key: shared for key, (place, shared) in ranks.items() if place == 1}
    with_others = [f"{HEADINGS[key]} with {', '.join(shared)}" for key, shared in best.items() if shared]
    note = f"first in {', '.join(HEADINGS[key] for key in best) or 'none'}"
    note += f"; shared: {'; '.join(with_others)}" if with_others else ""
    return Answer(f"first in {says}", f"first in {len(best)}", len(best) == int(says), row, "", note)


def items(paper: Paper, *, list: Sequence[str], says: str) -> Answer:
    """How many things the sentence itself names."""
    return Answer(says, str(len(list)), len(list) == int(says), note=", ".join(list))


def labels_without(paper: Paper, *, rows: Sequence[str], word: str, says: str) -> Answer:
    """How many of the rows' labels do not contain a word."""
    named = [id for id in rows if word in paper[_row(paper, id)].label]
    note = "; ".join(f"{id} is {paper[id].label}" for id in named)
    return Answer(says, str(len(rows) - len(named)), len(rows) - len(named) == int(says), note=note)


def above(paper: Paper, *, row: str, over: str, columns: Sequence[str]) -> Answer:
    """The row is above another one in each of these columns ("all": every benchmark)."""
    keys = [*COLUMN] if columns == "all" else [*columns]
    pairs = {key: (_number(paper, f"{row}.{key}"), _number(paper, f"{over}.{key}")) for key in keys}
    not_above = [f"{HEADINGS[key]} {a} and {b}" for key, (a, b) in pairs.items() if a <= b]
    follows = f"above {over} in {len(keys) - len(not_above)} of {len(keys)}"
    column = keys[0] if len(keys) == 1 else ""
    note = f"not above: {'; '.join(not_above)}" if not_above else ""
    return Answer(f"above {over}", follows, not not_above, row, column, note)


KINDS: dict[str, Callable[..., Answer]] = {
    check.__name__: check
    for check in (value, difference, reduction, product, quotient, rank, firsts, items, labels_without, above)
}


def answer(paper: Paper, kind: str, keys: Mapping[str, Any], where: str) -> Answer:
    """Run one declared check. Raises `ConfigError` for an unknown kind, key, row or column, naming `where`."""
    if kind not in KINDS:
        raise unknown(where, "check", kind, KINDS)
    try:
        found = KINDS[kind](paper, **{key: given for key, given in keys.items() if key != "about"})
        return found._replace(about=bool(keys.get("about")))
    except TypeError as error:
        raise ConfigError(f"{where}: {kind}: {error}") from error
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error


def _agree(says: str, follows: Decimal) -> bool:
    """Equal to the digits of the sentence, rounded or truncated."""
    unit = Decimal(1).scaleb(-len(says.partition(".")[2]))
    return Decimal(says) in {follows.quantize(unit, ROUND_HALF_UP), follows.quantize(unit, ROUND_DOWN)}


def _rank(paper: Paper, row: str, column: str, others: Sequence[str]) -> tuple[int, list[str]]:
    mine = _number(paper, f"{row}.{column}")
    rest = [id for id in others if id != row and paper[id].cells[column] is not None]
    place = 1 + sum(_number(paper, f"{id}.{column}") > mine for id in rest)
    return place, [id for id in rest if paper[id].cells[column] == mine]


def _row(paper: Paper, id: str) -> str:
    if id not in paper:
        raise unknown("cell", "row", id, paper)
    return id


def _where(paper: Paper, cell: str) -> tuple[str, str]:
    row, _, column = str(cell).rpartition(".")
    _row(paper, row)
    if column not in HEADINGS:
        raise unknown(f"cell {cell}", "column", column, (*COLUMN, AVERAGE))
    return row, column


def _number(paper: Paper, cell: str) -> Decimal:
    row, column = _where(paper, cell)
    found = paper[row].cells[column]
    if found is None:
        raise ConfigError(f"cell {cell}: printed as -, no number")
    return found


SENTENCES = Path(__file__).resolve().parent / "sentences.yaml"
_KEYS = ("id", "where", "quote", "note", "checks")
LONG = 90


@dataclass(frozen=True)
class Sentence:
    """quote: verbatim; checks: (kind, its keys)."""

    id: str
    where: str
    quote: str
    note: str
    checks: tuple[tuple[str, Mapping[str, Any]], ...]


def read(path: Path | str = SENTENCES) -> list[Sentence]:
    """All sentences of a file; an unknown or missing key and an id given twice are errors that name them."""
    content = read_yaml(path)
    found: dict[str, Sentence] = {}
    for n, body in enumerate(content.get("sentences") or ()):
        at = f"{path}: sentences.{n}"
        for key in body:
            if key not in _KEYS:
                raise unknown(at, "key", key, _KEYS)
        for key in ("id", "where", "quote", "checks"):
            if not body.get(key):
                raise ConfigError(f"{at}: {key} is missing")
        if body["id"] in found:
            raise ConfigError(f"{at}: id {body['id']} is given twice")
        if any(len(check) != 1 for check in body["checks"]):
            raise ConfigError(f"{at}: {body['id']}: each check has exactly one kind")
        checks = tuple((kind, keys) for check in body["checks"] for kind, keys in check.items())
        found[body["id"]] = Sentence(body["id"], body["where"], body["quote"], body.get("note", ""), checks)
    if not found:
        raise ConfigError(f"{path}: sentences: none there")
    return list(found.values())


def answers(paper: Paper, sentences: list[Sentence]) -> list[tuple[Sentence, str, Answer]]:
    """Every check of every sentence with its kind, in order."""
    return [
        (sentence, kind, answer(paper, kind, keys, f"sentence {sentence.id}"))
        for sentence in sentences
        for kind, keys in sentence.checks
    ]


def check(paper: Paper, sentences: list[Sentence]) -> list[Finding]:
    """One line per check."""
    return [_finding(paper, *each) for each in answers(paper, sentences)]


def _finding(paper: Paper, sentence: Sentence, kind: str, found: Answer) -> Finding:
    quote = sentence.quote if len(sentence.quote) <= LONG else sentence.quote[: LONG - 4].rsplit(" ", 1)[0] + " ..."
    status = "ok" if found.agrees else "approximate" if found.about else "differs"
    note = "; ".join(part for part in (f'{sentence.where}: "{quote}"', found.note, sentence.note) if part)
    table = paper[found.row].table if found.row else ""
    return Finding(
        table, found.row, HEADINGS.get(found.column, ""), "sentence", found.says, found.follows, status, note
    )


# What changes where a printed average is replaced by the one that its own columns imply: gains, ranks, sentences.
#
# Nobody can know from print whether the average or a cell is off; this says what would follow if the cells are right.


def consequences_check(paper: Paper, said: list[Sentence]) -> list[Finding]:
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
    for sentence, kind, answer in answers(paper, said):
        if answer.column == AVERAGE and kind != "value":
            found[f'{sentence.where} says "{answer.says}" of {answer.row} ({sentence.id})'] = answer.follows
    for line in (*arithmetic.deltas(paper), *arithmetic.means(paper)):
        if line.cell == HEADINGS[AVERAGE]:
            found[f"{line.row} prints {line.printed}"] = line.admissible
    runs = {row.run for row in changed}
    for row in (row for row in measured(paper) if row.run in runs):
        rows = block(paper, row)
        found[f"rank of {row.id} by average among {len(rows)} rows of Table {row.table}"] = str(
            _rank_consequences(row, rows)
        )
    return found


def _rank_consequences(row: Row, rows: list[Row]) -> int:
    return 1 + sum(other.avg > row.avg for other in rows)


def _moved(before: dict[str, str], *after: dict[str, str]) -> list[str]:
    """Statements whose value is another one in every version."""
    return [name for name in before if all(version.get(name, before[name]) != before[name] for version in after)]


def _would(name: str, now: str, then: list[str]) -> str:
    return f"{name}: {now} would be {' to '.join(dict.fromkeys(then))}"
