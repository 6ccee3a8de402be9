"""`python -m report.page --results results/quick`: the report, one HTML file and the responses next to it.

`report.html` needs no network; `report.data/` holds the responses that it loads on demand. Every number comes from a
file that another command wrote; a missing file is reported with its command.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from core import errors
from core.errors import Parser, written_by
from core.files import cells_of, read_csv, read_json, read_text, write_text
from core.layout import BASE, Checkpoint, Results, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED
from evals.tree import Tree, open_tree
from paper import verdicts
from report import draw, figures, markdown, responses, rows, runs, tables, view

# Views of the page in the order of its navigation: id and name.
VIEWS = (
    ("overview", "Overview"),
    ("results", "Results"),
    ("training", "Training"),
    ("samples", "Responses"),
    ("paper", "Paper"),
)
EVALUATED = {"overview", "results", "samples"}  # views of a tree without runs

HTML = ROOT / "report/html"
BEFORE = 'document.documentElement.classList.add("js")'  # runs before the first paint

# Curves.

DIGITS = 4  # significant digits in the page: more than a screen shows, at half the bytes
DASH = 3  # pixels on the screen per unit of the printed pattern
FRONT = 4  # lines of the overview's chart
FRESH = "fresh"  # key of the settings of a sweep's fresh seeds, where each method is at its chosen value
COLOURS = {look[0]: f"--line-{n}" for n, look in enumerate(draw.STYLES)}  # light and dark values: style.css


def dynamics(tree: Tree) -> dict[str, Any]:
    """Return the data of the charts: panels, lines with their values by panel, the choice of settings, and `front`: the
    indices of the overview's lines.

    A line is a method of a model under one settings variant: mean over seeds by rollout and its 95 % interval.
    """
    path = tree.layout.figures / "convergence_bands.csv"
    declared, titles = figures.specification(), dict[str, str]()
    charts = declared.charts
    found: dict[tuple[str, str, str], dict[str, dict[str, list[float | None]]]] = {}
    with written_by(markdown.command("report.convergence", tree)), cells_of(path):
        needed = ("model", "method", "fresh", "series", "mean", "low", "high")
        for row in read_csv(path, "the curves over seeds", needed):
            titles[row["method"]] = str(tree.methods[row["method"]]["title"])
            key = row["model"], row["method"], row["fresh"]
            for end in needed[4:] if row["series"] in charts else ():
                value = float(f"{float(row[end]) * charts[row['series']].scale:.{DIGITS}g}") if row[end] else None
                found.setdefault(key, {}).setdefault(row["series"], {}).setdefault(end, []).append(value)
    given = {split(tree.method_for(name) or name)[0]: place for name, place in declared.lines.items()}
    looks = draw.looks((split(method)[0] for _, method, _ in found), given)
    variants = {name: str(body["title"]) for name, body in tree.matrix.get("variants", {}).items()}
    lines: list[dict[str, Any]] = []
    for (model, method, fresh), values in found.items():
        name, variant = split(method)
        colour, dashes, width = looks[name]
        settings = FRESH if fresh == "yes" else variant or ""
        title = titles[method].removesuffix(f", {variants.get(settings)}")  # the form shows the settings
        look = {"colour": COLOURS[colour], "dashes": [DASH * dash for dash in dashes], "width": width}
        line: dict[str, Any] = {"model": model, "method": name, "settings": settings, "title": title}
        lines.append(line | {"look": look, "values": values})
    lines.sort(key=lambda line: given.get(line["method"], len(given)))  # those of the figures are seen first
    there = {line["settings"] for line in lines}
    names = {"": "the scale's own", **variants, FRESH: "fresh seeds, each method at its chosen value"}
    return {
        "panels": [
            {"id": series, "title": chart.title, "label": chart.label}
            for series, chart in charts.items()
            if any(series in line["values"] for line in lines)
        ],
        "lines": lines,
        "settings": [(key, name) for key, name in names.items() if key in there],
        "front": _front(lines),
    }


def _front(lines: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the indices of the overview's lines: the first of the first model, of a sweep on its fresh seeds."""
    settings = FRESH if any(line["settings"] == FRESH for line in lines) else ""
    wanted = {(line["model"], settings) for line in lines[:1]}
    found = (
        n for n, one in enumerate(lines) if "reward" in one["values"] and (one["model"], one["settings"]) in wanted
    )
    return list(found)[:FRONT]


