"""`python -m report.show table1 --scale quick`: a table in the terminal; `report.show details`: pass@k, maj@k, lengths
and truncation; `report.show runs`: progress of the runs, and the table of all runs; `report.show claims`; for a sweep
`report.show sweep` and `report.show frontier`.
"""

import math
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from itertools import product
from pathlib import Path
from statistics import correlation
from typing import Any

from core import errors
from core.errors import Parser, unknown, written_by
from core.files import cells_of, is_locked, read_csv, read_growing_csv, read_text
from core.provenance import sha256_file
from evals.scores import read_rows
from evals.tree import MANIFEST, Tree, open_or_kept, read_manifest
from paper import verdicts
from report import markdown, rows, tables, view
from report.rows import RUNS

SWEEP = ("frontier", "sweep")  # pages of a sweep
CELL_END = re.compile(r"(?<!\\)\|")  # an escaped bar is text


def text(table: Mapping[str, Any], width: int = 100, first: Sequence[str] = ()) -> str:
    """Return the table in plain text: number above, interval below, rows not run last.

    first: sentences between the scale's limits and the table.
    """

    def aligned(lines: str) -> str:
        heads, *others = markdown.aligned([line.split("\t") for line in lines.rstrip("\n").split("\n")])
        return "\n".join([heads, "-" * len(heads), *others])

    environment = markdown.environment(markdown.HERE)
    environment.filters |= {
        "aligned": aligned,
        "wrapped": lambda of: "\n".join(textwrap.fill(one, width) for one in of),
    }
    legend = view.paragraphs("terminal")
    return environment.get_template("table.txt.j2").render(table=table, first=[*first], legend=legend).rstrip("\n")


def learnt(tree: Tree, table: Mapping[str, Any]) -> Iterator[str]:
    """Yield, for each model of the table, its methods' mean training reward, largest first, and the relation to how far
    they moved the policy. Nothing where `report.convergence` has not run, and for a sweep, whose tables have other
    seeds than its curves (`report.show frontier`)."""
    path = tree.layout.figures / "convergence.csv"
    if tree.matrix.get("sweep") or not path.exists():
        return
    with written_by(markdown.command("report.convergence", tree)), cells_of(path):
        runs = _finished(path)
        for block in table["blocks"]:
            model, area, moved = block["rows"][0]["model"], dict[str, float](), list[tuple[float, float]]()
            for row in block["rows"]:
                of = [run for run in runs if (run["model"], run["method"]) == (model, row["method"])]
                # every seed or none
                whole = [measure for measure in ("area", "movement") if of and all(run[measure] for run in of)]
                mean = {measure: _mean(tree, of, measure) for measure in whole}
                if "area" in mean:
                    area[row["name"]] = mean["area"]
                    if mean.get("movement") and not any(run["collapsed_at"] for run in of):  # 0: no update
                        moved.append((mean["area"], math.log(mean["movement"])))
            if area:
                largest = sorted(area.items(), key=lambda of: of[1])[::-1]
                areas = ", ".join(f"{name} {100 * value:.1f}" for name, value in largest)
                line = f"Right answers in training, mean over all rollouts (area), percent: {areas} ({block['model']})."
                if len(moved) >= markdown.FEWEST:
                    r = correlation(*zip(*moved, strict=True))
                    line += f" Over {len(moved)} methods area and log movement correlate at r = {r:.2f}."
                yield line


def at_equal_movement(tree: Tree) -> Iterator[str]:
    """Yield how far methods moved the policy and what they learnt, at the tree's settings and where each rollout had a
    KL to meet, over the seeds of both; nothing without such runs, or where `report.convergence` has not run."""
    path, variants = tree.layout.figures / "convergence.csv", tree.matrix.get("variants") or {}
    matched = [name for name, variant in variants.items() if list(variant["changes"]) == ["training.kl_target"]]
    if not (matched and path.exists()):
        return
    with written_by(markdown.command("report.convergence", tree)), cells_of(path):
        runs: dict[tuple[str, str], dict[str, Mapping[str, str]]] = {}  # model, method -> seed -> measures
        for run in _finished(path):
            if run["area"] and run["movement"]:
                runs.setdefault((run["model"], run["method"]), {})[run["seed"]] = run
        for model, name in product((str(model["key"]) for model in tree.models), matched):
            keys = [key for of, key in runs if of == model and (model, f"{key}@{name}") in runs]
            if len(keys) < 2:
                continue
            seeds = set.intersection(*(set(runs[model, f"{key}{at}"]) for key in keys for at in ("", f"@{name}")))
            for at, what in ("", "Right answers in training, and how far a rollout moves the policy"), (
                f"@{name}", f"The same with {variants[name]['title']} for each",
            ):  # fmt: skip
                sides = []
                for key in keys if seeds else ():
                    of = [runs[model, f"{key}{at}"][seed] for seed in sorted(seeds)]
                    area, movement = (_mean(tree, of, measure) for measure in ("area", "movement"))
                    sides.append(f"{tree.methods[key]['title']} {100 * area:.1f} % at {movement:.4f} nats")
                if sides:
                    yield f"{what}: {', '.join(sides)}."
            if len(seeds) == 1:
                yield "One seed: an illustration. The experiment is in docs/findings.md."


def _finished(path: Path) -> list[dict[str, str]]:
    columns = "model", "method", "seed", "finished", "area", "movement", "collapsed_at"
    return [run for run in read_csv(path, "the measures of the runs", columns) if run["finished"] == "yes"]


