"""Evaluate models: get the problems, generate, grade, score.

    python -m evals.run --model FOLDER --benchmarks all --backend hf --limit 5 --data DIR --out OUT
    python -m evals.run --model FOLDER,ANOTHER --benchmarks aime24,amc

Writes `OUT/{data, samples, grades, scores.csv, matrix.json}` laid out like `results/<scale>`, and prints scores with
intervals; `python -m report.page --results OUT --data OUT/data` makes a page of scores and responses.
Another model or benchmark adds to OUT. Without --data it prints what would have to be downloaded; --download
does it. After an interruption, run it again: finished parts are kept.
"""

import argparse
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser
from core.files import read_json, write_json
from core.layout import BASE, Checkpoint, Results, Run
from evals import data, generate, grade, score
from evals.benchmark import Benchmark, defined, select
from evals.fetch import explain, fetch
from evals.generation.engine import Engine
from evals.scores import read_scores, write_scores


def checkpoint(model: Path | str) -> Checkpoint:
    """Return the checkpoint of the weights folder `model`; an external model counts as untrained, under its name.

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
            pass  # an ordinary folder of that name
    return Checkpoint.base(folder_name(parts[-1]) if parts else "model")


def folder_name(text: str) -> str:
    """Return a model's or benchmark's name as a valid folder name.

    >>> folder_name("minerva_math:algebra v2")
    'minerva_math-algebra-v2'
    """
    return re.sub(r"[^A-Za-z0-9_.+=-]", "-", text)


def collect(benchmarks: Sequence[Benchmark], folder: Path, mirror: Path | str | None, download: bool) -> None:
    """Collect verified items of every benchmark in `folder`. Raises MissingInputError when a download is needed."""
    if mirror is not None and not Path(mirror).is_dir():
        raise MissingInputError(f"--data: {mirror}: no folder there")
    absent = [b for b in benchmarks if not b.synthetic and data.path_in(folder, b) is None]
    if absent and mirror is None and not download:
        print(explain(absent, folder))
        raise MissingInputError(
            "no --data: nothing was downloaded; add --download to get the sets above from their sources,"
            " or --data DIR for a folder that holds them"
        )
    for entry in benchmarks:
        fetch(entry, folder, mirror=mirror)


def evaluate(
    settings: generate.Settings,
    benchmarks: Sequence[Benchmark],
    out: Path,
    *,
    backend: str,
    model: Engine | None = None,
    **options: Any,
) -> Path:
    """Write samples and grades of one model under `out`, whose `data` folder holds the items, and the scores of all
    models and benchmarks there.

    Returns the path of the scores. options: further arguments of `generate.generate`. Raises ConfigError when `out`
    holds responses of another model of this name, or drawn with other settings: they cannot share a table.
    """
    results = Results(out)
    check_out(results)
    at = checkpoint(settings.model)
    model = model or generate.engine(backend, settings)
    model.identity()
    _check_drawn(results, settings, model, options)
    record = results.samples(at) / "samples.json"
    before = read_json(record, "record of samples") if record.is_file() else None
    generate.generate(
        settings, benchmarks, backend=backend, data=results.data, out=results.samples(at), model=model, **options
    )
    if before is not None:
        # Earlier responses are still on disk, but the new record lists only those of this call.
        after = read_json(record, "record of samples")
        write_json(record, after | {"benchmarks": before["benchmarks"] | after["benchmarks"]})
    return grade_and_score(results, [at])


def check_out(results: Results) -> None:
    """Raise ConfigError for a tree made by Snakemake: its matrix plans runs."""
    if results.matrix.is_file() and read_json(results.matrix, "the list of planned runs").get("runs"):
        raise ConfigError(f"--out: {results.root}: holds results that Snakemake made; choose another folder")


def grade_and_score(results: Results, models: Sequence[Checkpoint]) -> Path:
    """Grade the samples of these models, write scores and matrix.json of all, and return the path of the scores."""
    for at in models:
        grade.grade(results.samples(at), results.data, results.grades(at))
    write_scores(results.scores, score_all(results))
    write_json(results.matrix, matrix(results))
    return results.scores


def matrix(results: Results) -> dict[str, Any]:
    """Return the list of evaluated checkpoints and benchmarks for the report: a tree without runs."""
    graded, keys = _graded(results)
    methods = sorted({at.run.method for at in graded} - {BASE})
    return {
        "schema": 1,
        "scale": results.root.name,
        "title": "Evaluation",
        "note": "Models evaluated by python -m evals.run, or responses of other tools (evals.adopt).",
        "table_step": 0,
        "models": [{"key": name, "title": name} for name in sorted({at.run.model for at in graded})],
        "methods": [{"key": key, "row": key, "title": key} for key in methods],
        "benchmarks": [{"key": key, "title": defined(key, results.data).title} for key in keys],
        "runs": [],
        "checkpoints": [
            {"model": at.run.model, "method": at.run.method, "seed": at.run.seed, "step": at.step} for at in graded
        ],
    }


def _graded(results: Results) -> tuple[dict[Checkpoint, dict[str, Any]], list[str]]:
    """Return the record of each model's grades, and all benchmarks."""
    records = {
        Checkpoint.parse(path.parent.relative_to(results.root / "grades")): read_json(path, "record of grades")
        for path in sorted(results.root.glob("grades/*/*/seed*/step*/grades.json"))
    }
    return records, sorted({key for record in records.values() for key in record["benchmarks"]})


