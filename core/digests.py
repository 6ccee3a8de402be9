"""Checksums of files and folders.

Hidden files are ignored. Each state of a run lists the checksums of its files in SHA256SUMS, in the format of
`sha256sum` (`write_folder`, `check_folder`); the checksums of all other results are in their records.
"""

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path

from core.declared import check
from core.errors import CorruptInputError, MissingInputError
from core.files import read_json, read_text, write_text
from core.provenance import cores, sha256_file

SUMS = "SHA256SUMS"
_MOST_THREADS = 16  # more threads do not speed up a parallel file system


def of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the sha256 of each file, hashed in threads: hashing releases the GIL."""
    paths = list(paths)
    with ThreadPoolExecutor(max(1, min(len(paths), _MOST_THREADS, cores()))) as pool:
        return dict(zip(paths, pool.map(sha256_file, paths), strict=True))


def files(folder: Path) -> list[Path]:
    """Return every file of a folder and its subfolders, sorted, without hidden files and its SHA256SUMS."""
    found = []
    for place, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # skipped: a hub's may be large
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path != folder / SUMS)


def of_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file of a folder, by its relative name."""
    return {path.relative_to(folder).as_posix(): digest for path, digest in of(files(folder)).items()}


def tree(digests: Mapping[str, str], pattern: str = "*") -> str:
    """Return one digest over names and contents of the files whose base name matches."""
    chosen = sorted((Path(name).parts, name) for name in digests if fnmatchcase(Path(name).name, pattern))
    return hashlib.sha256("".join(f"{name}\0{digests[name]}\n" for _, name in chosen).encode()).hexdigest()


def beside_weights(digests: Mapping[str, str]) -> str:
    """Return one digest over the files of a model folder that decide how its weights are used.

    Transformers and vLLM read configuration, tokenizer and chat template. base.json is excluded: it contains times.
    """
    kinds = (".json", ".jinja", ".model", ".txt")
    names = [name for name in digests if name.endswith(kinds) and "/" not in name and name != "base.json"]
    return tree({name: digests[name] for name in names})


def check_model(folder: Path | str, record: Path | str | None = None) -> dict[str, str]:
    """Return the digests of a model folder, which must match `record`.

    record: the `run.json` or `base.json` of the folder; None: a user's own folder. Raises MissingInputError or
    CorruptInputError naming the file, and what to remove to rebuild it.
    """
    folder = Path(folder)
    again = f"; remove {record} to have it made again" if record else ""
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: model folder is missing{again}")
    found = of_folder(folder)
    if record is None:
        return found
    content = read_json(record, "record of the weights")
    check(content, {"outputs?": {"*": str}, "sha256?": {"*": str}}, str(record))
    name = os.path.relpath(folder, Path(record).parent)
    wanted, has = content.get("sha256") or {}, found
    if content.get("outputs"):  # one digest for the folder
        wanted, has = {".": content["outputs"].get(name)}, {".": tree(found)}
    elif not wanted:
        raise CorruptInputError(f"{record}: neither outputs nor sha256: not a record of weights")
    for name, digest in wanted.items():
        if has.get(name) != digest:
            raise CorruptInputError(f"{folder / name}: missing, or differs from its sha256 in {record}{again}")
    return found


def write_folder(folder: Path) -> None:
    """Hash every file of a folder and write its SHA256SUMS, which marks the folder as complete."""
    write_text(folder / SUMS, "".join(f"{digest}  {name}\n" for name, digest in sorted(of_folder(folder).items())))


def check_folder(folder: Path) -> None:
    """Raise unless the folder contains exactly the files that its SHA256SUMS lists.

    MissingInputError without SHA256SUMS, CorruptInputError naming the first file that differs, is missing or is extra.
    """
    found, sums = of_folder(folder), folder / SUMS
    *lines, end = read_text(sums, "list of hashes").split("\n")
    matches = [re.fullmatch(r"([0-9a-f]{64})  (.+)", line) for line in lines]
    recorded = {match[2]: match[1] for match in matches if match}
    if end or len(recorded) < len(lines):
        raise CorruptInputError(f"{sums}: cut off, or not lines of `<sha256>  <name>`")
    for name in sorted(recorded.keys() | found.keys()):
        if recorded.get(name) != found.get(name):
            what = "missing" if name not in found else "extra" if name not in recorded else "differs from its sha256"
            raise CorruptInputError(f"{folder / name}: {what} in {sums}")
