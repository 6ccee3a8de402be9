"""Draw the responses of one model on benchmarks, through lm-eval; no grading.

    python -m evals.generate --model FOLDER --benchmarks K [K ...] --data DIR --seed N --out SAMPLES_DIR

The model is loaded once for all benchmarks, and not at all when nothing is left to do: finished benchmarks are kept
in `SAMPLES_DIR/.work` under a digest of everything that decides them. Columns and samples.json: docs/architecture.md.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evals import benchmark as registry
from evals import data as items_of
from evals.benchmark import PROMPTS, Benchmark
from evals.generation import draw as collapse
from evals.generation.engine import BACKENDS, Engine, Settings, engine
from evals.generation.plan import PROMPT_LIMIT, Plan, plan
from evals.generation.prompts import TEMPLATES
from evals.generation.store import Slot
from records import errors, provenance
from records.errors import ConfigError
from records.files import write_json
from records.provenance import environment

SCHEMA = 1


def generate(
    settings: Settings,
    benchmarks: Sequence[Benchmark],
    *,
    backend: str,
    data: Path | str,
    out: Path | str,
    limit: int | None = None,
    reading: str | None = None,
    template: str = "auto",
    prompt_limit: int = PROMPT_LIMIT,
    work: Path | str | None = None,
) -> Path:
    """Write `<out>/<key>.parquet` for every benchmark and `<out>/samples.json` last; the path of the latter.

    limit: the first so many items. reading, template: how prompts are made (`evals.generation.prompts`).
    prompt_limit: tokens. Raises MissingInputError, CorruptInputError or ConfigError before the model is loaded
    wherever it can.
    """
    asked = engine(backend, settings)
    out = Path(out)
    work = Path(work) if work is not None else out / ".work"
    plans = [
        plan(
            asked,
            benchmark,
            items_of.load(benchmark, data, limit),
            seed=settings.seed,
            reading=reading,
            template=template,
            prompt_limit=prompt_limit,
        )
        for benchmark in benchmarks
    ]
    identity = asked.identity()
    longest = max(max((p.tokens or 0 for p in plan.prompts), default=0) + plan.decoding.max_tokens for plan in plans)
    max_length = min(longest, asked.positions) if asked.positions else None
    records = {}
    for each in plans:
        slot = Slot.of(work, each.benchmark.key, [identity, asked.describe(), each.task_hash])
        records[each.benchmark.key] = slot.finished() or _draw(asked, each, slot, max_length)
        slot.publish(out / f"{each.benchmark.key}.parquet")
    target = out / "samples.json"
    write_json(
        target,
        {
            "schema": SCHEMA,
            "model": settings.model,
            "weights_sha256": asked.weights_sha256,
            "engine": asked.describe(),
            "seed": settings.seed,
            "benchmarks": records,
            "environment": environment(),
        },
    )
    return target


def _draw(asked: Engine, each: Plan, slot: Slot, max_length: int | None) -> dict[str, Any]:
    """Responses of one benchmark, checked and stored; the record that goes into samples.json."""
    from evals.generation.draw import draw

    label = Path(asked.settings.model).name
    asked.lm(max_length)  # loading is not generating
    began = time.monotonic()
    responses = draw(asked, each, slot.folder, max_length, label)
    seconds = time.monotonic() - began
    if not each.decoding.greedy and (suspects := collapse.suspects(responses)):
        greedy = draw(asked, _greedy(each, suspects), slot.folder / "greedy", max_length, f"{label} greedy probe of")
        collapse.check(each.benchmark.key, responses, {probe.item_id: probe.response for probe in greedy})
    tokens = [response.tokens for response in responses]
    return slot.finish(
        responses,
        {
            "items": len(each.items),
            "decoding": dataclasses.asdict(each.decoding),
            "task_hash": each.task_hash,
            "seed": each.seed,
            "prompt": sorted({prompt.how for prompt in each.prompts}),
            "prompts_cut": sum(prompt.cut > 0 for prompt in each.prompts),
            "deviations": list(each.deviations),
            "distinct_fraction": collapse.distinct_fraction(responses),
            "cut_at_limit": sum(response.stop == "length" for response in responses),
            "response_tokens": None if None in tokens else sum(tokens),
            "seconds": round(seconds, 3),
        },
    )


def _greedy(each: Plan, item_ids: Sequence[str]) -> Plan:
    """The plan for some items, asked once and greedily."""
    wanted = set(item_ids)
    kept = [(item, prompt) for item, prompt in zip(each.items, each.prompts, strict=True) if item.item_id in wanted]
    decoding = dataclasses.replace(each.decoding, samples=1, temperature=0.0)
    items, prompts = zip(*kept, strict=True)
    return dataclasses.replace(each, items=items, prompts=prompts, decoding=decoding)


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of generation, shared with `evals.run`."""
    add = parser.add_argument
    add(
        "--model",
        required=True,
        metavar="FOLDER",
        help="model folder; with --backend openai: the name the server knows",
    )
    add("--benchmarks", nargs="+", required=True, metavar="KEY", help="keys, or: all (the paper's seven)")
    add("--backend", default="hf", metavar="NAME", help=f"{', '.join(BACKENDS)} (default: hf)")
    add("--seed", type=int, default=1234, help="decides every draw (default: 1234)")
    add("--limit", type=int, metavar="N", help="the first N items of each benchmark")
    add("--prompt", dest="reading", metavar="READING", help=f"{', '.join(PROMPTS)} (default: the registry's)")
    add(
        "--chat-template",
        dest="template",
        default="auto",
        metavar="WHEN",
        help=f"{', '.join(TEMPLATES)} (default: auto)",
    )
    add("--prompt-limit", type=int, default=PROMPT_LIMIT, metavar="TOKENS", help="longer prompts lose their beginning")
    add("--batch-size", type=int, metavar="N", help="responses at once; endpoint: requests at once")
    add("--device", help="cpu, cuda, ...; default: a GPU if there is one")
    add("--dtype", default="auto", help="auto (as stored), float32, bfloat16, ...")
    add("--endpoint", metavar="URL", help="backend openai: the server's address, up to /v1; key: OPENAI_API_KEY")
    add("--tokenizer", metavar="FOLDER", help="backend openai: builds prompts here and sends token ids")
    add("--chat", action="store_true", help="backend openai: chat endpoint, the server's own template")
    add("--engine", nargs="+", default=[], metavar="NAME=VALUE", help="further arguments of lm-eval's model class")