def score_all(results: Results) -> list[dict[str, Any]]:
    """Return the rows of every graded model and benchmark. Combinations not evaluated are `not run`."""
    graded, keys = _graded(results)
    missing = [(at.path.as_posix(), key) for at, of in graded.items() for key in keys if key not in of["benchmarks"]]
    try:
        return score.rows(results, list(graded), keys, missing=missing)
    except CorruptInputError as error:
        if "other checkpoints have" not in str(error):
            raise
        raise ConfigError(f"{error}; with another --limit, another --out") from error


def _check_drawn(results: Results, settings: generate.Settings, model: Engine, options: Mapping[str, Any]) -> None:
    """Raise ConfigError when responses in `results` were drawn with other options, or this model's with another
    seed or weights. How another tool drew adopted responses is unknown: they are not compared."""

    def words(changes: Mapping[str, float], reading: str | None) -> str:
        given = [f"--{name.replace('_', '-')} {changes[name]:g}" for name in generate.DECODING if name in changes]
        given += [f"--prompt {reading}"] if reading else []
        return " ".join(given) or "the registry's decoding and prompts"

    asked = words(options.get("changes") or {}, options.get("reading"))
    own = results.samples(checkpoint(settings.model)) / "samples.json"
    for path in sorted(results.root.glob("samples/*/*/seed*/step*/samples.json")):
        record = read_json(path, "record of samples")
        drawn, wanted = words(record.get("decoding") or {}, record.get("reading")), asked
        if path == own:
            ours = {"weights_sha256": model.weights_sha256, "files_sha256": model.files_sha256}
            if any(record.get(key) not in (None, value) for key, value in ours.items()):
                raise ConfigError(
                    f"{path}: another model of this name ({record.get('model')}); rename its folder, or --out"
                )
            drawn, wanted = f"--seed {record.get('seed')} and {drawn}", f"--seed {settings.seed} and {wanted}"
        if drawn != wanted and "adopted" not in record:
            raise ConfigError(f"{path}: drawn with {drawn}, not {wanted}; choose another --out")


def table(path: Path) -> str:
    """Format scores in percent with their 95 % intervals, one line per model and benchmark or average."""
    rows = read_scores(path).to_dict("records")
    names = [Checkpoint(Run(r["model"], r["method"], r["seed"]), r["step"]).path.as_posix() for r in rows]
    width = max(map(len, ["model", *names]))
    lines = [f"{'model':<{width}} {'benchmark':<26} {'items':>5} {'responses':>9} {'score':>7}  95 % interval"]
    for name, row in zip(names, rows, strict=True):
        interval = "-" if math.isnan(row["low"]) else f"{100 * row['low']:.2f} to {100 * row['high']:.2f}"
        percent = "-" if math.isnan(row["score"]) else f"{100 * row['score']:.2f}"
        items, responses = (row[key] if isinstance(row[key], int) else "-" for key in ("items", "responses"))
        lines.append(f"{name:<{width}} {row['benchmark']:<26} {items!s:>5} {responses!s:>9} {percent:>7}  {interval}")
    return "\n".join(lines)


def next_steps(scores: Path, out: Path) -> str:
    """Return the path of the scores, and the commands that show more of the tree `out`."""
    return (
        f"scores: {scores}\n"
        f"pass@k, maj@k, lengths, truncation: python -m report.show details --results {out}\n"
        f"a page of the responses: python -m report.page --results {out} --data {out / 'data'}"
    )


def main() -> int:
    parser = Parser()
    generate.add_arguments(parser)
    parser.add_argument("--data", metavar="DIR", help="folder or mirror that holds the sets; no network is used")
    parser.add_argument("--download", action="store_true", help="get the sets from their sources")
    parser.add_argument("--out", type=Path, default=Path("results/eval"), metavar="DIR", help="default: results/eval")
    args = parser.parse_args()
    generate.one_line_per_job(args.backend)
    names = [args.model] if Path(args.model).exists() else [name for name in args.model.split(",") if name]
    if len({checkpoint(name) for name in names}) < len(names):
        raise ConfigError(f"--model: {args.model}: two of one name; rename a folder, or use another --out")
    benchmarks, options = select(args.benchmarks), generate.request_options(args)
    models = []
    for name in names:
        settings = generate.settings(argparse.Namespace(**vars(args) | {"model": name}))
        models.append((settings, generate.engine(args.backend, settings)))
        models[-1][1].identity()  # raises for a model that is missing or damaged, before any download
    collect(benchmarks, args.out / "data", args.data, args.download)
    for settings, model in models:
        path = evaluate(settings, benchmarks, args.out, backend=args.backend, model=model, **options)
    print(table(path))
    print(next_steps(path, args.out))
    return 0


if __name__ == "__main__":
    errors.run(main)
