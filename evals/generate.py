"""Draw the responses of one model on benchmarks, through lm-eval; no grading.

    python -m evals.generate --model FOLDER --benchmarks K [K ...] --data DIR --seed N --out SAMPLES_DIR

The model is loaded once for all benchmarks, and not at all when nothing is left to do: finished benchmarks are kept in
`SAMPLES_DIR/.work` under a digest of all their inputs. Columns and samples.json: docs/results.md.
"""

from core import worker

if __name__ == "__main__" and worker.option("--backend", "hf") == "hf":  # the others start servers or processes
    # Before the other imports, which the worker already has: they take longer than handing over, for every checkpoint.
    from evals.generation import LIBRARIES

    worker.hand_over("evals.generate", LIBRARIES)

import argparse
import dataclasses
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core import errors
from core.code import warning_entry
from core.errors import ConfigError, CorruptInputError, Parser, real, whole
from core.files import atomic, read_json, write_json
from core.provenance import environment, sha256_file
from evals import data as items_of
from evals import store
from evals.benchmark import PROMPTS, Benchmark, code, select
from evals.generation import draw
from evals.generation.draw import Plan, make_plan
from evals.generation.engine import BACKENDS, JOURNAL, Engine, Settings, engine

SCHEMA = 1
DECODING = ("samples", "temperature", "max_tokens")  # fields of `Decoding` that an option replaces
DONE = "done.json"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a different thread count changes the last bits


@dataclass(frozen=True)
class Slot:
    """A folder for the finished responses to one plan.

    The name is a digest of all its inputs, code and thread variables included: a finished slot is never drawn again,
    and a changed plan never finds the responses to an older one.
    """

    folder: Path

    @property
    def parquet(self) -> Path:
        return self.folder / "samples.parquet"

    def finished(self) -> dict[str, Any] | None:
        """Return the record of a finished slot; None when unfinished or damaged, which is printed."""
        path = self.folder / DONE
        if not path.is_file():
            return None
        try:
            record: dict[str, Any] = read_json(path, "record of finished samples")
            if self.parquet.is_file() and sha256_file(self.parquet) == record.get("sha256"):
                return record
            raise CorruptInputError(f"{self.parquet}: missing, or differs from its sha256 in {path}")
        except CorruptInputError as error:
            print(f"drawn again: {error}", file=sys.stderr)
            return None

    def drop_journals(self) -> None:
        """Remove the partial responses of an unfinished slot, including those of the greedy probe."""
        for journal in self.folder.rglob(JOURNAL):
            journal.unlink()

    def publish(self, target: Path) -> None:
        """Publish the parquet among the results: as a hard link where the file system allows, else a copy."""
        with atomic(target) as temporary:
            temporary.unlink()  # a link cannot replace an existing name
            try:
                os.link(self.parquet, temporary)
            except OSError:
                shutil.copyfile(self.parquet, temporary)


def generate(
    settings: Settings,
    benchmarks: Sequence[Benchmark],
    *,
    backend: str,
    data: Path | str,
    out: Path | str,
    limit: int | None = None,
    changes: Mapping[str, float] | None = None,
    reading: str | None = None,
    work: Path | str | None = None,
    model: Engine | None = None,
) -> Path:
    """Write `<out>/<key>.parquet` for every benchmark and `<out>/samples.json` last; return the path of the latter.

    limit: only the first `limit` items. changes: fields of `Decoding` that replace the registry's, for every benchmark.
    reading: how prompts are made (`evals.generation.prompts`). model: an existing engine of these settings. Raises
    MissingInputError, CorruptInputError or ConfigError, where possible before the model is loaded.
    """
    keys = [benchmark.key for benchmark in benchmarks]
    used = code(keys, backend)
    began = used.hash
    model = model or engine(backend, settings)
    identity = model.identity()  # before reading from a folder that may be damaged
    out = Path(out)
    work = Path(work) if work is not None else out / ".work"
    changes = dict(changes or {})
    plans = [
        make_plan(model, benchmark, items_of.load(benchmark, data, limit), changes=changes, reading=reading)
        for benchmark in benchmarks
    ]
    # One length for all plans, because the model is loaded once. Kept short: vLLM reserves memory for it.
    longest = max(max((p.tokens or 0 for p in plan.prompts), default=0) + plan.decoding.max_tokens for plan in plans)
    max_length = min(longest, model.positions) if model.positions else None
    entries = {}
    for plan in plans:
        # Of this benchmark alone: adding another one is not a reason to draw it again.
        made_by = code([plan.benchmark.key], backend).hash
        threads = [os.environ.get(name) for name in THREADS]
        facts = json.dumps([identity, model.describe(), plan.task_hash, made_by, threads], sort_keys=True)
        slot = Slot(work / f"{plan.benchmark.key}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}")
        entry = slot.finished() or _fill(slot, model, plan, max_length)
        file = items_of.found_in(data, plan.benchmark)
        entries[plan.benchmark.key] = {**entry, "data": {"file": str(file), "sha256": sha256_file(file)}}
        slot.publish(out / f"{plan.benchmark.key}.parquet")
    target = out / "samples.json"
    record = {
        "schema": SCHEMA,
        "model": settings.model,
        "weights_sha256": model.weights_sha256,
        "files_sha256": model.files_sha256,
        "engine": model.describe(),
        "seed": settings.seed,
        "decoding": changes,
        "reading": reading,  # None: each benchmark's own
        "benchmarks": entries,
        "code": began,
        **warning_entry((used, began)),
        "environment": environment(),
    }
    write_json(target, record)
    return target


