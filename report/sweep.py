"""`python -m report.sweep --results results/tuned`: what a sweep found. `--choose` writes each method's chosen value.

sweep/sweep.csv   a row for each model, point of the grid and method: score and area over the selection seeds, rank
                  among the methods there, probability of being best there, regret against the method's own best point,
                  runs that failed
sweep/fresh.csv   on fresh seeds: every method at its chosen value, and at the scale's own (`report.sweep_points`)
sweep/sweep.md    both to read; sweep.svg, .png, .pdf: the figures against the swept value
sweep/choice.csv  a row for each point with the values that the choice was made from; the next round trains the chosen
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core import digests, used_code
from core.errors import Parser
from core.files import atomic, to_csv, write_text
from core.results_tree import Tree, open_tree
from report.figures.sweep import draw
from report.sweep_points import CHOICE, COMPARED, FRESH, SELECTION, choice, fresh, of_sweep, selecting, selection
from report.tables.render import escape_markdown, markdown_table
from report.tables.tidy import percent

FOLDER = "sweep"
MEASURES = {"score": "Avg. (pooled)", "area": "Area under reward"}

Row = Mapping[str, Any]


def markdown(tree: Tree, rows: Sequence[Row], compared: Sequence[Row]) -> str:
    """The tables of each model: the comparisons on fresh seeds first, then what chose the values."""
    lines = [f"# Sweep of {_axes(tree)}", ""]
    for model in tree.models:
        selected = [row for row in rows if row["model"] == model["key"]]
        if not selected:
            continue
        lines += [f"## {escape_markdown(model['title'])}", ""]
        for name, title in COMPARED.items():
            fresh = [row for row in compared if (row["model"], row["compared"]) == (model["key"], name)]
            if fresh:
                lines += [f"### {title}, fresh seeds", "", *_fresh(name, fresh), ""]
        lines += ["### What chose the values", "", *_selection(selected, tree), ""]
    return "\n".join(lines)


def _fresh(name: str, rows: Sequence[Row]) -> list[str]:
    versus = next((row["versus"] for row in rows if row["versus"]), None)  # None where nothing is compared
    baseline = next((row["title"] for row in rows if row["method"] == versus), "the baseline")
    scored = any(row["score"] is not None for row in rows)
    heads = ["Method", *(["Value"] if name == "chosen" else []), MEASURES["area"], f"Δ {baseline}", "Rank"]
    heads += ["P(best), %", *(["Regret"] if name == "own" else []), "Final reward"]
    heads += [*([MEASURES["score"]] if scored else []), "Failed"]
    lines = []
    for row in rows:
        cells = [row["title"], *([_plain_values(row["values"])] if name == "chosen" else [])]
        cells += [_estimate(row, "area"), _difference(row, "difference", row["mark"]), _rank(row)]
        cells += [percent(row["best"]) or "–"]
        cells += [_difference(row, "regret", row["regret_mark"])] if name == "own" else []
        cells += [_estimate(row, "final"), *([_estimate(row, "score")] if scored else []), _failed(row)]
        lines.append(cells)
    seeds = rows[0]["seeds"].replace(" ", ", ")
    tests = next((row["tests"] for row in rows if row["tests"]), 0)
    note = (
        f"Fresh seeds {seeds}: none of them chose a value. Percent, with 95 % intervals over seeds. Δ is paired by "
        f"seed; ↑ ↓ its interval excludes 0, also after Holm's correction over the {tests} comparisons; ↑? ↓? before "
        "it only; ≈ it includes 0; ? cannot be said. Rank: by area, with the 95 % interval of its place. P(best): of "
        "having the highest mean."
    )
    if name == "own":
        note += (
            " Regret: the method's area at its chosen value minus that here, corrected likewise; 0 where they are one."
        )
    return [*markdown_table(heads, lines), "", note]


def _selection(rows: Sequence[Row], tree: Tree) -> list[str]:
    sweep = of_sweep(tree)
    scored = any(row["score"] is not None for row in rows)
    keys = [key for key in MEASURES if scored or key != "score"]
    heads = ["Value", "Method", *(MEASURES[key] for key in keys), "Rank", "P(best), %", "Regret", "Failed", "Chosen"]
    lines = []
    for row in rows:
        mark = "" if row["chosen"] == "no" else "yes, at the end of the values" if row["edge"] == "yes" else "yes"
        cells = [_plain_values(row["values"]) + (" (scale's own)" if row["own"] == "yes" else ""), row["title"]]
        runs = len(row["seeds"].split())
        fail = f"{row['failed']} of {runs} fail" if row["failed"] else ""
        cells += [fail or _estimate(row, key) for key in keys]
        cells += [_rank(row), "–" if fail else percent(row["best"]) or "–", percent(row["regret"]), _failed(row), mark]
        lines.append(cells)
    seeds = ", ".join(map(str, sweep["select_seeds"]))
    note = (
        f"Means over the selection seeds {seeds}, in percent, with 95 % intervals. Rank and P(best): among the methods "
        f"at the same value, by {MEASURES[sweep['by']]}. Regret: how far the method's mean is below that at its chosen "
        "value. These means chose the values and are therefore too high; a comparison is that on fresh seeds. A run "
        "fails that ends (last three rollouts) with no more reward than it began with (first three), or collapses: "
        "where one fails, the mean says little and is not shown."
    )
    return [*markdown_table(heads, lines), "", note]


def write(tree: Tree) -> list[Path]:
    """Write sweep.csv, fresh.csv, sweep.md, .svg, .png, .pdf and their hashes; returns the paths."""
    folder, sweep, found = tree.root / FOLDER, of_sweep(tree), selecting(tree)
    rows, compared = selection(tree, found), fresh(tree, found)
    texts = {
        "sweep.csv": to_csv(SELECTION, rows),
        "fresh.csv": to_csv(FRESH, compared),
        "sweep.md": markdown(tree, rows, compared),
    }
    for name, text in texts.items():
        write_text(folder / name, text)
    paths = [folder / name for name in texts]
    axis, values = next(iter(sweep["axes"].items()))
    for kind, data in draw(axis, values, tree.models, rows).items():
        paths.append(folder / f"sweep.{kind}")
        with atomic(paths[-1]) as temporary:
            temporary.write_bytes(data)
    digests.write_list(tree.layout.sums(f"{FOLDER}/sweep"), paths)
    return paths


def _axes(tree: Tree) -> str:
    return " and ".join(axis.removeprefix("training.").replace("_", " ") for axis in of_sweep(tree)["axes"])


def _plain_values(text: str) -> str:
    """`training.learning_rate=0.0002 beta=1` -> `0.0002, 1`; a method without the axes has `–`."""
    return ", ".join(pair.partition("=")[2] for pair in text.split()) or "–"


def _estimate(row: Row, key: str) -> str:
    if row[key] is None:
        return "–"
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    return percent(row[key]) if low is None else f"{percent(row[key])} [{percent(low)}, {percent(high)}]"


def _difference(row: Row, key: str, mark: str | None) -> str:
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value is None:
        return "–"
    text = f"{100 * value:+.2f}" if value else "0.00"
    text += "" if low is None else f" [{percent(low)}, {percent(high)}]"
    return f"{text} {mark}".rstrip() if mark else text


def _rank(row: Row) -> str:
    text = f"{row['rank']} of {row['methods']}"
    return text if row["rank_low"] is None else f"{text} [{row['rank_low']:g}, {row['rank_high']:g}]"


def _failed(row: Row) -> str:
    return f"{row['failed']} of {len(row['seeds'].split())}"


def main() -> None:
    parser = Parser(description="Table and plot of a sweep, or the choice of each method's value.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--choose", action="store_true", help="write sweep/choice.csv")
    args = parser.parse_args()
    tree = open_tree(args.results)
    if not args.choose:
        for path in write(tree):
            print(path)
        return
    rows = choice(tree)
    path = tree.root / FOLDER / "choice.csv"
    write_text(path, to_csv(CHOICE, rows))
    for row in rows:
        if row["chosen"] == "yes":
            print(f"{row['model']} {row['row']}: {row['values'] or 'nothing to choose'} (mean {row['mean']:.4f})")
    seeds = rows[0]["test_seeds"].replace(" ", ", ")
    if seeds:
        print(f"{path}: type the same command again: it trains the chosen values on the fresh seeds {seeds}")


if __name__ == "__main__":
    used_code.run(main)