def _mean(tree: Tree, runs: Sequence[Mapping[str, str]], measure: str) -> float:
    """Return the mean of one method's runs on one model: over clean models, which may have unequal numbers of seeds."""
    from evals.stats.compare import over_seeds

    by_seed = {int(run["seed"]): float(run[measure]) for run in runs}
    found = over_seeds(by_seed, bounds=(0, math.inf), clusters=tree.clean_models(runs[0]["model"]))
    return float(found.value or 0.0)


def plain(page: str) -> str:
    """Return one of our Markdown pages as text for the terminal.

    Into a file or another program nothing is wrapped: a value stays beside its interval.
    """
    width, blocks = markdown.width(), []
    for block in filter(None, page.strip().split("\n\n")):
        lines = block.splitlines()
        if lines[0].startswith("|"):
            heads, _, *rows = ([_words(cell) for cell in CELL_END.split(line)[1:-1]] for line in lines)
            blocks.append(markdown.columns([heads, *rows]))
        elif lines[0].startswith("- "):
            blocks.append([one for line in lines for one in textwrap.wrap(_words(line), width, subsequent_indent="  ")])
        else:
            blocks.append(textwrap.wrap(_words(" ".join(lines).lstrip("# ")), width))
    return "\n\n".join("\n".join(block) for block in blocks)


def _words(text: str) -> str:
    """Return Markdown of one line without its markup."""
    return unescape(
        re.sub(r"`([^`]*)`|\*\*(.+?)\*\*|\\([|*])", lambda found: found[found.lastindex or 0], text)
    ).strip()


def edited(tree: Tree, names: Iterable[str]) -> Iterator[str]:
    """Yield a sentence for each of these files that differs from the tree's manifest; none without a manifest."""
    if (tree.root / MANIFEST).is_file():
        listed = read_manifest(tree.root)["files"]
        for path in (tree.root / name for name in names if name in listed):
            if path.is_file() and sha256_file(path) != listed[path.relative_to(tree.root).as_posix()]:
                yield f"{path}: edited since {MANIFEST}; run: {markdown.command('report.verify', tree)}"


# `report.show runs`, read from the run folders while they are being written.

STATES = ("done", "running", "stopped", "waiting")
STOPPED = "; failed or interrupted: no process holds it, the next start goes on from its last state"


def progress(tree: Tree) -> str:
    """Return a summary of everything that matrix.json plans, then one line for each run that is running or stopped: a
    started, unfinished run whose lock is not held has failed or was interrupted."""
    counts, begun = dict.fromkeys(STATES, 0), list[tuple[str, str, str]]()
    for run in tree.runs:
        folder, state = tree.layout.run(run) / "state", "waiting"
        curve = folder / "curve.csv"
        if tree.record(run) is not None:
            state = "done"
        elif curve.is_file():
            with cells_of(curve):
                rollout = max((int(update["rollout"]) for update in read_growing_csv(curve)), default=0)
            state = "running" if is_locked(folder / "lock") else "stopped"
            where = f"rollout {rollout}" if rollout else "not one rollout yet"
            begun.append((state, run.path.as_posix(), where + STOPPED * (state == "stopped")))
        counts[state] += 1
    lines = [f"{tree.root.name}: {len(tree.runs)} runs: {', '.join(f'{n} {state}' for state, n in counts.items())}"]
    if not tree.is_reference:  # a reference has no grades
        grades = [(tree.layout.grades(checkpoint) / "grades.json").is_file() for checkpoint in tree.checkpoints]
        lines.append(f"{sum(grades)} of {len(grades)} checkpoints evaluated")
    width = max((len(path) for _, path, _ in begun), default=0)
    return "\n".join([*lines, *(f"{state:<8} {path:<{width}}  {where}" for state, path, where in sorted(begun))])


def main() -> None:
    parser = Parser(description="Print a table of finished results, or how far the runs are and the table of them all.")
    parser.add_argument("what", help="a table such as table1; runs; details; claims; of a sweep: sweep, frontier")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--results", type=Path, help="results/<scale>")
    where.add_argument("--scale", help="the same as --results results/SCALE")
    args = parser.parse_args()

    known = [*(f"table{key}" for key in rows.tables()), RUNS, "details", "claims", *SWEEP]
    if args.what not in known:
        raise unknown("command line", "what", args.what, known)
    tree = open_or_kept(args.results or Path("results") / args.scale)
    key = args.what.removeprefix("table")
    for line in edited(tree, ("scores.csv", f"tables/table{key}.tidy.csv", f"sweep/{key}.md")):
        print(f"note: {line}", file=sys.stderr)
    if args.what == "details":
        with written_by("python -m evals.score, or snakemake"):
            print(markdown.details(read_rows(tree.layout.scores)))
    elif args.what == "claims":
        heads = ("claim", "numbers", "verdict", "estimate", "beside it")
        lines = [
            (row["id"], f"{row['source']} {row['setting']}".strip(), row["verdict"], verdicts.figure(row),
             verdicts.beside(row))
            for row in view.claims(tree)
        ]  # fmt: skip
        print("\n".join(markdown.columns([heads, *lines])))
    elif args.what in SWEEP:
        with written_by(markdown.command("report.sweep", tree)):
            print(plain(read_text(tree.root / f"sweep/{args.what}.md", "a page of results")))
    else:
        if args.what == RUNS:
            print(progress(tree))
            if not (tree.layout.tables / f"table{RUNS}.tidy.csv").is_file():  # `snakemake runs_table` writes it
                return
            print()
        table = tables.shown(tree, key)
        print(text(table, max(60, min(110, shutil.get_terminal_size().columns)), [*learnt(tree, table)]))
        if tree.layout.report.is_file():
            print(f"\nreport: {tree.layout.report} (open it in a browser, no network needed)")
        for line in at_equal_movement(tree):
            print(textwrap.fill(line, markdown.width()))


if __name__ == "__main__":
    errors.run(main)
