"""Read and write JSON, JSON lines, YAML and CSV, with one reader and one writer for each; lock a folder.

Writes are atomic. A missing or broken file is an error that names it, never an empty value.
"""

import csv
import io
import json
import math
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import yaml

from core.errors import BenchError, BusyError, ConfigError, CorruptInputError, MissingInputError, unknown

# Maximum nesting of a JSON or YAML file; ours have 8 levels. Beyond Python's recursion limit a reader fails
# with a traceback, and at about ten thousand levels libyaml crashes with a segmentation fault.
NESTING = 100
TOO_DEEP = f"more than {NESTING} levels of nesting"


@contextmanager
def atomic(path: Path | str) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it over `path` when the block ends without an error.

    The data is flushed to disk before the rename, so that a crash cannot leave an empty file under the final name.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Not mkstemp, whose files are private: results should be readable by others, as far as the umask allows.
        temporary.touch(exist_ok=False)
    except OSError as error:  # report the requested file: a temporary name is meaningless to a user
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        yield temporary
        with open(temporary, "rb") as stream:
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path | str, text: str | bytes) -> None:
    """Write `text` (UTF-8, no newline translation) atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode("utf-8") if isinstance(text, str) else text)


def write_all(contents: Mapping[Path, str | bytes]) -> list[Path]:
    """Write the files of one command, each atomically; return their paths."""
    for path, data in contents.items():
        write_text(path, data)
    return list(contents)


def json_text(value: Any) -> str:
    """Return `value` as indented JSON; NaN and infinity are refused, because no other reader accepts them."""
    return json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def write_json(path: Path | str, value: Any) -> None:
    """Write `value` as `json_text` atomically."""
    write_text(path, json_text(value))


def read_text(path: Path | str, what: str = "file", error: type[BenchError] = CorruptInputError) -> str:
    """Return the text (UTF-8) of `path`, without newline translation.

    Raises MissingInputError when it does not exist, `error` when it is not a file, cannot be read or is not UTF-8.
    """
    try:
        return Path(path).read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise MissingInputError(f"{path}: {what} is missing") from None
    except OSError as failure:
        raise error(f"{path}: {what} cannot be read ({failure.strerror})") from failure
    except UnicodeDecodeError as failure:
        raise error(f"{path}: {what} is not UTF-8 text ({failure})") from failure


def parse_json(text: str, where: str, error: type[BenchError] = CorruptInputError) -> Any:
    """Parse `text` as JSON; `where`: the file or option it comes from.

    Raises `error` with one line for invalid JSON, and for values that other readers reject: NaN, infinity, numbers that
    overflow a float or 64 bits, a lone surrogate, unlimited nesting.
    """
    try:
        value = json.loads(text, parse_constant=_not_a_number, parse_float=_float, parse_int=_integer)
        if "\\ud" in text or "\\uD" in text:  # the only source of text that UTF-8 cannot encode
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        if text.count("[") + text.count("{") > NESTING:
            _check_depth(value, NESTING)
    except (ValueError, RecursionError) as failure:  # json.JSONDecodeError and UnicodeEncodeError are ValueErrors
        raise error(f"{where} is not valid JSON ({failure})") from failure
    return value


def _check_depth(value: Any, left: int) -> None:
    if isinstance(value, dict | list):
        if left == 0:
            raise ValueError(TOO_DEEP)
        for child in value.values() if isinstance(value, dict) else value:
            _check_depth(child, left - 1)


def _not_a_number(text: str) -> Never:
    raise ValueError(f"{text} is not a number")


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _not_a_number(text)


def _integer(text: str) -> int:
    # Length first: Python's error for thousands of digits gives advice on interpreter settings.
    if len(text) > 20 or not -(2**63) <= int(text, 0) < 2**63:
        raise ValueError(f"{text[:20]}{'...' if len(text) > 20 else ''} does not fit into 64 bits")
    return int(text, 0)


def read_json(path: Path | str, what: str = "file") -> Any:
    """Return the JSON value in `path`; `what`: the expected kind of file, for errors."""
    return parse_json(read_text(path, what), f"{path}: {what}")


def read_jsonl(path: Path | str, what: str = "file") -> list[dict[str, Any]]:
    """Return one object per line; an empty file or a bad line is an error with the line's number."""
    rows = []
    # Not splitlines: a JSON text may contain U+2028 and other characters that splitlines treats as line ends.
    for number, line in enumerate(read_text(path, what).split("\n"), 1):
        if not line.strip():
            continue
        row = parse_json(line, f"{path}: line {number} of {what}")
        if not isinstance(row, dict):
            raise CorruptInputError(f"{path}: line {number} of {what} must be an object, got {type(row).__name__}")
        rows.append(row)
    if not rows:
        raise CorruptInputError(f"{path}: {what} holds no rows")
    return rows


OWN_ROW = '{"problem": "1+1?", "answer": "2"}'  # of a user's file


