"""Style sheets, scripts and content security policy of the page; scripts are ours or vendored."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from core.provenance import ROOT

HTML, VENDOR = ROOT / "report/html", ROOT / "report/vendor"
FOLDER = "report.data"  # of the page's companion files, next to it
BEFORE = 'document.documentElement.classList.add("js")'  # runs before the first paint
# In KaTeX's style sheet: a font's WOFF2 file, and the same font in older formats that current browsers do not need.
FONT = re.compile(r"url\(fonts/([\w-]+\.woff2)\) format\(\"woff2\"\)(?:,url\([^)]*\) format\(\"[a-z]+\"\))*")


def style() -> str:
    return vendored("uplot/uPlot.min.css").decode("utf-8") + (HTML / "style.css").read_text(encoding="utf-8")


def script() -> str:
    return vendored("uplot/uPlot.iife.min.js").decode("utf-8") + (HTML / "page.js").read_text(encoding="utf-8")


def data(value: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element: no text can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def policy(*scripts: str) -> str:
    """Return the content security policy: it allows only these scripts and files next to the page."""
    # `file:` in addition to 'self': browsers do not count files next to a page opened from disk as the same origin.
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'self' file:; style-src 'unsafe-inline' 'self' file:; "
        "font-src data:; img-src 'self' file:; base-uri 'none'; form-action 'none'"
    )


def section(markdown: str) -> str:
    """Render Markdown as HTML, with each table in a scrolling box. Raw HTML is escaped.

    Headings move one level down, below the heading of the view.
    """
    from markdown_it import MarkdownIt

    lower = re.sub(r"^#(?=#* )", "##", markdown, flags=re.MULTILINE)
    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(lower)
    return text.replace("<table>", '<div class="wide"><table class="plain">').replace("</table>", "</table></div>")


def math_css() -> str:
    """Return KaTeX's style sheet with inline fonts: browsers block font files for pages opened from disk."""

    def inside(match: re.Match[str]) -> str:
        font = base64.b64encode(vendored(f"katex/fonts/{match[1]}")).decode("ascii")
        return f'url(data:font/woff2;base64,{font}) format("woff2")'

    return FONT.sub(inside, vendored("katex/katex.min.css").decode("utf-8"))


def vendored(name: str) -> bytes:
    """Return a vendored file that runs in the page, such as `uplot/uPlot.min.css`."""
    return (VENDOR / name).read_bytes()
