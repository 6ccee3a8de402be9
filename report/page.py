"""`python -m report.page --results results/quick`: the report, one HTML file and the responses next to it.

`report.html` needs no network; `report.data/` holds the responses that it loads on demand. Every number comes from a
file that another command wrote; a missing file is reported with its command.
"""

import base64
import hashlib
import json
import math
import os
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from markupsafe import Markup

from core import errors
from core.errors import Parser, written_by
from core.files import cells_of, read_csv, read_json, read_text, write_text
from core.layout import BASE, REFERENCE, Checkpoint, Results, Run, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED
from evals.tree import Tree, open_tree
from paper import verdicts
from report import draw, figures, markdown, responses, rows, tables, view
from report.markdown import bracketed, percent

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

UNKNOWN = "unknown"
# Verdicts that may hide a right answer.
HIDING = {
    "timeout": "graded as wrong because grading ran out of time",
    "error": "graded as wrong because the grader failed",
    "unparsed_gold": "could not be right: the reference answer is not readable",
}

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
        "front": _front(lines, FRESH if FRESH in there else "", tree),
    }


def _front(lines: Sequence[Mapping[str, Any]], settings: str, tree: Tree) -> list[int]:
    """Return the indices of GRPO/DAPO, TEPO, one or two methods of no table and those with the largest area, for the
    first model."""
    model = next((line["model"] for line in lines), "")
    names = [split(tree.chosen.get((model, name)) or tree.method_for(name) or name)[0] for name in (REFERENCE, "tepo")]
    own = [split(str(row.method))[0] for row in rows.undeclared(tree, model).values()] if model else []
    names += own if len(own) <= FRONT - len(names) else []

    def order(place: int) -> tuple[int, float]:
        method, reward = lines[place]["method"], lines[place]["values"]["reward"]["mean"]
        return (names.index(method) if method in names else len(names)), -sum(value or 0.0 for value in reward)

    wanted = (model, settings)
    found = [
        n for n, one in enumerate(lines) if (one["model"], one["settings"]) == wanted and "reward" in one["values"]
    ]
    return sorted(found, key=order)[:FRONT]


def _figures(tree: Tree) -> list[dict[str, Any]]:
    """Return every figure of the plan: key, title and caption."""
    found = []
    for key in figures.offered(tree):
        with written_by(markdown.command("report.figures", tree, "--figure", key)):
            notes = read_json(tree.layout.figures / f"{key}.json", "the notes of the figure")["notes"]
        title = figures.specification().figures[key].title
        title = f"Figure {key.removeprefix('figure')}: {title}" if key.startswith("figure") else title
        found.append({"key": key, "title": title, "words": [*view.paragraphs(key), *notes]})
    return found


def _sweep(tree: Tree) -> str:
    """Return the output of `report.sweep` as HTML; empty for a tree without a sweep."""
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
    table["notes"] = [*table["again"], *view.paragraphs(f"table{table['key']}"), *table["notes"]]
    return table | {"file": f"tables/table{table['key']}.tidy.csv"}


def _address(cell: Mapping[str, Any], linked: Container[str]) -> str:
    """Return the link of a number: the responses of its first checkpoint; empty without responses."""
    paths = [checkpoint.path.as_posix() for checkpoint in cell["runs"]]
    if not cell["measured"] or cell["kind"] == "delta" or not paths or paths[0] not in linked:
        return ""
    benchmark = {} if cell["benchmark"] in (None, POOLED, MACRO) else {"benchmark": cell["benchmark"]}
    return "samples?" + urlencode({"left": paths[0], **benchmark}, safe="/=@")


def _scores(tree: Tree, linked: Container[str]) -> str:
    """Return the scores of a tree without runs, such as one of `evals.run`, as HTML: a row per checkpoint."""
    titles = {POOLED: "Average of responses", MACRO: "Average of benchmarks"}
    titles |= {str(entry["key"]): str(entry["title"]) for entry in tree.benchmarks}
    escape = markdown.escape_markdown

    def cell(at: Checkpoint, key: str) -> str:
        if (score := tree.scores.get((at, key))) is None:
            return "–"
        text = escape(bracketed(percent(score.value), score.low, score.high, percent))
        href = _address({"runs": (at,), "measured": True, "kind": "run", "benchmark": key}, linked)
        return f"[{text}](#{href})" if href else text

    lines = []
    for at in tree.checkpoints:
        name = at.run.model if at.run.method == BASE else responses.title(at, tree)
        lines.append([escape(name), *(cell(at, key) for key in titles)])
    note = f"{tree.matrix['note']} Percent of responses that are right, with 95 % intervals: [scores.csv](scores.csv)."
    table = markdown.markdown_table(["Checkpoint", *map(escape, titles.values())], lines, "---:", escape=str)
    return _section("\n".join([*table, "", note]))


