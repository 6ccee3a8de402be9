"""Bring one upstream file onto this machine, with a progress bar; what is in it, `evals.fetch` decides.

The hub's address is huggingface_hub's own affair (`HF_ENDPOINT`, `HF_HUB_OFFLINE`). For files of public git
repositories `REPOSITORY_FILE` is the one place that names a host; the environment variable `TEPO_REPOSITORY_FILE`
replaces it.
"""

from __future__ import annotations

import os
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from evals.benchmark import HubFile, RepositoryFile
from records.errors import ConfigError, MissingInputError

REPOSITORY_FILE = "https://raw.githubusercontent.com/{repository}/{revision}/{path}"
TIMEOUT_SECONDS = 60  # without a byte
_CHUNK = 1 << 16


@contextmanager
def download(source: RepositoryFile | HubFile, revision: str) -> Iterator[Path]:
    """A temporary copy of the file. Raises MissingInputError, naming address and reason, when it cannot be had."""
    with tempfile.TemporaryDirectory(prefix="tepo-fetch-") as folder:
        if isinstance(source, HubFile):
            yield _from_hub(source, Path(folder))
        else:
            yield _from_repository(source, revision, Path(folder) / "file.jsonl")


def repository_url(source: RepositoryFile, revision: str) -> str:
    template = os.environ.get("TEPO_REPOSITORY_FILE", REPOSITORY_FILE)
    parts = {"repository": source.repository, "revision": revision, "path": source.path}
    try:
        url = template.format(**{name: urllib.parse.quote(part) for name, part in parts.items()})
    except (KeyError, IndexError) as error:
        raise ConfigError(
            f"TEPO_REPOSITORY_FILE: {template!r} may hold {{repository}}, {{revision}} and {{path}} only"
        ) from error
    if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
        raise ConfigError(f"TEPO_REPOSITORY_FILE: {url!r} is no http(s) address")
    return url


def _from_repository(source: RepositoryFile, revision: str, target: Path) -> Path:
    url = repository_url(source, revision)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer, open(target, "wb") as stream:
            length = answer.headers.get("Content-Length")
            got = _copy(answer, stream, source.path, int(length) if length else None)
    except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
        raise MissingInputError(f"{url}: cannot be downloaded ({error})") from error
    if length and got != int(length):
        raise MissingInputError(f"{url}: the connection broke after {got} of {length} bytes; run the command again")
    return target


def _copy(answer: BinaryIO, stream: BinaryIO, name: str, total: int | None) -> int:
    from tqdm import tqdm

    got = 0
    with tqdm(total=total, unit="B", unit_scale=True, desc=name, disable=None) as bar:
        while chunk := answer.read(_CHUNK):
            got += stream.write(chunk)
            bar.update(len(chunk))
    return got


def _from_hub(source: HubFile, folder: Path) -> Path:
    import huggingface_hub
    from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(
            huggingface_hub.hf_hub_download(
                source.dataset, source.path, repo_type="dataset", revision=source.revision, local_dir=folder
            )
        )
    except (HfHubHTTPError, EntryNotFoundError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise MissingInputError(f"{source}: cannot be downloaded ({reason})") from error
