"""Show a filled table: `view` returns everything that its forms have in common; they are Markdown and LaTeX here,
the terminal (`report.show`) and the page (`report.page`).

Titles, headings and notes follow from the declaration and matrix.json. No number is computed here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from core.errors import written_by
from core.layout import Checkpoint, Run, split
from core.provenance import ROOT
from evals import learning_curves
from evals.learning_curves import read_curve
from evals.tree import Tree, plain
from methods.training.movement import MISS
from report import rows
from report.markdown import HERE, arrow, command, environment, escape_latex, escape_markdown, percent
from report.rows import AVERAGES, MEASURES, Row, Table

MEASURED = "measured"
NOT_RUN = "not run"  # this scale does not plan the run or the benchmark
MISSING = "missing"  # planned, but scores.csv has no number for it
NOT_COMPARED = "not compared"  # a base model's reward, a baseline minus itself, two rows without a common seed
STATES = (MEASURED, NOT_RUN, MISSING, NOT_COMPARED)
AGAIN = "again"  # kind of the cells of an A/A arm, which is not a row of the table
ALSO = "also"  # kind of the cells of a method that no table declares
COLLAPSED = "†"

Cell = Mapping[str, Any]  # of `report.tables`

# Captions of tables, figures and scales, and what stands below every table: plain paragraphs in `*.rst`.

CAPTIONS = ROOT / "report/captions"


def paragraphs(name: str) -> list[str]:
    """Return the paragraphs of `<name>.rst`, each on one line; empty when there is no such caption."""
    path = CAPTIONS / f"{name}.rst"
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def lead(matrix: Mapping[str, Any]) -> list[str]:
    """Return paragraphs on what results of a scale can and cannot show. The first one begins every page.

    matrix: the content of matrix.json. A user's own scale has no caption here. The `note` of its configuration is
    used instead, after the warning that applies where other models replace the paper's.
    """
    stand_ins = any(model.get("stands_for") for model in matrix["models"])
    warning = ": models that stand in for the paper's; no number here is comparable with one printed in the paper"
    own = f"Results of the scale {matrix['scale']}{warning if stand_ins else ''}. {matrix.get('note', '')}"
    return paragraphs(f"scale-{matrix['scale']}") or [own.rstrip()]


def claims(tree: Tree) -> list[dict[str, Any]]:
    """Return the verdicts of claims.csv; an error ends with the command that writes it."""
    from paper import verdicts

    with written_by(command("paper.claims", tree)):
        return verdicts.read(tree.root / "claims.csv")


# How the scale's models and benchmarks map to places of the declaration.


class Column(NamedTuple):
    """A column as this scale has it."""

    slot: str
    heading: str  # our benchmark's key where it is a stand-in, else the paper's heading
    stands_for: str | None  # the paper's heading where our benchmark is a stand-in
    benchmark: str | None  # None: this scale has no benchmark for it


def columns_of(declared: Table, tree: Tree) -> list[Column]:
    """Return the columns as the benchmarks of the scale fill them."""
    columns = []
    for slot in declared.columns:
        heading = declared.headings[slot]
        entry = tree.benchmark_for(slot, heading) or {"key": slot if slot in AVERAGES else None}
        stands_in = bool(entry.get("stands_for")) and slot not in (*AVERAGES, entry["key"])
        shown = str(entry["key"]) if stands_in else heading
        columns.append(Column(slot, shown, heading if stands_in else None, entry["key"]))
    return columns


def stand_in(title: str, paper: str) -> str | None:
    """Return the paper's model that a model with this title replaces; None where it is that model."""
    return None if plain(title) == plain(paper) else paper


# The texts of a cell.


