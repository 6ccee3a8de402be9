"""Secrets planted in the environment of a program, and a search for them in what it writes and in its command lines."""

import base64
import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

# No two share a part, so that what is found identifies one of them.
ENVIRONMENT = {
    "HF_TOKEN": "hf_plantedQ1v8",
    "HUGGING_FACE_HUB_TOKEN": "hf_plantedR2w7",
    "WANDB_API_KEY": "plantedS3x6",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDT4Y5",
    "AWS_SECRET_ACCESS_KEY": "plantedU5z4",
    "OPENAI_API_KEY": "sk-plantedV6a3",
    "GITHUB_TOKEN": "ghp_plantedW7b2",
    "HTTPS_PROXY": "http://someone:plantedX8c1@127.0.0.1:9",
    "PIP_INDEX_URL": "https://someone:plantedY9d0@127.0.0.1:9/simple",
}
WORDS = {name: re.findall(r"(?i)planted\w+", value)[0].encode() for name, value in ENVIRONMENT.items()}


def told(data: bytes, secrets: dict[str, bytes]) -> set[str]:
    """Names of the secrets in `data`."""
    return {name for name, secret in secrets.items() if secret in data}


def unpacked(path: Path) -> Iterator[bytes]:
    """The bytes of a file, and what they hold when unpacked."""
    data = path.read_bytes()
    yield data
    if data.startswith(b"\x1f\x8b"):
        yield gzip.decompress(data)
    if data.startswith(b"PAR1"):
        from pyarrow import parquet

        yield repr(parquet.read_table(path).to_pydict()).encode()
        yield repr(parquet.read_schema(path).metadata).encode()
    for packed in re.findall(rb'"(H4sI[A-Za-z0-9+/=]+)"', data):  # gzip in base64, as the page's companions are
        yield gzip.decompress(base64.b64decode(packed))


def told_by_files(*folders: Path, secrets: dict[str, bytes] = WORDS) -> set[tuple[str, str]]:
    """(file, name of the secret) for every file below these folders, and for these themselves if they are files."""
    found = set()
    for folder in folders:
        for path in [folder, *folder.rglob("*")]:
            with suppress(FileNotFoundError):  # of a program that is still running
                if path.is_file() and not path.is_symlink():
                    found |= {(str(path), name) for data in unpacked(path) for name in told(data, secrets)}
    return found


@contextmanager
def told_by_arguments(pid: int) -> Iterator[set[tuple[str, str]]]:
    """(program, name of the secret) in the command lines of a process and its descendants, looked at all the time."""
    found: set[tuple[str, str]] = set()
    over = threading.Event()

    def look() -> None:
        while not over.wait(0.1):
            with suppress(psutil.Error):
                process = psutil.Process(pid)
                for one in [process, *process.children(recursive=True)]:
                    with suppress(psutil.Error):
                        found.update((one.name(), name) for name in told("\0".join(one.cmdline()).encode(), WORDS))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()
