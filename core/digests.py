"""Hash what is written, and hold what is read against that hash.

    <folder>/SHA256SUMS     every file of a folder: a resumable state, a checkpoint, a base model
    <file>.sha256           one file that is written alone: a benchmark's items, training prompts
    <name>.sha256           what one command writes: tables/table1.sha256, figures/convergence.sha256, report.sha256
    "record_sha256"         in run.json, samples.json, grades.json and matrix.json: of the record without this key

The first three are in the form of `sha256sum`, names relative to the folder. Hidden files are not counted. A check
returns the digests of all that it read, so that no file is read twice for two hashes.
"""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from core.declared import Recorded, validated
from core.errors import CorruptInputError, MissingInputError
from core.files import atomic, json_text, parse_json, read_json, read_text, write_text
from core.provenance import cores, sha256_bytes, sha256_file

SUMS = "SHA256SUMS"
SUFFIX = ".sha256"
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_MOST_THREADS = 16  # more read a parallel file system no faster

# --- Hashing ----------------------------------------------------------------------------------------------------------


def of(paths: Iterable[Path]) -> dict[Path, str]:
    """The sha256 of each file, read in threads: hashing releases the interpreter's lock."""
    paths = list(paths)
    threads = max(1, min(len(paths), _MOST_THREADS, cores()))
    with ThreadPoolExecutor(threads) as pool:
        return dict(zip(paths, pool.map(sha256_file, paths), strict=True))


def files(folder: Path) -> list[Path]:
    """Every file of a folder and its subfolders, sorted; neither hidden ones nor its SHA256SUMS."""
    found = []
    for place, subfolders, names in os.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # not entered: a hub's may be large
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(path for path in found if path != folder / SUMS)


def of_folder(folder: Path) -> dict[str, str]:
    """The sha256 of every file of a folder, by its name relative to it."""
    return {path.relative_to(folder).as_posix(): digest for path, digest in of(files(folder)).items()}


def tree(digests: Mapping[str, str], pattern: str = "*") -> str:
    """One digest over names and contents of the files whose last part fits."""
    chosen = sorted((Path(name).parts, name) for name in digests if fnmatchcase(Path(name).name, pattern))
    lines = (f"{name}\0{digests[name]}\n".encode() for _, name in chosen)
    return hashlib.sha256(b"".join(lines)).hexdigest()


# What transformers and vLLM read beside the weights: configuration, tokenizer, chat template.
_MODEL_FILES = (".json", ".jinja", ".model", ".txt")
_RECORD = "base.json"  # ours: how a base model came to be, with times


def beside_weights(digests: Mapping[str, str]) -> str:
    """One digest over the files of a model folder that decide how its weights are used."""
    names = [name for name in digests if name.endswith(_MODEL_FILES) and "/" not in name and name != _RECORD]
    return tree({name: digests[name] for name in names})


# --- A folder and its SHA256SUMS --------------------------------------------------------------------------------------


def write_folder(folder: Path) -> None:
    """Hash every file of a folder and write its SHA256SUMS."""
    write_sums(folder, of_folder(folder))


def write_sums(folder: Path, digests: Mapping[str, str]) -> None:
    """Write a folder's SHA256SUMS. A file whose presence means finished is listed before it is there."""
    write_text(folder / SUMS, _text(digests))


def check_folder(folder: Path, *, advice: str = "") -> dict[str, str]:
    """The digests of a folder that is what its SHA256SUMS says; they include that of the SHA256SUMS itself.

    Raises MissingInputError without the folder or its SHA256SUMS, CorruptInputError naming the first file that differs,
    is missing or is extra. `advice` ends the line.
    """
    found, sums = of_folder(folder), folder / SUMS
    recorded = read(sums)
    lines = []
    for name in sorted(recorded.keys() | found.keys()):
        if name not in found:
            lines.append(f"{folder / name}: missing, though {sums} lists it")
        elif name not in recorded:
            lines.append(f"{folder / name}: extra, {sums} does not list it")
        elif found[name] != recorded[name]:
            lines.append(f"{folder / name}: differs from its sha256 in {sums}")
    if lines:
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        raise CorruptInputError(f"{lines[0]}{more}" + (f"; {advice}" if advice else ""))
    return found | {SUMS: sha256_file(sums)}


def read(sums: Path) -> dict[str, str]:
    """The digests that a file in the format of sha256sum holds, by name."""
    lines = read_text(sums, "list of hashes").split("\n")
    found = {}
    for number, line in enumerate(lines[:-1], 1):
        match = _LINE.fullmatch(line)
        if match is None or match[2] in found:
            raise CorruptInputError(f"{sums}: line {number}: not `<sha256>  <name>`, or a name given twice: {line!r}")
        found[match[2]] = match[1]
    if lines[-1] or not found:
        raise CorruptInputError(f"{sums}: cut off before its end")
    return found


