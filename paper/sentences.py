"""Sentences of the paper's prose against its tables: `sentences.yaml` says what they say, the tables what follows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from core.declared import Declared, Tuple, arguments_model, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.provenance import ROOT
from paper import arithmetic
from paper.arithmetic import Finding, implied, status
from paper.printed import AVERAGE, COLUMN, HEADINGS, Paper, Row, block, measured, with_cell

# What a sentence can say about the tables: one function per kind of check, found by its name in `sentences.yaml`.
#
# A check gets the paper and its own keys, and recomputes the number. `says` is text with the digits of the sentence.


class Answer(NamedTuple):
    says: str  # what the sentence says
    follows: str  # what the tables give
    agrees: bool
    row: str = ""  # where the number stands, if in one row
    column: str = ""
    note: str = ""


def value(paper: Paper, *, cell: str, says: str) -> Answer:
    """The sentence repeats a cell."""
    row, column = cell_of(paper, cell)
    return Answer(says, paper[row].text(column), paper[row].text(column) == says, row, column)


def difference(paper: Paper, *, cell: str, minus: str, says: str) -> Answer:
    """One cell minus another. Where it disagrees, other rows of the model that would give the number are named."""
    row, column = cell_of(paper, cell)
    subtrahend = _number(paper, minus)
    follows = _number(paper, cell) - subtrahend
    note = f"{cell} - {minus}"
    if _agree(says, follows):
        return Answer(says, str(follows), True, row, column, note)
    low_row, low_column = cell_of(paper, minus)
    fits = []
    for other in measured(paper, distinct=True):
        number = other.cells[low_column]
        if other.model == paper[low_row].model and number is not None and _agree(says, number - subtrahend):
            fits.append(other.id)
    if fits:
        note += f"; {says} would be {' or '.join(fits)} minus {low_row}"
    return Answer(says, str(follows), False, row, column, note)


def reduction(paper: Paper, *, start: str, end: str, says: str) -> Answer:
    """Percent by which `end` is below `start`."""
    follows = (100 * (1 - Decimal(end) / Decimal(start))).quantize(Decimal("0.1"))
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
    row, column = cell_of(paper, cell)
    others = [other.id for other in block(paper, paper[row])] if among is None else [_row(paper, id) for id in among]
    place, shared = _rank(paper, row, column, others)
    note = f"of {len({row, *others})} rows"
    if shared:
        note += f"; shared with {', '.join(shared)}"
    if says:
        return Answer(f"rank {says}", f"rank {place}", place == int(says), row, column, note)
    return Answer(f"rank 1-{at_most}", f"rank {place}", place <= int(at_most), row, column, note)


def firsts(paper: Paper, *, row: str, says: str) -> Answer:
    """In how many of the benchmark columns the row has rank 1 (shared counts)."""
    others = [other.id for other in block(paper, paper[_row(paper, row)])]
    first: list[str] = []
    ties: list[str] = []
    for key in COLUMN:
        if paper[row].cells[key] is not None:
            place, shared = _rank(paper, row, key, others)
            if place == 1:
                first.append(HEADINGS[key])
                ties += [f"{HEADINGS[key]} with {', '.join(shared)}"] if shared else []
    note = f"first in {', '.join(first) or 'none'}"
    if ties:
        note += f"; shared: {'; '.join(ties)}"
    return Answer(f"first in {says}", f"first in {len(first)}", len(first) == int(says), row, "", note)


def items(paper: Paper, *, list: Sequence[str], says: str) -> Answer:
    """How many things the sentence itself names."""
    return Answer(says, str(len(list)), len(list) == int(says), note=", ".join(list))


def labels_without(paper: Paper, *, rows: Sequence[str], word: str, says: str) -> Answer:
    """How many of the rows' labels do not contain a word."""
    named = [id for id in rows if word in paper[_row(paper, id)].label]
    without = len(rows) - len(named)
    note = "; ".join(f"{id} is {paper[id].label}" for id in named)
    return Answer(says, str(without), without == int(says), note=note)


def above(paper: Paper, *, row: str, over: str, columns: str | Sequence[str]) -> Answer:
    """The row is above another one in each of these columns ("all": every benchmark)."""
    keys = [*COLUMN] if columns == "all" else [*columns]
    failures = []
    for key in keys:
        a, b = _number(paper, f"{row}.{key}"), _number(paper, f"{over}.{key}")
        if a <= b:
            failures.append(f"{HEADINGS[key]} {a} and {b}")
    follows = f"above {over} in {len(keys) - len(failures)} of {len(keys)}"
    column = keys[0] if len(keys) == 1 else ""
    note = f"not above: {'; '.join(failures)}" if failures else ""
    return Answer(f"above {over}", follows, not failures, row, column, note)


