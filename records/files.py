"""Files in and out: one reader and one writer for JSON, JSON lines, YAML and CSV.

Writes are atomic: a reader sees the old file or the new one, never half of one. A missing or broken file is an error
that names it, never an empty value.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from records.errors import ConfigError, CorruptInputError, MissingInputError, unknown


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


class _UniqueKeys(yaml.CSafeLoader):
    """Refuses a key that is written twice: YAML silently takes the last. libyaml's parser: eight times as fast."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = loader.construct_pairs(node, deep=True)
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            values = ", ".join(repr(value) for name, value in pairs if name == key)
            raise ConfigError(f"{node.start_mark.name}: {key}: given twice ({values})")
    return dict(pairs)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path | str, what: str = "file") -> dict[str, Any]:
    """The mapping in `path`; a missing file, bad YAML or a key given twice is an error that names the file."""
    path = Path(path)
    if not path.is_file():
        raise MissingInputError(f"{path}: {what} is missing")
    try:
        with open(path, encoding="utf-8") as stream:
            value = yaml.load(stream, Loader=_UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {type(value).__name__}")
    return value


# CSV, strictly: named columns, no ragged rows, no empty files.


def stored(path: Path | str) -> Path | None:
    """Where a file lies: at `path`, or compressed beside it as a reference keeps its curves; None: neither."""
    plain = Path(path)
    compressed = plain.with_name(f"{plain.name}.gz")
    return plain if plain.is_file() else compressed if compressed.is_file() else None


def content(path: Path) -> bytes:
    """What a stored file holds, compressed or not."""
    data = path.read_bytes()
    try:
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CorruptInputError(f"{path}: not a compressed file ({error})") from error


def read_csv(path: Path | str, what: str, needed: Sequence[str], *, allow_empty: bool = False) -> list[dict[str, str]]:
    """All rows as text. A missing file or column or a ragged row is an error naming the file; so is a file without
    rows, unless `allow_empty`."""
    file = stored(path)
    if file is None:
        raise MissingInputError(f"{path}: {what} is missing")
    path = file
    try:
        text = content(path).decode("utf-8")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise CorruptInputError(f"{path}: {what} is not valid CSV ({error})") from error
    if not lines:
        raise CorruptInputError(f"{path}: {what} is empty")
    header = lines[0]
    for column in needed:
        if column not in header:
            raise unknown(str(path), "column wanted", column, header)
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(header):
            raise CorruptInputError(f"{path}: line {number}: {len(line)} fields, the header has {len(header)}")
    if not text.endswith("\n"):
        raise CorruptInputError(f"{path}: line {len(lines)}: cut off before its end")
    if len(lines) == 1 and not allow_empty:
        raise CorruptInputError(f"{path}: {what} holds no rows")
    return [dict(zip(header, line, strict=True)) for line in lines[1:]]


def read_growing_csv(path: Path) -> list[dict[str, str]]:
    """Rows, as text, of a file that a process may be writing at this moment or was killed while writing.

    Without a last line that is not whole; no rows if the file is not there yet.
    """
    if not path.is_file():
        return []
    text = path.read_text(encoding="utf-8")
    return list(csv.DictReader(text[: text.rfind("\n") + 1].splitlines()))


def to_csv(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV text with `\\n` line ends; None becomes an empty field, floats keep every digit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in header])
    return out.getvalue()
