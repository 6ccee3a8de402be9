"""Files of other projects that the page carries, each held against `report/vendor/record.json` before it is used."""

from __future__ import annotations

import base64
import re
from functools import cache
from pathlib import Path

from records.errors import CorruptInputError, unknown
from records.provenance import sha256_bytes
from records.read import read_json

VENDOR = Path(__file__).resolve().parents[1] / "vendor"
FONT = re.compile(r"url\(fonts/([\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"[a-z]+\"\))*")


def read(name: str) -> bytes:
    """`uplot/uPlot.min.css` and so on. A file that the record does not list, or that differs from it, is an error."""
    package, _, file = name.partition("/")
    files = _record()[package]["files"]
    if file not in files:
        raise unknown(str(VENDOR / "record.json"), package, file, files)
    data = (VENDOR / name).read_bytes()
    if sha256_bytes(data) != files[file]:
        raise CorruptInputError(f"{VENDOR / name}: sha256 differs from record.json: not the file as published")
    return data


def text(name: str) -> str:
    return read(name).decode("utf-8")


def math_css() -> str:
    """KaTeX's style sheet with its fonts inside: pages opened from disk may not load a font from a file."""
    return FONT.sub(lambda match: _font(match[1]), text("katex/katex.min.css"))


def _font(name: str) -> str:
    data = base64.b64encode(read(f"katex/fonts/{name}")).decode("ascii")
    return f'url(data:font/woff2;base64,{data}) format("woff2")'


@cache
def _record() -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = read_json(VENDOR / "record.json", "the record of vendored files")
    return found
