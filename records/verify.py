"""Is a model folder still what its record says? Asked before a checkpoint is evaluated."""

from __future__ import annotations

from pathlib import Path

from records.errors import CorruptInputError, MissingInputError
from records.provenance import sha256_file, sha256_tree
from records.read import read_json


def weights(folder: Path | str, record: Path | str) -> None:
    """Hold a model folder against the `run.json` of its run, or against the `base.json` of a base model.

    Raises `MissingInputError` when the folder or a file of it is gone, `CorruptInputError` when it differs or when the
    record does not speak of it; both name the file, and what to remove to have it made again.
    """
    folder, record = Path(folder), Path(record)
    content = read_json(record, "record of the weights")
    again = f"remove {record} to have it made again"
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: model folder is missing; {again}")
    if "outputs" in content:
        name = folder.relative_to(record.parent).as_posix() if folder.is_relative_to(record.parent) else str(folder)
        if name not in content["outputs"]:
            raise CorruptInputError(f"{record}: outputs: {name} is not among {', '.join(sorted(content['outputs']))}")
        if sha256_tree(folder) != content["outputs"][name]:
            raise CorruptInputError(f"{folder}: differs from its sha256 in {record}; {again}")
        return
    for name, digest in content.get("sha256", {}).items():
        if not (folder / name).is_file():
            raise MissingInputError(f"{folder / name}: missing, though {record} lists it; {again}")
        if sha256_file(folder / name) != digest:
            raise CorruptInputError(f"{folder / name}: differs from its sha256 in {record}; {again}")
    if not content.get("sha256"):
        raise CorruptInputError(f"{record}: neither outputs nor sha256: not a record of weights")