def _figures(tree: Tree) -> list[dict[str, Any]]:
    """Return every figure of the plan: key, title and caption."""
    found = []
    for figure in figures.offered(tree):
        with written_by(markdown.command("report.figures", tree, "--figure", figure.key)):
            notes = read_json(tree.layout.figures / f"{figure.key}.json", "the notes of the figure")["notes"]
        number = figure.key.removeprefix("figure")
        title = f"Figure {number}: {figure.title}" if number != figure.key else figure.title
        found.append({"key": figure.key, "title": title, "words": [*view.paragraphs(figure.key), *notes]})
    return found


def _sweep(tree: Tree) -> str:
    """Return the output of `report.sweep` and `report.frontier` as HTML; empty for a tree without a sweep."""
    names = ("sweep", "frontier") if tree.matrix.get("sweep") else ()
    with written_by(markdown.command("report.sweep", tree)):
        return "".join(_section(read_text(tree.root / f"sweep/{name}.md", "a sweep's table")) for name in names)


def _claims(tree: Tree) -> dict[str, Any]:
    """Return the verdicts of claims.csv for the template; decided: those that runs of this tree decide."""
    with written_by(markdown.command("paper.claims", tree)):
        found = verdicts.read(tree.root / "claims.csv")
    anchors: set[str] = set()  # an id may occur only once in the page
    for row in found:
        row["anchor"] = "" if row["id"] in anchors else row["id"]
        anchors.add(row["id"])
        row |= {"figure": verdicts.figure(row), "beside": verdicts.beside(row)}
    own = (row for row in found if row["source"] == verdicts.RUNS and not row["setting"])  # as the scale trains
    decided = [row for row in own if row["verdict"] in verdicts.DECIDED]
    return {"rows": found, "decided": decided, "rule": verdicts.RULE, "meaning": verdicts.MEANING}


# Tables. `report.view` decides what a cell shows; this part adds links.

LEADING = ("area", "avg_pooled", "avg_macro", "final")  # columns before the others


def _tables(tree: Tree, linked: Container[str]) -> list[dict[str, Any]]:
    """Return the tables that have a number. linked: paths of the checkpoints whose responses the page has.

    A scale of the paper's rows shows the paper's tables first, any other the table of all runs.
    """
    shown = [tables.shown(tree, key) for key in rows.offered()]
    papers = bool(view.paragraphs(f"scale-{tree.scale}"))
    shown.sort(key=lambda table: table["generated"] if papers else not table["generated"])
    return [_table(table, tree, linked) for table in shown if not table["empty"]]


def _table(table: dict[str, Any], tree: Tree, linked: Container[str]) -> dict[str, Any]:
    for block in table["blocks"]:
        absent = [row["name"] for row in block["rows"] if not row["ran"]]
        block["caption"] = f"{block['head']}; {tree.scale} scale. {block['baseline']}"
        block["caption"] += f" Not run at this scale: {', '.join(absent)}." if absent else ""
        block |= {"title": block["title"] or block["model"], "rows": [row for row in block["rows"] if row["ran"]]}
        for cell in (cell for row in block["rows"] for cell in row["cells"].values()):
            against = "" if cell["versus"] is None else f"{markdown.with_interval(cell, 'versus')} against the baseline"
            cell |= {"href": _address(cell, linked), "against": against}
    table["blocks"] = [block for block in table["blocks"] if block["rows"]]
    order = {slot: place for place, slot in enumerate(LEADING)}
    table["columns"].sort(key=lambda column: order.get(column["slot"], len(order)))
    table["notes"] = [*table["again"], *view.paragraphs(f"table{table['key']}"), *table["notes"], *table["levels"]]
    return table | {"file": f"tables/table{table['key']}.tidy.csv"}


def _address(cell: Mapping[str, Any], linked: Container[str]) -> str:
    """Return the link of a number: the responses of its first checkpoint; empty without responses."""
    paths = [checkpoint.path.as_posix() for checkpoint in cell["runs"]]
    if not cell["measured"] or cell["kind"] == "delta" or not paths or paths[0] not in linked:
        return ""
    benchmark = {} if cell["benchmark"] in (None, POOLED, MACRO) else {"benchmark": cell["benchmark"]}
    return "samples?" + urlencode({"left": paths[0], **benchmark}, safe="/=@")


