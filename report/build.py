"""`python -m report.build --results results/quick`: the report, one HTML file and the responses beside it.

`report.html` needs no network; `report.data/` holds what it loads when somebody looks at responses. Both stand on what
other commands wrote: tables, figures, scores, curves, samples, grades.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from records import errors
from report.tables import spec

if TYPE_CHECKING:
    from records.results_tree import Tree

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

    from paper.claims import ledger
    from records.results_tree import open_tree
    from report import runs
    from report.provenance.manifest import NATIVE
    from report.site import assets, claims, facts, readings, run_pages, samples
    from report.site import tables as overview
    from report.site import tables as rowviews
    from report.tables import fill as cells
    from report.tables.render import template

    tree = open_tree(root)
    tables = [cells.fill(spec.table(key), tree) for key in spec.keys_for(tree.methods)]
    done = runs.summaries(tree)
    figures, charts = _figures(tree)
    script = assets.script()
    browser = samples.view(tree)
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
            "facts": facts.facts(tree, done),
            "warnings": list(dict.fromkeys(w for filled in tables for w in runs.warnings(tree, filled, done))),
            "claims": claims.view([*ledger.printed_entries(), *ledger.run_entries(tree)], tree),
            "readings": readings.view(tree),
            "glance": overview.glance(tables[0]),
            "tables": [rowviews.table(filled, tree) for filled in tables],
            "reading": rowviews.reading(tables),
            "rows": rowviews.views(tables, tree),
            "figures": figures,
            "runviews": run_pages.views(tree, done),
            "documents": _documents(),
            "benchmarks": facts.benchmarks(tree, tables),
            "provenance": facts.provenance(tree, done),
            "native": NATIVE,
            "files": {path.name for path in tree.root.iterdir()},
            **browser,
        }
    )


def _figures(tree: Tree) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Every figure for the template, and what its interactive twin draws."""
    from markupsafe import Markup

    from report import captions
    from report.figures import draw
    from report.figures import fill as curves
    from report.figures.spec import css_colours
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
                "svg": Markup(draw.inline(tree.layout.figures / f"{key}.svg", key, title, css_colours())),
                "caption": captions.paragraphs(key),
                "notes": drawing.notes,
            }
        )
        data[key] = charts.data(drawing)
    return figures, data


def _documents() -> list[Mapping[str, Any]]:
    """Pages that other modules write as Markdown."""
    from markupsafe import Markup

    from paper import audit, printed, sentences
    from report.site import assets

    paper = printed.read()
    audited = audit.page(paper, audit.audit(paper, sentences.read()))
    return [{"id": "audit", "html": Markup(assets.html(audited))}]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' problems; without it golds are not shown")
    given = parser.parse_args(arguments)

    from records.files import write_text
    from records.layout import Results
    from records.results_tree import open_tree
    from report.site import samples

    samples.write(open_tree(given.results), given.results / samples.FOLDER, given.data)
    html = build(given.results)
    path = Results(given.results).report
    write_text(path, html)
    print(f"{path}  {len(html.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    errors.run(main)
