"""Pages written from the catalog: docs/readings.md and docs/methods/*.md.

python -m report.docs.methods            write them
python -m report.docs.methods --check    write nothing, fail if one is out of date
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterable
from pathlib import Path

from methods import catalog
from methods.method import Method
from methods.options import Option
from methods.parts import Part
from methods.readings import READINGS, Reading
from methods.recipe import Recipe
from records.errors import CorruptInputError, run
from records.files import write_text
from records.provenance import ROOT

MADE = "<!-- written by `python -m report.docs.methods`; edit the catalog file instead -->\n"
SCOPES = {
    "token": "a micro-batch may be any rows, and the loss is the same given the minibatch's totals",
    "sequence": "rows stay whole; a micro-batch may be any rows, and the loss is the same given the minibatch's totals",
    "batch": "statistics over all tokens at hand: splitting the minibatch changes the method, so do not split it",
}
BASELINE = "grpo"


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A Markdown table; bars in cells are escaped."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |\n" for line in lines)


def meaning(part: Part) -> str:
    """The first line of the formula's docstring."""
    return (inspect.getdoc(part.function) or "").split("\n")[0]


def diff_table(method: Method, baseline: Method) -> str:
    """The slots in which two methods differ, each with both parts."""
    here, there = method.parts.filled(), baseline.parts.filled()
    slots = sorted(here.keys() | there.keys(), key=[*here, *there].index)
    changed = [s for s in slots if str(here.get(s, "-")) != str(there.get(s, "-"))]
    if not changed:
        return "No slot differs.\n"
    rows = ([slot, _code(there.get(slot)), _code(here.get(slot))] for slot in changed)
    return table(("slot", baseline.title, method.title), rows)


def _code(part: Part | None) -> str:
    return f"`{part}`" if part else "-"


def _option(o: Option) -> list[str]:
    allowed = ", ".join(f"`{c}`" for c in o.choices) or "number" + (f" or `{o.blank}`" if o.blank else "")
    return [f"`{o.name}`", f"`{o.spell(o.default)}`", allowed, o.printed, o.original, o.why]


def method_page(recipe: Recipe) -> str:
    """docs/methods/<key>.md"""
    method = recipe.method({})
    quote = f"> {recipe.quote}\n>\n> TEPO paper, {recipe.where}\n" if recipe.quote else f"TEPO paper: {recipe.where}.\n"
    rows = "".join(f"- {row}\n" for row in recipe.rows) or "- none\n"
    parts = (row for slot, part in method.parts.filled().items() for row in part_rows(slot, part))
    also = "".join(f"- `{name}` is `{recipe.method(settings).key}`\n" for name, settings in recipe.also.items())
    held = ((r.id, _link(r), f"`{method.readings[r.name]}`", _others(r, recipe, method)) for r in recipe.readings())
    return "\n".join(
        [
            f"{MADE}\n# {recipe.title} (`{recipe.key}`)\n",
            f"{recipe.differs} Source: {recipe.source}. File: [{_file(recipe)}](../../{_file(recipe)}).\n",
            f"{quote}\n```text\n{recipe.equation}\n```\n",
            f"## Against GRPO/DAPO\n\n{diff_table(method, catalog.parse(BASELINE))}",
            f"## Parts\n\n{table(('slot', 'part', 'formula'), parts)}",
            "## Options\n\n"
            + table(("option", "default", "allowed", "TEPO prints", "original", "why"), map(_option, recipe.options)),
            f"## Readings\n\n{table(('id', 'reading', 'default', 'alternatives'), held)}",
            f"## Scope and needs\n\nScope `{method.scope}`: {SCOPES[method.scope]}.\n",
            f"Needs beyond log-probs, advantage and mask: {', '.join(sorted(method.needs)) or 'nothing'}.\n",
            f"## Rows of the paper\n\n{rows}" + (f"\n## Other names\n\n{also}" if also else ""),
        ]
    )


