"""Sentences of the prose against the tables: `sentences.yaml` says what they say, `checks.py` what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from records.errors import ConfigError, unknown
from records.yaml_files import read_yaml
from report.paper.checks import Answer, answer
from report.paper.finding import Finding
from report.paper.printed import HEADINGS, Paper

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
