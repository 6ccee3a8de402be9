"""`python -m report.build --results results/quick`: the report, one HTML file and the responses beside it.

`report.html` needs no network; `report.data/` holds what it loads when somebody looks at responses. Both stand on what
other commands wrote: tables, figures, scores, curves, samples, grades.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import cli
from report.tables import spec

if TYPE_CHECKING:
    from report.results import Tree

ROOMS = (
    ("overview", "Overview"),
    ("tables", "Tables"),
    ("figures", "Figures"),
    ("runs", "Runs"),
    ("samples", "Responses"),
    ("claims", "Claims"),
    ("readings", "Readings"),
    ("audit", "Audit"),
    ("about", "Provenance"),
)


def build(root: Path) -> str:
    """The page for the results at `root`; its figures must have been drawn (`python -m report.figure`)."""
    from markupsafe import Markup

    from report import page, runs
    from report.claims import ledger, paper_ledger
    from report.manifest import NATIVE
    from report.results import open_tree
    from report.site import assets, claimviews, overview, readingviews, responses, rowviews, runviews
    from report.tables import cells
    from report.tables.fragment import template

    tree = open_tree(root)
    tables = [cells.fill(spec.table(key), tree) for key in spec.keys_for(tree.methods)]
    done = runs.summaries(tree)
    figures, charts = _figures(tree)
    script = assets.script()
    browser = responses.view(tree)
    data = {"start": "overview", "figures": charts, **browser.pop("data")}
    return template("page.html.j2").render(
        {
            "policy": assets.policy(assets.BEFORE, script),
            "style": Markup(assets.style()),
            "before": Markup(assets.BEFORE),
            "script": Markup(script),
            "data": Markup(assets.data(data)),
            "rooms": ROOMS,
            "matrix": tree.matrix,
            "scale": tree.scale,
            "lead": tree.lead,
            "facts": page.facts(tree, done),
            "warnings": list(dict.fromkeys(w for filled in tables for w in runs.warnings(tree, filled, done))),
            "claims": claimviews.view(paper_ledger(), ledger(tree), tree),
            "readings": readingviews.view(tree),
            "glance": overview.glance(tables[0]),
            "tables": [rowviews.table(filled, tree) for filled in tables],
            "reading": rowviews.reading(tables),
            "rows": rowviews.views(tables, tree),
            "figures": figures,
            "runviews": runviews.views(tree, done),
            "documents": _documents(),
            "benchmarks": page.benchmarks(tree, tables),
            "provenance": page.provenance(tree, done),
            "native": NATIVE,
            "files": {path.name for path in tree.root.iterdir()},
            **browser,
        }
    )


def _figures(tree: Tree) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every figure for the template, and what its interactive twin draws."""
    from markupsafe import Markup

    from report import captions
    from report.figures import curves, inline
    from report.figures.styles import css_colours
    from report.site import charts

    figures, data = [], {}
    for figure in curves.offered(tree):
        drawing = curves.draw_data(figure, tree)
        key, title = figure.key, figure.title
        number = key.removeprefix("figure")
        figures.append(
            {
                "key": key,
                "title": f"Figure {number}: {title}" if number != key else title,
                "svg": Markup(inline.inline(tree.layout.figures / f"{key}.svg", key, title, css_colours())),
                "caption": captions.paragraphs(key),
                "notes": drawing.notes,
            }
        )
        data[key] = charts.data(drawing)
    return figures, data


def _documents() -> list[Mapping[str, Any]]:
    """Pages that other modules write as Markdown."""
    from markupsafe import Markup

    from report.paper import audit, printed, sentences
    from report.paper.page import render
    from report.site import documents

    paper = printed.read()
    audited = render(paper, audit.audit(paper, sentences.read()))
    return [{"id": "audit", "html": Markup(documents.html(audited))}]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' problems; without it golds are not shown")
    given = parser.parse_args(arguments)

    from records.layout import Results
    from records.write import write_text
    from report.results import open_tree
    from report.site import samples, shards

    samples.write(open_tree(given.results), given.results / shards.FOLDER, given.data)
    html = build(given.results)
    path = Results(given.results).report
    write_text(path, html)
    print(f"{path}  {len(html.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    cli.run(main)
