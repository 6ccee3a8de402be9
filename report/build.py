"""`python -m report.build --results results/quick`: the report, one HTML file that needs no network and no script."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from records import cli
from report import figure_spec, spec

HTML = Path(__file__).resolve().parent / "html"


def build(root: Path) -> str:
    """The page for the results at `root`; its figures must have been drawn (`python -m report.figure`)."""
    from markupsafe import Markup

    from report import captions, cells, inline, page, runs
    from report.draw import css_colours
    from report.results import open_tree

    tree = open_tree(root)
    tables = [cells.fill(spec.table(key), tree) for key in spec.table_keys()]
    done = runs.summaries(tree)
    figures = []
    for key in figure_spec.figure_keys():
        figure = figure_spec.figure(key)
        drawn = inline.inline(tree.layout.figures / f"{key}.svg", key, figure.title, css_colours())
        number = key.removeprefix("figure")
        figures.append(
            {
                "key": key,
                "name": f"Figure {number}" if number != key else figure.title.split(",")[0],
                "title": f"Figure {number}: {figure.title}" if number != key else figure.title,
                "svg": Markup(drawn),
                "caption": captions.paragraphs(key),
            }
        )
    return render(
        {
            "style": Markup((HTML / "style.css").read_text(encoding="utf-8")),
            "matrix": tree.matrix,
            "scale": tree.scale,
            "lead": captions.scale(tree.scale, str(tree.matrix.get("note", ""))),
            "facts": page.facts(tree, done),
            "warnings": list(dict.fromkeys(w for filled in tables for w in runs.warnings(tree, filled, done))),
            "tables": [page.table(filled, tree) for filled in tables],
            "figures": figures,
            "runs": [page.run(summary, tree) for summary in done],
            "benchmarks": page.benchmarks(tree, tables),
            "provenance": page.provenance(tree, done),
        }
    )


def render(context: Mapping[str, Any]) -> str:
    """The template filled in. Every value is escaped: titles, notes and paths are data, never markup."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(HTML), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("page.html.j2").render(context)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    given = parser.parse_args(arguments)

    from records.layout import Results
    from records.write import write_text

    html = build(given.results)
    path = Results(given.results).report
    write_text(path, html)
    print(f"{path}  {len(html.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    cli.run(main)