def settings(given: argparse.Namespace) -> Settings:
    """ConfigError for values no engine could use."""
    for name in ("limit", "batch_size", "prompt_limit"):
        if getattr(given, name) is not None and getattr(given, name) < 1:
            raise ConfigError(f"generate: --{name.replace('_', '-')}: must be positive, got {getattr(given, name)}")
    names = ("model", "seed", "batch_size", "device", "dtype", "endpoint", "tokenizer", "chat")
    return Settings(**{name: getattr(given, name) for name in names}, more=dict(map(_pair, given.engine)))


def _pair(text: str) -> tuple[str, Any]:
    import yaml

    name, sign, value = text.partition("=")
    if not sign or not name:
        raise ConfigError(f"generate: --engine: expected NAME=VALUE, got {text!r}")
    return name, yaml.safe_load(value)


def one_line_per_job(backend: str) -> None:
    """Keep the libraries' own bars out of a log that several jobs share; must run before any of them is imported.

    Not for vllm: it divides by the time its bar has been running, which is 0 for a bar that is off.
    """
    if backend != "vllm":
        os.environ.setdefault("TQDM_DISABLE", "1")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m evals.generate", description=str(__doc__).split("\n")[0])
    arguments(parser)
    parser.add_argument(
        "--data", required=True, metavar="DIR", help="folder of <key>.jsonl, from python -m evals.fetch"
    )
    parser.add_argument("--out", required=True, metavar="DIR", help="where <key>.parquet and samples.json go")
    parser.add_argument("--work", metavar="DIR", help="where finished benchmarks are kept (default: DIR/.work)")
    parser.add_argument("--record", metavar="FILE", help="run.json or base.json that says what FOLDER must hold")
    given = parser.parse_args()
    if given.record:
        provenance.weights(given.model, given.record)
    one_line_per_job(given.backend)
    path = generate(
        settings(given),
        registry.select(given.benchmarks),
        backend=given.backend,
        data=given.data,
        out=given.out,
        limit=given.limit,
        reading=given.reading,
        template=given.template,
        prompt_limit=given.prompt_limit,
        work=given.work,
    )
    print(f"samples: {path}")
    return 0


if __name__ == "__main__":
    errors.run(main)
