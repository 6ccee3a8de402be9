"""Checksums of files and folders.

Hidden files are not counted. A run's states list the checksums of their files in SHA256SUMS, in the format of
`sha256sum` (`write_folder`, `check_folder`); records hold those of all other results.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from core.declared import Recorded, validated
from core.errors import CorruptInputError, MissingInputError
from core.files import read_json, read_text, write_text
from core.provenance import cores, sha256_file

SUMS = "SHA256SUMS"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_MOST_THREADS = 16  # more threads do not speed up a parallel file system


def of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the sha256 of each file, hashed in threads: hashing releases the interpreter's lock."""
    paths = list(paths)
    threads = max(1, min(len(paths), _MOST_THREADS, cores()))
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(paths, pool.map(sha256_file, paths), strict=True))


def files(folder: Path) -> list[Path]:
    """Return every file of a folder and its subfolders, sorted, without hidden files and its SHA256SUMS."""
    found = []
    for place, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # not entered: a hub's may be large
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path != folder / SUMS)


def of_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder, by its relative name."""
    return {path.relative_to(folder).as_posix(): digest for path, digest in of(files(folder)).items()}


def tree(digests: Mapping[str, str], pattern: str = "*") -> str:
    """Return one digest over names and contents of the files whose last part matches."""
    chosen = sorted((Path(name).parts, name) for name in digests if fnmatchcase(Path(name).name, pattern))
    lines = (f"{name}\0{digests[name]}\n".encode() for _, name in chosen)
    return hashlib.sha256(b"".join(lines)).hexdigest()


# Files that transformers and vLLM read in addition to the weights: configuration, tokenizer, chat template.
_MODEL_FILES = (".json", ".jinja", ".model", ".txt")
_RECORD = "base.json"  # ours: how a base model was built, with times


def beside_weights(digests: Mapping[str, str]) -> str:
    """Return one digest over the files of a model folder that decide how its weights are used."""
    names = [name for name in digests if name.endswith(_MODEL_FILES) and "/" not in name and name != _RECORD]
    return tree({name: digests[name] for name in names})


class WeightsRecord(Recorded):
    """run.json or base.json, limited to the content of a model folder."""

    outputs: dict[str, str] | None = None
    sha256: dict[str, str] | None = None


def check_model(folder: Path | str, record: Path | str | None = None) -> dict[str, str]:
    """Return the digests of a model folder, which must match `record`.

    record: the `run.json` or `base.json` of the folder; None: a user's own folder. Raises MissingInputError or
    CorruptInputError naming the file, and what to remove to rebuild it.
    """
    folder = Path(folder)
    again = "" if record is None else f"remove {record} to have it made again"
    value = None if record is None else read_json(record, "record of the weights")
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: model folder is missing" + (f"; {again}" if again else ""))
    found = of_folder(folder)
    if record is None:
        return found
    record = Path(record)
    content = validated(WeightsRecord, value, str(record), error=CorruptInputError)
    if content.outputs is not None:
        name = folder.relative_to(record.parent).as_posix() if folder.is_relative_to(record.parent) else str(folder)
        if name not in content.outputs:
            raise CorruptInputError(f"{record}: outputs: {name} is not among {', '.join(sorted(content.outputs))}")
        if tree(found) != content.outputs[name]:
            raise CorruptInputError(f"{folder}: differs from its sha256 in {record}; {again}")
        return found
    if not content.sha256:
        raise CorruptInputError(f"{record}: neither outputs nor sha256: not a record of weights")
    for name, digest in content.sha256.items():
        if name not in found:
            raise MissingInputError(f"{folder / name}: missing, though {record} lists it; {again}")
        if found[name] != digest:
            raise CorruptInputError(f"{folder / name}: differs from its sha256 in {record}; {again}")
    return found


def write_folder(folder: Path) -> None:
    """Hash every file of a folder and write its SHA256SUMS, which marks the folder as complete."""
    digests = of_folder(folder)
    write_text(folder / SUMS, "".join(f"{digests[name]}  {name}\n" for name in sorted(digests)))


def check_folder(folder: Path) -> None:
    """Raise unless the folder contains exactly the files that its SHA256SUMS lists.

    MissingInputError without SHA256SUMS, CorruptInputError naming the first file that differs, is missing or is extra.
    """
    found, sums = of_folder(folder), folder / SUMS
    lines = read_text(sums, "list of hashes").split("\n")
    matches = [_LINE.fullmatch(line) for line in lines[:-1]]
    if lines[-1] or not all(matches):
        raise CorruptInputError(f"{sums}: cut off, or not lines of `<sha256>  <name>`")
    recorded = {match[2]: match[1] for match in matches if match}
    for name in sorted(recorded.keys() | found.keys()):
        if recorded.get(name) != found.get(name):
            what = "missing" if name not in found else "extra" if name not in recorded else "differs from its sha256"
            raise CorruptInputError(f"{folder / name}: {what} in {sums}")
