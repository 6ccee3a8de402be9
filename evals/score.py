"""From grades to scores: one row per checkpoint and benchmark, and the averages, each with its interval.

    python -m evals.score --results results/quick --checkpoints tiny/tepo/seed1/step12 tiny/base/seed0/step0 \
        --benchmarks syn_mix3 syn_as3 --out results/quick/scores.csv

The columns: `docs/results.md`; the intervals: `docs/statistics.md`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core import errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.layout import BASE, Checkpoint, Results
from evals import store
from evals.scores import AVERAGES, COLUMNS, MACRO, NOT_RUN, POOLED, POOLED_MISSING_WRONG, write_scores

if TYPE_CHECKING:
    from evals.stats.estimate import Comparison, Estimate, Graded, Samples
    from evals.tree import Tree

NotRunKey = tuple[str, str]  # (model or the path of one checkpoint, benchmark)
ROUNDING = 1e-9  # scores.csv and a paired comparison sum the same shares in another order


def rows(
    results: Results,
    checkpoints: Sequence[Checkpoint],
    benchmarks: Sequence[str],
    *,
    missing: Collection[NotRunKey] = (),
) -> list[dict[str, Any]]:
    """Return one dict per row of `scores.csv`.

    missing: benchmarks intentionally not run on a model or checkpoint; any other missing file is an error.
    """
    _check_request(checkpoints, benchmarks, missing)
    policy = policies(results, benchmarks)
    graded = {c: _read(results, c, benchmarks, missing) for c in checkpoints}
    responses: dict[str, int] = {}  # of the pool; equal for all, else averages would have different weights
    for checkpoint, cells in graded.items():
        for key, cell in cells.items():
            count = cell.samples.pool(policy[key]).responses
            if responses.setdefault(key, count) != count:
                raise CorruptInputError(
                    f"{checkpoint.path}: {key}: {count} responses, other checkpoints have {responses[key]}"
                )
    if unknown := [key for key in benchmarks if key not in responses]:
        raise MissingInputError(f"{unknown[0]} was run for no checkpoint: its number of responses is unknown")
    table: list[dict[str, Any]] = []
    for checkpoint, cells in graded.items():
        table += [_benchmark_row(checkpoint, key, cell, policy[key]) for key, cell in cells.items()]
        absent = {key: responses[key] for key in benchmarks if key not in cells}
        table += [_keys(checkpoint, key) | {"level": "problem", "how": NOT_RUN} for key in absent]
        table += _average_rows(checkpoint, cells, absent, policy)
    return table


def paired(
    results: Results,
    a: Checkpoint,
    b: Checkpoint,
    benchmarks: Sequence[str],
    *,
    missing: Collection[NotRunKey] = (),
) -> dict[str, Comparison]:
    """Return a - b, paired by problem, for every benchmark and both averages: whether checkpoint a is better than b.

    Benchmarks not run on either model (`missing`) have no entry; there is then no macro average, and the pooled one
    covers the benchmarks that both have.
    """
    from evals.stats.compare import compare, compare_macro, compare_pooled

    _check_request((a, b), benchmarks, missing)
    policy = policies(results, benchmarks)
    graded_a, graded_b = (_read(results, side, benchmarks, missing) for side in (a, b))
    both = [key for key in benchmarks if key in graded_a and key in graded_b]
    column_a, column_b = ({k: side[k].samples.column(policy[k]) for k in both} for side in (graded_a, graded_b))
    pool_a, pool_b = ({k: side[k].samples.pool(policy[k]) for k in both} for side in (graded_a, graded_b))
    comparisons = {key: compare(column_a[key], column_b[key]) for key in both}
    comparisons[POOLED] = compare_pooled(pool_a, pool_b)
    # A mean over fewer benchmarks would be a different average under the same name.
    if len(both) == len(benchmarks):
        comparisons[MACRO] = compare_macro(column_a, column_b)
    return comparisons


def paired_of_tree(tree: Tree, a: Checkpoint, b: Checkpoint) -> Mapping[str, Comparison] | None:
    """Return `paired` for two checkpoints of one results tree on all its benchmarks; None without stored grades.

    Benchmarks declared as not run in scores.csv are left out.
    """
    if not all((tree.layout.grades(checkpoint) / "grades.json").exists() for checkpoint in (a, b)):
        return None
    keys = [str(benchmark["key"]) for benchmark in tree.benchmarks]
    known = [(c.run.model, key, tree.scores[c, key]) for c in (a, b) for key in keys if (c, key) in tree.scores]
    return paired(tree.layout, a, b, keys, missing={(model, key) for model, key, score in known if score.value is None})


def difference_of_scores(tree: Tree, benchmark: str, a: Checkpoint, b: Checkpoint) -> Comparison | None:
    """Return a - b on one benchmark or average, paired by problem; None where either score is unknown.

    Without grades the difference has no interval. Raises CorruptInputError when scores.csv and the grades
    disagree.
    """
    from evals.stats.estimate import Comparison

    score_a, score_b = tree.scores[a, benchmark], tree.scores[b, benchmark]
    if score_a.value is None or score_b.value is None:
        return None
    difference = score_a.value - score_b.value
    comparisons = tree.once(paired_of_tree, a, b)  # a table requests the same pair once per column
    if comparisons is None:
        how = "no grades beside the scores: no paired interval"
        return Comparison(difference=difference, level="problem", how=how, n=int(score_a.items or 0))
    comparison = comparisons[benchmark]
    if comparison.difference is None or abs(comparison.difference - difference) > ROUNDING:
        raise CorruptInputError(
            f"{tree.layout.scores}: {benchmark}: {a.path.as_posix()} minus {b.path.as_posix()} is {difference}, "
            f"their grades give {comparison.difference}: score again"
        )
    return comparison


def policies(results: Results, benchmarks: Sequence[str]) -> dict[str, str]:
    """Return the policy for copies of a problem, per benchmark, from the registry or the tree's data folder."""
    from evals.benchmark import defined

    return {key: defined(key, results.data).duplicates for key in benchmarks}


