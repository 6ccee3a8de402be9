"""`python -m report.page --results results/quick`: the report, one HTML file and the responses next to it.

`report.html` needs no network; `report.data/` holds the responses that it loads on demand. Every number comes from a
file that another command wrote; a missing file is reported with its command.
"""

import base64
import hashlib
import math
import os
import re
from collections import defaultdict
from collections.abc import Container, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pandas as pd
from markupsafe import Markup

from core import errors
from core.errors import Parser, written_by
from core.files import cells_of, read_csv, read_json, read_text, write_text
from core.layout import REFERENCE, Results, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED
from evals.store import VERDICTS
from evals.tree import Tree, open_tree
from paper import verdicts
from report import draw, figures, markdown, responses, rows, tables, view

HTML = ROOT / "report/html"
BEFORE = 'document.documentElement.classList.add("js")'  # runs before the first paint
# JSON in the page; the template's `tojson` also escapes what could close the script element that holds it.
JSON = {"ensure_ascii": False, "separators": (",", ":"), "allow_nan": False, "sort_keys": True}

UNKNOWN = "unknown"
# Verdicts that may hide a right answer.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}

LEADING = ("area", "avg_pooled", "avg_macro", "final")  # columns of tables before the others

# Curves.

DIGITS = 4  # significant digits in the page: more than a screen shows, at half the bytes
DASH = 3  # pixels on the screen per unit of the printed pattern
FRONT = 4  # lines of the overview's chart
FRESH = "fresh"  # key of the settings of a sweep's fresh seeds, where each method is at its chosen value
FIRST = (REFERENCE, "tepo")  # of these
COLOURS = {look[0]: f"--line-{n}" for n, look in enumerate(draw.STYLES)}  # light and dark values: style.css


def _rounded(cell: str, scale: float) -> float | None:
    return float(f"{float(cell) * scale:.{DIGITS}g}") if cell else None


def dynamics(tree: Tree) -> dict[str, Any]:
    """Return the data of the charts: panels, lines with their values by panel, the choice of settings, and `front`: the
    indices of the overview's lines.

    A line is a method of a model under one settings variant: mean over seeds by rollout and its 95 % interval.
    """
    path, ends = tree.layout.figures / "convergence_bands.csv", ("mean", "low", "high")
    declared, lines = figures.specification(), list[dict[str, Any]]()
    given = {split(tree.method_for(name) or name)[0]: place for name, place in declared.lines.items()}
    variants = {name: str(body["title"]) for name, body in tree.matrix.get("variants", {}).items()}
    names = {"": "the scale's own", **variants, FRESH: "fresh seeds, each method at its chosen value"}
    with written_by(markdown.command("report.convergence", tree)), cells_of(path):
        needed = ("model", "method", "fresh", "series")
        bands: Any = pd.DataFrame(read_csv(path, "the curves over seeds", (*needed, *ends)))
        bands = bands[bands["series"].isin(list(declared.charts))]
        looks = draw.looks((split(method)[0] for method in bands["method"]), given)
        for (model, key, fresh), of in bands.groupby([*needed[:3]], sort=False):
            values = {
                series: {end: [_rounded(cell, declared.charts[series].scale) for cell in rows[end]] for end in ends}
                for series, rows in of.groupby("series")
            }
            method, variant = split(key)
            colour, dashes, width = looks[method]
            settings = FRESH if fresh == "yes" else variant or ""
            # The form shows the settings.
            title = str(tree.methods[key]["title"]).removesuffix(f", {names.get(settings)}")
            look = {"colour": COLOURS[colour], "dashes": [DASH * dash for dash in dashes], "width": width}
            line = {"model": model, "method": method, "settings": settings, "title": title}
            lines.append(line | {"look": look, "values": values})
    lines.sort(key=lambda line: given.get(line["method"], len(given)))  # those of the figures are seen first
    there = {line["settings"] for line in lines}
    # Of the first model: GRPO/DAPO, TEPO, one or two methods of no table, and those with the largest area.
    wanted = next((line["model"] for line in lines), ""), FRESH if FRESH in there else ""
    first = [split(tree.chosen.get((wanted[0], name)) or tree.method_for(name) or name)[0] for name in FIRST]
    own = [split(str(row.method))[0] for row in rows.undeclared(tree, wanted[0]).values()] if lines else []
    first += own if len(own) <= FRONT - len(first) else []
    area = {
        n: sum(value or 0.0 for value in line["values"]["reward"]["mean"])
        for n, line in enumerate(lines)
        if (line["model"], line["settings"]) == wanted and "reward" in line["values"]
    }
    return {
        "panels": [
            {"id": series, **chart.model_dump(exclude={"scale"})}
            for series, chart in declared.charts.items()
            if any(series in line["values"] for line in lines)
        ],
        "lines": lines,
        "settings": [(key, name) for key, name in names.items() if key in there],
        "front": sorted(area, key=lambda n: ([*first, lines[n]["method"]].index(lines[n]["method"]), -area[n]))[:FRONT],
    }


