"""Draw the responses of one model on benchmarks; no grading.

    python -m evals.generate --model FOLDER --benchmarks K [K ...] --data DIR --seed N --out SAMPLES_DIR

The model is loaded once for all benchmarks, and not at all when nothing is left to do: finished benchmarks are kept in
`SAMPLES_DIR/.work` under a digest of all their inputs. Columns and samples.json: docs/results.md.
"""

import sys

from core import worker

# The other engines start servers or processes.
if __name__ == "__main__" and not any(word.endswith(("vllm", "openai")) for word in sys.argv):
    # Before the other imports, which the worker already has: for every checkpoint they take longer than handing over.
    from methods import sampling

    LIBRARIES = (
        "pydantic", "yaml", "lm_eval.models.huggingface", "transformers.modeling_utils", "pandas", "pyarrow.dataset",
        "pyarrow.parquet", *sampling.LIBRARIES,
    )  # fmt: skip
    worker.hand_over("evals.generate", LIBRARIES)

import argparse
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from core import errors
from core.code import warning_entry
from core.errors import ConfigError, CorruptInputError, MissingInputError, Parser, real, whole
from core.files import read_json, write_json, write_text
from core.provenance import environment, sha256_file
from evals import store
from evals.benchmark import PROMPTS, Benchmark, code, found_in, load, select
from evals.generation import engine as drawing
from evals.generation import prompts
from evals.generation.engine import BACKENDS, JOURNAL, Engine, Plan, Settings, engine, make_plan

SCHEMA = 1
DECODING = ("samples", "temperature", "max_tokens")  # fields of `Decoding` that an option replaces
DONE, PARQUET = "done.json", "samples.parquet"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")  # a different thread count changes the last bits


def generate(
    model: Engine,
    benchmarks: Sequence[Benchmark],
    *,
    data: Path | str,
    out: Path | str,
    limit: int | None = None,
    changes: Mapping[str, float] | None = None,
    reading: str | None = None,
    add: bool = False,
) -> Path:
    """Write `<out>/<key>.parquet` for every benchmark and `<out>/samples.json` last; return the path of the latter.

    limit: only the first `limit` items. changes: fields of `Decoding` that replace the registry's, for every benchmark.
    reading: how prompts are made (`evals.generation.prompts`). add: the record keeps the benchmarks of earlier calls.
    Raises MissingInputError, CorruptInputError or ConfigError, where possible before the model is loaded.
    """
    used, settings = code([benchmark.key for benchmark in benchmarks], model.backend), model.settings
    began = used.hash
    identity = model.identity  # before reading from a folder that may be damaged
    out, changes = Path(out), dict(changes or {})
    plans = [
        make_plan(model, benchmark, load(benchmark, data, limit), changes=changes, reading=reading)
        for benchmark in benchmarks
    ]
    # One length for all plans, because the model is loaded once. Kept short: vLLM reserves memory for it.
    longest = max(max((p.tokens or 0 for p in plan.prompts), default=0) + plan.decoding.max_tokens for plan in plans)
    max_length = min(longest, model.positions) if model.positions else None
    path, is_served = out / "samples.json", identity["weights_sha256"] is None
    earlier = store.read_record(path) if path.is_file() and (add or is_served) else {}
    for key, drawn in earlier.items():
        model.refuse_another(drawn.get("served"), f"the responses {out / key}.parquet")
    entries = earlier if add else {}
    for plan in plans:
        key = plan.benchmark.key
        # Of this benchmark alone: adding another one must not draw this one again.
        name = settings.model if is_served else None
        facts = [name, identity, model.describe(), plan.task_hash, code([key], model.backend).hash]
        facts += [os.environ.get(name) for name in THREADS]
        digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        slot = out / ".work" / f"{key}-{digest}"
        entry = _drawn(slot, model, plan, max_length)
        file = found_in(data, plan.benchmark)
        entries[key] = {**entry, "data": {"file": str(file), "sha256": sha256_file(file)}}
        write_text(out / f"{key}.parquet", (slot / PARQUET).read_bytes())
    record = {
        "schema": SCHEMA,
        "model": settings.model,
        **identity,
        "engine": model.describe(),
        "seed": settings.seed,
        "decoding": changes,
        "reading": reading,  # None: each benchmark's own
        "benchmarks": entries,
        "code": began,
        **warning_entry((used, began)),
        "environment": environment(),
    }
    write_json(path, record)
    return path