def adopted(paper: Paper, *, settings: Mapping[str, Sequence[str]], says: str) -> Answer:
    """How many settings are printed as their source has them. settings: name -> printed value, the source's value."""
    if wrong := [name for name, values in settings.items() if len(values) != 2]:
        raise ConfigError(f"adopted: {wrong[0]}: needs the printed value and the source's")
    other = [name for name, (here, there) in settings.items() if Decimal(here) != Decimal(there)]
    note = "; ".join(f"{name}: {settings[name][0]}, its source {settings[name][1]}" for name in other)
    same = len(settings) - len(other)
    return Answer(f"{says} of {len(settings)}", f"{same} of {len(settings)}", same == int(says), note=note)


KINDS: dict[str, Callable[..., Answer]] = {
    check.__name__: check
    for check in (value, difference, reduction, product, quotient, rank, firsts, items, labels_without, above, adopted)
}


def _agree(says: str, follows: Decimal) -> bool:
    """Equal to the digits of the sentence, rounded or truncated."""
    unit = Decimal(1).scaleb(-len(says.partition(".")[2]))
    return Decimal(says) in {follows.quantize(unit, ROUND_HALF_UP), follows.quantize(unit, ROUND_DOWN)}


def _rank(paper: Paper, row: str, column: str, others: Sequence[str]) -> tuple[int, list[str]]:
    """Rank of a row in a column, and the rows with the same value."""
    mine = _number(paper, f"{row}.{column}")
    numbers = {id: paper[id].cells[column] for id in others if id != row}
    place = 1 + sum(number is not None and number > mine for number in numbers.values())
    return place, [id for id, number in numbers.items() if number == mine]


def _row(paper: Paper, id: str) -> str:
    if id not in paper:
        raise unknown("cell", "row", id, paper)
    return id


def cell_of(paper: Paper, cell: str) -> tuple[str, str]:
    """Row and column of a cell `<row id>.<column key>`."""
    row, _, column = cell.rpartition(".")
    _row(paper, row)
    if column not in HEADINGS:
        raise unknown(f"cell {cell}", "column", column, (*COLUMN, AVERAGE))
    return row, column


def _number(paper: Paper, cell: str) -> Decimal:
    row, column = cell_of(paper, cell)
    number = paper[row].cells[column]
    if number is None:
        raise ConfigError(f"cell {cell}: printed as -, no number")
    return number


# The declared sentences, and one finding per check.

DATA = ("paper/sentences.yaml",)
SENTENCES = ROOT / DATA[0]
LONG = 90  # characters of a quote that a finding repeats
Text = Annotated[str, Field(min_length=1)]


class Declaration(Declared):
    """A sentence as `sentences.yaml` has it."""

    id: Text
    where: Text  # section or caption
    quote: Text  # verbatim
    note: str = ""
    checks: Tuple[dict[str, Any]]  # each a kind of check with its keys


class SentencesFile(Declared):
    sentences: Annotated[tuple[Declaration, ...], Field(strict=False, min_length=1)]


@dataclass(frozen=True)
class Check:
    kind: str  # a key of KINDS
    arguments: Mapping[str, Any]
    about: bool  # the sentence says "about" or "nearly": another exact value is no defect


@dataclass(frozen=True)
class Sentence:
    declared: Declaration
    checks: tuple[Check, ...]


def read(path: Path | str = SENTENCES) -> list[Sentence]:
    """All sentences of a file; an unknown or missing key and an id given twice are errors that name them."""
    file = validated(SentencesFile, read_yaml(path), str(path))
    sentences: dict[str, Sentence] = {}
    for declared in file.sentences:
        where = f"{path}: {declared.id}"
        if declared.id in sentences:
            raise ConfigError(f"{where}: the id is given twice")
        sentences[declared.id] = Sentence(declared, tuple(_check(body, where) for body in declared.checks))
    return list(sentences.values())


def _check(body: Mapping[str, Any], where: str) -> Check:
    if len(body) != 1:
        raise ConfigError(f"{where}: checks: each has exactly one kind, got {', '.join(body) or 'none'}")
    ((kind, keys),) = body.items()
    if kind not in KINDS:
        raise unknown(where, "check", kind, KINDS)
    if not isinstance(keys, dict):
        raise ConfigError(f"{where}: {kind}: must be keys and values, got {keys!r}")
    about = bool(keys.get("about"))
    keys = {key: value for key, value in keys.items() if key != "about"}
    arguments = validated(arguments_model(KINDS[kind]), keys, where, kind).model_dump(exclude_unset=True)
    return Check(kind, arguments, about)


