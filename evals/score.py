"""Score grades: one row per checkpoint and benchmark, and the averages, each with its interval.

    python -m evals.score --results results/quick --checkpoints tiny/tepo/seed1/step12 tiny/base/seed0/step0 \
        --benchmarks syn_mix3 syn_as3 --out results/quick/scores.csv

The columns: `docs/results.md`; the intervals: `docs/statistics.md`.
"""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.layout import BASE, Checkpoint, Results
from evals.benchmark import benchmark, definition, registered
from evals.scores import AVERAGES, COLUMNS, MACRO, NOT_RUN, POOLED, POOLED_MISSING_WRONG, write_scores
from evals.stats import compare, estimate
from evals.stats.estimate import Comparison, Estimate, Graded, Samples
from evals.store import VERDICTS, read_folder
from evals.tree import Tree

ROUNDING = 1e-9  # scores.csv and a paired comparison sum the same shares in another order
Missing = Collection[tuple[Checkpoint, str]]  # benchmarks that were intentionally not run


def rows(
    results: Results, checkpoints: Sequence[Checkpoint], benchmarks: Sequence[str], *, missing: Missing = ()
) -> list[dict[str, Any]]:
    """Return one dict per row of `scores.csv`.

    missing: benchmarks intentionally not run on a checkpoint; any other missing file is an error.
    """
    if clash := sorted(set(benchmarks) & set(AVERAGES)):
        raise ConfigError(f"benchmarks: {clash[0]!r} is the name of an average")
    policy = policies(results, benchmarks)
    graded = {at: _read(results, at, benchmarks, missing) for at in checkpoints}
    responses: dict[str, int] = {}  # of the pool; equal for all, else averages would have different weights
    for at, cells in graded.items():
        for key, cell in cells.items():
            count = cell.pool(policy[key]).responses
            if responses.setdefault(key, count) != count:
                raise CorruptInputError(
                    f"{at.path}: {key}: {count} responses, other checkpoints have {responses[key]}; a tree has one"
                    " number of items and samples: choose another --out"
                )
    if unknown := [key for key in benchmarks if key not in responses]:
        raise MissingInputError(f"{unknown[0]} was run for no checkpoint: its number of responses is unknown")
    table: list[dict[str, Any]] = []
    for at, cells in graded.items():
        column = {key: cell.column(policy[key]) for key, cell in cells.items()}
        pool = {key: cell.pool(policy[key]) for key, cell in cells.items()}
        absent = {key: responses[key] for key in benchmarks if key not in cells}
        found = {key: _benchmark(cell) for key, cell in column.items()}
        found |= {key: {"level": "problem", "how": NOT_RUN} for key in absent}
        found |= _averages(column, pool, absent)
        run = {"model": at.run.model, "method": at.run.method, "seed": at.run.seed, "step": at.step}
        table += [dict.fromkeys(COLUMNS) | run | {"benchmark": key} | figures for key, figures in found.items()]
    return table


def _read(results: Results, at: Checkpoint, benchmarks: Sequence[str], missing: Missing) -> dict[str, Graded]:
    graded = estimate.read_graded(results, at, [key for key in benchmarks if (at, key) not in missing])
    check_model(results.samples(at) / "samples.json", at)
    return graded


def check_model(path: Path, checkpoint: Checkpoint) -> None:
    """Raise CorruptInputError unless the samples of the record at `path` were drawn from this trained checkpoint.

    Only the end of the model's path is compared: a tree may have been moved.
    """
    run, model = checkpoint.run, Path(str(read_folder(path).get("model")))
    end = run.model, run.method, f"seed{run.seed}", "checkpoints", f"step{checkpoint.step}"
    if run.method != BASE and model.parts[-len(end) :] != end:
        raise CorruptInputError(f"{path}: model: drawn from {model}, expected a folder that ends in {'/'.join(end)}")


def policies(results: Results, benchmarks: Sequence[str]) -> dict[str, str]:
    """Return the policy for copies of a problem, per benchmark: the registry's, or every row of a user's or an adopted
    one."""
    known = {key for key in benchmarks if registered(key) and not definition(results.data, key).is_file()}
    return {key: benchmark(key).duplicates if key in known else "keep" for key in benchmarks}


def _figures(e: Estimate) -> dict[str, Any]:
    return {"score": e.value, "se": e.se, "low": e.low, "high": e.high, "level": e.level, "how": e.how}


def _benchmark(cell: Graded) -> dict[str, Any]:
    """Return the figures of a benchmark's row."""
    return {
        **_totals({"": cell}),
        **_figures(estimate.estimate(cell)),
        "samples": cell.k,
        "pass_at_k": float(cell.right.any(1).mean()),
        "maj_at_k": float(estimate.maj_at_k(cell.answer.tolist(), cell.right).mean()),
        "response_tokens": cell.tokens_each,
        "generation_se": estimate.generation_se(cell),
    }


