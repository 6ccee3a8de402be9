"""The earlier version of the paper beside the later one (`versions.yaml`): what moved between them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from paper.arithmetic import Finding, implied, status
from paper.printed import AVERAGE, HEADINGS, Paper, measured
from paper.sentences import cell_of
from records.declared import Declared, Tuple, validated
from records.errors import ConfigError, unknown
from records.files import read_yaml
from records.provenance import ROOT

DATA = ("paper/versions.yaml",)
VERSIONS = ROOT / DATA[0]
UNKNOWN = "unknown"
_NUMBER = re.compile(r"\d{1,3}\.\d\d")


class Version(Declared):
    arxiv: str
    version: str | None  # None: unknown
    title: str


class Figure(Declared):
    id: str
    about: str
    later: str  # a cell of the later version's tables
    earlier: str | None = None  # as printed; None: unknown
    implied: Tuple[str] = ()  # two ids: the first one's figure minus the second's


class VersionsFile(Declared):
    earlier: Version
    later: Version
    figures: Tuple[Figure]


@dataclass(frozen=True)
class Versions:
    earlier: Version
    later: Version
    figures: tuple[Figure, ...]
    values: Mapping[str, Decimal | None]  # id -> what the earlier version says, or what follows from it


def read(path: Path | str = VERSIONS) -> Versions:
    """Raises `ConfigError` naming file and id: an id given twice, a number without two decimals, an unknown id."""
    file = validated(VersionsFile, read_yaml(path), str(path))
    values: dict[str, Decimal | None] = {}
    for figure in file.figures:
        where = f"{path}: {figure.id}"
        if figure.id in values:
            raise ConfigError(f"{where}: the id is given twice")
        if figure.implied:
            values[figure.id] = _implied(figure, values, where)
        elif figure.earlier is None:
            values[figure.id] = None
        elif _NUMBER.fullmatch(figure.earlier):
            values[figure.id] = Decimal(figure.earlier)
        else:
            raise ConfigError(f"{where}: earlier: {figure.earlier!r} is not of the form 12.34")
    return Versions(file.earlier, file.later, file.figures, values)


def _implied(figure: Figure, values: Mapping[str, Decimal | None], where: str) -> Decimal | None:
    if figure.earlier is not None or len(figure.implied) != 2:
        raise ConfigError(f"{where}: implied: needs two ids and no `earlier`, got {', '.join(figure.implied)}")
    for id in figure.implied:
        if id not in values:  # of figures further up only: no circles
            raise unknown(where, "implied", id, values)
    whole, part = (values[id] for id in figure.implied)
    return None if whole is None or part is None else whole - part


def findings(paper: Paper, versions: Versions | None) -> list[Finding]:
    """One line per figure. Nobody can tell from print why a figure moved, so none has a verdict."""
    return [] if versions is None else [_finding(paper, figure, versions) for figure in versions.figures]


def _finding(paper: Paper, figure: Figure, versions: Versions) -> Finding:
    id, column = cell_of(paper, figure.later)
    earlier, later = versions.values[figure.id], paper[id].cells[column]
    difference = UNKNOWN if earlier is None or later is None else f"{later - earlier:+}"
    remarks = [figure.about]
    if earlier is not None:
        if figure.implied:
            remarks.append(f"implied: {' - '.join(str(versions.values[id]) for id in figure.implied)}")
        if earlier == later:
            remarks.append("the same in both versions")
        remarks += _printed_again(paper, column, earlier, figure, versions)
    return Finding(
        table=paper[id].table,
        row=id,
        cell=HEADINGS[column],
        check="version",
        printed=UNKNOWN if earlier is None else str(earlier),
        admissible=paper[id].text(column),
        status="listed",
        # the page shows what stands before the first "; " in a column of its own
        note="; ".join([difference, *remarks]),
    )


def _printed_again(paper: Paper, column: str, earlier: Decimal, figure: Figure, versions: Versions) -> Sequence[str]:
    """Other rows of the later version with the earlier figure in the same column, and what their cells say to it."""
    remarks = []
    for row in measured(paper, distinct=True):
        if row.cells[column] != earlier or row.id == figure.later.rpartition(".")[0]:
            continue
        remarks.append(f"{row.id} ({row.label}) prints {earlier}")
        if column == AVERAGE and status(paper, row) == "outside":
            low, high = implied(row)
            remarks.append(f"an average that does not follow from its cells ({low}..{high})")
            whole = versions.values[figure.implied[0]] if figure.implied else None
            if whole is not None:
                remarks.append(f"with one that does the gain would be {whole - high} to {whole - low}")
    return remarks