def answers(paper: Paper, sentences: Sequence[Sentence]) -> list[tuple[Sentence, Check, Answer]]:
    """Every check of every sentence, in order. Raises `ConfigError` for an unknown row or column."""
    results = []
    for sentence in sentences:
        for check in sentence.checks:
            try:
                answer = KINDS[check.kind](paper, **check.arguments)
            except ConfigError as error:
                raise ConfigError(f"sentence {sentence.declared.id}: {error}") from error
            results.append((sentence, check, answer))
    return results


def findings(paper: Paper, sentences: Sequence[Sentence]) -> list[Finding]:
    """One line per check."""
    lines = []
    for sentence, check, answer in answers(paper, sentences):
        quote, where = sentence.declared.quote, sentence.declared.where
        if len(quote) > LONG:
            quote = quote[: LONG - 4].rsplit(" ", 1)[0] + " ..."
        wrong = "approximate" if check.about else "differs"
        state = "ok" if answer.agrees else wrong
        note = "; ".join(part for part in (f'{where}: "{quote}"', answer.note, sentence.declared.note) if part)
        table = paper[answer.row].table if answer.row else ""
        column = HEADINGS.get(answer.column, "")
        lines.append(Finding(table, answer.row, column, "sentence", answer.says, answer.follows, state, note))
    return lines


# What changes where a printed average is replaced by the one that its own columns imply: gains, ranks, sentences.
#
# Nobody can know from print whether the average or a cell is off; this says what would follow if the cells are right.


def consequences(paper: Paper, sentences: Sequence[Sentence]) -> list[Finding]:
    """For each distinct row whose average is outside: what differs at both ends of the implied interval. Then for all
    of them together, each at the middle of its interval."""
    rows = [row for row in measured(paper, distinct=True) if status(paper, row) == "outside"]
    findings = []
    for row in rows:
        before = _statements(paper, sentences, [row])
        low, high = implied(row)
        ends = [_statements(with_cell(paper, row.id, AVERAGE, end), sentences, [row]) for end in (low, high)]
        where = (row.table, row.id, HEADINGS[AVERAGE], "consequence", row.text(AVERAGE), f"{low}..{high}", "listed")
        findings += [Finding(*where, note) for note in _changes(before, ends)]
    if len(rows) > 1:
        # Each row has two ends; the middles are one version of the tables instead of one per combination of ends.
        changed = paper
        for row in rows:
            low, high = implied(row)
            changed = with_cell(changed, row.id, AVERAGE, ((low + high) / 2).quantize(Decimal("0.01")))
        before, after = _statements(paper, sentences, rows), _statements(changed, sentences, rows)
        where = ("", " ".join(row.id for row in rows), HEADINGS[AVERAGE], "consequence", "", "", "listed")
        findings += [Finding(*where, note) for note in _changes(before, [after])]
    return findings


def _statements(paper: Paper, sentences: Sequence[Sentence], changed: Sequence[Row]) -> dict[str, str]:
    """What is said with averages -> its value: comparisons in sentences, Delta rows, means, ranks of changed rows."""
    statements = {}
    for sentence, check, answer in answers(paper, sentences):
        if answer.column == AVERAGE and check.kind != "value":
            declared = sentence.declared
            name = f'{declared.where} says "{answer.says}" of {answer.row} ({declared.id})'
            statements[name] = answer.follows
    for line in (*arithmetic.deltas(paper), *arithmetic.means(paper)):
        if line.cell == HEADINGS[AVERAGE]:
            statements[f"{line.row} prints {line.printed}"] = line.admissible
    runs = {row.run for row in changed}
    for row in measured(paper):
        if row.run in runs:
            others = block(paper, row)
            place = 1 + sum(other.avg > row.avg for other in others)
            statements[f"rank of {row.id} by average among {len(others)} rows of Table {row.table}"] = str(place)
    return statements


def _changes(before: Mapping[str, str], after: Sequence[Mapping[str, str]]) -> list[str]:
    """The statements whose value is another one in every version `after`."""
    changes = []
    for name, now in before.items():
        values = [version.get(name, now) for version in after]
        if now not in values:
            changes.append(f"{name}: {now} would be {' to '.join(dict.fromkeys(values))}")
    return changes
