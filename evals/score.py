"""Score grades: one row per checkpoint and benchmark, and the averages, each with its interval.

    python -m evals.score --results results/quick --checkpoints tiny/tepo/seed1/step12 tiny/base/seed0/step0 \
        --benchmarks syn_mix3 syn_as3 --out results/quick/scores.csv

The columns: `docs/results.md`; the intervals: `docs/statistics.md`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from core import errors
from core.code import Code
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.layout import Checkpoint, Results
from evals.scores import AVERAGES, COLUMNS, MACRO, NOT_RUN, POOLED, POOLED_MISSING_WRONG, write_scores
from evals.stats import estimate
from evals.stats.estimate import Cell, Estimate, Graded
from evals.store import VERDICTS

Missing = Collection[tuple[Checkpoint, str]]  # benchmarks that were intentionally not run


def rows(
    results: Results, checkpoints: Sequence[Checkpoint], benchmarks: Sequence[str], *, missing: Missing = ()
) -> list[dict[str, Any]]:
    """Return one dict per row of `scores.csv`.

    missing: benchmarks intentionally not run on a checkpoint; any other missing file is an error.
    """
    if clash := sorted(set(benchmarks) & set(AVERAGES)):
        raise ConfigError(f"benchmarks: {clash[0]!r} is the name of an average")
    graded = {
        at: estimate.read_graded(results, at, [key for key in benchmarks if (at, key) not in missing])
        for at in checkpoints
    }
    responses: dict[str, int] = {}  # of the pool; equal for all, else averages would have different weights
    for at, cells in graded.items():
        for key, cell in cells.items():
            if responses.setdefault(key, cell.pool.responses) != cell.pool.responses:
                raise CorruptInputError(
                    f"{at.path}: {key}: {cell.pool.responses} responses, other checkpoints have {responses[key]}; a"
                    " tree has one number of items and samples: choose another --out"
                )
    if unknown := [key for key in benchmarks if key not in responses]:
        raise MissingInputError(f"{unknown[0]} was run for no checkpoint: its number of responses is unknown")
    table: list[dict[str, Any]] = []
    for at, cells in graded.items():
        absent = {key: responses[key] for key in benchmarks if key not in cells}
        found = _averages(cells, list(absent.values())) | {key: {"level": "problem", "how": NOT_RUN} for key in absent}
        for key, (own, _) in cells.items():
            found[key] = _figures([own], estimate.estimate(own)) | {
                "samples": own.k,
                "pass_at_k": float(own.right.any(1).mean()),
                "maj_at_k": float(estimate.maj_at_k(own.answer.tolist(), own.right).mean()),
                "response_tokens": own.tokens_each,
                "generation_se": estimate.generation_se(own),
            }
        place = asdict(at.run) | {"step": at.step}
        table += [dict.fromkeys(COLUMNS) | place | {"benchmark": key} | figures for key, figures in found.items()]
    return table


def _averages(cells: Mapping[str, Cell], missing: Sequence[int]) -> dict[str, dict[str, Any]]:
    """Return the figures of the averages' rows, by name. missing: responses of each benchmark that was not run."""
    pool, column = ({key: cell[side] for key, cell in cells.items()} for side in (1, 0))
    found = {POOLED: _figures(pool.values(), estimate.pooled(pool, missing))}
    if missing:
        as_wrong = estimate.pooled(pool, missing, missing_as_wrong=True)
        found[POOLED_MISSING_WRONG] = _figures(pool.values(), as_wrong, sum(missing))
    row = _figures(column.values(), estimate.macro(column, missing))
    lengths = [cell.tokens_each for cell in column.values()]
    row["response_tokens"] = None if missing or None in lengths else sum(filter(None, lengths)) / len(lengths)
    # `_figures` counts responses, but this average weights benchmarks: timeouts are averaged like the scores.
    timeouts = sum(cell.counts()["timeout"] / cell.responses for cell in column.values()) / len(column)
    row["timeout_low"] = row["score"]
    row["timeout_high"] = None if missing else min(1.0, row["score"] + timeouts)
    return found | {MACRO: row}


def _figures(cells: Collection[Graded], e: Estimate, never_asked: int = 0) -> dict[str, Any]:
    """Return an estimate, and sums over benchmarks; `never_asked` responses enlarge only the denominators of shares."""
    counts = {name: sum(cell.counts()[name] for cell in cells) for name in VERDICTS}
    responses, lengths = sum(cell.responses for cell in cells), [cell.tokens_each for cell in cells]
    tokens = sum((mean or 0.0) * cell.responses for mean, cell in zip(lengths, cells, strict=True))
    return counts | {
        "items": sum(len(cell.items) for cell in cells),
        "responses": responses,
        "response_tokens": None if None in lengths else tokens / responses,
        "timeout_low": counts["correct"] / (responses + never_asked),
        "timeout_high": (counts["correct"] + counts["timeout"]) / (responses + never_asked),
        "score": e.value, "se": e.se, "low": e.low, "high": e.high, "level": e.level, "how": e.how,
    }  # fmt: skip


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