def _check_request(
    checkpoints: Sequence[Checkpoint], benchmarks: Sequence[str], missing: Collection[NotRunKey]
) -> None:
    for what, values in (("checkpoints", checkpoints), ("benchmarks", benchmarks)):
        if not values or len(set(values)) != len(values):
            got = ", ".join(map(str, values)) or "none"
            raise ConfigError(f"{what}: expected one or more different ones, got {got}")
    if clash := sorted(set(benchmarks) & set(AVERAGES)):
        raise ConfigError(f"benchmarks: {clash[0]!r} is the name of an average")
    for model, key in missing:
        named = {name for c in checkpoints for name in (c.run.model, c.path.as_posix())}
        if key not in benchmarks or model not in named:
            raise ConfigError(f"missing: {model}:{key} names no requested checkpoint's model and benchmark")


def _read(
    results: Results, checkpoint: Checkpoint, benchmarks: Sequence[str], missing: Collection[NotRunKey]
) -> dict[str, Graded]:
    from evals.stats.estimate import read_graded

    names = checkpoint.run.model, checkpoint.path.as_posix()
    absent = {key for key in benchmarks if any((name, key) in missing for name in names)}
    for key in absent:
        path = results.grades(checkpoint) / f"{key}.parquet"
        if path.exists():
            raise CorruptInputError(f"{path}: there, but declared as not run")
    graded = read_graded(results, checkpoint, [key for key in benchmarks if key not in absent])
    check_model(results.samples(checkpoint) / "samples.json", checkpoint)
    return graded


def check_model(path: Path, checkpoint: Checkpoint) -> None:
    """Raise CorruptInputError unless the samples of the record at `path` were drawn from this trained checkpoint.

    Only the end of the model's path is compared: a tree may have been moved.
    """
    run, model = checkpoint.run, Path(str(store.read_folder(path).get("model")))
    end = run.model, run.method, f"seed{run.seed}", "checkpoints", f"step{checkpoint.step}"
    if run.method != BASE and model.parts[-len(end) :] != end:
        raise CorruptInputError(f"{path}: model: drawn from {model}, expected a folder that ends in {'/'.join(end)}")


def _keys(checkpoint: Checkpoint, benchmark: str) -> dict[str, Any]:
    """Return a row with every column, of which only the key is filled."""
    run = checkpoint.run
    keys = {"model": run.model, "method": run.method, "seed": run.seed, "step": checkpoint.step, "benchmark": benchmark}
    return dict.fromkeys(COLUMNS) | keys


def _figures(e: Estimate) -> dict[str, Any]:
    return {"score": e.value, "se": e.se, "low": e.low, "high": e.high, "level": e.level, "how": e.how}