def texts(cell: Cell) -> dict[str, Any]:
    """Return the texts of a cell, empty where there is nothing to show: its number, its interval, which the numbers of
    two seeds replace, the same in whole percents (`brief`: nine columns fit into a terminal), the mark of its
    difference to the baseline (captions/below.rst) and the paper's number."""
    measured, difference = cell["value"] is not None, cell["kind"] == "delta"
    text, interval, brief = "–" if cell["state"] == NOT_COMPARED else cell["state"], "", ""
    if measured:
        text = percent(cell["value"])
        text = f"+{text}" if difference and float(text) > 0 else text
        interval = "no interval"
    seeds, ends = [100 * value for value in cell["by_seed"].values()], (cell["low"], cell["high"])
    if measured and cell["level"] == "seed" and len(seeds) == 2:  # their interval: 12.7 standard errors to each side
        interval, brief = " / ".join(f"{value:.1f}" for value in seeds), "/".join(f"{value:.0f}" for value in seeds)
    elif None not in ends:
        low, high = (100 * end for end in ends)
        interval = f"{low:.1f}{' to ' if difference else '–'}{high:.1f}"
        brief = f"{low:.0f}{':' if low < 0 else '-'}{high:.0f}"
    mark = arrow(*(cell[name] for name in ("versus", "versus_low", "versus_high", "versus_p_holm")))
    if mark != "?" and cell["versus_level"] != "seed":  # over problems: it compares two checkpoints, not two methods
        mark = f"({mark})"
    paper = percent(cell["printed"]) if cell["comparable"] and measured else ""
    # The typographic minus is as wide as a plus: signs in a column align.
    shown = {"text": text, "interval": interval, "paper": paper}
    shown = {name: value.replace("-", "−") for name, value in shown.items()}
    return shown | {"brief": brief, "measured": measured, "mark": "" if cell["versus"] is None else mark}


def sources(cell: Cell) -> tuple[object, ...]:
    """Return the sources of a number: checkpoints, or whole runs for a learning-curve measure, whatever their step."""
    return tuple(run.run for run in cell["runs"]) if cell["column"] in MEASURES else cell["runs"]


# Content of a table as shown, in nested lists and mappings.


def view(filled: Sequence[Cell], declared: Table, tree: Tree) -> dict[str, Any]:
    """Return everything that a table shows: `blocks` have `rows`, rows have `cells` by column (`columns` are in order).

    A cell has its columns of the tidy file and its `texts`; a row what its cells have in common, and its declaration.
    Then come sentences: `lead` (what results of this scale can show), `again` (marks of the A/A arms), `caption`,
    `notes` (what is omitted, missing, collapsed), `empty` (in place of a table without a
    number).
    """
    columns, by_row = columns_of(declared, tree), dict[str, dict[str, dict[str, Any]]]()
    for cell in filled:
        by_row.setdefault(cell["row"], {})[cell["column"]] = {**cell, **texts(cell)}
    titles = {model["key"]: str(model["title"]) for model in tree.models}
    blocks: list[dict[str, Any]] = []
    for block in declared.blocks:
        if of_block := [_row(row, by_row[row.id]) for row in block.rows if row.id in by_row]:
            title = titles[of_block[0]["model"]]
            paper = stand_in(title, declared.models[block.model])
            head = (f"{block.title}: " if block.title else "") + title + (f", standing for {paper}" if paper else "")
            runs = {c.run for row in of_block for cell in row["cells"].values() for c in cell["runs"]}
            planned = max((rows.rollouts(run, tree) for run in runs if run in tree.runs), default=0)
            steps = sorted({row["step"] for row in of_block if row["step"]})
            if steps and steps[0] < planned and not declared.generated:  # whose blocks have it in their title
                head += f", after {' and '.join(map(str, steps))} of {planned} rollouts"
            compared = next(iter(by_row.get(block.baseline or "", {}).values()), None)
            baseline = f"Marks compare with {compared['label']}." if compared else ""
            absent = [row["name"] for row in of_block if not row["ran"]]
            about = {"head": head, "baseline": baseline, "title": block.title, "model": title}
            blocks.append(about | {"rows": of_block, "absent": absent})
    shown = [row for block in blocks for row in block["rows"]]
    arms = [list(row.values()) for row in by_row.values() if next(iter(row.values()))["kind"] == AGAIN]
    ran = any(row["ran"] for row in shown)
    state = "no score yet" if ran else "not part of this scale; all runs: python -m report.show runs"
    measured = any(cell["measured"] for row in shown for cell in row["cells"].values())
    empty = "" if measured else f"{declared.heading}: {state}."
    return {name: getattr(declared, name) for name in ("key", "title", "heading", "generated")} | {
        "scale": tree.scale,
        "lead": lead(tree.matrix),
        "columns": [column._asdict() for column in columns],
        "blocks": blocks,
        "notes": list(dict.fromkeys(_notes(declared, tree, columns, shown))),
        "empty": empty,
        "again": [] if empty else [_again(arm) for arm in arms] or [f"{rows.AGAIN} arm: not run."],
        "caption": [*paragraphs(f"table{declared.key}"), *paragraphs("below")],
    }