def _drawn(slot: Path, model: Engine, plan: Plan, max_length: int | None) -> dict[str, Any]:
    """Return the entry for samples.json, of responses drawn and stored now unless the folder of the plan has them.

    The folder is named by a digest of all inputs, code and thread variables included: a finished one is never drawn
    again, and a changed plan never finds the responses to an older one. Damage is reported on stderr.
    """
    if (slot / DONE).is_file():
        try:
            finished: dict[str, Any] = read_json(slot / DONE, "record of finished samples")
            store.read_table(slot / PARQUET, ("item_id",), finished)
            model.refuse_another(finished.get("served"), f"the responses in {slot}")
            return finished
        except (CorruptInputError, MissingInputError, KeyError) as error:  # KeyError: a record without a hash
            print(f"drawn again: {error}", file=sys.stderr)
    label, key = Path(model.settings.model).name, plan.benchmark.key
    model.open(max_length)  # before the clock starts: loading is not generating
    began = time.monotonic()
    rows = drawing.draw(model, plan, slot, label)
    seconds = time.monotonic() - began + model.earlier_seconds
    if empty := sum(not row["response"].strip() for row in rows):
        print(f"{label} {key}: {empty} of {len(rows)} responses are empty", file=sys.stderr)
    entry = {
        "sha256": store.write_samples(slot / PARQUET, rows),
        "rows": len(rows),
        "items": len(plan.items),
        "decoding": dataclasses.asdict(plan.decoding),
        "task_hash": plan.task_hash,
        "seed": model.settings.seed,
        "prompt": sorted({prompt.how for prompt in plan.prompts}),
        "prompts_cut": sum(prompt.cut > 0 for prompt in plan.prompts),
        "distinct_fraction": drawing.distinct_fraction(rows),
        "seconds": round(seconds, 3),
        **({"served": model.served} if model.served else {}),
    }
    write_json(slot / DONE, entry)  # last: its presence marks the folder as finished
    (slot / JOURNAL).unlink(missing_ok=True)
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
    readings = f"{', '.join(PROMPTS)} (default: the registry's)"
    add("--prompt", dest="reading", choices=PROMPTS, metavar="READING", help=readings)
    add("--batch-size", type=whole(1), metavar="N", help="responses at once; endpoint: requests at once")
    add("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    add("--dtype", default="auto", help="auto (as stored), float32, bfloat16, ...")
    add("--endpoint", metavar="URL", help="backend openai: the server's address, up to /v1; key: OPENAI_API_KEY")
    add("--tokenizer", metavar="FOLDER", help="backend openai: builds prompts here and sends token ids")
    add("--chat", action="store_true", help="backend openai: chat endpoint, the server's own template")
    limit = real(least=0, most=1)
    add("--empty-limit", type=limit, default=0.05, metavar="SHARE", help="backend openai: most responses without text")
    add("--engine", nargs="+", default=[], metavar="NAME=VALUE", help="further arguments of the engine")


def requested(args: argparse.Namespace) -> tuple[Engine, tuple[Benchmark, ...], dict[str, Any]]:
    """Return the engine and the benchmarks that the options name, and the options of `generate` that select the items
    and decide their prompts and decoding. Raises ConfigError, before anything is written, for values that no engine
    could use.
    """
    benchmarks = select(args.benchmarks)
    changes = {name: value for name in DECODING if (value := getattr(args, name)) is not None}
    for benchmark in benchmarks:
        drawing.decoding(benchmark, changes)
        if args.chat:
            prompts.messages(args.reading or benchmark.prompt, "")
    # Keep the libraries' progress bars out of a log that several jobs share, before any of them is imported. Not for
    # vllm: it divides by the time its bar has been running, which is 0 for a bar that is off.
    if args.backend != "vllm":
        os.environ.setdefault("TQDM_DISABLE", "1")
    more = {}
    for pair in args.engine:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise ConfigError(f"generate: --engine: expected NAME=VALUE, got {pair!r}")
        try:
            more[name] = yaml.safe_load(value)  # so that 2 is a number and true a boolean
        except (yaml.YAMLError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(f"generate: --engine: {name}: not a YAML value: {value!r}") from error
    given = {field.name: getattr(args, field.name) for field in dataclasses.fields(Settings) if field.name != "more"}
    options = {"changes": changes, "limit": args.limit, "reading": args.reading}
    return engine(args.backend, Settings(**given, more=more)), benchmarks, options


def main() -> int:
    parser = Parser()
    add_arguments(parser)
    add = parser.add_argument
    add("--data", required=True, metavar="DIR", help="folder of <key>.jsonl, from python -m evals.fetch")
    add("--out", required=True, metavar="DIR", help="where <key>.parquet and samples.json go")
    args = parser.parse_args()
    model, benchmarks, options = requested(args)
    path = generate(model, benchmarks, data=args.data, out=args.out, **options)
    print(f"samples: {path}")
    return 0


if __name__ == "__main__":
    errors.run(main)
