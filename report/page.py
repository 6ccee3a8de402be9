"""`python -m report.page --results results/quick`: the report, one HTML file and the responses next to it.

`report.html` needs no network; `report.data/` holds the responses and pictures that it loads on demand. Every number
comes from a file that another command wrote; a missing file is reported with its command.
"""

import os
import re
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from core import errors
from core.errors import Parser, written_by
from core.files import cells_of, read_csv, read_json, read_text, write_text
from core.layout import BASE, REFERENCE, SNAKEMAKE_REPORT, Results, split
from core.provenance import ROOT
from evals.scores import MACRO, POOLED, read_rows
from evals.tree import Tree, open_tree
from paper import verdicts
from report import assets, captions, draw, figures, markdown, responses, rows, runs, tables

# Views of the page in the order of its navigation: id and name.
VIEWS = (
    ("overview", "Overview"),
    ("results", "Results"),
    ("training", "Training"),
    ("runs", "Runs"),
    ("samples", "Responses"),
    ("paper", "Paper"),
)
EVALUATED = {"overview", "results", "samples"}  # views of a tree without runs
TEPO = "tepo"  # the paper's method, by its configured name
DOCUMENTS = {name: f"docs/notebook/{name}.md" for name in ("audit", "readings")}
_LINK = re.compile(r"(?<!!)\[([^\]]+)\]\([^)]+\)")  # to other pages of docs/, which the page does not include

# Curves.

DIGITS = 4  # significant digits in the page: more than a screen shows, at half the bytes
DASH = 3  # pixels on the screen per unit of the printed pattern
START = 6  # methods shown at first; more are distinguishable, but not readable at a glance
FRONT = 4  # lines of the overview's chart
PERCENT = 100.0


class Panel(NamedTuple):
    title: str
    column: str  # `series` of convergence_bands.csv
    unit: str
    scale: float = 1.0  # PERCENT: of a fraction


PANELS = (
    Panel("Reward", "reward", "% right", PERCENT),
    Panel("Entropy", "entropy", "nats per token"),
    Panel("Clipped tokens", "clip_fraction_tokens", "%", PERCENT),
    Panel("KL to the old policy", "kl_old", "nats per token"),
    Panel("Gradient norm", "grad_norm", "before clipping"),
    Panel("Response length", "response_tokens", "tokens"),
    Panel("Time", "seconds", "seconds per rollout"),
    Panel("Tokens under the mask", "mask_fraction", "%", PERCENT),
    Panel("KL of a rollout", "kl_step", "nats per token"),
    Panel("KL to the base model", "kl_base", "nats per token"),
    Panel("Update norm", "update_norm", "L2"),
    Panel("Effective step", "effective_step", "learning rates"),
    Panel("Clipped updates", "grad_clipped", "%", PERCENT),
)


def dynamics(tree: Tree) -> dict[str, Any]:
    """Return the data of the charts: panels, lines with their values by panel, and the lines of the overview.

    A line is a method of a model under one settings variant: mean over seeds by rollout and its 95 % interval. The
    overview shows a sweep's fresh seeds, on which its chosen values are compared.
    """
    with written_by(f"python -m report.convergence --results {tree.root}"):
        needed = ("model", "method", "fresh", "series", "mean", "low", "high")
        path = tree.layout.figures / "convergence_bands.csv"
        by_rollout = read_csv(path, "the curves over seeds", needed)
    scales = {panel.column: panel.scale for panel in PANELS}
    found: dict[tuple[str, str, bool], dict[str, Any]] = {}
    with cells_of(path):
        for row in by_rollout:
            if row["series"] not in scales:
                continue
            key = row["model"], row["method"], row["fresh"] == "yes"
            series = found.setdefault(key, {}).setdefault(row["series"], {"mean": [], "low": [], "high": []})
            for end, values in series.items():
                values.append(_rounded(row[end], scales[row["series"]]))
    for values in (series for line in found.values() for series in line.values()):
        if not any(value is not None for value in values["low"]):  # fewer than three seeds
            del values["low"], values["high"]
    looks = _looks(list(found), tree)
    drawn = {key: _line(key, values, looks[key[:2]], tree) for key, values in found.items()}
    lines = [line for key, line in drawn.items() if not key[2]] or list(drawn.values())
    for group in {(line["model"], line["variant"]) for line in lines}:
        of_group = [line for line in lines if (line["model"], line["variant"]) == group]
        for line in sorted(of_group, key=lambda line: not line["given"])[START:]:
            line["shown"] = False
    variants = {name: str(body["title"]) for name, body in tree.matrix.get("variants", {}).items()}
    return {
        "panels": [
            {"id": panel.column, "title": panel.title, "label": panel.unit}
            for panel in PANELS
            if any(panel.column in line["values"] for line in lines)
        ],
        "lines": lines,
        "front": _front(drawn, tree),
        "variants": [
            ("", "the scale's own"),
            *((v, variants[v]) for v in variants if any(v == x["variant"] for x in lines)),
        ],
    }


