"""`python -m report.export --results results/quick --to eval-results --out OUT`: results in forms that others read.

eval-results       .eval_results/<benchmark>.yaml for a model's repository on the Hugging Face hub, per checkpoint
every-eval-ever    one JSON per checkpoint in the shared schema of Every Eval Ever, checked against it
tensorboard        the curves of all finished runs as event files
ro-crate           a Workflow Run Crate: the files of the manifest, and which run and evaluation made which

Nothing is computed: scores come from scores.csv, curves from curve.csv, hashes and origins from manifest.json. What a
form cannot say is left out and named on stdout.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from records import errors
from records.errors import ConfigError, CorruptInputError, MissingInputError, Parser, unknown
from records.files import read_csv, write_text
from records.layout import BASE, Checkpoint, Run
from records.provenance import ROOT
from records.results_tree import Tree, open_tree
from records.scores import AVERAGES, NOT_RUN, read_rows

REPOSITORY = "tepo-bench"
EXTRAS = {"tensorboard": "tensorboard", "ro-crate": "rocrate"}  # forms that need a package beside the harness's own

Row = Mapping[str, Any]
Lines = Iterator[str]  # what an export says: files written, things left out


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


def decoding(key: str) -> dict[str, Any]:
    from evals.benchmark import benchmark

    drawn = benchmark(key).decoding
    return {"temperature": drawn.temperature, "top_p": drawn.top_p, "max_tokens": drawn.max_tokens}


def _finished_at(tree: Tree, run: Run) -> str | None:
    record = tree.record(run) if run.method != BASE else None
    return str(record["finished_at"]) if record and record.get("finished_at") else None


def _interval(row: Row) -> str:
    if row["low"] is None:
        return f"no interval ({row['how']})"
    return f"95 % interval {100 * row['low']:.2f} to {100 * row['high']:.2f} ({row['level']} level: {row['how']})"


# Hugging Face: one YAML per benchmark, read by the hub from a model's repository.


def datasets_of(tree: Tree, given: Sequence[str]) -> dict[str, tuple[str, str | None]]:
    """Benchmark -> data set on the hub and its commit: those that `--dataset KEY=ORG/NAME` names, and those whose own
    source is one."""
    from evals.benchmark import HubFile, benchmark

    keys = [str(entry["key"]) for entry in tree.benchmarks]
    found: dict[str, tuple[str, str | None]] = {}
    for key in keys:
        source = benchmark(key).source
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
        for row in rows:
            if row["benchmark"] not in datasets:
                continue
            dataset, revision = datasets[row["benchmark"]]
            drawn = decoding(row["benchmark"])
            entry = EvalResultEntry(
                dataset_id=dataset,
                task_id=row["benchmark"],
                value=round(100 * row["score"], 6),
                dataset_revision=revision,
                date=_finished_at(tree, checkpoint.run),
                notes=f"avg@{row['samples']}, {row['items']} problems, {_interval(row)}; temperature "
                f"{drawn['temperature']}, top_p {drawn['top_p']}, max_tokens {drawn['max_tokens']}; {REPOSITORY}",
            )
            path = out / checkpoint.path / ".eval_results" / f"{row['benchmark']}.yaml"
            write_text(path, yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True))
            yield str(path)
    if left_out:
        yield f"left out, no data set on the hub: {', '.join(left_out)} (--dataset KEY=ORGANISATION/NAME)"


# Every Eval Ever: one JSON per checkpoint.


def every_eval_ever(tree: Tree, out: Path, _given: Sequence[str]) -> Lines:
    from report.site import assets

    schema = json.loads(assets.vendored("every_eval_ever/eval.schema.json"))
    for checkpoint, rows in scores(tree).items():
        document = evaluation(tree, checkpoint, rows, str(schema["version"]))
        check_against(schema, document, checkpoint)
        path = out / checkpoint.run.model / f"{checkpoint.path.as_posix().replace('/', '-')}.json"
        write_text(path, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
        yield str(path)


def check_against(schema: Mapping[str, Any], document: Mapping[str, Any], checkpoint: Checkpoint) -> None:
    """Raise CorruptInputError for the first thing in `document` that the published schema refuses."""
    import jsonschema

    problem = next(iter(jsonschema.Draft7Validator(schema).iter_errors(document)), None)
    if problem is not None:
        where = ".".join(map(str, problem.absolute_path)) or "document"
        raise CorruptInputError(f"{checkpoint.path}: every-eval-ever: {where}: {problem.message}")


def evaluation(tree: Tree, checkpoint: Checkpoint, rows: Sequence[Row], version: str) -> dict[str, Any]:
    """One checkpoint's results. The schema wants additional details to be strings."""
    run, record = checkpoint.run, tree.record(checkpoint.run) if checkpoint.run.method != BASE else None
    packages = ((record or {}).get("environment") or {}).get("packages") or {}
    base = next((m for m in tree.models if m["key"] == run.model), {"title": run.model})
    title = "untrained" if run.method == BASE else str(tree.methods[run.method]["title"])
    model = f"{REPOSITORY}/{checkpoint.path.as_posix().replace('/', '-')}"
    made = int(time.time())
    finished = _finished_at(tree, run)
    return {
        "schema_version": version,
        "evaluation_id": f"{tree.scale}/{model}/{made}",
        **({"evaluation_timestamp": finished} if finished else {}),
        "retrieved_timestamp": str(made),
        "source_metadata": {
            "source_name": f"{REPOSITORY}, scale {tree.scale}",
            "source_type": "evaluation_run",
            "source_organization_name": REPOSITORY,
            "evaluator_relationship": "first_party" if run.method != BASE else "other",
        },
        "eval_library": {"name": "lm_eval", "version": str(packages.get("lm-eval") or "unknown")},
        "model_info": {
            "name": f"{base['title']}, {title}, seed {run.seed}, step {checkpoint.step}",
            "id": model,
            "developer": REPOSITORY,
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": "unknown",
                "base_model": str(base["title"]),
                "method": run.method,
                "seed": str(run.seed),
                "rollouts": str(checkpoint.step),
            },
        },
        "evaluation_results": [_result(row, model) for row in rows],
    }