def _scores(tree: Tree, linked: Container[str]) -> dict[str, Any]:
    """Return the table of a tree without runs, such as one of `evals.run`: a row per checkpoint."""
    titles = {POOLED: "Average of responses", MACRO: "Average of benchmarks"}
    titles |= {str(entry["key"]): str(entry["title"]) for entry in tree.benchmarks}

    def cell(at: Checkpoint, key: str) -> dict[str, Any]:
        found = tables.EMPTY | {"kind": "run", "state": view.NOT_RUN, "column": key, "benchmark": key, "runs": (at,)}
        if (score := tree.scores.get((at, key))) is not None:
            found |= {"value": score.value, "low": score.low, "high": score.high}
        found |= view.texts(found)
        return found | {"href": _address(found, linked), "against": ""}

    lines = []
    for at in tree.checkpoints:
        name = at.run.model if at.run.method == BASE else runs.title(at, tree)
        cells = {key: cell(at, key) for key in titles}
        lines.append({"id": at.path.as_posix(), "label": name, "kind": "run", "seeds": "", "cells": cells})
    caption = f"{tree.matrix['note']} Percent of responses that are right, with the 95 % interval."
    return {
        "key": "scores",
        "heading": "Scores",
        "columns": [{"slot": key, "heading": title, "stands_for": ""} for key, title in titles.items()],
        "blocks": [{"title": "Scores", "caption": caption, "rows": lines}],
        "notes": [],
        "file": "scores.csv",
    }


# The page.


def _data(value: Mapping[str, Any]) -> str:
    """Return JSON that is safe inside a script element: no text can close the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False, sort_keys=True)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _policy(*scripts: str) -> str:
    """Return the content security policy: it allows only these scripts and files next to the page."""
    # `file:` in addition to 'self': browsers do not count files next to a page opened from disk as the same origin.
    digests = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    hashes = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {hashes} 'self' file:; style-src 'unsafe-inline' 'self' file:; "
        "img-src 'self' file:; base-uri 'none'; form-action 'none'"
    )


def _section(markdown: str) -> str:
    """Render Markdown as HTML, with each table in a scrolling box. Raw HTML is escaped.

    Headings move one level down, below the heading of the view.
    """
    from markdown_it import MarkdownIt

    lower = re.sub(r"^#(?=#* )", "##", markdown, flags=re.MULTILINE)
    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(lower)
    return text.replace("<table>", '<div class="wide"><table class="plain">').replace("</table>", "</table></div>")


def build(tree: Tree) -> str:
    """Return the page of a results tree.

    Raises MissingInputError or CorruptInputError naming the first file that is missing or broken, and its command.
    """
    browser = responses.view(tree)
    data = browser.pop("data")
    linked = data["samples"]["checkpoints"]
    context: dict[str, Any] = {"matrix": tree.matrix, "lead": view.lead(tree.matrix), "linked": linked, **browser}
    context["answered"] = data["samples"]["benchmarks"]
    context["reading"] = view.paragraphs("tables")
    if tree.runs:
        tables, curves = _tables(tree, linked), dynamics(tree)
        context |= {"views": VIEWS, "claims": _claims(tree), "figures": _figures(tree), "sweep": _sweep(tree)}
        context |= {"facts": runs.facts(tree), "dynamics": curves}
        data["dynamics"] = curves
    else:  # of `evals.run`: scores and responses
        tables = [_scores(tree, linked)]
        context |= {"views": [one for one in VIEWS if one[0] in EVALUATED], "claims": None, "facts": []}
        context |= {"dynamics": {"front": []}, "sweep": ""}
    missing = [note for table in tables for note in table["notes"] if note.startswith("Missing")]
    script, style = (
        responses.vendored(f"uplot/{library}").decode("utf-8") + read_text(HTML / own)
        for library, own in (("uPlot.iife.min.js", "page.js"), ("uPlot.min.css", "style.css"))
    )
    parts = {"style": style, "before": BEFORE, "script": script, "data": _data(data)}
    template = markdown.environment(HTML, autoescape=True).get_template("page.html.j2")
    return template.render(
        context | {name: Markup(text) for name, text in parts.items()},
        tables=tables,
        warnings=runs.warnings(tree, missing),
        policy=_policy(BEFORE, script),
    )


def _place(tree: Tree) -> Results:
    """Return the folder of the page: the tree, or results/pages/<name> with links to the files of published results.

    Published results are read from the user's cache, which holds no page.
    """
    if tree.kept is None:
        return tree.layout
    kept = tree.kept.absolute()
    folder = (kept.parent.parent if kept.parent.name == "reference" else kept.parent) / "pages" / kept.name
    folder.mkdir(parents=True, exist_ok=True)
    for path in tree.root.iterdir():
        link = folder / path.name
        if link.is_symlink():  # of an earlier version of the results
            link.unlink()
        if not link.exists():
            link.symlink_to(path)
    return Results(Path(os.path.relpath(folder)))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' problems; without it golds are not shown")
    args = parser.parse_args(arguments)
    tree = open_tree(args.results)
    html = build(tree)  # first: a missing input ends the command before any file is written
    place = _place(tree)
    responses.write(tree, place.root, args.data)
    write_text(place.report, html)
    print(f"{place.report}  {len(html.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    errors.run(main)