def _sweep(tree: Tree) -> Markup:
    """Return the output of `report.sweep` as HTML; empty for a tree without a sweep.

    Raw HTML is escaped, each table has a scrolling box, and headings are one level lower, below that of the view.
    """
    from markdown_it import MarkdownIt

    names = ("sweep", "frontier") if tree.matrix.get("sweep") else ()
    with written_by(markdown.command("report.sweep", tree)):
        text = "\n\n".join(read_text(tree.root / f"sweep/{name}.md", "a sweep's table") for name in names)
    lower = re.sub(r"^#(?=#* )", "##", text, flags=re.MULTILINE)
    text = MarkdownIt("commonmark", {"html": False}).enable("table").render(lower)
    return Markup(
        text.replace("<table>", '<div class="wide"><table class="plain">').replace("</table>", "</table></div>")
    )


def _address(cell: Mapping[str, Any], linked: Container[str]) -> str:
    """Return the link of a number: the responses of its first checkpoint; empty without responses.

    linked: paths of the checkpoints whose responses the page has.
    """
    paths = [checkpoint.path.as_posix() for checkpoint in cell["runs"]]
    if not cell["measured"] or cell["kind"] == "delta" or not paths or paths[0] not in linked:
        return ""
    benchmark = {} if cell["benchmark"] in (None, POOLED, MACRO) else {"benchmark": cell["benchmark"]}
    return "samples?" + urlencode({"left": paths[0], **benchmark}, safe="/=@")


def facts(tree: Tree) -> list[tuple[str, str]]:
    """Return models, methods, settings, time, machines and code of the runs as pairs of name and text."""
    records = [record for run in tree.runs if (record := tree.record(run)) is not None]
    models = [m["title"] + (f", standing for {m['stands_for']}" if m.get("stands_for") else "") for m in tree.models]
    wall, cpu = (math.fsum(record.get(name) or 0.0 for record in records) for name in ("wall_seconds", "cpu_seconds"))
    training = (tree.matrix.get("training") or {}).items()
    machines, commits, packages = dict[str, None](), dict[str, None](), set[str]()  # where runs differ, each
    for made in (record.get("environment") or {} for record in records):
        threads = f", {made['threads']} threads per job" if made.get("threads") else ""
        machines[f"{made.get('cpu') or 'unknown processor'}, {made.get('cores') or UNKNOWN} cores{threads}"] = None
        dirty = {True: " with uncommitted changes", False: "", None: " (clean or not: unknown)"}[made.get("dirty")]
        known = f"{str(made['commit'])[:12]}{dirty}" if made.get("commit") else f"{UNKNOWN} (not a git checkout)"
        commits[f"commit {known}"] = None
        versions = {"python": made.get("python"), **(made.get("packages") or {})}
        packages |= {f"{name} {version}" for name, version in versions.items() if version is not None}
    return [
        ("Models", ", ".join(models)),
        ("Training", ", ".join(f"{name} {value}" for name, value in training) or UNKNOWN),
        ("Runs", f"{len(records)} of {len(tree.runs)} finished, {wall:.0f} s of wall time, {cpu / 3600:.1f} CPU hours"),
        ("On", "; ".join(machines) or UNKNOWN),
        ("Code", "; ".join(commits) or UNKNOWN),
        ("Packages", ", ".join(sorted(packages)) or UNKNOWN),
    ]