def _rounded(text: str, scale: float) -> float | None:
    return float(f"{float(text) * scale:.{DIGITS}g}") if text else None


def _looks(keys: Sequence[tuple[str, str, bool]], tree: Tree) -> dict[tuple[str, str], int]:
    """Return each line's index in `draw.looks()`: that of figures.yaml, else the next that no figure uses."""
    given = {split(tree.method_for(name) or name)[0]: place for name, place in figures.given().items()}
    looks: dict[tuple[str, str], int] = {}
    for model in dict.fromkeys(key[0] for key in keys):
        methods = dict.fromkeys(split(method)[0] for of, method, _ in keys if of == model)
        free = (place for place in range(len(draw.looks())) if place not in given.values())
        places = {method: given[method] if method in given else next(free, 0) for method in methods}
        looks |= {(of, method): places[split(method)[0]] for of, method, _ in keys if of == model}
    return looks


def _line(key: tuple[str, str, bool], values: dict[str, Any], place: int, tree: Tree) -> dict[str, Any]:
    model, method, _ = key
    name, variant = split(method)
    colour, dashes, width = draw.looks()[place]
    colours = {look[0]: f"--line-{n}" for n, look in enumerate(draw.STYLES)}  # light and dark values: style.css
    title = str(tree.methods[method]["title"])
    if variant:  # the form shows the settings
        title = title.removesuffix(f", {tree.matrix['variants'][variant]['title']}")
    look = {"colour": colours[colour], "dashes": [DASH * dash for dash in dashes], "width": width}
    given = place in figures.given().values()
    return {
        "model": model, "method": name, "variant": variant or "", "title": title, "look": look,
        "given": given, "shown": True, "values": values,
    }  # fmt: skip


def _front(drawn: Mapping[tuple[str, str, bool], dict[str, Any]], tree: Tree) -> list[dict[str, Any]]:
    """Return the reward of GRPO/DAPO, TEPO and the methods with the largest area, for the first model.

    Values are at the scale's own settings; after a sweep at the chosen ones, on seeds that were not used to choose.
    """
    fresh = any(key[2] for key in drawn)
    model = next((key[0] for key in drawn), "")
    names = [split(tree.chosen.get((model, name)) or tree.method_for(name) or name)[0] for name in (REFERENCE, TEPO)]

    def order(line: Mapping[str, Any]) -> tuple[int, float]:
        area = sum(value or 0.0 for value in line["values"]["reward"]["mean"])
        return (names.index(line["method"]) if line["method"] in names else len(names)), -area

    chosen = [
        line | {"values": {"reward": line["values"]["reward"]}, "shown": True}
        for key, line in drawn.items()
        if key[0] == model and key[2] == fresh and (fresh or not line["variant"]) and "reward" in line["values"]
    ]
    return sorted(chosen, key=order)[:FRONT]