def _state(record: Mapping[str, Any] | None) -> str:
    """Return what a reader should know of a run, such as `collapsed at rollout 6 of 16`; else the empty string."""
    if record is None:
        return "not finished"
    at, planned = record.get("collapsed_at"), (record.get("spec", {}).get("training") or {}).get("rollouts")
    collapse = "" if at is None else f"collapsed at rollout {at}" + (f" of {planned}" if planned else "")
    return str(record.get("no_update") or collapse)


# Settings, machines and code of the runs.


def facts(tree: Tree) -> list[tuple[str, str]]:
    """Return models, methods, settings, time, machines and code of the runs as pairs of name and text."""
    records = [record for run in tree.runs if (record := tree.record(run)) is not None]
    made = [record.get("environment") or {} for record in records]
    models = [
        f"{model['title']}, standing for {model['stands_for']}" if model.get("stands_for") else str(model["title"])
        for model in tree.models
    ]
    wall, cpu = (math.fsum(record.get(name) or 0.0 for record in records) for name in ("wall_seconds", "cpu_seconds"))
    training = (tree.matrix.get("training") or {}).items()
    packages = {  # where runs differ, every version
        f"{name} {version}"
        for environment in made
        for name, version in {"python": environment.get("python"), **(environment.get("packages") or {})}.items()
        if version is not None
    }
    return [
        ("Models", ", ".join(models)),
        ("Training", ", ".join(f"{name} {value}" for name, value in training) or UNKNOWN),
        ("Runs", f"{len(records)} of {len(tree.runs)} finished, {wall:.0f} s of wall time, {cpu / 3600:.1f} CPU hours"),
        ("On", "; ".join(dict.fromkeys(map(_machine, made))) or UNKNOWN),
        ("Code", "; ".join(dict.fromkeys(map(_commit, made))) or UNKNOWN),
        ("Packages", ", ".join(sorted(packages)) or UNKNOWN),
    ]


def _machine(environment: Mapping[str, Any]) -> str:
    threads = f", {environment['threads']} threads per job" if environment.get("threads") else ""
    return f"{environment.get('cpu') or 'unknown processor'}, {environment.get('cores') or UNKNOWN} cores{threads}"


def _commit(environment: Mapping[str, Any]) -> str:
    if not environment.get("commit"):
        return "commit unknown (not a git checkout)"
    dirty = {True: " with uncommitted changes", False: "", None: " (clean or not: unknown)"}
    return f"commit {str(environment['commit'])[:12]}{dirty[environment.get('dirty')]}"


# Warnings to read before relying on a number.


def warnings(tree: Tree, missing: Sequence[str]) -> list[str]:
    """Return one sentence per warning. missing: sentences on gaps in the tables."""
    records = {run: tree.record(run) for run in tree.runs}
    sentences = [f"{run.path.as_posix()}: {_state(record)}." for run, record in records.items() if _state(record)]
    sentences += [*missing, *view.missed_targets(tree, tree.runs), *_hidden_answers(tree)]
    sentences += _unequal_runs(tree, records)
    sentences += [f"{line}." for line in (*tree.mixtures(), *tree.code_warnings())]
    if any(((record or {}).get("environment") or {}).get("dirty") for record in records.values()):
        sentences.append("Trained from a working tree with uncommitted changes: the commit alone is not the code.")
    return list(dict.fromkeys(sentences))


def _hidden_answers(tree: Tree) -> Iterator[str]:
    """Yield one sentence per verdict of HIDING that occurs, over all scored responses."""
    benchmarks = {str(benchmark["key"]) for benchmark in tree.benchmarks}
    counts = [score.counts for (_, key), score in tree.scores.items() if key in benchmarks]
    for verdict, meaning in HIDING.items():
        if total := sum(count[verdict] or 0 for count in counts):
            yield f"{total} responses {meaning}."


def _unequal_runs(tree: Tree, records: Mapping[Run, Mapping[str, Any] | None]) -> list[str]:
    """Return a sentence for each input that runs should share and do not."""
    found: dict[tuple[str, object, str], list[object]] = {}  # by model, variant or base, and the shared input
    for run, record in records.items():
        if record is None:
            continue
        inputs = record.get("inputs") or {}
        # Over all variants: runs of a seed share a base; where all seeds have one base, all runs start from it.
        base = tree.base(run.model, run.seed) or run.seed
        for share, what, value in (
            (run.variant, "prompts", inputs.get("prompts")),
            (run.variant, "training settings", record["spec"].get("training")),
            (base, "base weights", inputs.get("base")),
        ):
            found.setdefault((run.model, share, what), []).append(value)
    return [
        f"{model}: runs differ in {what}: their rows differ in more than the method."
        for (model, _, what), values in found.items()
        if any(value != values[0] for value in values)
    ]


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
        context["evaluated"] = ""
        context |= {"views": VIEWS, "claims": _claims(tree), "figures": _figures(tree), "sweep": _sweep(tree)}
        context |= {"facts": facts(tree), "dynamics": curves}
        data["dynamics"] = curves
    else:  # of `evals.run`: scores and responses
        tables = []
        context["evaluated"] = _scores(tree, linked)
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
        warnings=warnings(tree, missing),
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
