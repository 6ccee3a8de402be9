"""`python -m report.sweep --results results/tuned`: what a sweep found. `--choose` writes each method's chosen value.

sweep/sweep.csv   a row for each model, point of the grid and method: score and area over the selection seeds, rank
                  among the methods there, probability of being best there, regret against the method's own best point,
                  runs that failed
sweep/fresh.csv   on fresh seeds: every method at its chosen value, and at the scale's own (`report.fresh`)
sweep/sweep.md    both to read, sweep.tex to set; sweep.svg, .png, .pdf: the figures against the swept value
sweep/choice.csv  a row for each point with the values that the choice was made from; the next round trains the chosen
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from records import digests, used_code
from records.errors import Parser
from records.files import atomic, to_csv, write_text
from records.results_tree import Tree, open_tree
from report import fresh
from report.figures.sweep import draw
from report.sweep_points import Point, chosen, of_sweep, selecting, words
from report.tables.tidy import percent

FOLDER = "sweep"
MEASURES = {"score": "Avg. (pooled)", "area": "Area under reward"}
HEADER = (
    "model", "row", "title", "method", "values", "own", "seeds", "score", "score_low", "score_high", "area", "area_low",
    "area_high", "rank", "rank_low", "rank_high", "methods", "best", "best_how", "failed", "regret", "chosen", "edge",
    "scores_by_seed", "areas_by_seed",
)  # fmt: skip
CHOICE = (
    "model", "row", "method", "values", "by", "select_seeds", "mean", "by_seed", "chosen", "edge", "test_seeds",
    "question",
)  # fmt: skip


def table(tree: Tree, found: Sequence[Point]) -> list[dict[str, Any]]:
    """The rows of sweep.csv. A method without a swept option stands at every point of that axis."""
    from evals.stats import compare

    sweep = of_sweep(tree)
    by, best = sweep["by"], chosen(found, sweep["by"])
    rows = []
    for model in dict.fromkeys(point.model for point in found):
        for combination in product(*sweep["axes"].values()):
            grid = dict(zip(sweep["axes"], combination, strict=True))
            here = [p for p in found if p.model == model and p.values.items() <= grid.items()]
            means = {point.row: point.mean(by) or 0.0 for point in here}
            by_row = {point.row: point.figures(by) for point in here}
            chances, how = compare.chances_of_being_best(by_row)
            places = compare.ranks(by_row)
            for point in here:
                top = best[model, point.row]
                row: dict[str, Any] = {
                    "model": model,
                    "row": point.row,
                    "title": point.title,
                    "method": point.method,
                    "values": words(grid),
                    "own": _yes(point.is_own),
                    "seeds": " ".join(map(str, sorted(point.area))),
                    "rank": 1 + sum(other > means[point.row] for other in means.values()),
                    "methods": len(here),
                    "best": chances.get(point.row),
                    "best_how": how,
                    "failed": len(point.failed),
                    "regret": (top.mean(by) or 0.0) - means[point.row],
                    "chosen": _yes(top is point),
                    "edge": _yes(_at_edge(point, sweep["axes"])),
                    "scores_by_seed": _by_seed(point.score),
                    "areas_by_seed": _by_seed(point.area),
                }
                row |= dict(zip(("rank_low", "rank_high"), places.get(point.row, (None, None)), strict=True))
                for key, by_seed in (("score", point.score), ("area", point.area)):
                    estimate = compare.over_seeds(by_seed) if by_seed else None
                    row |= {key: None, f"{key}_low": None, f"{key}_high": None}
                    if estimate is not None:
                        row |= {key: estimate.value, f"{key}_low": estimate.low, f"{key}_high": estimate.high}
                rows.append(row)
    return rows


def choice(tree: Tree) -> list[dict[str, Any]]:
    """The rows of choice.csv."""
    sweep, found = of_sweep(tree), selecting(tree)
    best = chosen(found, sweep["by"])
    return [
        {
            "model": point.model,
            "row": point.row,
            "method": point.method,
            "values": point.words,
            "by": sweep["by"],
            "select_seeds": " ".join(map(str, sweep["select_seeds"])),
            "mean": point.mean(sweep["by"]),
            "by_seed": _by_seed(point.figures(sweep["by"])),
            "chosen": _yes(best[point.model, point.row] is point),
            "edge": _yes(_at_edge(point, sweep["axes"])),
            "test_seeds": " ".join(map(str, sweep["test_seeds"])),
            "question": sweep["question"],
        }
        for point in found
    ]


@dataclass(frozen=True)
class Section:
    """A table in words, for Markdown and for LaTeX."""

    title: str
    heads: Sequence[str]
    lines: Sequence[Sequence[str]]
    note: str


def sections(
    tree: Tree, rows: Sequence[Mapping[str, Any]], compared: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], list[Section]]]:
    """The tables of each model: the comparisons on fresh seeds first, then what chose the values."""
    for model in tree.models:
        selected = [row for row in rows if row["model"] == model["key"]]
        found = []
        for name in fresh.COMPARED:
            lines = [row for row in compared if (row["model"], row["compared"]) == (model["key"], name)]
            if lines:
                found.append(_fresh(name, lines, tree))
        if selected:
            found.append(_selection(selected, tree))
            yield model, found


def _fresh(name: str, rows: Sequence[Mapping[str, Any]], tree: Tree) -> Section:
    baseline = next((row["title"] for row in rows if row["method"] == _versus(rows)), "the baseline")
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
    return Section(f"{fresh.COMPARED[name]}, fresh seeds", heads, lines, note)


def _versus(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """The method that the lines are compared with; None where nothing is."""
    return next((str(row["versus"]) for row in rows if row["versus"]), None)


def _selection(rows: Sequence[Mapping[str, Any]], tree: Tree) -> Section:
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
    return Section("What chose the values", heads, lines, note)


def markdown(tree: Tree, tables: Sequence[tuple[Mapping[str, Any], list[Section]]]) -> str:
    from report.tables.render import escape_markdown

    lines = [f"# Sweep of {_axes(tree)}", ""]
    for model, parts in tables:
        lines += [f"## {escape_markdown(model['title'])}", ""]
        for part in parts:
            lines += [f"### {part.title}", "", f"| {' | '.join(part.heads)} |", "|" + "---|" * len(part.heads)]
            lines += ["| " + " | ".join(map(escape_markdown, cells)) + " |" for cells in part.lines]
            lines += ["", part.note, ""]
    return "\n".join(lines)


def latex(tree: Tree, tables: Sequence[tuple[Mapping[str, Any], list[Section]]]) -> str:
    """Fragments for `\\input`; the preamble needs booktabs and graphicx, as for the other tables."""
    from report.tables.render import escape_latex

    lines = [f"% Sweep of {escape_latex(_axes(tree))}. Needs booktabs and graphicx."]
    for model, parts in tables:
        for part in parts:
            title = f"{part.title}: {model['title']} ({tree.scale} scale)"
            lines += ["\\begin{table}[p]", f"\\caption{{{escape_latex(title)}}}", "\\centering"]
            lines += ["\\resizebox{\\textwidth}{!}{%", f"\\begin{{tabular}}{{{'l' * len(part.heads)}}}", "\\toprule"]
            lines += [" & ".join(map(escape_latex, part.heads)) + " \\\\", "\\midrule"]
            lines += [" & ".join(map(escape_latex, cells)) + " \\\\" for cells in part.lines]
            lines += ["\\bottomrule", "\\end{tabular}}", "\\end{table}"]
            lines += [f"{{\\footnotesize \\noindent {escape_latex(part.note)}\\par}}"]
    return "\n".join(lines) + "\n"


def write(tree: Tree) -> list[Path]:
    """Write sweep.csv, fresh.csv, sweep.md, .tex, .svg, .png, .pdf and their hashes; returns the paths."""
    folder, sweep, found = tree.root / FOLDER, of_sweep(tree), selecting(tree)
    rows, compared = table(tree, found), fresh.rows(tree, found)
    tables = list(sections(tree, rows, compared))
    texts = {
        "sweep.csv": to_csv(HEADER, rows),
        "fresh.csv": to_csv(fresh.HEADER, compared),
        "sweep.md": markdown(tree, tables),
        "sweep.tex": latex(tree, tables),
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


def _estimate(row: Mapping[str, Any], key: str) -> str:
    if row[key] is None:
        return "–"
    low, high = row[f"{key}_low"], row[f"{key}_high"]
    return percent(row[key]) if low is None else f"{percent(row[key])} [{percent(low)}, {percent(high)}]"


def _difference(row: Mapping[str, Any], key: str, mark: str | None) -> str:
    value, low, high = row[key], row[f"{key}_low"], row[f"{key}_high"]
    if value is None:
        return "–"
    text = f"{100 * value:+.2f}" if value else "0.00"
    text += "" if low is None else f" [{percent(low)}, {percent(high)}]"
    return f"{text} {mark}".rstrip() if mark else text


def _rank(row: Mapping[str, Any]) -> str:
    text = f"{row['rank']} of {row['methods']}"
    return text if row["rank_low"] is None else f"{text} [{row['rank_low']:g}, {row['rank_high']:g}]"


def _failed(row: Mapping[str, Any]) -> str:
    return f"{row['failed']} of {len(row['seeds'].split())}"


def _at_edge(point: Point, axes: Mapping[str, Sequence[Any]]) -> bool:
    """Whether a better value may lie beyond those tried: smallest or largest of three numbers or more."""
    for axis, value in point.values.items():
        tried = axes[axis]
        if len(tried) > 2 and all(isinstance(v, int | float) for v in tried) and value in (min(tried), max(tried)):
            return True
    return False


def _by_seed(values: Mapping[int, float]) -> str:
    return " ".join(f"{seed}:{values[seed]!r}" for seed in sorted(values))


def _yes(value: bool) -> str:
    return "yes" if value else "no"


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
