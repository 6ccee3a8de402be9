"""Style sheet and scripts of the page, and the policy that lets nothing else run or load."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from records.errors import CorruptInputError, unknown
from records.files import read_json
from records.provenance import sha256_bytes

# Files of other projects that the page carries, each held against `report/vendor/record.json` before it is used.


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


HTML = Path(__file__).resolve().parents[1] / "html"
SCRIPTS = ("bench", "charts", "tables", "pairs", "typeset", "samples", "views")  # each stands on those before it
BEFORE = 'document.documentElement.classList.add("js")'  # before anything is drawn


def style() -> str:
    return text("uplot/uPlot.min.css") + (HTML / "style.css").read_text(encoding="utf-8")


def script() -> str:
    own = [(HTML / "js" / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS]
    return "\n".join([text("uplot/uPlot.iife.min.js"), *own])


def data(value: Mapping[str, Any]) -> str:
    """JSON that can stand inside a script element: no text of anybody's can end it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def policy(*scripts: str) -> str:
    """Content security policy: these scripts, files beside the page, and nothing from anywhere else."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in scripts
    )
    return (
        f"default-src 'none'; script-src {hashes} 'self' file:; style-src 'unsafe-inline' 'self' file:; "
        "font-src data:; img-src data:; base-uri 'none'; form-action 'none'"
    )


# Our Markdown pages as parts of the HTML page. Raw HTML in them stays text.


HEADING = re.compile(r"<(/?)h([1-5])>")


def html(text: str, *, deeper: int = 0) -> str:
    """Markdown with tables as HTML; headings `deeper` levels down, tables in a box that scrolls by itself."""
    from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    found = HEADING.sub(lambda match: f"<{match[1]}h{min(6, int(match[2]) + deeper)}>", found)
    return found.replace("<table>", '<div class="wide"><table class="plain">').replace("</table>", "</table></div>")
