"""Reading what another step wrote: a missing or broken file is an error that names it, never an empty value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from records.errors import CorruptInputError, MissingInputError


def read_json(path: Path | str, what: str = "file") -> Any:
    """The JSON value in `path`; `what` says in the error which kind of file was expected."""
    path = Path(path)
    if not path.is_file():
        raise MissingInputError(f"{path}: {what} is missing")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise CorruptInputError(f"{path}: {what} is not valid JSON ({error})") from error


def read_jsonl(path: Path | str, what: str = "file") -> list[dict[str, Any]]:
    """One object per line; an empty file or a bad line is an error that names the line."""
    path = Path(path)
    if not path.is_file():
        raise MissingInputError(f"{path}: {what} is missing")
    rows = []
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                rows.append(json.loads(line))
            except json.JSONDecodeError as error:
                raise CorruptInputError(f"{path}: line {number} of {what} is not valid JSON ({error})") from error
    if not rows:
        raise CorruptInputError(f"{path}: {what} holds no rows")
    return rows
