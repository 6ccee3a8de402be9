"""Records and curves of all runs in two files, as a reference keeps them instead of two small files per run.

    runs/records.json.gz    what each run.json holds, by run (`<model>/<method>/seed<k>`)
    runs/curves.parquet     every row of every curve.csv, with the run in the column `run`

Nothing is rounded: a curve comes back byte for byte, so that the sha256 in run.json still holds. Columns compress twice
as well as files: a cell of a single-precision column takes 4 bytes before compression, its text about 18.
`core.files` finds a run's file here when the run has none of its own, so that no other reader knows of this form.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError
from core.provenance import sha256_bytes

if TYPE_CHECKING:
    import pyarrow as pa

AFFECTS_RESULTS = False  # a reference's form of files; training and evaluation read no reference

MANIFEST = "manifest.json"
RECORDS, CURVES = "records.json.gz", "curves.parquet"
_HOLDERS = {"run.json": RECORDS, "curve.csv": CURVES}  # a run's file -> the file that has it for all runs
_RUN = "run"
_LEVEL = 19  # of zstd: writing takes seconds, reading as long as at any level
_PAGE = 1 << 28  # bytes: a column is compressed as one piece
REPEATED = 20  # a column with fewer distinct values than rows / REPEATED is stored as numbers of a dictionary

# Reading


def holder(path: Path) -> Path | None:
    """The file that has run.json or curve.csv of the run whose folder `path` names; None: no file has it."""
    if path.name not in _HOLDERS or len(path.parts) < 5 or path.parts[-5] != "runs":
        return None
    file = path.parents[3] / _HOLDERS[path.name]
    return file if file.is_file() and "/".join(path.parts[-4:-1]) in _opened(file) else None


def read(path: Path) -> bytes | None:
    """What the file that `path` names held; None where no file of all runs has it.

    Raises CorruptInputError for a file of all runs that is damaged.
    """
    file = holder(path)
    return None if file is None else _opened(file).content("/".join(path.parts[-4:-1]))


def runs(root: Path) -> list[str]:
    """The runs in `runs/records.json.gz` of the tree at `root`; none in a tree that is no reference."""
    file = root / "runs" / RECORDS
    return sorted(_opened(file).names) if file.is_file() else []


def checked(file: Path, root: Path) -> bytes:
    """The content of a file of a reference; CorruptInputError unless its sha256 is the one in the manifest at `root`.

    All readers of a file with many parts come through here: damage to it must not pass for damage to one part.
    """
    data, name = file.read_bytes(), file.relative_to(root).as_posix()
    try:
        recorded = json.loads((root / MANIFEST).read_bytes())["files"][name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptInputError(f"{root / MANIFEST}: does not give the sha256 of {name}") from error
    if recorded != sha256_bytes(data):
        raise CorruptInputError(f"{file}: damaged: its sha256 is not the one in {root / MANIFEST}")
    return data


class _Records:
    def __init__(self, data: bytes):
        self.names: Mapping[str, Any] = json.loads(gzip.decompress(data))

    def __contains__(self, run: str) -> bool:
        return run in self.names

    def content(self, run: str) -> bytes:
        return json.dumps(self.names[run], ensure_ascii=False).encode("utf-8")


class _Curves:
    def __init__(self, data: bytes):
        import pyarrow as pa
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        table = pq.read_table(pa.BufferReader(data)).combine_chunks()
        ends = pc.run_end_encode(table[_RUN].combine_chunks())
        starts = [0, *ends.run_ends.to_pylist()[:-1]]
        self.names = dict(
            zip(ends.values.to_pylist(), zip(starts, ends.run_ends.to_pylist(), strict=True), strict=True)
        )
        self.table = table.drop_columns([_RUN])
        self.made: dict[str, bytes] = {}  # a curve is read by several steps of one command

    def __contains__(self, run: str) -> bool:
        return run in self.names

    def content(self, run: str) -> bytes:
        if run not in self.made:
            start, end = self.names[run]
            self.made[run] = _csv(self.table.slice(start, end - start))
        return self.made[run]


def _opened(file: Path) -> _Records | _Curves:
    status = file.stat()
    return _open(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=8)  # of two trees at most, as `report.compare` reads them
def _open(file: Path, _changed: int, _size: int) -> _Records | _Curves:
    import pyarrow as pa

    data = checked(file, file.parent.parent)
    try:
        return _Curves(data) if file.name == CURVES else _Records(data)
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        raise CorruptInputError(f"{file}: not what a reference keeps ({' '.join(str(error).split())})") from error


# Writing


def write_records(folder: Path, records: Mapping[str, Any]) -> None:
    """records: what run.json of each run holds."""
    text = json.dumps(records, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    (folder / RECORDS).write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))  # equal records give an equal file


def write_curves(folder: Path, curves: Mapping[str, bytes]) -> list[str]:
    """Write the file of all curves; returns the runs whose curve it could not give back byte for byte.

    Such a curve, of other columns or with numbers in another form than the trainer writes them, keeps its own file.
    """
    import pyarrow as pa

    texts = {run: curves[run].decode("utf-8", "replace").split("\n") for run in sorted(curves)}
    header = Counter(lines[0] for lines in texts.values()).most_common(1)[0][0]
    names = header.split(",")
    kinds, kept = [{"int", "float"} for _ in names], {}
    for run, (first, *lines) in texts.items():
        rows = [line.split(",") for line in lines[:-1]]
        if first != header or lines[-1:] != [""] or not rows or {len(row) for row in rows} != {len(names)}:
            continue
        columns = list(zip(*rows, strict=True))
        agreed = [kind & _kinds(column) for kind, column in zip(kinds, columns, strict=True)]
        if all(agreed):
            kinds, kept[run] = agreed, columns
    if kept:
        table: dict[str, Any] = {_RUN: [run for run, columns in kept.items() for _ in columns[0]]}
        for place, name in enumerate(names):
            cells = [cell for columns in kept.values() for cell in columns[place]]
            table[name] = _array(cells, kinds[place])
        (folder / CURVES).write_bytes(parquet(pa.table(table)))
    return [run for run in texts if run not in kept]


def _kinds(cells: Iterable[str]) -> set[str]:
    """As what the cells of a column can be stored, so that they read back as they are; empty cells fit everything."""
    possible = {"int", "float"}
    for cell in cells:
        if cell:
            possible &= {name for name, read in (("int", int), ("float", float)) if _reads_back(cell, read)}
    return possible


def _reads_back(cell: str, read: type[int] | type[float]) -> bool:
    try:
        return repr(read(cell)) == cell
    except ValueError:
        return False


def _array(cells: Sequence[str], kinds: set[str]) -> pa.Array:
    import numpy as np
    import pyarrow as pa

    if "int" in kinds:
        return pa.array([int(cell) if cell else None for cell in cells], pa.int64())
    values = [float(cell) if cell else None for cell in cells]
    whole = np.array([value for value in values if value is not None])
    with np.errstate(over="ignore"):
        single = np.array_equal(whole.astype(np.float32).astype(np.float64), whole, equal_nan=True)
    return pa.array(values, pa.float32() if single else pa.float64())


def _csv(table: pa.Table) -> bytes:
    # A single-precision number becomes the Python float that it was: repr gives the same text again.
    columns = [["" if value is None else repr(value) for value in column.to_pylist()] for column in table.columns]
    lines = [",".join(table.column_names), *(",".join(cells) for cells in zip(*columns, strict=True))]
    return ("\n".join(lines) + "\n").encode("utf-8")


def parquet(table: pa.Table) -> bytes:
    """The table as a parquet file, as small as it gets without rounding; equal tables give equal files.

    Numbers that hardly repeat are split into one stream for each of their bytes: signs and exponents, and the zeros of
    short fractions, then stand side by side. What repeats becomes a dictionary.
    """
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    repeated, split = [], []
    for name in table.column_names:
        kind, distinct = table[name].type, pc.count_distinct(table[name]).as_py()
        if pa.types.is_floating(kind) and distinct * REPEATED >= table.num_rows:
            split.append(name)
        elif not pa.types.is_integer(kind) and distinct * REPEATED < table.num_rows:
            repeated.append(name)
    out = io.BytesIO()
    pq.write_table(
        table, out, compression="zstd", compression_level=_LEVEL, use_dictionary=repeated, use_byte_stream_split=split,
        dictionary_pagesize_limit=_PAGE, data_page_size=_PAGE, row_group_size=1 << 24, write_statistics=False,
    )  # fmt: skip
    return out.getvalue()
