"""`python -m report.rliable --results results/quick`: robust aggregates beside the means, from the table of all runs.

tables/robust.csv   a row for each method, with mean, interquartile mean and performance profile over its runs and the
                    benchmarks, and the probability of improvement over the baseline of its block
tables/robust.md    the same to read

`--out FILE` writes the scores of a model's methods for the package rliable instead: {method: (runs, benchmarks)}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import digests, used_code
from core.errors import ConfigError, MissingInputError, Parser, unknown, whole
from core.files import atomic, json_text, to_csv, write_text
from core.layout import BASE
from core.results_tree import Tree, open_tree
from report.tables.render import escape_markdown, head, markdown_table
from report.tables.spec import AVERAGES, RUNS
from report.tables.tidy import Row, Table, checked_table, percent, with_interval

if TYPE_CHECKING:
    from evals.stats.intervals import Array

PROFILE = (0.25, 0.5, 0.75)  # thresholds of the performance profile
ABOVE = tuple(f"above_{100 * tau:.0f}" for tau in PROFILE)
HEADER = (
    "row", "label", "block", "model", "method", "step", "seeds", "benchmarks", "mean", "iqm", "iqm_low", "iqm_high",
    "iqm_how", *ABOVE, "baseline", "paired", "paired_low", "paired_high", "paired_how", "unpaired", "unpaired_low",
    "unpaired_high",
)  # fmt: skip


Scores = Mapping[int, Sequence[float]]  # of a row: by seed those on the table's benchmarks


def benchmarks(table: Table) -> list[str]:
    """Columns that are benchmarks of this tree, in the table's order."""
    return [column.slot for column in table.columns if column.benchmark and column.slot not in AVERAGES]


def scores(row: Row, slots: Sequence[str]) -> Scores:
    """The scores of the seeds that a row has on all benchmarks."""
    by_slot = [row.cells[slot].seed_values for slot in slots]
    seeds = sorted(set.intersection(*map(set, by_slot))) if by_slot else []
    return {seed: [values[seed] for values in by_slot] for seed in seeds}


def _array(found: Scores, seeds: Iterable[int]) -> Array:
    """(R, T) over these seeds and the benchmarks."""
    import numpy as np

    return np.array([found[seed] for seed in seeds], float)


def aggregates(table: Table, tree: Tree) -> list[dict[str, Any]]:
    """The lines of robust.csv: every planned row of the table, compared with the baseline of its block."""
    slots, found = benchmarks(table), []
    for rows in table.blocks:
        base = next((row for row in rows if row.id == row.block.baseline), None)
        theirs = {} if base is None else scores(base, slots)
        for row in rows:
            if row.ran:
                against = {} if row is base or row.kind == "base" else theirs
                found.append(_aggregate(row, scores(row, slots), against, tree.clean_models(row.model)))
    return found


def _aggregate(row: Row, ours: Scores, theirs: Scores, clean: Mapping[int, int] | None) -> dict[str, Any]:
    """A line. theirs: the baseline's; empty: not compared. clean: the clean model that each seed continues."""
    from evals.stats import robust
    from evals.stats.compare import first_of

    def clusters(seeds: Sequence[int]) -> list[int]:
        return list(first_of(seeds, clean).values())

    facts = {name: getattr(row, name) for name in ("label", "model", "method", "step")}
    line = dict.fromkeys(HEADER) | facts | {"row": row.id, "block": row.block.title}
    if not ours:
        return line | {"iqm_how": "no seed is scored on every benchmark"}
    ours_RT = _array(ours, ours)
    line |= {"seeds": tuple(ours), "benchmarks": ours_RT.shape[1]}
    iqm = robust.interval(robust.interquartile_mean, ours_RT, clusters([*ours]))
    line |= {"mean": float(ours_RT.mean()), "iqm": iqm.value, "iqm_low": iqm.low, "iqm_high": iqm.high}
    line |= {"iqm_how": iqm.how, **dict(zip(ABOVE, map(float, robust.profile(ours_RT, PROFILE)), strict=True))}
    if not theirs:
        return line
    theirs_RT = _array(theirs, theirs)
    line |= {"baseline": row.block.baseline, "unpaired": float(robust.improvement(ours_RT, theirs_RT))}
    low, high = map(float, robust.bootstrap(robust.improvement, ours_RT, theirs_RT))
    if low < high:  # of one run, or where all win, every resample is alike: unknown
        line |= {"unpaired_low": low, "unpaired_high": high}
    if common := sorted(set(ours) & set(theirs)):
        paired = robust.paired_improvement(_array(ours, common), _array(theirs, common), clusters(common))
        line |= {"paired": paired.value, "paired_low": paired.low, "paired_high": paired.high}
        line |= {"paired_how": paired.how}
    return line


