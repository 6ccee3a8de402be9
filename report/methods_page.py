"""What docs/methods.md holds of the method catalog, between two marks in each place.

`python -m report.methods_page` writes it; a test fails while a page is out of date.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from core.errors import CorruptInputError, Parser, run
from core.files import read_text, write_text
from core.provenance import ROOT
from methods import catalog
from methods.options import CAP, FLOOR, READINGS, CatalogEntry, Option
from methods.parts.corrections import BOUNDS
from report.markdown import markdown_table

OPTION = ("option", "default", "allowed", "TEPO prints", "original", "reason")
CORRECTION_KINDS = {  # kind -> (rho of, weight, TRL's name, verl's name)
    "tis": ("token", "rho, clamped", "`token_truncate`", "`rollout_is=token`"),
    "icepop": ("token", "rho, 0 outside", "`token_mask`", "the same, two thresholds"),
    "seq-tis": ("sequence: product", "rho, clamped", "`sequence_truncate`", "`rollout_is=sequence`"),
    "seq-mis": ("sequence: product", "rho, 0 outside", "`sequence_mask`", "the same, two thresholds"),
    "token-rs": ("token", "1, 0 outside", "-", "`rollout_rs=token_k1`"),
    "seq-rs": ("sequence: product", "1, 0 outside", "-", "`rollout_rs=seq_sum_k1`"),
    "geo-rs": ("sequence: geometric mean", "1, 0 outside", "-", "`rollout_rs=seq_mean_k1`"),
}
MADE = re.compile(r"(<!-- made: ([^\n]+) -->\n).*?(?=<!-- end -->)", re.DOTALL)
CLIPPED = re.compile(r"min\((w_\w|r_t) (A'?_\w), clip\(\1(?:, 1 - low, 1 \+ high)?\) \2\)")  # C(w, A) on the page
PAPER = "arXiv 2604.12736v1"  # the source of a section that names none
AS_SOURCE = ("printed", "the original's", "upstream's")  # reasons that the page states once
NO_ZERO = re.compile(r"(?<![\w.])\.(?=\d)")  # .4 in a catalog file, whose text is in the hash of its runs


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table of cells that are Markdown themselves, so that bars alone are escaped."""
    return "\n".join([*markdown_table(head, rows, escape=lambda cell: cell.replace("|", "\\|")), ""])


# docs/methods.md


def methods_parts() -> dict[str, str]:
    entries = list(catalog.entries().values())
    shared = shared_options(entries)
    kinds = ("`correction`", "rho of", "weight", "floor, cap", "their source", "TRL 1.16.0", "verl 0.9.1")
    return {
        "summary": table(("key", "method", "scope", "needs", "tables of the paper"), map(_summary, entries)),
        "methods": "\n".join(method_section(entry, shared, entries[:place]) for place, entry in enumerate(entries)),
        "options of several methods": table(OPTION, _rows(shared)),
        "corrections": table(kinds, map(_correction, BOUNDS)),
    }


def shared_options(entries: Iterable[CatalogEntry]) -> list[Option]:
    """The options that at least two methods have alike, in the order of their first appearance."""
    options = [option for entry in entries for option in entry.options]
    return [option for option in dict.fromkeys(options) if options.count(option) > 1]


def method_section(entry: CatalogEntry, shared: list[Option], before: list[CatalogEntry]) -> str:
    own = [option for option in entry.options if option not in shared]
    aliases = [f"`{name}` is `{entry.method(settings).key}`" for name, settings in entry.aliases.items()]
    equation = CLIPPED.sub(r"C(\1, \2)", entry.equation).replace("\n", "\n    ")
    source = "" if entry.source == PAPER else f"{entry.source}. "
    lines = [f"## {entry.key}\n", f"{source}{entry.differs_from_grpo}\n", f"    {equation}\n"]
    if own:
        lines.append("".join(_items(own)))
    lines.append(_shared(entry, shared, before))
    if aliases:
        lines.append(f"Other names: {', '.join(aliases)}.\n")
    return "\n".join(lines)


