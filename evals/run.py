"""Evaluate one model: get the problems, generate, grade, score.

    python -m evals.run --model FOLDER --benchmarks all --backend hf --limit 5 --data DIR --out OUT

Leaves `OUT/{data, samples, grades, scores.csv}` laid out like `results/<scale>`, and prints scores with intervals.
Without --data it says what would have to be downloaded; --download does it. After an interruption, run it again: what
is finished is kept.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals import data, generate, grade, score
from evals.benchmark import Benchmark, select
from evals.fetch import explain, fetch
from records import errors
from records.errors import ConfigError, MissingInputError, Parser
from records.layout import Checkpoint, Results
from records.scores import read_scores, write_scores


def checkpoint(model: Path | str) -> Checkpoint:
    """The checkpoint whose weights folder `model` is; for a model from elsewhere its name, as an untrained one.

    >>> checkpoint("results/quick/runs/tiny/tepo/seed1/checkpoints/step12").path.as_posix()
    'tiny/tepo/seed1/step12'
    >>> checkpoint("models/Qwen2.5-7B").path.as_posix()
    'Qwen2.5-7B/base/seed0/step0'
    """
    parts = Path(model).resolve().parts if Path(model).exists() else Path(model).parts
    if len(parts) >= 5 and parts[-2] == "checkpoints":
        try:
            return Checkpoint.parse(Path(*parts[-5:-2], parts[-1]))
        except ConfigError:
            pass  # an ordinary folder that happens to be called so
    return Checkpoint.base(re.sub(r"[^A-Za-z0-9_.+=-]", "-", parts[-1]) if parts else "model")


def collect(benchmarks: Sequence[Benchmark], folder: Path, mirror: Path | str | None, download: bool) -> None:
    """Verified items of every benchmark in `folder`. Raises MissingInputError when they would have to be downloaded."""
    absent = [b for b in benchmarks if not b.synthetic and data.path_in(folder, b) is None]
    if absent and mirror is None and not download:
        print(explain(absent, folder))
        raise MissingInputError(
            "no --data: nothing was downloaded; add --download to get the sets above from their sources,"
            " or --data DIR for a folder that holds them"
        )
    for benchmark in benchmarks:
        fetch(benchmark, folder, mirror=mirror)


def evaluate(
    settings: generate.Settings,
    benchmarks: Sequence[Benchmark],
    out: Path,
    *,
    backend: str,
    **options: Any,
) -> Path:
    """Write samples, grades and scores of one model under `out`, whose `data` folder holds the items.

    Returns the path of the scores. options: further arguments of `generate.generate`.
    """
    results, items = Results(out), out / "data"
    at = checkpoint(settings.model)
    generate.generate(
        settings,
        benchmarks,
        backend=backend,
        data=items,
        out=results.samples(at),
        **options,
    )
    keys = [benchmark.key for benchmark in benchmarks]
    grade.grade(results.samples(at), items, results.grades(at), benchmarks=keys)
    write_scores(results.scores, score.rows(results, [at], keys))
    return results.scores


def table(path: Path) -> str:
    """Scores in percent with their 95 % intervals, one line per benchmark and average."""
    lines = [f"{'benchmark':<26} {'items':>5} {'responses':>9} {'score':>7}  95 % interval"]
    for row in read_scores(path).to_dict("records"):
        interval = "-" if math.isnan(row["low"]) else f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
        percent = "-" if math.isnan(row["score"]) else f"{100 * row['score']:.2f}"
        lines.append(f"{row['benchmark']:<26} {row['items']!s:>5} {row['responses']!s:>9} {percent:>7}  {interval}")
    return "\n".join(lines)


def main() -> int:
    parser = Parser(prog="python -m evals.run", description=str(__doc__).split("\n")[0])
    generate.add_arguments(parser)
    parser.add_argument("--data", metavar="DIR", help="folder or mirror that holds the sets; no network is used")
    parser.add_argument("--download", action="store_true", help="get the sets from their sources")
    parser.add_argument("--out", type=Path, default=Path("results/eval"), metavar="DIR", help="default: results/eval")
    args = parser.parse_args()
    generate.one_line_per_job(args.backend)
    settings = generate.settings(args)
    benchmarks = select(args.benchmarks)
    model = generate.engine(args.backend, settings)
    model.identity()  # raises for a model that is missing or damaged, before anything is downloaded
    collect(benchmarks, args.out / "data", args.data, args.download)
    path = evaluate(
        settings,
        benchmarks,
        args.out,
        backend=args.backend,
        model=model,
        **generate.prompt_options(args),
    )
    print(table(path))
    print(f"scores: {path}")
    return 0


if __name__ == "__main__":
    errors.run(main)
