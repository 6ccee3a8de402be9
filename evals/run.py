"""Evaluate a model: get the problems, generate, grade, score.

    python -m evals.run --model FOLDER --benchmarks all --backend hf --limit 5 --data DIR --out OUT

Writes `OUT/{data, samples, grades, scores.csv, matrix.json}` laid out like `results/<scale>`, and prints scores with
intervals; `python -m report.page --results OUT --data OUT/data` makes a page of scores and responses.
Another model or benchmark adds to OUT. Nothing is downloaded without --download. After an interruption, run it again:
finished parts are kept.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any

from core import errors
from core.errors import ConfigError, MissingInputError, Parser
from core.files import read_json, write_json
from core.layout import BASE, Checkpoint, Results, Run
from evals import generate, grade, score, store
from evals.benchmark import Benchmark, defined, definition, folder_name, path_in
from evals.fetch import fetch
from evals.generation.engine import Engine
from evals.scores import read_rows, write_scores


def checkpoint(model: Path | str) -> Checkpoint:
    """Return the checkpoint of the weights folder `model`; an external model counts as untrained, under its name.

    >>> checkpoint("results/quick/runs/tiny/tepo/seed1/checkpoints/step12").path.as_posix()
    'tiny/tepo/seed1/step12'
    >>> checkpoint("models/Qwen2.5-7B").path.as_posix()
    'Qwen2.5-7B/base/seed0/step0'
    """
    parts = Path(model).resolve().parts if Path(model).exists() else Path(model).parts
    if len(parts) >= 5 and parts[-2] == "checkpoints":
        with suppress(ConfigError):  # an ordinary folder of that name
            return Checkpoint.parse(Path(*parts[-5:-2], parts[-1]))
    return Checkpoint.base(folder_name(parts[-1]) if parts else "model")


def collect(benchmarks: Sequence[Benchmark], folder: Path, mirror: Path | str | None, download: bool) -> None:
    """Collect verified items of every benchmark in `folder`. Raises MissingInputError when a download is needed."""
    if mirror is not None and not Path(mirror).is_dir():
        raise MissingInputError(f"--data: {mirror}: no folder there")
    absent = [b for b in benchmarks if not b.local and path_in(folder, b) is None]
    if absent and mirror is None and not download:
        names = ", ".join(entry.key for entry in absent)
        raise MissingInputError(
            f"no --data: {names}: add --download to get them from their sources (licences: docs/evaluation.md), or "
            "--data DIR for a folder that holds them"
        )
    for entry in benchmarks:
        if definition(folder, entry.key).is_file() and defined(entry.key, folder).sha256 != entry.sha256:
            raise ConfigError(f"{entry.origin}: {folder} holds other problems of this name; choose another --out")
        fetch(entry, folder, mirror=mirror)


def evaluate(
    model: Engine, benchmarks: Sequence[Benchmark], out: Path, thoughts: Sequence[str], **options: Any
) -> None:
    """Write samples and grades of one model under `out`, whose `data` folder holds the items, and the scores of all
    models and benchmarks there.

    thoughts: as in `grade.grade`. options: further arguments of `generate.generate`. Raises ConfigError when `out`
    holds responses of another model of this name, or drawn with other settings: they cannot share a table.
    """
    results, at, settings = Results(out), checkpoint(model.settings.model), model.settings
    check_out(results)
    record = results.samples(at) / "samples.json"
    shared = {"decoding": options.get("changes") or {}, "reading": options.get("reading")}
    for path in sorted(results.root.glob("samples/*/*/seed*/step*/samples.json")):
        drawn = store.read_folder(path)
        asked = shared | ({"seed": settings.seed, **model.identity} if path == record else {})
        for name, value in asked.items() if "adopted" not in drawn else ():  # how another tool drew is unknown
            if drawn.get(name, value) != value:
                raise ConfigError(f"{path}: drawn with {name} {drawn.get(name)}, not {value}; choose another --out")
    generate.generate(model, benchmarks, data=results.data, out=results.samples(at), add=True, **options)
    grade_and_score(results, [at], thoughts)


def check_out(results: Results) -> None:
    """Raise ConfigError for a tree made by Snakemake: its matrix lists runs."""
    if results.matrix.is_file() and read_json(results.matrix, "the list of planned runs").get("runs"):
        raise ConfigError(f"--out: {results.root}: holds results that Snakemake made; choose another folder")


def grade_and_score(results: Results, models: Sequence[Checkpoint], thoughts: Sequence[str]) -> None:
    """Grade the samples of these models, and write scores and matrix.json of all.

    Benchmarks that another model was evaluated on are `not run`.
    """
    for at in models:
        grade.grade(results.samples(at), results.data, results.grades(at), thoughts)
    graded = {
        Checkpoint.parse(path.parent): store.read_record(path)
        for path in sorted(results.root.glob("grades/*/*/seed*/step*/grades.json"))
    }
    keys = sorted({key for record in graded.values() for key in record})
    missing = [(at, key) for at, record in graded.items() for key in keys if key not in record]
    write_scores(results.scores, score.rows(results, list(graded), keys, missing=missing))
    methods = sorted({at.run.method for at in graded} - {BASE})
    matrix = {
        "schema": 1,
        "scale": results.root.name,
        "title": "Evaluation",
        "note": "Models evaluated by python -m evals.run, or responses of other tools (evals.adopt).",
        "table_step": 0,
        "models": [{"key": name, "title": name} for name in sorted({at.run.model for at in graded})],
        "methods": [{"key": key, "row": key, "title": key} for key in methods],
        "benchmarks": [{"key": key, "title": defined(key, results.data).title} for key in keys],
        "runs": [],
        "checkpoints": [asdict(at.run) | {"step": at.step} for at in graded],
    }
    write_json(results.matrix, matrix)


def show(out: Path) -> None:
    """Print the scores of the tree `out` in percent with their 95 % intervals, one line per model and benchmark or
    average, and the commands that show more of it."""
    scores, folder = Results(out).scores, quote(str(out))
    lines = [("model", "benchmark", "items", "responses", "score", "95 % interval")]
    for row in read_rows(scores):
        at = Checkpoint(Run(row["model"], row["method"], row["seed"]), row["step"])
        value, low, high = ("-" if row[x] is None else f"{100 * row[x]:.2f}" for x in ("score", "low", "high"))
        counts = ["-" if row[name] is None else str(row[name]) for name in ("items", "responses")]
        lines.append((at.path.as_posix(), row["benchmark"], *counts, value, "-" if low == "-" else f"{low} to {high}"))
    width = max(len(line[0]) for line in lines)
    for a, b, c, d, e, f in lines:
        print(f"{a:<{width}} {b:<26} {c:>5} {d:>9} {e:>7}  {f}")
    print(f"scores: {scores}")
    print(f"pass@k, maj@k, lengths, truncation: python -m report.show details --results {folder}")
    print(f"a page of the responses: python -m report.page --results {folder} --data {quote(str(out / 'data'))}")


def main() -> int:
    parser = Parser()
    generate.add_arguments(parser)
    parser.add_argument("--data", metavar="DIR", help="folder or mirror that holds the sets; no network is used")
    parser.add_argument("--download", action="store_true", help="get the sets from their sources")
    parser.add_argument("--out", type=Path, default=Path("results/eval"), metavar="DIR", help="default: results/eval")
    grade.add_thoughts(parser)
    args = parser.parse_args()
    model, benchmarks, options = generate.requested(args)
    _ = model.identity  # raises for a model that is missing or damaged, before any download
    collect(benchmarks, args.out / "data", args.data, args.download)
    evaluate(model, benchmarks, args.out, args.thoughts, **options)
    show(args.out)
    return 0


if __name__ == "__main__":
    errors.run(main)