class WeightsRecord(Recorded):
    """run.json or base.json, as far as it says what a model folder holds."""

    outputs: dict[str, str] | None = None
    sha256: dict[str, str] | None = None


def check_model(folder: Path | str, record: Path | str | None = None) -> dict[str, str]:
    """The digests of a model folder that is whole; a folder without SHA256SUMS and record, somebody's own, always is.

    record: the `run.json` or `base.json` that says what the folder holds. Raises MissingInputError or CorruptInputError
    naming the file, and what to remove to have it made again.
    """
    folder = Path(folder)
    again = "" if record is None else f"remove {record} to have it made again"
    value = None if record is None else read_json(record, "record of the weights")
    if not folder.is_dir():
        raise MissingInputError(f"{folder}: model folder is missing" + (f"; {again}" if again else ""))
    found = check_folder(folder, advice=again) if (folder / SUMS).is_file() else of_folder(folder)
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


def _text(digests: Mapping[str, str]) -> str:
    return "".join(f"{digests[name]}  {name}\n" for name in sorted(digests))


# --- A file and the <file>.sha256 beside it ---------------------------------------------------------------------------


def beside(path: Path) -> Path:
    """Where the hash of a file that is written alone lies."""
    return path.with_name(path.name + SUFFIX)


def write(path: Path, text: str) -> None:
    """Write a file (UTF-8) and, before it, its hash beside it.

    In this order, because the file's presence means finished: a kill between the two leaves a hash without its file, or
    beside an older one, which no reader then takes for the new one.
    """
    write_text(beside(path), _text({path.name: sha256_bytes(text.encode("utf-8"))}))
    write_text(path, text)


def write_json(path: Path, value: Any) -> None:
    """`write` for a value as JSON, in the form of `core.files.write_json`."""
    write(path, json_text(value))


def check(path: Path, *, advice: str = "") -> str:
    """The sha256 of a file; files from elsewhere have none beside them.

    Raises MissingInputError without the file, CorruptInputError when it or the hash beside it was damaged.
    """
    if not path.is_file():
        raise MissingInputError(f"{path}: missing")
    digest = sha256_file(path)
    if beside(path).is_file():
        recorded = read(beside(path))
        if recorded.keys() != {path.name}:
            raise CorruptInputError(f"{beside(path)}: lists {', '.join(sorted(recorded))}, expected {path.name}")
        if recorded[path.name] != digest:
            more = f"; {advice}" if advice else ""
            raise CorruptInputError(f"{path}: differs from its sha256 in {beside(path)}{more}")
    return digest


# --- A record that holds its own hash ---------------------------------------------------------------------------------

# Not a second file: a record is written again while others read it, and two files are never replaced in one step.
OWN = "record_sha256"


def with_own(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record as it is written: with the sha256 of all of it but this key."""
    # As it reads back: keys that are no text are written as text, and sorted as such.
    return {**record, OWN: _without_own(json.loads(json_text(dict(record))))}


def read_record(path: Path, what: str) -> Any:
    """The JSON value in `path`; CorruptInputError unless it is what its own hash says, if it has one."""
    text = read_text(path, what)
    value = parse_json(text, f"{path}: {what}")
    if isinstance(value, dict) and OWN in value:
        # As `with_own` and `json_text` write a record, the hash is of its text without its own line. Every stage reads
        # hundreds of records, and making such a text again takes longer than reading it. Another form: by its values.
        written = text.replace(f'\n  "{OWN}": {json.dumps(value[OWN])},', "", 1)
        if value[OWN] != sha256_bytes(written.encode("utf-8")) and value[OWN] != _without_own(value):
            raise CorruptInputError(f"{path}: {what} is damaged: its content differs from its {OWN}")
    return value


def _without_own(record: Mapping[str, Any]) -> str:
    rest = {key: value for key, value in record.items() if key != OWN}
    return sha256_bytes(json_text(rest).encode("utf-8"))


# --- What one command writes together, and the <name>.sha256 that lists it --------------------------------------------


def write_together(sums: Path, contents: Mapping[Path, str | bytes]) -> list[Path]:
    """Write the files of one command, then the list of their hashes; returns their paths."""
    for path, data in contents.items():
        with atomic(path) as temporary:
            temporary.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
    write_list(sums, contents)
    return list(contents)


def write_list(sums: Path, paths: Iterable[Path]) -> Path:
    """List the hashes of files in the folder of `sums` and its subfolders; returns `sums`. Written last, after them."""
    digests = {path.relative_to(sums.parent).as_posix(): digest for path, digest in of(paths).items()}
    write_text(sums, _text(digests))
    return sums