def _benchmark_row(checkpoint: Checkpoint, key: str, graded: Graded, policy: str) -> dict[str, Any]:
    from evals.stats.estimate import estimate, generation_se, maj_at_k

    cell = graded.only(graded.samples.column(policy))
    samples, counts = cell.samples, cell.counts()
    return (
        _keys(checkpoint, key)
        | counts
        | _figures(estimate(samples))
        | {
            "items": len(samples.items),
            "samples": samples.k,
            "responses": samples.responses,
            "pass_at_k": float(samples.right.any(1).mean()),
            "maj_at_k": float(maj_at_k(cell.answer.tolist(), samples.right).mean()),
            "response_tokens": cell.tokens_each,
            "generation_se": generation_se(samples),
            "timeout_low": samples.score,
            "timeout_high": (counts["correct"] + counts["timeout"]) / samples.responses,
        }
    )


def _average_rows(
    checkpoint: Checkpoint, graded: Mapping[str, Graded], absent: Mapping[str, int], policy: Mapping[str, str]
) -> list[dict[str, Any]]:
    from evals.stats.estimate import macro, pooled

    pool = {key: cell.only(cell.samples.pool(policy[key])) for key, cell in graded.items()}
    column = {key: cell.only(cell.samples.column(policy[key])) for key, cell in graded.items()}
    strata: dict[str, Samples | int] = {**{key: cell.samples for key, cell in pool.items()}, **absent}
    rows = [_keys(checkpoint, POOLED) | _totals(pool) | _figures(pooled(strata))]
    if absent:
        as_wrong = _totals(pool, sum(absent.values()))
        rows.append(
            _keys(checkpoint, POOLED_MISSING_WRONG) | as_wrong | _figures(pooled(strata, missing_as_wrong=True))
        )
    row = _keys(checkpoint, MACRO) | _totals(column)
    row |= _figures(macro({**{key: cell.samples for key, cell in column.items()}, **absent}))
    lengths = [cell.tokens_each for cell in column.values()]
    row["response_tokens"] = None if absent or None in lengths else sum(filter(None, lengths)) / len(lengths)
    # `_totals` counts responses, but this average weights benchmarks: timeouts are averaged like the scores.
    timeouts = sum(cell.counts()["timeout"] / cell.samples.responses for cell in column.values()) / len(column)
    row["timeout_low"] = row["score"]
    row["timeout_high"] = None if absent else min(1.0, row["score"] + timeouts)
    return [*rows, row]


def _totals(cells: Mapping[str, Graded], never_asked: int = 0) -> dict[str, Any]:
    """Return sums over benchmarks; `never_asked` responses widen only the denominators of the shares."""
    counts = {name: sum(cell.counts()[name] for cell in cells.values()) for name in store.VERDICTS}
    responses = sum(cell.samples.responses for cell in cells.values())
    tokens = [(cell.tokens_each, cell.samples.responses) for cell in cells.values()]
    known = all(mean is not None for mean, _ in tokens)
    return counts | {
        "items": sum(len(cell.samples.items) for cell in cells.values()),
        "responses": responses,
        "response_tokens": sum((mean or 0.0) * n for mean, n in tokens) / responses if known else None,
        "timeout_low": counts["correct"] / (responses + never_asked),
        "timeout_high": (counts["correct"] + counts["timeout"]) / (responses + never_asked),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Scores and intervals from grades.", fromfile_prefix_chars="@")
    add = parser.add_argument
    add("--results", required=True, type=Path, metavar="DIR", help="results/<scale>: grades/ and samples/")
    paths = "<model>/<method>/seed<k>/step<N>; @FILE: a file of them, one a line"
    add("--checkpoints", required=True, nargs="+", metavar="PATH", help=paths)
    add("--benchmarks", required=True, nargs="+", metavar="KEY")
    add("--missing", nargs="*", default=[], metavar="MODEL:KEY", help="benchmarks not run, on purpose")
    add("--out", required=True, type=Path, metavar="CSV")
    args = parser.parse_args(arguments)

    missing = []
    for text in args.missing:
        model, colon, key = text.partition(":")
        if not colon or not model or not key:
            raise ConfigError(f"--missing: {text!r} is not of the form MODEL:KEY")
        missing.append((model, key))
    code = Code("score").hash
    checkpoints = [Checkpoint.parse(path) for path in args.checkpoints]
    table = rows(Results(args.results), checkpoints, args.benchmarks, missing=missing)
    write_scores(args.out, [{**row, "code": code} for row in table])
    print(f"{args.out}: {len(table)} rows, {len(checkpoints)} checkpoints, {len(args.benchmarks)} benchmarks")


if __name__ == "__main__":
    errors.run(main)