def _result(row: Row, model: str) -> dict[str, Any]:
    from evals.benchmark import benchmark

    uncertainty: dict[str, Any] = {"num_samples": row["responses"]}
    if row["se"] is not None:
        uncertainty["standard_error"] = {"value": row["se"], "method": row["how"]}
    if row["low"] is not None:
        limits = {"lower": row["low"], "upper": row["high"], "confidence_level": 0.95, "method": row["how"]}
        uncertainty["confidence_interval"] = limits
    key = row["benchmark"]
    return {
        "evaluation_result_id": f"{model}/{key}",
        "evaluation_name": benchmark(key).title,
        "source_data": _source(key),
        "metric_config": {
            "evaluation_description": f"share of right responses, mean over {row['samples']} samples per problem",
            "metric_id": "accuracy",
            "metric_name": f"avg@{row['samples']}",
            "metric_kind": "accuracy",
            "metric_unit": "proportion",
            "lower_is_better": False,
            "score_type": "continuous",
            "min_score": 0,
            "max_score": 1,
        },
        "score_details": {"score": row["score"], "uncertainty": uncertainty},
        "generation_config": {"generation_args": decoding(key)},
    }


def _source(key: str) -> dict[str, Any]:
    from evals.benchmark import HubFile, RepositoryFile, benchmark

    of = benchmark(key)
    # All values of additional details are strings.
    details = {"sha256": of.sha256, "problems": str(of.n)}
    if isinstance(of.source, HubFile):
        found = {"source_type": "hf_dataset", "hf_repo": of.source.dataset, "samples_number": of.n}
    elif isinstance(of.source, RepositoryFile):
        address = f"https://github.com/{of.source.repository}/blob/{of.revision}/{of.source.path}"
        found = {"source_type": "url", "url": [address]}
    else:
        found = {"source_type": "other"}
        details["made_by"] = str(of.source)
    return {"dataset_name": of.title, **found, "additional_details": details}


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