def _averages(
    column: Mapping[str, Graded], pool: Mapping[str, Graded], absent: Mapping[str, int]
) -> dict[str, dict[str, Any]]:
    """Return the figures of the averages' rows, by name."""
    strata: dict[str, Samples | int] = {**pool, **absent}
    found = {POOLED: _totals(pool) | _figures(estimate.pooled(strata))}
    if absent:
        found[POOLED_MISSING_WRONG] = _totals(pool, sum(absent.values()))
        found[POOLED_MISSING_WRONG] |= _figures(estimate.pooled(strata, missing_as_wrong=True))
    row = _totals(column) | _figures(estimate.macro({**column, **absent}))
    lengths = [cell.tokens_each for cell in column.values()]
    row["response_tokens"] = None if absent or None in lengths else sum(filter(None, lengths)) / len(lengths)
    # `_totals` counts responses, but this average weights benchmarks: timeouts are averaged like the scores.
    timeouts = sum(cell.counts()["timeout"] / cell.responses for cell in column.values()) / len(column)
    row["timeout_low"] = row["score"]
    row["timeout_high"] = None if absent else min(1.0, row["score"] + timeouts)
    return found | {MACRO: row}


def _totals(cells: Mapping[str, Graded], never_asked: int = 0) -> dict[str, Any]:
    """Return sums over benchmarks; `never_asked` responses enlarge only the denominators of the shares."""
    counts = {name: sum(cell.counts()[name] for cell in cells.values()) for name in VERDICTS}
    responses = sum(cell.responses for cell in cells.values())
    tokens = [(cell.tokens_each, cell.responses) for cell in cells.values()]
    known = all(mean is not None for mean, _ in tokens)
    return counts | {
        "items": sum(len(cell.items) for cell in cells.values()),
        "responses": responses,
        "response_tokens": sum((mean or 0.0) * n for mean, n in tokens) / responses if known else None,
        "timeout_low": counts["correct"] / (responses + never_asked),
        "timeout_high": (counts["correct"] + counts["timeout"]) / (responses + never_asked),
    }


# Paired by problem


def paired(
    results: Results, a: Checkpoint, b: Checkpoint, benchmarks: Sequence[str], *, missing: Missing = ()
) -> dict[str, Comparison]:
    """Return a - b, paired by problem, for every benchmark and both averages: whether checkpoint a is better than b.

    Benchmarks not run on either model (`missing`) have no entry; there is then no macro average, and the pooled one
    covers the benchmarks that both have.
    """
    policy = policies(results, benchmarks)
    sides = [_read(results, side, benchmarks, missing) for side in (a, b)]
    both = [key for key in benchmarks if all(key in side for side in sides)]
    columns = [{key: side[key].column(policy[key]) for key in both} for side in sides]
    pools = [{key: side[key].pool(policy[key]) for key in both} for side in sides]
    comparisons = {key: compare.compare(columns[0][key], columns[1][key]) for key in both}
    comparisons[POOLED] = compare.compare_average(*pools, pooled=True)
    # A mean over fewer benchmarks would be a different average under the same name.
    if len(both) == len(benchmarks):
        comparisons[MACRO] = compare.compare_average(*columns, pooled=False)
    return comparisons


def paired_of_tree(tree: Tree, a: Checkpoint, b: Checkpoint) -> Mapping[str, Comparison] | None:
    """Return `paired` for two checkpoints of one results tree on all its benchmarks; None without stored grades.

    Benchmarks declared as not run in scores.csv are left out.
    """
    if not all((tree.layout.grades(checkpoint) / "grades.json").exists() for checkpoint in (a, b)):
        return None
    keys = [str(benchmark["key"]) for benchmark in tree.benchmarks]
    missing = {place for place, score in tree.scores.items() if score.value is None}
    return paired(tree.layout, a, b, keys, missing=missing)


def difference_of_scores(tree: Tree, benchmark: str, a: Checkpoint, b: Checkpoint) -> Comparison | None:
    """Return a - b on one benchmark or average, paired by problem; None where either score is unknown.

    Without grades the difference has no interval. Raises CorruptInputError when scores.csv and the grades
    disagree.
    """
    score_a, score_b = tree.scores[a, benchmark], tree.scores[b, benchmark]
    if score_a.value is None or score_b.value is None:
        return None
    difference = score_a.value - score_b.value
    comparisons = tree.once(paired_of_tree, a, b)  # a table requests the same pair once per column
    if comparisons is None:
        how = "no grades beside the scores: no paired interval"
        return Comparison(difference=difference, level="problem", how=how, n=int(score_a.items or 0))
    comparison: Comparison = comparisons[benchmark]
    if comparison.difference is None or abs(comparison.difference - difference) > ROUNDING:
        raise CorruptInputError(
            f"{tree.layout.scores}: {benchmark}: {a.path.as_posix()} minus {b.path.as_posix()} is {difference}, "
            f"their grades give {comparison.difference}: score again"
        )
    return comparison


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Scores and intervals from grades.", fromfile_prefix_chars="@")
    add = parser.add_argument
    add("--results", required=True, type=Path, metavar="DIR", help="results/<scale>: grades/ and samples/")
    paths = "<model>/<method>/seed<k>/step<N>; @FILE: a file of them, one a line"
    add("--checkpoints", required=True, nargs="+", metavar="PATH", help=paths)
    add("--benchmarks", required=True, nargs="+", metavar="KEY")
    add("--out", required=True, type=Path, metavar="CSV")
    args = parser.parse_args(arguments)
    code = Code("score").hash
    checkpoints = [Checkpoint.parse(path) for path in args.checkpoints]
    table = rows(Results(args.results), checkpoints, args.benchmarks)
    write_scores(args.out, [{**row, "code": code} for row in table])
    print(f"{args.out}: {len(table)} rows, {len(checkpoints)} checkpoints, {len(args.benchmarks)} benchmarks")


if __name__ == "__main__":
    errors.run(main)