def _summary(entry: CatalogEntry) -> list[str]:
    method = entry.method({})
    needs = ", ".join(sorted(method.needs)) or "-"
    rows = dict.fromkeys(re.findall(r"\d(?:, Panel \w)?", ", ".join(row.split(":")[0] for row in entry.paper_rows)))
    tables = ", ".join(row.replace(", Panel ", "") for row in rows) or "-"
    return [f"`{entry.key}`", entry.title, method.scope, needs, tables]


def _shared(entry: CatalogEntry, shared: list[Option], before: list[CatalogEntry]) -> str:
    """A line with the shared options; where an earlier method has at least five of them and no other, its name."""
    here = [option for option in entry.options if option in shared]
    sets = {other.key: [option for option in other.options if option in shared] for other in before}
    like = max(
        (key for key in sets if len(sets[key]) > 4 and {*sets[key]} <= {*here}), key=lambda k: len(sets[k]), default=""
    )
    rest = " ".join(
        f"{option.name}={option.spell(option.default)}" for option in here if option not in sets.get(like, [])
    )
    parts = [f"as [{like}](#{like})"] if like else []
    return f"Shared: {', '.join([*parts, *([f'`{rest}`'] if rest else [])])}.\n"


def _items(options: Iterable[Option]) -> list[str]:
    """List items with the cells of the options' rows that are not empty."""
    items = []
    for name, default, allowed, *cells in _rows(options):
        sources = [f"{what}: {cell}" for what, cell in zip(OPTION[3:], cells, strict=True) if cell != "-"]
        items.append("; ".join([f"- {name} = {default} ({allowed})", *sources]) + "\n")
    return items


def _rows(options: Iterable[Option]) -> list[list[str]]:
    """The options' rows; options with equal cells share one."""
    names: dict[tuple[str, ...], list[str]] = {}
    for option in options:
        names.setdefault(_cells(option), []).append(f"`{option.name}`")
    return [[", ".join(alike) + reading, *cells] for (reading, *cells), alike in names.items()]


def _cells(option: Option) -> tuple[str, ...]:
    """The reading, and the cells of columns OPTION[1:]."""
    allowed = ", ".join(f"`{choice}`" for choice in option.choices)
    if not allowed:
        allowed = f"number or `{option.blank}`" if option.blank else "number"
    reading = f" ({READINGS[option.reading]})" if option.reading else ""
    why = "-" if not option.why or option.why in AS_SOURCE else option.why
    return reading, f"`{option.spell(option.default)}`", allowed, option.printed, option.original, why


def _correction(kind: str) -> tuple[str, ...]:
    cap, floor, source = BOUNDS[kind]
    rho, weight, trl, verl = CORRECTION_KINDS[kind]
    return f"`{kind}`", rho, weight, f"{FLOOR.spell(floor)}, {CAP.spell(cap)}", source, trl, verl


def pages() -> dict[str, str]:
    """Path below docs/ -> its text with each part between two marks made anew. CorruptInputError for other marks."""
    found = {}
    for name, parts in (("methods.md", methods_parts()),):
        text = read_text(ROOT / "docs" / name, "page")
        if (marks := [mark[2] for mark in MADE.finditer(text)]) != list(parts):
            raise CorruptInputError(f"docs/{name}: parts between marks: {', '.join(marks)}, not {', '.join(parts)}")
        parts = {mark: NO_ZERO.sub("0.", part) for mark, part in parts.items()}
        found[name] = MADE.sub(lambda mark, parts=parts: mark[1] + parts[mark[2]], text)  # type: ignore[misc]
    return found


def main() -> None:
    parser = Parser(description="Write the pages that are generated from the method catalog.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pages")
    args = parser.parse_args()
    for name, text in pages().items():
        write_text(args.out / name, text)
    print(f"{len(pages())} pages in {args.out}")


if __name__ == "__main__":
    run(main)
