"""`python -m report.build --results results/quick`: the report, one HTML file and the responses beside it.

`report.html` needs no network; `report.data/` holds what it loads when somebody looks at responses. Every
number is read from a file that another command wrote, except means of curves over seeds with their intervals; a file
that is missing is named with its command.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from core import digests, errors
from core.errors import Parser
from core.files import write_text
from core.layout import BASE, SNAKEMAKE_REPORT, Results
from core.results_tree import Score, Tree, open_tree
from core.scores import MACRO, POOLED, read_rows
from report import captions, markdown
from report.markdown import bracketed, percent
from report.site import assets, links, overview, paper, runs, samples, tables, training

# Views of the page in the order of its navigation: id and name.
VIEWS = (
    ("overview", "Overview"),
    ("results", "Results"),
    ("training", "Training"),
    ("runs", "Runs"),
    ("samples", "Responses"),
    ("paper", "Paper"),
)


def build(root: Path) -> str:
    """Return the page for the results at `root`.

    Raises MissingInputError or CorruptInputError naming the first file that is missing or broken, and its command.
    """
    tree = open_tree(root)
    if not tree.runs:
        return of_evaluation(tree)
    filled = tables.read(tree)
    summaries = runs.summaries(tree)
    claims = paper.claims(tree)
    # A tree of the paper's rows shows the paper's tables first, any other all that was trained.
    papers = tables.is_papers(tree, filled, claims["judged"])
    shown = filled if papers else sorted(filled, key=lambda table: not table["generated"])
    browser = samples.view(tree)
    sentences: dict[str, int] = {}
    levels = dict.fromkeys(sentence for table in filled for sentence in table["levels"])
    table_views = [tables.view(table, tree, sentences) for table in shown]
    first = shown[0]["blocks"][:1]  # none before a sweep's values are compared
    dynamics = training.view(tree, [c.run for block in first for row in block["rows"] for c in row["checkpoints"]])
    data = {"start": VIEWS[0][0], "dynamics": dynamics, **browser.pop("data"), "behind": list(sentences)}
    return _page(
        "page.html.j2",
        data,
        {
            "views": VIEWS,
            "matrix": tree.matrix,
            "scale": tree.scale,
            "lead": captions.lead(tree.matrix),
            "facts": overview.facts(tree, summaries),
            "warnings": overview.warnings(tree, filled, summaries),
            "claims": claims,
            "documents": paper.documents(),
            "glance": tables.glance(shown[0]),
            "front": bool(dynamics["front"]),
            "sections": tables.sections(tree),
            "tables": table_views,
            "details": _details(tree),
            "reading": [*captions.paragraphs("tables"), *levels],
            "rows": tables.row_pages(filled, tree),
            "figures": training.figures(tree),
            "groups": runs.groups(tree, summaries),
            "runs": runs.views(tree, summaries),
            "benchmarks": overview.benchmarks(tree, filled),
            "provenance": overview.provenance(summaries),
            "native": SNAKEMAKE_REPORT,
            "files": {path.name for path in tree.root.iterdir()},
            # a reference has some of the files compressed
            **browser,
        },
    )


def _details(tree: Tree) -> dict[str, Any]:
    """The figures beside the scores, one text for each checkpoint and benchmark, since a page may have thousands."""
    rows: dict[str, dict[str, str]] = {}
    for path, benchmark, *figures in markdown.detail_lines(read_rows(tree.layout.scores)):
        rows.setdefault(path, {})[benchmark] = " / ".join(figures[2:])
    keys = [str(entry["key"]) for entry in tree.benchmarks]
    return {"note": markdown.DETAILS_NOTE, "cell": " / ".join(markdown.DETAILS[4:]), "benchmarks": keys, "rows": rows}


def _page(template: str, data: Mapping[str, Any], context: Mapping[str, Any]) -> str:
    """The template with our style and scripts, and what the scripts read."""
    script = assets.script()
    parts = {"style": assets.style(), "before": assets.BEFORE, "script": script, "data": assets.data(data)}
    page = markdown.environment(assets.HTML, autoescape=True).get_template(template)
    return page.render(
        {
            "policy": assets.policy(assets.BEFORE, script),
            **{name: Markup(text) for name, text in parts.items()},
            **context,
        }
    )


def of_evaluation(tree: Tree) -> str:
    """The page of a tree without runs, as `evals.run` leaves it: scores and responses."""

    def cell(score: Score | None) -> str:
        if score is None or score.value is None:
            return "not run"
        return bracketed(percent(score.value), score.low, score.high, lambda end: f"{100 * end:.1f}")

    averages = {POOLED: "Average of responses", MACRO: "Average of benchmarks"}
    columns = {**{str(entry["key"]): str(entry["title"]) for entry in tree.benchmarks}, **averages}
    rows = [
        {
            "path": checkpoint.path.as_posix(),
            "title": checkpoint.run.model if checkpoint.run.method == BASE else links.title(checkpoint, tree),
            "cells": [cell(tree.scores.get((checkpoint, key))) for key in columns],
        }
        for checkpoint in tree.checkpoints
    ]
    browser = samples.view(tree)
    data = {"start": "overview", **browser.pop("data")}
    views = (("overview", "Scores"), ("samples", "Responses"))
    context = {"views": views, "matrix": tree.matrix, "columns": list(columns.values()), "rows": rows}
    context["details"] = _details(tree)
    return _page("evaluation.html.j2", data, context | browser)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' problems; without it golds are not shown")
    args = parser.parse_args(arguments)
    html = build(args.results)  # first: a missing input ends the command before anything is written
    tree = open_tree(args.results)
    place = _place(tree)
    samples.write(tree, place.root, args.data)
    write_text(place.report, html)
    digests.write_list(place.sums("report"), [place.report, *digests.files(place.root / samples.FOLDER)])
    print(f"{place.report}  {len(html.encode()) / 1024:.0f} KiB")


def _place(tree: Tree) -> Results:
    """Where the page of a tree goes: into it; of a kept reference, which stays as it is, into results/pages/<name>,
    which git ignores, beside links to the files that the page leads to."""
    root = tree.root.resolve()
    if root.parent.name != "reference" or not tree.is_reference:
        return tree.layout
    place = Results(Path(os.path.relpath(root.parents[1] / "pages" / root.name)))
    place.root.mkdir(parents=True, exist_ok=True)
    for path in root.iterdir():
        link = place.root / path.name
        if path.name != place.report.name and not link.is_symlink():
            link.symlink_to(os.path.relpath(path, place.root.resolve()))
    return place


if __name__ == "__main__":
    errors.run(main)
