"""Regenerate the parts of docs/methods.md that come from the method catalog: `python -m tests.methods.methods_page`."""

import re
from collections.abc import Iterable, Sequence

from core.errors import CorruptInputError
from core.files import read_text, write_text
from core.provenance import ROOT
from methods import catalog
from methods.options import READINGS, CatalogEntry, Option
from report.markdown import markdown_table

PAGE = ROOT / "docs" / "methods.md"
OPTION = ("option", "default", "allowed", "TEPO prints", "original", "reason")
MADE = re.compile(r"(<!-- made: ([^\n]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
CLIPPED = re.compile(r"min\((w_\w|r_t) (A'?_\w), clip\(\1(?:, 1 - low, 1 \+ high)?\) \2\)")  # C(w, A) on the page
PAPER = "arXiv 2604.12736v1"  # a section with this source does not print it
AS_SOURCE = ("", "printed", "the original's", "upstream's")  # reasons that the page explains once
NO_ZERO = re.compile(r"(?<![\w.])\.(?=\d)")  # .4 in a catalog file


def page() -> str:
    """Return docs/methods.md with each part between two marks regenerated. Raises CorruptInputError for other marks."""
    entries = list(catalog.entries().values())
    options = [option for entry in entries for option in entry.options]
    shared = [option for option in dict.fromkeys(options) if options.count(option) > 1]
    parts = {
        "summary": _table(("key", "method", "scope", "needs", "tables of the paper"), map(_summary, entries)),
        "methods": "\n".join(_section(entry, shared) for entry in entries),
        "options of several methods": _table(OPTION, map(_cells, shared)),
    }
    text = read_text(PAGE, "page")
    if (marks := [mark[2] for mark in MADE.finditer(text)]) != list(parts):
        raise CorruptInputError(f"{PAGE}: parts between marks: {', '.join(marks)}, not {', '.join(parts)}")
    return MADE.sub(lambda mark: mark[1] + NO_ZERO.sub("0.", parts[mark[2]]), text)


def _table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    return "\n".join([*markdown_table(head, rows, escape=lambda cell: cell.replace("|", "\\|")), ""])


def _section(entry: CatalogEntry, shared: Sequence[Option]) -> str:
    """Return source, difference, equation, the entry's own options, and the defaults of those that methods share."""
    equation = CLIPPED.sub(r"C(\1, \2)", entry.equation).replace("\n", "\n    ")
    source = "" if entry.source == PAPER else f"{entry.source}. "
    lines = [f"## {entry.key}\n", f"{source}{entry.differs_from_grpo}\n", f"    {equation}\n"]
    alike: dict[tuple[str, ...], list[str]] = {}  # cells -> options that have them
    for name, *cells in (_cells(option) for option in entry.options if option not in shared):
        alike.setdefault(tuple(cells), []).append(name)
    if alike:
        lines.append("".join(_item(", ".join(names), *cells) for cells, names in alike.items()))
    lines.append(f"Shared: `{' '.join(f'{o.name}={o.spell(o.default)}' for o in entry.options if o in shared)}`.\n")
    if aliases := [f"`{name}` is `{entry.method(settings).key}`" for name, settings in entry.aliases.items()]:
        lines.append(f"Other names: {', '.join(aliases)}.\n")
    return "\n".join(lines)


def _summary(entry: CatalogEntry) -> list[str]:
    method = entry.method({})
    rows = re.findall(r"\d(?:, Panel \w)?", ", ".join(row.split(":")[0] for row in entry.paper_rows))
    tables = ", ".join(row.replace(", Panel ", "") for row in dict.fromkeys(rows))
    return [f"`{entry.key}`", entry.title, method.scope, ", ".join(sorted(method.needs)) or "-", tables or "-"]


def _cells(option: Option) -> list[str]:
    """Return the columns OPTION."""
    allowed = ", ".join(f"`{choice}`" for choice in option.choices)
    allowed = allowed or (f"number or `{option.blank}`" if option.blank else "number")
    name = f"`{option.name}`" + (f" ({READINGS[option.reading]})" if option.reading else "")
    why = "-" if option.why in AS_SOURCE else option.why
    return [name, f"`{option.spell(option.default)}`", allowed, option.printed, option.original, why]


def _item(name: str, default: str, allowed: str, *origins: str) -> str:
    """Return a list item with the cells that are not empty; `allowed` is omitted for plain numbers."""
    sources = [f"{what}: {cell}" for what, cell in zip(OPTION[3:], origins, strict=True) if cell != "-"]
    return "; ".join([f"- {name} = {default}{'' if allowed == 'number' else f' ({allowed})'}", *sources]) + "\n"


if __name__ == "__main__":
    write_text(PAGE, page())