def _figures(tree: Tree) -> list[dict[str, Any]]:
    """Return every figure of the plan: key, title and caption."""
    found = []
    for figure in figures.offered(tree):
        with written_by(f"python -m report.figures --results {tree.root} --figure {figure.key}"):
            path = tree.layout.figures / f"{figure.key}.json"
            notes = read_json(path, "the notes of the figure")["notes"]
        number = figure.key.removeprefix("figure")
        title = f"Figure {number}: {figure.title}" if number != figure.key else figure.title
        found.append({"key": figure.key, "title": title, "words": [*captions.paragraphs(figure.key), *notes]})
    return found


def _sweep(tree: Tree) -> str:
    """Return the output of `report.sweep` and `report.frontier` as HTML; empty for a tree without a sweep."""
    names = ("sweep", "frontier") if tree.matrix.get("sweep") else ()
    with written_by(f"python -m report.sweep --results {tree.root}"):
        return "".join(assets.section(read_text(tree.root / f"sweep/{name}.md", "a sweep's table")) for name in names)


def _claims(tree: Tree) -> dict[str, Any]:
    """Return the verdicts of claims.csv for the template; decided: those that runs of this tree decide."""
    with written_by(f"python -m paper.claims --results {tree.root}"):
        found = verdicts.read(tree.root / "claims.csv")
    lines = []
    anchors: set[str] = set()
    for row in found:
        source = f"{row['source']}, {row['setting']}" if row["setting"] else row["source"]
        anchor = "" if row["id"] in anchors else row["id"]  # ids are unique in the page
        lines.append(
            row | {"anchor": anchor, "source": source, "figure": verdicts.figure(row), "beside": verdicts.beside(row)}
        )
        anchors.add(row["id"])
    decided = [line for line in lines if line["source"] == verdicts.RUNS and line["verdict"] in verdicts.DECIDED]
    return {"rows": lines, "decided": decided, "rule": verdicts.RULE, "meaning": verdicts.MEANING}


def _documents() -> dict[str, str]:
    """Return the pages behind the claims as HTML, by name."""
    pages = {name: read_text(ROOT / path, "page of docs/") for name, path in DOCUMENTS.items()}
    return {name: assets.section(_LINK.sub(r"\1", text)) for name, text in pages.items()}


# Tables. `report.view` decides what a cell shows; this part adds links and tooltips.

LEADING = ("area", "avg_pooled", "delta", "avg_macro", "final", "best")  # columns before the others


def _tables(tree: Tree, linked: Container[str]) -> list[dict[str, Any]]:
    """Return the tables that have a number. linked: paths of the checkpoints whose responses the page has.

    A scale of the paper's rows shows the paper's tables first, any other the table of all runs.
    """
    shown = [tables.shown(tree, key) for key in rows.offered()]
    papers = bool(captions.paragraphs(f"scale-{tree.scale}"))
    shown.sort(key=lambda table: table["generated"] if papers else not table["generated"])
    return [_table(table, tree, linked) for table in shown if not table["empty"]]


def _table(table: Mapping[str, Any], tree: Tree, linked: Container[str]) -> dict[str, Any]:
    slots = [column["slot"] for column in table["columns"]]
    order = sorted(slots, key=lambda slot: LEADING.index(slot) if slot in LEADING else len(LEADING))
    labels = {row["id"]: row["name"] for block in table["blocks"] for row in block["rows"]}
    blocks = []
    for block in table["blocks"]:
        ran = [row for row in block["rows"] if row["ran"]]
        absent = [row["name"] for row in block["rows"] if not row["ran"]]
        caption = f"{block['head']}; {tree.scale} scale. {block['baseline']}"
        caption += f" Not run at this scale: {', '.join(absent)}." if absent else ""
        lines = []
        for row in ran:
            cells = {
                slot: cell | {"href": _address(cell, linked), "behind": _behind(cell, labels)}
                for slot, cell in row["cells"].items()
            }
            lines.append(
                {"id": row["id"], "label": row["label"], "kind": row["kind"], "seeds": row["seeds"], "cells": cells}
            )
        if lines:
            blocks.append({"title": block["title"], "model": block["model"], "caption": caption, "rows": lines})
    return {
        "key": table["key"],
        "heading": table["heading"],
        "columns": [column for slot in order for column in table["columns"] if column["slot"] == slot],
        "blocks": blocks,
        "notes": [*table["errors"], *captions.paragraphs(f"table{table['key']}"), *table["notes"], *table["levels"]],
        "file": f"tables/table{table['key']}.tidy.csv",
    }


