"""Samples on disk: one parquet per benchmark with one row per response, columns as in docs/architecture.md."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records.errors import CorruptInputError
from records.files import atomic, read_json, write_json
from records.provenance import sha256_file

if TYPE_CHECKING:
    import pyarrow

DONE = "done.json"


@dataclass(frozen=True)
class Response:
    """One row. sample: 0-based; stop: stop | length | unknown; tokens: without the end token, None when unknown;
    seed: the one under which this response was drawn."""

    item_id: str
    sample: int
    prompt: str
    prompt_sha256: str
    response: str
    stop: str
    tokens: int | None
    seed: int


def schema() -> pyarrow.Schema:
    import pyarrow

    types = {"str": pyarrow.string(), "int": pyarrow.int64(), "int | None": pyarrow.int64()}
    return pyarrow.schema([(field.name, types[str(field.type)]) for field in fields(Response)])


def write(path: Path, responses: Sequence[Response]) -> str:
    """Write the rows atomically; their sha256. Equal rows give an equal file."""
    import pyarrow
    import pyarrow.parquet

    columns = {field.name: [getattr(response, field.name) for response in responses] for field in fields(Response)}
    with atomic(path) as temporary:
        pyarrow.parquet.write_table(pyarrow.table(columns, schema=schema()), temporary, compression="zstd")
    return sha256_file(path)


def read(path: Path) -> list[Response]:
    """The rows of a samples file. Raises CorruptInputError when it does not hold the columns."""
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path, schema=schema())
    except (OSError, ValueError) as error:
        raise CorruptInputError(f"{path}: no samples file ({error})") from error
    return [Response(**row) for row in table.to_pylist()]


def prompt_sha256(prompt: str) -> str:
    return hashlib.sha256(prompt.encode()).hexdigest()


def clean(text: str) -> str:
    """Text as UTF-8 can hold it: half of a surrogate pair, which JSON from a server may carry, becomes U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@dataclass(frozen=True)
class Slot:
    """A folder that holds, or will hold, the finished responses to one plan. Its name is a digest of everything that
    decides them, so a finished slot is never drawn again and a changed question never finds an old answer."""

    folder: Path

    @classmethod
    def of(cls, work: Path, benchmark: str, facts: Any) -> Slot:
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        return cls(work / f"{benchmark}-{digest}")

    @property
    def parquet(self) -> Path:
        return self.folder / "samples.parquet"

    def finished(self) -> dict[str, Any] | None:
        """The record of a finished slot; None when it was never finished or its parquet is not the recorded one."""
        if not (self.folder / DONE).is_file() or not self.parquet.is_file():
            return None
        record: dict[str, Any] = read_json(self.folder / DONE, "record of finished samples")
        return record if record["sha256"] == sha256_file(self.parquet) else None

    def finish(self, responses: Sequence[Response], record: dict[str, Any]) -> dict[str, Any]:
        """Store the responses, then the record: its presence means finished."""
        whole = {"sha256": write(self.parquet, responses), "rows": len(responses), **record}
        write_json(self.folder / DONE, whole)
        return whole

    def publish(self, target: Path) -> None:
        """Put the parquet where results lie, as a second name of the same file where the file system can."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with atomic(target) as temporary:
            temporary.unlink()
            try:
                os.link(self.parquet, temporary)
            except OSError:
                shutil.copyfile(self.parquet, temporary)