def read_own_file(path: Path | str, what: str) -> list[dict[str, Any]]:
    """Return the rows of a user's file of problems; an error ends with the form of a row."""
    try:
        return read_jsonl(path, what)
    except BenchError as error:
        raise type(error)(f"{error}; write UTF-8 JSON lines without a mark at the start, such as {OWN_ROW}") from error


class _UniqueKeys(yaml.CSafeLoader):
    """Loader that rejects duplicate keys: PyYAML silently takes the last. libyaml's parser is eight times as fast."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = loader.construct_pairs(node, deep=True)
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            values = ", ".join(repr(value) for name, value in pairs if name == key)
            raise ConfigError(f"{key}: given twice ({values})")
    return dict(pairs)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
_UniqueKeys.add_constructor("tag:yaml.org,2002:int", lambda _, node: _integer(node.value))
# Numbers as in YAML 1.2 and JSON: 3e-5 and 1.5e3 too, where YAML 1.1 requires a dot and a sign.
_UniqueKeys.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+|\d+\.\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
)


def read_yaml(path: Path | str, what: str = "file") -> dict[str, Any]:
    """Return the mapping in `path`; a missing file, bad YAML or a duplicate key is an error with the file's name."""
    text = read_text(path, what, ConfigError)
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_UniqueKeys):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > NESTING:
                raise ValueError(TOO_DEEP)
        value = yaml.load(text, Loader=_UniqueKeys)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    # Besides YAMLError: impossible dates and numbers (ValueError), a list as a key (TypeError), `!!timestamp x`
    # (AttributeError).
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {type(value).__name__}")
    return value


def read_csv(path: Path | str, what: str, needed: Sequence[str], *, allow_empty: bool = False) -> list[dict[str, str]]:
    """Return all rows as text. A missing file or column or a ragged row is an error naming the file; so is a file
    without rows, unless `allow_empty`."""
    text = read_text(path, what)
    header, *lines = csv_lines(path, what, text) or [[]]
    for column in needed if header else ():
        if column not in header:
            raise unknown(str(path), "column wanted", column, header)
    if header and not text.endswith("\n"):
        raise CorruptInputError(f"{path}: line {len(lines) + 1}: cut off before its end")
    if not header or not (lines or allow_empty):
        raise CorruptInputError(f"{path}: {what} holds no rows")
    return [dict(zip(header, line, strict=True)) for line in lines]


@contextmanager
def cells_of(*paths: Path) -> Iterator[None]:
    """Turn a block's ValueError or KeyError into a CorruptInputError that names the tables it reads."""
    try:
        yield
    except (ValueError, KeyError) as error:
        if isinstance(error, BenchError):
            raise
        names = " or ".join(map(str, paths))
        raise CorruptInputError(f"{names}: a cell cannot be read: {' '.join(str(error).split())}") from error


def read_growing_csv(path: Path) -> list[dict[str, str]]:
    """Return the rows, as text, of a file that a process may be writing or was killed while writing.

    An incomplete last line is dropped; no rows if the file does not exist yet.
    """
    try:
        data = path.read_bytes()
        text = data[: data.rfind(b"\n") + 1].decode("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptInputError(f"{path}: not UTF-8 text ({error})") from error
    lines = csv_lines(path, "the table", text)
    return [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]


def csv_lines(path: Path | str, what: str, text: str) -> list[list[str]]:
    """Return the lines of a CSV text as fields, all as many as the header has."""
    try:
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise CorruptInputError(f"{path}: {what} is not valid CSV ({error})") from error
    for number, line in enumerate(lines[1:], 2):
        if len(line) != len(lines[0]):
            raise CorruptInputError(f"{path}: line {number}: {len(line)} fields, the header has {len(lines[0])}")
    return lines


def to_csv(header: Sequence[str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return CSV text of rows by column: None becomes an empty field, a tuple its values joined by spaces, and floats
    keep every digit."""
    return csv_text([header, *([row[name] for name in header] for row in rows)])


def csv_text(lines: Iterable[Sequence[object]]) -> str:
    """Return CSV text with `\\n` line ends, of fields as in `to_csv`; two columns may share a name."""
    written: list[str] = []
    # A writer only quotes characters of its line terminator: with `\n` a carriage return in a cell would end a line.
    writer = csv.writer(SimpleNamespace(write=written.append), lineterminator="\r\n")
    for line in lines:
        writer.writerow([" ".join(map(str, field)) if isinstance(field, tuple) else field for field in line])
    return "".join(line.removesuffix("\r\n") + "\n" for line in written)


@contextmanager
def locked(path: Path, busy: str, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock `path`, after up to `wait` seconds if another process holds it; else raise `BusyError`.

    The operating system releases it when the process ends, however it ends.
    """
    from filelock import FileLock, Timeout  # not in the environment of a cluster's login node, which locks nothing

    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path)
    try:
        lock.acquire(timeout=wait)
    except Timeout:
        raise BusyError(busy) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Return whether a process holds `path`."""
    from filelock import FileLock, Timeout

    if not path.is_file():
        return False
    lock = FileLock(path)
    with suppress(Timeout, PermissionError):
        lock.acquire(timeout=0)
        lock.release()
        return False
    return True