def _row(row: Row, cells: Mapping[str, Cell]) -> dict[str, Any]:
    """Return a row with its cells by column."""
    any_cell = next(iter(cells.values()))  # the values read from it are equal in all cells of a row
    states = {cell["state"] for cell in cells.values()}
    seeds = {seed for cell in cells.values() for seed in cell["seeds"]}
    return {name: any_cell[name] for name in ("kind", "model", "method", "step", "collapsed")} | {
        "id": row.id,
        "declared": row,
        "name": any_cell["label"],
        "label": any_cell["label"] + f" {COLLAPSED}" * bool(any_cell["collapsed"]),
        "seeds": f"{len(seeds)} seed{'s' * (len(seeds) > 1)}" if seeds else "",
        "ran": bool(states & {MEASURED, MISSING}),
        "measured": MEASURED in states,
        "cells": cells,
    }


def _again(cells: Sequence[Cell]) -> str:
    """Return how often a method under two names was marked."""
    judged = [c["mark"] for c in cells if c["versus_level"] == "seed" and c["versus_p_holm"] is not None]
    arrows = [sign for sign in judged if sign[0] in "↑↓"]
    certain = sum(not sign.endswith("?") for sign in arrows)
    n = len({seed for cell in cells for seed in cell["seeds"]})
    counts = f"{certain} of {len(judged)} cells marked; {len(arrows)} before Holm's correction"
    counts = counts if judged else "no cell can be marked"
    return f"{rows.AGAIN} arm ({cells[0]['label']}, {n} seed{'s' * (n != 1)}): {counts}."


def missed_targets(tree: Tree, runs: Iterable[Run]) -> Iterator[str]:
    """Yield a sentence for each model and method of which rollouts missed their KL (`training.kl_target`)."""
    found: dict[tuple[str, str], list[tuple[int, int]]] = {}
    for run in runs:
        found.setdefault((run.model, run.method), []).append(tree.once(learning_curves.missed_targets, run))
    for (model, method), counts in found.items():
        missed, every = map(sum, zip(*counts, strict=True))
        if missed:
            title = tree.methods[method]["title"]
            yield f"{title} ({model}): {missed} of {every} rollouts missed training.kl_target by more than {MISS:.0%}."