def _address(cell: Mapping[str, Any], linked: Container[str]) -> str:
    """Return the link of a number: the responses of its first checkpoint; empty without responses."""
    paths = [checkpoint.path.as_posix() for checkpoint in cell["runs"]]
    if not cell["measured"] or cell["kind"] == "delta" or not paths or paths[0] not in linked:
        return ""
    query = {"left": paths[0]}
    if cell["benchmark"] not in (None, POOLED, MACRO):
        query["benchmark"] = cell["benchmark"]
    return "samples?" + urlencode(query, safe="/=@")


def _behind(cell: Mapping[str, Any], labels: Mapping[str, str]) -> list[str]:
    """Return the tooltip of a number. labels: of the table's rows."""
    if cell["value"] is None:
        return []
    seeds = f"Seed{'s' if len(cell['seeds']) > 1 else ''} {', '.join(map(str, cell['seeds']))}" if cell["seeds"] else ""
    if cell["kind"] == "base":
        seeds = f"Untrained{seeds and ': '}{seeds.lower()}"
    problems = f", {cell['n']} problems" if cell["level"] == "problem" and cell["n"] is not None else ""
    lines = [seeds + problems, f"{cell['level'].capitalize()} level: {cell['how']}"]
    if cell["versus"] is not None:
        p = cell["versus_p_holm"]
        corrected = "" if p is None else f"; p {p:.2g}, corrected for {cell['versus_tests']} tests"
        against = labels.get(cell["baseline"], cell["baseline"])
        how = f"({cell['versus_level']} level: {cell['versus_how']})"
        lines.append(f"{markdown.with_interval(cell, 'versus')} against {against} {how}{corrected}")
    if cell["printed"] is not None and not cell["comparable"]:
        printed = markdown.percent(cell["printed"])
        lines.append(f"The paper prints {printed}, for another model or other problems: not comparable.")
    return [line for line in lines if line]


def _scores(tree: Tree, linked: Container[str]) -> dict[str, Any]:
    """Return the table of a tree without runs, such as one of `evals.run`: a row per checkpoint."""
    titles = {str(entry["key"]): str(entry["title"]) for entry in tree.benchmarks}
    titles = {POOLED: "Average of responses", MACRO: "Average of benchmarks"} | titles
    lines = []
    for checkpoint in tree.checkpoints:
        cells = {}
        for key in titles:
            score = tree.scores.get((checkpoint, key))
            measured = score is not None and score.value is not None
            cell = {
                "measured": measured,
                "kind": "base",
                "runs": (checkpoint,),
                "benchmark": key,
                "mark": "",
                "paper": "",
            }
            cell |= {"text": markdown.percent(score.value) if score and measured else "not run", "interval": ""}
            if score is not None and score.low is not None and score.high is not None:
                cell["interval"] = f"{100 * score.low:.1f}–{100 * score.high:.1f}"
            behind = [f"{score.level.capitalize()} level: {score.how}"] if score and measured else []
            cells[key] = cell | {"href": _address(cell, linked), "behind": behind}
        name = checkpoint.run.model if checkpoint.run.method == BASE else runs.title(checkpoint, tree)
        lines.append({"id": checkpoint.path.as_posix(), "label": name, "kind": "run", "seeds": "", "cells": cells})
    caption = f"{tree.matrix['note']} Percent of responses that are right, with the 95 % interval."
    return {
        "key": "scores",
        "heading": "Scores",
        "columns": [{"slot": key, "heading": title, "stands_for": ""} for key, title in titles.items()],
        "blocks": [{"title": "Scores", "model": "", "caption": caption, "rows": lines}],
        "notes": [],
        "file": "scores.csv",
    }