def warnings(tree: Tree, missing: Sequence[str]) -> list[str]:
    """Return one sentence per warning, to read before relying on a number. missing: sentences on gaps in the tables."""
    sentences, dirty = list[str](), False
    shared = defaultdict[tuple[str, object, str], list[object]](list)  # what runs should share and may not
    for run in tree.runs:
        if (record := tree.record(run)) is None:
            sentences.append(f"{run.path.as_posix()}: not finished.")
            continue
        inputs, training, at = record.get("inputs") or {}, record["spec"].get("training"), record.get("collapsed_at")
        of = f" of {training['rollouts']}" if training and training.get("rollouts") else ""
        if state := record.get("no_update") or ("" if at is None else f"collapsed at rollout {at}{of}"):
            sentences.append(f"{run.path.as_posix()}: {state}.")
        dirty |= bool((record.get("environment") or {}).get("dirty"))
        shared[run.model, run.variant, "prompts"].append(inputs.get("prompts"))
        shared[run.model, run.variant, "training settings"].append(training)
        # Over all variants: runs of a seed share a base; where all seeds have one base, all runs start from it.
        base = tree.base(run.model, run.seed) or run.seed
        shared[run.model, base, "base weights"].append(inputs.get("base"))
    benchmarks = {str(benchmark["key"]) for benchmark in tree.benchmarks}
    counts = [score.counts for (_, key), score in tree.scores.items() if key in benchmarks]
    hidden = {meaning: sum(count[verdict] or 0 for count in counts) for verdict, meaning in HIDING.items()}
    differ = [(model, what) for (model, _, what), of in shared.items() if any(value != of[0] for value in of)]
    sentences += [
        *missing,
        *view.missed_targets(tree, tree.runs),
        *(f"{total} responses {meaning}." for meaning, total in hidden.items() if total),
        *(f"{model}: runs differ in {what}: their rows differ in more than the method." for model, what in differ),
        *(f"{line}." for line in (*tree.mixtures(), *tree.code_warnings())),
    ]
    if dirty:
        sentences.append("Trained from a working tree with uncommitted changes: the commit alone is not the code.")
    return list(dict.fromkeys(sentences))


def build(tree: Tree) -> str:
    """Return the page of a results tree.

    Raises MissingInputError or CorruptInputError naming the first file that is missing or broken, and its command.
    """
    data, kept = responses.view(tree), tree.layout.responses.is_file()
    shown, notes, context = list[dict[str, Any]](), dict[str, list[str]](), dict[str, Any]()
    if tree.runs:
        shown = [table for key in rows.offered() if not (table := tables.shown(tree, key))["empty"]]
        # A scale of the paper's rows shows the paper's tables first, any other the table of all runs.
        papers = bool(view.paragraphs(f"scale-{tree.scale}"))
        shown.sort(key=lambda table: table["generated"] if papers else not table["generated"])
        for table in shown:
            table["blocks"] = [block for block in table["blocks"] if any(row["ran"] for row in block["rows"])]
            table["columns"].sort(key=lambda column: [*LEADING, column["slot"]].index(column["slot"]))
        data["dynamics"] = dynamics(tree)
        context = {"claims": view.claims(tree), "facts": facts(tree)}
        for key in figures.offered(tree):
            with written_by(markdown.command("report.figures", tree, "--figure", key)):
                notes[key] = read_json(tree.layout.figures / f"{key}.json", "the notes of the figure")["notes"]
    script, style = (
        (responses.VENDOR / f"uplot/{library}").read_text(encoding="utf-8") + read_text(HTML / own)
        for library, own in (("uPlot.iife.min.js", "page.js"), ("uPlot.min.css", "style.css"))
    )
    titles = {str(entry["key"]): str(entry["title"]) for entry in tree.benchmarks}
    environment = markdown.environment(HTML, autoescape=True)
    environment.policies["json.dumps_kwargs"] = JSON
    return environment.get_template("page.html.j2").render(
        context,
        tree=tree,
        data=data,
        sample=tree.once(responses.kept_sample)[1] if kept else None,
        figures=figures.specification().figures,
        notes=notes,
        benchmarks={POOLED: "Average of responses", MACRO: "Average of benchmarks"} | titles,
        tables=shown,
        sweep=_sweep(tree),
        warnings=warnings(tree, [note for table in shown for note in table["notes"] if note.startswith("Missing")]),
        # Of the scripts that the content security policy allows.
        hashes=[base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in (BEFORE, script)],
        address=partial(_address, linked=data["samples"]["checkpoints"]),
        **{name: Markup(text) for name, text in (("style", style), ("before", BEFORE), ("script", script))},
        **{"view": view, "verdicts": verdicts, "markdown": markdown, "responses": responses, "VERDICTS": VERDICTS},
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
        if link.is_symlink() or not link.exists():  # of an earlier version of the results
            link.unlink(missing_ok=True)
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
