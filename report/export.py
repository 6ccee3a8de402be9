"""`python -m report.export --results results/quick --to eval-results --out OUT`: scores in a form that others read.

eval-results: .eval_results/<benchmark>.yaml for a model's repository on the Hugging Face hub, per checkpoint. Nothing
is computed: scores come from scores.csv. What the form cannot express is left out and named on stdout.
"""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from core import errors
from core.errors import ConfigError, Parser, unknown
from core.files import write_text
from core.layout import BASE, Checkpoint
from core.results_tree import Tree, open_tree

FORMS = ("eval-results",)


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


def eval_results(tree: Tree, out: Path, given: Sequence[str]) -> Iterator[str]:
    """Write <out>/<checkpoint>/.eval_results/<benchmark>.yaml, in percent, as the hub's leaderboards are; yields the
    files written and what is left out."""
    import yaml
    from huggingface_hub import EvalResultEntry, eval_result_entries_to_yaml

    datasets = datasets_of(tree, given)
    left_out = [str(entry["key"]) for entry in tree.benchmarks if str(entry["key"]) not in datasets]
    if not datasets:
        raise ConfigError(
            f"{tree.root}: none of its benchmarks is a data set on the hub ({', '.join(left_out)}); "
            "--dataset KEY=ORGANISATION/NAME says which one is"
        )
    for (checkpoint, key), score in tree.scores.items():
        if key not in datasets or score.value is None or not score.items:
            continue
        record = (tree.record(checkpoint.run) if checkpoint.run.method != BASE else None) or {}
        dataset, revision = datasets[key]
        samples = (score.responses or 0) // score.items
        interval = f"no interval ({score.how})"
        if score.low is not None and score.high is not None:
            interval = (
                f"95 % interval {100 * score.low:.2f} to {100 * score.high:.2f} ({score.level} level: {score.how})"
            )
        entry = EvalResultEntry(
            dataset_id=dataset,
            task_id=key,
            value=round(100 * score.value, 6),
            dataset_revision=revision,
            date=record.get("finished_at") or None,
            notes=f"avg@{samples}, {score.items} problems, {interval}; {_drawn(tree, checkpoint, key)}; tepo-bench",
        )
        path = out / checkpoint.path / ".eval_results" / f"{key}.yaml"
        write_text(path, yaml.safe_dump(eval_result_entries_to_yaml([entry]), sort_keys=False, allow_unicode=True))
        yield str(path)
    if left_out:
        yield f"left out, no data set on the hub: {', '.join(left_out)} (--dataset KEY=ORGANISATION/NAME)"


def _drawn(tree: Tree, checkpoint: Checkpoint, key: str) -> str:
    """How the responses were drawn; of another tool's it is not known."""
    from evals.benchmark import benchmark
    from evals.store import read_folder

    path = tree.layout.samples(checkpoint) / "samples.json"
    record = read_folder(path) if path.is_file() else {"benchmarks": {}}
    if adopted := record.get("adopted"):
        return f"responses of a log of {adopted['from']}"
    entry = record["benchmarks"].get(key, {})
    # A reference keeps no record of its samples; the runs of a scale are evaluated with the registry's decoding.
    drawn = entry.get("decoding") or vars(benchmark(key).decoding)
    facts = [f"{name} {drawn[name]}" for name in ("temperature", "top_p", "max_tokens")]
    return ", ".join([*facts, *entry.get("deviations", ())])


def main(arguments: Sequence[str] | None = None) -> None:
    parser = Parser(description="Write results in a form that other tools read.")
    parser.add_argument("--results", required=True, type=Path, help="results/<scale>")
    parser.add_argument("--to", required=True, choices=FORMS, help="form")
    parser.add_argument("--out", required=True, type=Path, help="a new folder")
    parser.add_argument("--dataset", action="append", default=[], metavar="KEY=ORG/NAME", help="a benchmark on the hub")
    args = parser.parse_args(arguments)
    if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
        raise ConfigError(f"command line: --out: {args.out} is there already and not an empty folder")
    there = args.out.exists()
    try:
        lines = list(eval_results(open_tree(args.results), args.out, args.dataset))
    except BaseException:
        # What is written is complete: a half export would look like one.
        if args.out.exists() and not there:
            shutil.rmtree(args.out)
        raise
    print("\n".join(lines))


if __name__ == "__main__":
    errors.run(main)