def _fill(slot: Slot, model: Engine, plan: Plan, max_length: int | None) -> dict[str, Any]:
    """Draw the responses of one benchmark, check and store them; return the entry for samples.json."""
    label = Path(model.settings.model).name
    model.lm(max_length)  # before the clock starts: loading is not generating
    began = time.monotonic()
    responses = draw.draw(model, plan, slot.folder, max_length, label)
    seconds = time.monotonic() - began + model.seen.earlier_seconds
    if not plan.decoding.greedy and (suspects := draw.suspects(responses)):
        probe = draw.greedy(plan, suspects)
        answers = draw.draw(model, probe, slot.folder / "greedy", max_length, f"{label} greedy probe of")
        try:
            draw.check(plan.benchmark.key, responses, {answer.item_id: answer.response for answer in answers})
        except CorruptInputError:
            slot.drop_journals()  # else the next call would find the same copies
            raise
    tokens: list[Any] = [response.tokens for response in responses]
    if empty := sum(not response.response.strip() for response in responses):
        print(f"{label} {plan.benchmark.key}: {empty} of {len(responses)} responses are empty", file=sys.stderr)
    entry = {
        "sha256": store.write_samples(slot.parquet, responses),
        "rows": len(responses),
        "items": len(plan.items),
        "decoding": dataclasses.asdict(plan.decoding),
        "task_hash": plan.task_hash,
        "seed": plan.seed,
        "prompt": sorted({prompt.how for prompt in plan.prompts}),
        "prompts_cut": sum(prompt.cut > 0 for prompt in plan.prompts),
        "deviations": list(plan.deviations),
        "distinct_fraction": draw.distinct_fraction(responses),
        "cut_at_limit": sum(response.stop == "length" for response in responses),
        "empty": empty,
        "response_tokens": None if None in tokens else sum(tokens),
        "seconds": round(seconds, 3),
    }
    write_json(slot.folder / DONE, entry)  # last: its presence marks the slot as finished
    slot.drop_journals()
    return entry


# Options of the command, shared with `evals.run`


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--model", required=True, metavar="FOLDER", help="model folder; backend openai: the name the server knows")
    add("--benchmarks", nargs="+", required=True, metavar="KEY", help="keys, or: all (the paper's seven)")
    add("--backend", default="hf", metavar="NAME", help=f"{', '.join(BACKENDS)} (default: hf)")
    add("--record", metavar="FILE", help="run.json or base.json that says what FOLDER must hold")
    add("--seed", type=whole(0, 2**32 - 1), default=1234, help="decides every draw (default: 1234)")
    add("--limit", type=whole(1), metavar="N", help="the first N items of each benchmark")
    registry = "in place of the registry's"
    add("--samples", type=whole(1, 4096), metavar="K", help=f"responses to each item, {registry}")
    add("--temperature", type=real(least=0, most=100), metavar="T", help=f"0 is greedy, {registry}")
    add("--max-tokens", type=whole(1), metavar="N", help=f"most tokens of a response, {registry}")
    add("--prompt", dest="reading", metavar="READING", help=f"{', '.join(PROMPTS)} (default: the registry's)")
    add("--batch-size", type=whole(1), metavar="N", help="responses at once; endpoint: requests at once")
    add("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    add("--dtype", default="auto", help="auto (as stored), float32, bfloat16, ...")
    add("--endpoint", metavar="URL", help="backend openai: the server's address, up to /v1; key: OPENAI_API_KEY")
    add("--tokenizer", metavar="FOLDER", help="backend openai: builds prompts here and sends token ids")
    add("--chat", action="store_true", help="backend openai: chat endpoint, the server's own template")
    limit = real(least=0, most=1)
    add("--empty-limit", type=limit, default=0.05, metavar="SHARE", help="backend openai: most responses without text")
    add("--engine", nargs="+", default=[], metavar="NAME=VALUE", help="further arguments of lm-eval's model class")


def settings(args: argparse.Namespace) -> Settings:
    """Return the engine's settings; ConfigError for values that no engine could use."""
    names = [field.name for field in dataclasses.fields(Settings) if field.name != "more"]
    return Settings(**{name: getattr(args, name) for name in names}, more=_engine_arguments(args.engine))


def request_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options of `generate` that select the items and decide their prompts and decoding."""
    given = {name: getattr(args, name) for name in DECODING}
    changes = {name: value for name, value in given.items() if value is not None}
    for benchmark in select(args.benchmarks):
        draw.decoding(benchmark, changes)  # raises before anything is written
    return {"changes": changes, "limit": args.limit, "reading": args.reading}


def _engine_arguments(pairs: Sequence[str]) -> dict[str, Any]:
    import yaml

    arguments = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ConfigError(f"generate: --engine: expected NAME=VALUE, got {pair!r}")
        try:
            arguments[name] = yaml.safe_load(value)  # so that 2 is a number and true a boolean
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"generate: --engine: {name}: not a YAML value: {value!r}") from error
    return arguments


def one_line_per_job(backend: str) -> None:
    """Keep the libraries' progress bars out of a log that several jobs share.

    Must run before any of the libraries is imported. Not for vllm: it divides by the time its bar has been running,
    which is 0 for a bar that is off.
    """
    if backend != "vllm":
        os.environ.setdefault("TQDM_DISABLE", "1")


def main() -> int:
    parser = Parser()
    add_arguments(parser)
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder of <key>.jsonl, from python -m evals.fetch")
    add("--out", required=True, metavar="DIR", help="where <key>.parquet and samples.json go")
    add("--work", metavar="DIR", help="where finished benchmarks are kept (default: DIR/.work)")
    args = parser.parse_args()
    one_line_per_job(args.backend)
    places = {name: getattr(args, name) for name in ("backend", "data", "out", "work")}
    path = generate(settings(args), select(args.benchmarks), **places, **request_options(args))
    print(f"samples: {path}")
    return 0


if __name__ == "__main__":
    errors.run(main)
