"""Bring a base model of the hub into a folder: `python -m models.fetch --hub ID --revision R --out FOLDER`.

The same command goes on after an interruption. `base.json` is written last: hub id, commit, sha256 of weights and
tokenizer, as a base made here has it. Without `--revision` nothing is fetched; `--revision main` takes
the head, and the commit that it was is recorded. Offline: `--from FOLDER` takes a folder fetched elsewhere.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import time
from pathlib import Path
from typing import Any, Literal

from records import errors, provenance
from records.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from records.files import read_json, write_json
from records.provenance import environment, sha256_file

RECORD = "base.json"
SCHEMA = 1
# What transformers and vLLM read; repositories hold other formats of the same weights beside it.
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "LICENSE*")
UNWANTED = ("consolidated*", "*/*")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def commit_of(repository: str, revision: str, kind: Literal["model", "dataset"] = "model") -> str:
    """The commit that a branch, tag or commit names now. `MissingInputError` with one line when the hub cannot say."""
    if _COMMIT.fullmatch(revision):
        return revision
    import huggingface_hub

    try:
        found = huggingface_hub.HfApi().repo_info(repository, revision=revision, repo_type=kind).sha
    except _unreachable() as error:
        raise _missing(repository, revision, error) from error
    if found is None:
        raise MissingInputError(f"{repository}@{revision}: the hub names no commit")
    return found


def fetch(repository: str, revision: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fill `out` and return its record; a folder that is complete and unchanged is left alone.

    source: a folder to copy instead of asking the hub. Raises `MissingInputError` when something cannot be had,
    `CorruptInputError` when `out` holds another model or what came is no model.
    """
    done = _finished(repository, revision, out)
    if done is not None:
        return done
    began = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    resolved: str | None
    if source is None:
        commit = resolved = commit_of(repository, revision)
        _own(out, repository, commit)
        _download(repository, commit, out)
    else:
        resolved = revision if _COMMIT.fullmatch(revision) else None  # a copy does not say what its branch meant
        _own(out, repository, revision)
        _copy(source, out)
    record = {
        "schema": SCHEMA,
        "hub": repository,
        "revision": revision,
        "commit": resolved,
        "sha256": {name: sha256_file(out / name) for name in _files(out)},
        "environment": environment(),
        "wall_seconds": time.monotonic() - began,
    }
    write_json(out / RECORD, record)
    return record


def _finished(repository: str, revision: str, out: Path) -> dict[str, Any] | None:
    if not (out / RECORD).is_file():
        return None
    found: dict[str, Any] = read_json(out / RECORD, "record of a base model")
    if found.get("hub") != repository or found.get("revision") != revision:
        raise CorruptInputError(
            f"{out}: holds {found.get('hub')}@{found.get('revision')}, not {repository}@{revision}; remove it or give "
            "another folder"
        )
    provenance.weights(out, out / RECORD)
    return found


def _own(out: Path, repository: str, commit: str) -> None:
    """A half-fetched folder is gone on with for the same commit only: shards of two would mix."""
    mark, this = out / ".fetching", f"{repository}@{commit}"
    if mark.is_file() and mark.read_text(encoding="utf-8") != this:
        raise CorruptInputError(f"{out}: holds parts of {mark.read_text(encoding='utf-8')}, not {this}; remove it")
    mark.write_text(this, encoding="utf-8")


def _download(repository: str, commit: str, out: Path) -> None:
    import huggingface_hub

    try:
        huggingface_hub.snapshot_download(
            repository, revision=commit, local_dir=out, allow_patterns=list(WANTED), ignore_patterns=list(UNWANTED)
        )
    except _unreachable() as error:
        raise _missing(repository, commit, error) from error


def _copy(source: Path, out: Path) -> None:
    if not source.is_dir():
        raise MissingInputError(f"{source}: model folder is missing")
    for path in sorted(source.iterdir()):
        if any(path.match(pattern) for pattern in WANTED) and not path.match("consolidated*") and path.name != RECORD:
            shutil.copyfile(path, out / path.name)


def _files(out: Path) -> list[str]:
    """Names of weights and tokenizer files; raises when a file that a model needs is not there."""
    for name in ("config.json", "tokenizer_config.json"):
        if not (out / name).is_file():
            raise MissingInputError(f"{out}: {name} is missing: what came is not a model folder")
    index = out / "model.safetensors.index.json"
    shards = {"model.safetensors"}
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise CorruptInputError(f"{index}: no list of shards ({error!r})") from error
    for name in sorted(shards):
        if not (out / name).is_file():
            raise MissingInputError(f"{out}: {name} is missing: the weights are not complete")
    others = {path.name for path in out.iterdir() if path.suffix in (".json", ".model", ".txt", ".jinja")}
    return sorted(shards | others - {RECORD})


def _unreachable() -> tuple[type[Exception], ...]:
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    return (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError)


def _missing(repository: str, revision: str, error: Exception) -> BenchError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return MissingInputError(f"{repository}@{revision}: cannot be fetched ({reason})")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m models.fetch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--hub", required=True, metavar="ID", help="repository on the hub, as in config/models/<key>.yaml"
    )
    parser.add_argument("--revision", help="commit, tag or branch")
    parser.add_argument("--from", dest="source", type=Path, metavar="FOLDER", help="copy this folder, use no network")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    given = parser.parse_args()
    if given.revision is None:
        raise ConfigError(f"--revision: which commit of {given.hub}? `--revision main` takes the head and records it")
    record = fetch(given.hub, given.revision, given.out, source=given.source)
    size = sum((given.out / name).stat().st_size for name in record["sha256"])
    print(f"{given.out}: {given.hub} at commit {record['commit'] or 'unknown'}, {size / 1e9:.2f} GB, sha256 recorded")


if __name__ == "__main__":
    errors.run(main)
