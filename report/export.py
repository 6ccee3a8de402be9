"""`python -m report.export --results results/quick --to eval-results --out OUT`: results in forms that others read.

eval-results       .eval_results/<benchmark>.yaml for a model's repository on the Hugging Face hub, per checkpoint
tensorboard        the curves of all finished runs as event files

Nothing is computed: scores come from scores.csv, curves from curve.csv. What a form cannot express is left out and
named on stdout.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from core import errors
from core.errors import ConfigError, Parser, unknown
from core.files import read_csv, write_text
from core.layout import BASE, Checkpoint, Run
from core.results_tree import Tree, open_tree
from core.scores import AVERAGES, NOT_RUN, read_rows

REPOSITORY = "tepo-bench"
EXTRAS = {"tensorboard": "tensorboard"}  # forms that need a package beside the harness's own

Row = Mapping[str, Any]
Lines = Iterator[str]  # printed by an export: files written, things left out


def scores(tree: Tree) -> dict[Checkpoint, list[Row]]:
    """The rows of benchmarks that were run, by checkpoint; averages over benchmarks belong to no benchmark."""
    with errors.written_by("python -m evals.score, or snakemake"):
        tree.check_written(tree.layout.scores.name, tree.layout.scores.name)
    found: dict[Checkpoint, list[Row]] = {}
    for row in read_rows(tree.layout.scores):
        if row["benchmark"] in AVERAGES or row["how"] == NOT_RUN or row["score"] is None:
            continue
        checkpoint = Checkpoint(Run(row["model"], row["method"], row["seed"]), row["step"])
        found.setdefault(checkpoint, []).append(row)
    return found


def _interval(row: Row) -> str:
    if row["low"] is None:
        return f"no interval ({row['how']})"
    return f"95 % interval {100 * row['low']:.2f} to {100 * row['high']:.2f} ({row['level']} level: {row['how']})"


# Hugging Face: one YAML per benchmark, read by the hub from a model's repository.


def datasets_of(tree: Tree, given: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Benchmark -> data set on the hub and its commit: those that `--dataset KEY=ORG/NAME` names, and those whose own
    source is one."""
    from evals.benchmark import HubFile, defined

    keys = [str(entry["key"]) for entry in tree.benchmarks]
    found: dict[str, tuple[str, str | None]] = {}
    for key in keys:
        source = defined(key, tree.layout.data).source
        if isinstance(source, HubFile):
            found[key] = (source.dataset, source.revision)
    for text in given:
        key, equals, dataset = text.partition("=")
        if not equals or dataset.count("/") != 1 or not all(dataset.split("/")):
            raise ConfigError(f"command line: --dataset: {text!r} is not of the form KEY=ORGANISATION/NAME")
        if key not in keys:
            raise unknown("command line", "--dataset", key, keys)
        found[key] = (dataset, None)
    return found


def eval_results(tree: Tree, out: Path, given: Sequence[str]) -> Lines:
    """<out>/<checkpoint>/.eval_results/<benchmark>.yaml, in percent, as the hub's leaderboards are."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    datasets = datasets_of(tree, given)
    left_out = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) not in datasets]
    if not datasets:
        raise ConfigError(
            f"{tree.root}: none of its benchmarks is a data set on the hub ({', '.join(left_out)}); "
            "--dataset KEY=ORGANISATION/NAME says which one is"
        )
    for checkpoint, rows in scores(tree).items():
        record = (tree.record(checkpoint.run) if checkpoint.run.method != BASE else None) or {}
        for row in (row for row in rows if row["benchmark"] in datasets):
            dataset, revision = datasets[row["benchmark"]]
            entry = EvalResultEntry(
                dataset_id=dataset,
                task_id=row["benchmark"],
                value=round(100 * row["score"], 6),
                dataset_revision=revision,
                date=record.get("finished_at") or None,
                notes=f"avg@{row['samples']}, {row['items']} problems, {_interval(row)}; "
                f"{_drawn(tree, checkpoint, row['benchmark'])}; {REPOSITORY}",
            )
            path = out / checkpoint.path / ".eval_results" / f"{row['benchmark']}.yaml"
            write_text(path, yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True))
            yield str(path)
    if left_out:
        yield f"left out, no data set on the hub: {', '.join(left_out)} (--dataset KEY=ORGANISATION/NAME)"


def _drawn(tree: Tree, checkpoint: Checkpoint, key: str) -> str:
    """How the responses were drawn; of another tool's it is not known."""
    from evals.benchmark import benchmark
    from evals.store import read_folder

    record = tree.layout.samples(checkpoint) / "samples.json"
    if record.is_file() and (adopted := read_folder(record).get("adopted")):
        return f"responses of a log of {adopted['from']}"
    drawn = benchmark(key).decoding
    return f"temperature {drawn.temperature}, top_p {drawn.top_p}, max_tokens {drawn.max_tokens}"


# TensorBoard: as `--config log=tensorboard` writes it while a run trains.


def tensorboard(tree: Tree, out: Path, _given: Sequence[str]) -> Lines:
    from methods.training import log

    for run in tree.runs:
        if tree.record(run) is None:
            yield f"left out, not finished: {run.path.as_posix()}"
            continue
        folder = out / run.path
        copy = log.Log({"tensorboard": folder}, run.path.as_posix())
        for row in read_csv(tree.layout.run(run) / "curve.csv", "the learning curve", log.INDEX):
            copy.add(row)
        copy.close()
        yield str(folder)


FORMS: Mapping[str, Callable[[Tree, Path, Sequence[str]], Lines]] = {
    "eval-results": eval_results,
    "tensorboard": tensorboard,
}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Write results in a form that other tools read.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--to", required=True, help=", ".join(FORMS))
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    parser.add_argument(
        "--dataset", action="append", default=[], metavar="KEY=ORG/NAME", help="eval-results: a benchmark on the hub"
    )
    args = parser.parse_args(arguments)
    if args.to not in FORMS:
        raise unknown("command line", "--to", args.to, FORMS)
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ConfigError(f"command line: --out: {args.out} is there already and not an empty folder")
    there = args.out.exists()
    try:
        lines = list(FORMS[args.to](open_tree(args.results), args.out, args.dataset))
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != EXTRAS.get(args.to):
            raise
        raise ConfigError(
            f"--to {args.to} needs the package {error.name}, which is not installed: pip install {error.name}"
        ) from error
    except BaseException:
        # What is written is complete: a half export would look like one.
        if args.out.exists() and not there:
            shutil.rmtree(args.out)
        raise
    print("\n".join(lines))


if __name__ == "__main__":
    errors.run(main)