def _notes(declared: Table, tree: Tree, columns: Sequence[Column], shown: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield sentences on what is omitted, run differently, collapsed or missing; some may repeat. shown: the rows."""
    for block in declared.blocks:
        if tree.model_for(block.model, declared.models[block.model]) is None:
            yield f"Rows of {declared.models[block.model]} are left out: no model of this scale stands for it."
    if declared.generated:
        for title in (block.title for block in declared.blocks if block.baseline is None):
            yield f"{title}: no run of the baseline under these settings; nothing is compared."
    elif without := [c.heading for c in columns if c.benchmark is None and c.slot not in MEASURES]:
        yield f"No benchmark of this scale stands for {', '.join(without)}."
    if any(row["kind"] == ALSO for row in shown):
        yield "Also trained here: methods of no table. p is corrected over these rows alone."
    if tree.chosen and not declared.generated:
        select, test = (", ".join(map(str, tree.matrix["sweep"][key])) for key in ("select_seeds", "test_seeds"))
        yield (
            f"Each method at the value that was best for it on seeds {select}; what is shown is over seeds {test}, "
            "which chose nothing. What chose, and all methods at one value: sweep/sweep.md."
        )
    for row in shown:
        run_as = row["method"] or ""
        run_as = split(run_as)[0] if run_as in tree.chosen.values() else run_as  # the label has the values chosen
        # A scale may set options of a method (`clip_cov+fraction=0.01` for `clip_cov`), which the label does not show.
        # Where the catalog's name differs as well, the declared one is only an alias of the method.
        declared_as = row["declared"].method or ""
        plain_names = {split(name)[0].partition("+")[0] for name in (declared_as, run_as)}
        if run_as != declared_as and len(plain_names) == 1 and row["declared"].numbers is None:
            yield f"{row['name']} is run as {run_as} at this scale."
    yield from _equal(shown, tree)
    own = [rows.planned(row["declared"], row["model"], tree) for row in shown if row["declared"].method is not None]
    yield from missed_targets(tree, dict.fromkeys(checkpoint.run for of_row in own for checkpoint in of_row))
    titles = {model["key"]: model["title"] for model in tree.models}
    for row in shown:
        for collapse in row["collapsed"]:  # seed2:6/16
            seed, _, rollouts = collapse.removeprefix("seed").partition(":")
            at, _, of = rollouts.partition("/")
            scored = f"rollout {row['step']}" if int(at) > (row["step"] or 0) else "what was left of the policy"
            what = f"seed {seed} collapsed at rollout {at}{f' of {of}' if of else ''}; scored is {scored}"
            yield f"{COLLAPSED} {row['name']} ({titles[row['model']]}): {what}."
    benchmarks = [column.benchmark for column in columns if column.benchmark is not None]
    trained = [row for row in shown if row["declared"].method is not None]
    for checkpoint in sorted({c for row in trained for c in rows.planned(row["declared"], row["model"], tree)}):
        if absent := [benchmark for benchmark in benchmarks if (checkpoint, benchmark) not in tree.scores]:
            what = "no scores" if len(absent) == len(benchmarks) else f"no score of {', '.join(absent)}"
            yield f"Missing: {checkpoint.path.as_posix()} has {what}."


def _equal(shown: Sequence[Mapping[str, Any]], tree: Tree) -> Iterator[str]:
    """Yield a sentence, with the reason that the runs show, for each row of other runs with an earlier row's scores."""
    first: dict[object, tuple[Mapping[str, Any], Sequence[Checkpoint]]] = {}
    for row in (row for row in shown if row["kind"] in ("run", ALSO)):
        measured = [cell for cell in row["cells"].values() if cell["benchmark"] and cell["measured"]]
        if measured:
            values = row["model"], repr([(cell["column"], cell["by_seed"]) for cell in measured])
            other, runs = first.setdefault(values, (row, measured[0]["runs"]))
            pairs = list(zip(measured[0]["runs"], runs, strict=False))
            if any(a.run != b.run for a, b in pairs):
                yield f"{other['name']} and {row['name']} have equal scores: {_reason(pairs, tree)}."


def _reason(pairs: Sequence[tuple[Checkpoint, Checkpoint]], tree: Tree) -> str:
    """Return why two rows have equal scores, by the curves and settings of their runs."""
    for pair in pairs:
        paths = [tree.layout.run(checkpoint.run) / "curve.csv" for checkpoint in pair]
        if not all(path.is_file() for path in paths):
            return "without curves, no reason is known"
        curves = [read_curve(path).series(["reward"], "first")[: pair[0].step] for path in paths]
        if curves[0] != curves[1]:
            return "their curves differ"
    one, other = ((tree.record(at.run) or {}).get("method", {}).get("params", {}) for at in pairs[0])
    same = "with equal seeds, they drew equal rewards in every rollout"
    alike = all(one[name] == other[name] for name in one.keys() & other.keys() - {"beta"})
    if alike and (one.get("beta") or 0) != (other.get("beta") or 0):
        betas = sorted({side["beta"] for side in (one, other) if side.get("beta") is not None})
        beta = " and ".join(f"{beta:g}" for beta in betas)
        same += f"; a KL term (beta {beta}) is 0 at a rollout's first update, and then too small to change an answer"
    return same


# A table as a file.


def markdown(table: Mapping[str, Any]) -> str:
    text = environment(HERE, finalize=escape_markdown).get_template("table.md.j2").render(table=table)
    return text.rstrip() + "\n"


def latex(table: Mapping[str, Any]) -> str:
    """Return a fragment for `\\input`, in the style of the paper's tables. The preamble needs booktabs and graphicx."""
    # LaTeX uses braces, so the template marks its placeholders with angle brackets.
    marks = {"variable_start_string": "<<", "variable_end_string": ">>"}
    marks |= {"block_start_string": "<%", "block_end_string": "%>"}
    return environment(HERE, finalize=escape_latex, **marks).get_template("table.tex.j2").render(table=table)


# Suffix of `tables/table<key>` -> its renderer.
RENDERINGS: dict[str, Callable[[Mapping[str, Any]], str]] = {".md": markdown, ".tex": latex}
