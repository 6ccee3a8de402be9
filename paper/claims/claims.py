"""Read `claims.yaml`: what each claim says, how it is tested in print and in runs, and what a scale cannot test."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paper import printed
from paper.claims.tests import KINDS, SCORE, listed, rows_of
from paper.printed import HEADINGS, Paper
from records.errors import ConfigError, unknown
from records.yaml_files import need, only, read_yaml

CLAIMS = Path(printed.__file__).resolve().parent / "claims.yaml"
_KEYS = ("id", "family", "where", "quote", "also", "says", "test", "print", "needs", "embedded", "readings")
NEEDS = {"scores": "scores.csv", "curves": "runs/*/curve.csv", "nothing": "no run"}


@dataclass(frozen=True)
class Question:
    """kind: a function of `kinds`; keys: what it is given."""

    kind: str
    keys: Mapping[str, Any]


@dataclass(frozen=True)
class Claim:
    """One testable statement. quotes: (where, verbatim words), the first place first.

    says: the statement that is tested. test: on runs. printed: on the printed tables, or why these cannot tell.
    embedded: what is tested where tiny models stand in for the paper's; untestable: why that is no test of the claim
    (None: it is one). readings: label -> printed row -> the method that stands in for it under another reading.
    """

    id: str
    family: str
    quotes: tuple[tuple[str, str], ...]
    says: str
    test: Question
    printed: Question | str
    needs: tuple[str, ...]
    embedded: str
    untestable: str | None
    readings: Mapping[str, Mapping[str, str]]


def read(path: Path | str = CLAIMS, paper: Paper | None = None) -> list[Claim]:
    """All claims of a file.

    Raises `ConfigError` naming file and claim: an id given twice; an unknown key, kind of test, key of a kind, row,
    column, measure or reason; a claim without a quote; sides of other models.
    """
    content = read_yaml(path)
    only(content, str(path), "", ("lists", "reasons", "claims"))
    reasons = need(content, "reasons", str(path))
    rows = printed.read() if paper is None else paper
    found: dict[str, Claim] = {}
    for n, body in enumerate(need(content, "claims", str(path))):
        at = f"claims.{n}" if not isinstance(body, dict) or "id" not in body else str(body["id"])
        only(body, str(path), at, _KEYS)
        claim = _claim(body, f"{path}: {at}", reasons, rows)
        if claim.id in found:
            raise ConfigError(f"{path}: claims: id {claim.id} is given twice")
        found[claim.id] = claim
    return list(found.values())


def _claim(body: Mapping[str, Any], where: str, reasons: Mapping[str, str], rows: Paper) -> Claim:
    embedded = need(body, "embedded", where)
    only(embedded, where, "embedded", ("statement", "untestable"))
    test = _test(need(body, "test", where), f"{where}: test", rows)
    said = body.get("print")
    readings = body.get("readings") or {}
    for label, instead in readings.items():
        for id in instead:
            if id not in rows_of(test.keys):
                raise unknown(f"{where}: readings.{label}", "row", id, rows_of(test.keys))
    for name in need(body, "needs", where):
        if name not in NEEDS:
            raise unknown(where, "needs", name, NEEDS)
    places = [body, *(body.get("also") or ())]
    return Claim(
        id=str(need(body, "id", where)),
        family=str(need(body, "family", where)),
        quotes=tuple((str(need(place, "where", where)), str(need(place, "quote", where))) for place in places),
        says=str(need(body, "says", where)),
        test=test,
        printed=test if said is None else _reason(said, reasons, where) or _test(said, f"{where}: print", rows),
        needs=tuple(body["needs"]),
        embedded=str(need(embedded, "statement", where)),
        untestable=_reason(embedded.get("untestable"), reasons, where),
        readings=readings,
    )


def _reason(name: Any, reasons: Mapping[str, str], where: str) -> str | None:
    if not isinstance(name, str):
        return None
    if name not in reasons:
        raise unknown(where, "reason", name, reasons)
    return " ".join(reasons[name].split())


def _test(value: Any, where: str, rows: Paper) -> Question:
    if not isinstance(value, dict) or len(value) != 1:
        raise ConfigError(f"{where}: must be one kind of test with its keys, got {value!r}")
    ((kind, keys),) = value.items()
    if kind not in KINDS:
        raise unknown(where, "kind", kind, KINDS)
    given = list(inspect.signature(KINDS[kind]).parameters.values())[1:]
    only(keys, where, kind, [p.name for p in given])
    for parameter in given:
        if parameter.default is inspect.Parameter.empty:
            need(keys, parameter.name, where, kind)
    evaluated = [id for id, row in rows.items() if row.run is not None or row.kind == "mean"]
    for id in rows_of(keys):
        if id not in evaluated:
            raise unknown(f"{where}: {kind}", "row", id, evaluated)
    left, right = ([rows[id].model for id in listed(keys.get(side, ()))] for side in ("left", "right"))
    if left != right:
        raise ConfigError(
            f"{where}: {kind}: left and right must name a row of the same models, got {', '.join(left)} and "
            f"{', '.join(right)}"
        )
    for column in (*keys.get("columns", ()), *([keys["column"]] if "column" in keys else [])):
        if column not in HEADINGS:
            raise unknown(f"{where}: {kind}", "column", column, HEADINGS)
    if "measure" in keys and keys["measure"] not in (known := _measures()):
        raise unknown(f"{where}: {kind}", "measure", keys["measure"], known)
    return Question(kind, keys)


def _measures() -> list[str]:
    from evals import learning_curves
    from paper.claims.from_runs import EXTRAS

    return [SCORE, *learning_curves.MEASURES, *EXTRAS]
