"""Atomic writes: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from records.errors import CorruptInputError, MissingInputError


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path beside `path`; rename it over `path` when the block ends without an error.

    The data is flushed to disk before the rename, so that a crash cannot leave an empty file under the final name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; results are meant to be read by others
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str) -> None:
    """Write `text` (UTF-8, no newline translation) atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode("utf-8"))


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as indented JSON atomically; NaN and infinity are refused, because no other reader takes them."""
    write_text(path, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


# Reading what another step wrote: a missing or broken file is an error that names it, never an empty value.


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