def markdown(table: Table, lines: Sequence[dict[str, Any]]) -> str:
    """robust.md: a table for each block."""
    heads = ["Method", "Seeds", "Mean", "IQM", *(f"> {100 * tau:.0f} %" for tau in PROFILE), "P(better), paired",
             "P(better), unpaired"]  # fmt: skip
    text = ["# Robust aggregates", ""]
    for rows in table.blocks:
        of_block = [line for line in lines if line["row"] in {row.id for row in rows}]
        if of_block:
            text += [f"## {escape_markdown(head(rows))}", "", *markdown_table(heads, map(_cells, of_block), "---:"), ""]
    note = (
        "Percent, over runs x benchmarks, with 95 % intervals. IQM: mean of the middle half of the scores. "
        "> 50 %: share of the scores above 50 %. P(better): probability that a run is better than one of the "
        "baseline on a benchmark, ties counted half; paired: of the same seed. The intervals of IQM and of paired "
        "runs are over seeds. Those of unpaired runs are rliable's stratified bootstrap, which takes the benchmarks of "
        "a run for independent runs and is too narrow."
    )
    return "\n".join([*text, note, ""])


def _cells(line: dict[str, Any]) -> list[str]:
    aggregated = [percent(line["mean"]) or "–", with_interval(line, "iqm")]
    aggregated += [percent(line[key]) or "–" for key in ABOVE]
    aggregated += [with_interval(line, key) for key in ("paired", "unpaired")]
    return [line["label"], str(len(line["seeds"] or ())), *aggregated]


def write(tree: Tree) -> list[Path]:
    """Write robust.csv, robust.md and their hashes; returns the paths.

    Both are empty where runs are trained for their curves alone, as those that select by area. Raises MissingInputError
    where the table of all runs is not filled, or runs are evaluated and none is scored on every benchmark.
    """
    table = checked_table(tree, RUNS)
    lines = aggregates(table, tree)
    scored = any(line["mean"] is not None for line in lines)
    if not scored and any(checkpoint.run.method != BASE for checkpoint in tree.evaluated):
        raise MissingInputError(f"{tree.layout.scores}: no method is scored on every benchmark yet")
    texts = {".csv": to_csv(HEADER, lines), ".md": markdown(table, lines)}
    contents = {tree.layout.tables / f"robust{suffix}": text for suffix, text in texts.items()}
    return digests.write_together(tree.layout.sums("tables/robust"), contents)


def methods(tree: Tree, model: str | None, step: int | None) -> tuple[list[str], dict[str, Scores]]:
    """The benchmarks, and the scores by method, of the first block of the table of all runs with this model and step.

    None: the model and step that matrix.json names first. Raises ConfigError for a model that the tree does not have,
    MissingInputError where no method of it is scored at this step.
    """
    table, models = checked_table(tree, RUNS), [str(entry["key"]) for entry in tree.models]
    if model is not None and model not in models:
        raise unknown("command line", "--model", model, models)
    model, step, slots = model or models[0], step or tree.step(None), benchmarks(table)
    for rows in table.blocks:
        of_block = [row for row in rows if (row.model, row.step) == (model, step) and row.kind == "run"]
        found = {str(row.method): own for row in of_block if (own := scores(row, slots))}
        if found:
            return slots, found
    steps = sorted({row.step for row in table.rows if row.model == model and row.kind == "run" and row.step})
    raise MissingInputError(f"{tree.root}: {model}: no method is scored after {step} rollouts; set --step to {steps}")


def main() -> None:
    parser = Parser(description="Interquartile means, performance profiles and probabilities of improvement.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale> with the table of all runs")
    parser.add_argument("--out", type=Path, help="FILE.npz or FILE.json: the scores for the package rliable instead")
    parser.add_argument("--model", help="of --out: a model's key (default: the first)")
    parser.add_argument("--step", type=whole(1), help="of --out: rollouts of the checkpoints (default: the tables')")
    args = parser.parse_args()
    if args.out is not None and args.out.suffix not in (".npz", ".json"):
        raise ConfigError(f"command line: --out: {args.out} ends neither in .npz nor in .json")
    tree = open_tree(args.results)
    if args.out is None:
        print("\n".join(map(str, write(tree))))
        return
    slots, found = methods(tree, args.model, args.step)
    values = {method: _array(own, own) for method, own in found.items()}
    if args.out.suffix == ".json":
        write_text(args.out, json_text({method: score_RT.tolist() for method, score_RT in values.items()}))
    else:
        import numpy as np

        with atomic(args.out) as temporary, temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **values)
    print(args.out)
    print(f"benchmarks: {', '.join(slots)}")
    for method, own in found.items():
        print(f"{method}: seeds {', '.join(map(str, own))}")


if __name__ == "__main__":
    used_code.run(main)
