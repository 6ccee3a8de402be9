"""Records and curves of all runs in two files, as a reference keeps them instead of two small files per run.

    runs/records.json.gz    what each run.json holds, by run (`<model>/<method>/seed<k>`)
    runs/rollouts.parquet   every curve with a row per rollout (`evals.learning_curves.rollout_rows`)

The column `run` names the run. Cells are text.
`core.files` finds a run's file here when the run has none of its own, so that hardly any reader knows of this form.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError
from core.provenance import sha256_bytes

if TYPE_CHECKING:
    import pyarrow as pa


MANIFEST = "manifest.json"
RECORDS, ROLLOUTS = "records.json.gz", "rollouts.parquet"
_HOLDERS = {"run.json": RECORDS, "curve.csv": ROLLOUTS}  # a run's file -> the one that has it for all runs
_RUN = "run"

# Reading


def holder(path: Path) -> Path | None:
    """The file that has run.json or curve.csv of the run whose folder `path` names; None: no file has it."""
    if path.name not in _HOLDERS or len(path.parts) < 5 or path.parts[-5] != "runs":
        return None
    file = path.parents[3] / _HOLDERS[path.name]
    return file if file.is_file() and "/".join(path.parts[-4:-1]) in _open(*_version(file)) else None


def read(path: Path) -> bytes | None:
    """What the file that `path` names held; None where no file of all runs has it."""
    file = holder(path)
    return None if file is None else _content(*_version(file), "/".join(path.parts[-4:-1]))


def runs(root: Path) -> list[str]:
    """The runs in `runs/records.json.gz` of the tree at `root`; none in a tree that is no reference."""
    file = root / "runs" / RECORDS
    return sorted(_open(*_version(file))) if file.is_file() else []


def checked(file: Path, root: Path) -> bytes:
    """The content of a file of a reference; CorruptInputError unless the manifest at `root` has its sha256."""
    data, name = file.read_bytes(), file.relative_to(root).as_posix()
    try:
        recorded = json.loads((root / MANIFEST).read_bytes())["files"][name]["sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptInputError(f"{root / MANIFEST}: does not give the sha256 of {name}") from error
    if recorded != sha256_bytes(data):
        raise CorruptInputError(f"{file}: damaged: its sha256 is not the one in {root / MANIFEST}")
    return data


def _version(file: Path) -> tuple[Path, int, int]:
    status = file.stat()
    return file, status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)  # of two trees at most, as `report.compare` reads them
def _open(file: Path, _changed: int, _size: int) -> dict[str, Any]:
    """By run what run.json holds, or the rows of its curve."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    data = checked(file, file.parent.parent)
    try:
        if file.name == RECORDS:
            return dict(json.loads(gzip.decompress(data)))
        table = pq.read_table(pa.BufferReader(data)).combine_chunks()
        runs = pc.run_end_encode(table[_RUN].combine_chunks())
        ends = runs.run_ends.to_pylist()
        table = table.drop_columns([_RUN])
        rows = [table.slice(start, end - start) for start, end in pairwise([0, *ends])]
        return dict(zip(runs.values.to_pylist(), rows, strict=True))
    except (pa.ArrowException, OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        raise CorruptInputError(f"{file}: not what a reference keeps ({' '.join(str(error).split())})") from error


@lru_cache(maxsize=2048)  # a curve is read by several steps of one command
def _content(file: Path, changed: int, size: int, run: str) -> bytes:
    found = _open(file, changed, size)[run]
    if file.name == RECORDS:
        return json.dumps(found, ensure_ascii=False).encode("utf-8")
    columns = (column.to_pylist() for column in found.columns)
    lines = [",".join(found.column_names), *(",".join(cells) for cells in zip(*columns, strict=True))]
    return ("\n".join(lines) + "\n").encode("utf-8")


# Writing


def write_records(folder: Path, records: Mapping[str, Any]) -> None:
    """records: what run.json of each run holds."""
    text = json.dumps(records, ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)
    (folder / RECORDS).write_bytes(gzip.compress(text.encode("utf-8"), mtime=0))  # equal records give an equal file


def write_curves(folder: Path, curves: Mapping[str, bytes]) -> list[str]:
    """Write the file of all curves by rollout; returns the runs whose curve it could not give back byte for byte."""
    import pyarrow as pa

    lines = {run: curves[run].decode("utf-8", "replace").split("\n") for run in sorted(curves)}
    header = Counter(some[0] for some in lines.values()).most_common(1)[0][0]
    names = [_RUN, *header.split(",")]
    rows = {run: [[run, *line.split(",")] for line in some[1:-1]] for run, some in lines.items()}
    kept = [
        run
        for run, some in lines.items()
        if (some[0], some[-1]) == (header, "")
        and {len(row) for row in rows[run]} == {len(names)}
        and "\n".join(some).encode("utf-8") == curves[run]
    ]
    if kept:
        columns = zip(*(row for run in kept for row in rows[run]), strict=True)
        table = pa.table(dict(zip(names, map(pa.array, columns), strict=True)))
        (folder / ROLLOUTS).write_bytes(parquet(table))
    return [run for run in lines if run not in kept]


def parquet(table: pa.Table) -> bytes:
    """The table as a small parquet file; equal tables give equal files. Each column is compressed as one piece."""
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(
        table, out, compression="zstd", compression_level=19, use_dictionary=False, data_page_size=1 << 28,
        row_group_size=1 << 24, write_statistics=False,
    )  # fmt: skip
    return out.getvalue()
