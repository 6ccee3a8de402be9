"""Companion files: values that the page loads when somebody asks for them, from disk as well as from a server.

A page opened from disk may not `fetch` a file beside it, but may add a script element. So a shard is a script that
hands one text to the page: gzip in base64, which the browser itself unpacks. Nothing in it can act as code.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "report.data"
LEVEL = 6


def shard(name: str, value: Any) -> bytes:
    """The script for `value`; `name` is what the page asked for, so that answers cannot be mixed up."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    packed = base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), LEVEL, mtime=0)).decode("ascii")
    return f"bench.arrived({json.dumps(name)},{json.dumps(packed)});\n".encode()


def unpack(script: bytes) -> tuple[str, Any]:
    """Name and value of a shard, as the page reads them."""
    name, packed = json.loads("[" + script.decode("ascii").removeprefix("bench.arrived(").removesuffix(");\n") + "]")
    return name, json.loads(gzip.decompress(base64.b64decode(packed)))


def writer(folder: Path) -> Callable[[str, Any], None]:
    """A function that writes the shard of a name and value below `folder`."""

    def write(name: str, value: Any) -> None:
        path = folder / f"{name}.js"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(shard(name, value))

    return write