def _details(tree: Tree) -> dict[str, Any]:
    """Return the values next to the scores, one text per checkpoint and benchmark: a page may have thousands."""
    found: dict[str, dict[str, str]] = {}
    for path, benchmark, *numbers in markdown.detail_lines(read_rows(tree.layout.scores)):
        found.setdefault(path, {})[benchmark] = " / ".join(numbers[2:])
    keys = [str(entry["key"]) for entry in tree.benchmarks]
    return {
        "note": markdown.DETAILS_NOTE, "cell": " / ".join(markdown.DETAILS[4:]), "benchmarks": keys, "rows": found,
    }  # fmt: skip


# The page.


def build(root: Path) -> str:
    """Return the page of the results at `root`.

    Raises MissingInputError or CorruptInputError naming the first file that is missing or broken, and its command.
    """
    tree = open_tree(root)
    browser = responses.view(tree)
    data = browser.pop("data")
    linked = data["samples"]["checkpoints"]
    context: dict[str, Any] = {"matrix": tree.matrix, "folder": assets.FOLDER, "lead": captions.lead(tree.matrix)}
    context |= {"details": _details(tree), "native": SNAKEMAKE_REPORT, **browser}
    if tree.runs:
        summaries = runs.summaries(tree)
        tables = _tables(tree, linked)
        curves = dynamics(tree)
        context |= {
            "views": VIEWS,
            "claims": _claims(tree),
            "documents": _documents(),
            "dynamics": curves,
            "figures": _figures(tree),
            "facts": runs.facts(tree, summaries),
            "groups": runs.groups(tree, summaries),
            "sweep": _sweep(tree),
            "frontier": bool(tree.matrix.get("sweep")),
        }
        data["dynamics"] = {name: curves[name] for name in ("panels", "lines", "front")}
    else:  # of `evals.run`: scores and responses
        summaries, tables = [], [_scores(tree, linked)]
        context |= {"views": [view for view in VIEWS if view[0] in EVALUATED], "claims": None, "groups": []}
        context |= {"dynamics": {"front": []}, "sweep": "", "frontier": False}
    missing = [note for table in tables for note in table["notes"] if note.startswith("Missing")]
    sentences: dict[str, int] = {}  # tooltips of all tables, with the cells' numbers
    for cell in (
        cell for table in tables for block in table["blocks"] for row in block["rows"] for cell in row["cells"].values()
    ):
        lines = filter(None, cell.get("behind", ()))
        cell["behind"] = " ".join(str(sentences.setdefault(one, len(sentences))) for one in lines)
    data["behind"] = list(sentences)
    context |= {"tables": tables, "warnings": runs.warnings(tree, summaries, missing)}
    context["reading"] = captions.paragraphs("tables")
    script = assets.script()
    parts = {"style": assets.style(), "before": assets.BEFORE, "script": script, "data": assets.data(data)}
    template = markdown.environment(assets.HTML, autoescape=True).get_template("page.html.j2")
    return template.render(
        context | {name: Markup(text) for name, text in parts.items()}, policy=assets.policy(assets.BEFORE, script)
    )


def _place(tree: Tree) -> Results:
    """Return the folder of the page: the tree, or results/pages/<name> with links to the files of published results.

    Published results are read from the user's cache, which holds no page.
    """
    if tree.kept is None:
        return tree.layout
    kept = tree.kept.absolute()
    folder = kept.parents[1] / "pages" / kept.name if kept.parent.name == "reference" else kept
    place = Results(Path(os.path.relpath(folder)))
    place.root.mkdir(parents=True, exist_ok=True)
    for path in tree.root.iterdir():
        link = place.root / path.name
        if link.is_symlink():  # of an earlier version of the results
            link.unlink()
        if not link.exists():
            link.symlink_to(path)
    return place


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Build report.html from finished results, tables and figures.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--data", type=Path, help="folder of the benchmarks' problems; without it golds are not shown")
    args = parser.parse_args(arguments)
    html = build(args.results)  # first: a missing input ends the command before any file is written
    tree = open_tree(args.results)
    place = _place(tree)
    responses.write(tree, place.root, args.data)
    write_text(place.report, html)
    print(f"{place.report}  {len(html.encode()) / 1024:.0f} KiB")


if __name__ == "__main__":
    errors.run(main)