def part_rows(slot: str, part: Part) -> list[list[str]]:
    """A part and, below it, the parts it is made of."""
    inner = [row for each in part.inner for row in part_rows("", each)]
    return [[slot, f"`{part}`", meaning(part)], *inner]


def _link(reading: Reading) -> str:
    return f"[{reading.name}](../readings.md#{reading.id.lower()}-{reading.name})"


def _others(reading: Reading, recipe: Recipe, method: Method) -> str:
    labels = recipe.labels(reading)
    return ", ".join(f"`{label}`" for label in labels if label != method.readings[reading.name]) or "-"


def _file(recipe: Recipe) -> str:
    return Path(inspect.getfile(recipe.parts)).relative_to(ROOT).as_posix()


def index_page(recipes: Iterable[Recipe]) -> str:
    """docs/methods/README.md"""
    rows = []
    for r in recipes:
        m = r.method({})
        needs, printed = ", ".join(sorted(m.needs)) or "-", "; ".join(r.rows) or "-"
        rows.append((f"[`{r.key}`]({r.key}.md)", r.title, r.differs, f"`{m.scope}`", needs, printed))
    return (
        f"{MADE}\n# Methods\n\nA key may set options: `tepo+beta=1+kl-estimator=k1`. "
        "Names mean different losses elsewhere: [names.md](../names.md). "
        "To add one: [add-a-method.md](../add-a-method.md).\n\n"
        + table(("key", "method", "differs from GRPO/DAPO", "scope", "needs", "rows of the paper"), rows)
    )


def readings_page() -> str:
    """docs/readings.md"""
    text = (
        f"{MADE}\n# Readings\n\nWhere the paper can be read in more than one way. A bold value is the default. A run "
        "records all.\nA method's reading is set in its key (`tepo+clip-form=eq4`); training and evaluation hold the "
        "others.\n"
    )
    for room in ("methods", "training", "evals"):
        text += f"\n## Held by {room}\n"
        for r in (r for r in READINGS if r.room == room):
            values = ((f"**{v}**" if v == r.default else v, m, _sets(r, v)) for v, m in r.values.items())
            held = ", ".join(f"[`{k}`](methods/{k}.md)" for k, c in catalog.recipes().items() if r in c.readings())
            text += f"\n### {r.id} {r.name}\n\n{r.why}\n\n{table(('value', 'meaning', 'sets'), values)}"
            text += f"\nMethods: {held}.\n" if held else ""
    return text


def _sets(reading: Reading, label: str) -> str:
    if reading.room != "methods":
        return "-"
    settings = {reading.name: label} if reading.settings is None else reading.settings.get(label, {})
    return ", ".join(f"`{name}={value}`" for name, value in settings.items()) if label != reading.default else "-"


def pages() -> dict[str, str]:
    """Path below docs/ -> text, for every generated page."""
    recipes = catalog.recipes()
    return {
        "readings.md": readings_page(),
        "methods/README.md": index_page(recipes.values()),
        **{f"methods/{key}.md": method_page(recipe) for key, recipe in recipes.items()},
    }


def stale(folder: Path) -> list[str]:
    """Pages below `folder` that are missing, out of date, or of a method that is gone."""
    made = pages()
    there = {p.relative_to(folder).as_posix() for p in (folder / "methods").glob("*.md")}
    wrong = {n for n, text in made.items() if not (folder / n).is_file() or (folder / n).read_text("utf-8") != text}
    return sorted(wrong | (there - made.keys()))


def main() -> int:
    parser = argparse.ArgumentParser(description="Write the pages that are generated from the method catalog.")
    parser.add_argument("--out", type=Path, default=ROOT / "docs", help="folder of the pages")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a page is out of date")
    arguments = parser.parse_args()
    if arguments.check:
        if wrong := stale(arguments.out):
            raise CorruptInputError(
                f"{arguments.out}: out of date: {', '.join(wrong)}; run python -m report.docs.methods"
            )
        return 0
    for name, text in pages().items():
        write_text(arguments.out / name, text)
    print(f"{len(pages())} pages below {arguments.out}")
    return 0


if __name__ == "__main__":
    run(main)
