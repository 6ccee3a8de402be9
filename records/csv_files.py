"""CSV in and out, strictly: named columns, no ragged rows, no empty files."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from records.errors import CorruptInputError, MissingInputError, unknown


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
    found = stored(path)
    if found is None:
        raise MissingInputError(f"{path}: {what} is missing")
    path = found
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
    if len(lines) == 1 and not allow_empty:
        raise CorruptInputError(f"{path}: {what} holds no rows")
    return [dict(zip(header, line, strict=True)) for line in lines[1:]]


def to_csv(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """CSV text with `\\n` line ends; None becomes an empty field, floats keep every digit."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if row[name] is None else row[name] for name in header])
    return out.getvalue()
