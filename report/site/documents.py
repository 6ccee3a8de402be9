"""Our Markdown pages as parts of the HTML page. Raw HTML in them stays text."""

from __future__ import annotations

import re

HEADING = re.compile(r"<(/?)h([1-5])>")


def html(text: str, *, deeper: int = 0) -> str:
    """Markdown with tables as HTML; headings `deeper` levels down, tables in a box that scrolls by itself."""
    from markdown_it import MarkdownIt

    found = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    found = HEADING.sub(lambda match: f"<{match[1]}h{min(6, int(match[2]) + deeper)}>", found)
    return found.replace("<table>", '<div class="wide"><table class="plain">').replace("</table>", "</table></div>")