# RO-Crate: the files with their hashes, and the actions that made them.

PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": "Process Run Crate",
    "https://w3id.org/ro/wfrun/workflow/0.5": "Workflow Run Crate",
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": "Workflow RO-Crate",
}
WORKFLOW = "Snakefile"
KINDS = {".csv": "text/csv", ".json": "application/json", ".html": "text/html", ".md": "text/markdown",
         ".svg": "image/svg+xml", ".png": "image/png", ".pdf": "application/pdf", ".tex": "text/x-tex"}  # fmt: skip


def ro_crate(tree: Tree, out: Path, _given: Sequence[str]) -> Lines:
    """The files that manifest.json lists, copied, and ro-crate-metadata.json. Checkpoints stay where they are."""
    from rocrate.model.contextentity import ContextEntity
    from rocrate.rocrate import ROCrate

    from report.provenance import manifest

    content = manifest.read(tree.root)
    crate = ROCrate()
    crate.name = f"{REPOSITORY}: {tree.matrix['title']}"
    crate.description = str(tree.matrix.get("note") or crate.name)
    crate.license = "https://spdx.org/licenses/Apache-2.0"
    workflow = crate.add_workflow(ROOT / WORKFLOW, WORKFLOW, main=True, lang="snakemake")
    workflow["version"] = ", ".join(content["commits"]) or "unknown"
    profiles = []
    for address, name in PROFILES.items():
        properties = {"@type": "CreativeWork", "name": name, "version": address.rsplit("/", 1)[1]}
        profiles.append(crate.add(ContextEntity(crate, address, properties=properties)))
    crate.root_dataset["conformsTo"] = profiles
    made: dict[str, list[Any]] = {}
    for name, entry in content["files"].items():
        if not (tree.root / name).is_file():
            raise MissingInputError(f"{tree.root / name}: missing, but {manifest.NAME} lists it")
        properties = {"contentSize": str(entry["bytes"]), "sha256": entry["sha256"], "description": entry["kind"]}
        if Path(name).suffix in KINDS:
            properties["encodingFormat"] = KINDS[Path(name).suffix]
        file = crate.add_file(tree.root / name, name, properties=properties)
        made.setdefault(str(entry.get("of") or ""), []).append(file)
    whole = _action(crate, "#workflow", "the whole matrix", workflow, made.pop("", []))
    times = [entry["finished_at"] for entry in content["runs"].values() if entry["finished_at"]]
    if times:
        whole["endTime"] = max(times)
    for of, files in made.items():
        action = _action(crate, f"#{of}", of, workflow, files)
        entry = content["runs"].get(of, {})
        if entry.get("finished_at"):
            action["endTime"] = entry["finished_at"]
    crate.write(out)
    yield f"{out / 'ro-crate-metadata.json'}: {len(content['files'])} files, {len(made) + 1} actions"
    if content["weights"]:
        yield f"left out: {len(content['weights'])} checkpoints (their hashes are in {manifest.NAME})"


def _action(crate: Any, id: str, name: str, workflow: Any, files: Sequence[Any]) -> Any:
    from rocrate.model.contextentity import ContextEntity

    action = crate.add(ContextEntity(crate, id, properties={"@type": "CreateAction", "name": name}))
    action["instrument"] = workflow
    action["result"] = list(files)
    crate.root_dataset.append_to("mentions", action)
    return action


FORMS: Mapping[str, Callable[[Tree, Path, Sequence[str]], Lines]] = {
    "eval-results": eval_results,
    "every-eval-ever": every_eval_ever,
    "tensorboard": tensorboard,
    "ro-crate": ro_crate,
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
            f"--to {args.to} needs the package {error.name}, which is not installed here: pip install {error.name}"
        ) from error
    except BaseException:
        # What is written is complete: a half export would look like one.
        if args.out.exists() and not there:
            shutil.rmtree(args.out)
        raise
    print("\n".join(lines))


if __name__ == "__main__":
    errors.run(main)
