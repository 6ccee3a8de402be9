"""Draw the responses of one engine to one benchmark.

In the order of this file: the plan (prompts, effective decoding), the responses, and how different the samples of an
item are.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from core.errors import ConfigError
from core.progress import Progress
from core.provenance import sha256_bytes
from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.engine import Engine, Request, per_sample_seed
from evals.generation.prompts import Prompt
from evals.store import clean

PROMPT_LIMIT = 2048  # tokens; longer prompts are cut on the left and kept, as in the paper's evaluation

Row = dict[str, Any]  # one response, by the columns of `evals.store.SAMPLES`


@dataclass(frozen=True)
class Plan:
    """The prompts and the decoding of one benchmark for one engine."""

    benchmark: Benchmark
    items: tuple[Item, ...]
    prompts: tuple[Prompt, ...]
    decoding: Decoding  # the registry's, with fewer tokens where the model's context is too short
    seed: int
    chat: bool  # prompts are conversations as JSON, rendered by the engine's own template

    @property
    def task_hash(self) -> str:
        """Return the digest of everything that decides the requests: items and prompts in order, decoding, seed."""
        facts = {
            "benchmark": self.benchmark.key,
            "content": [[item.item_id, prompt.text] for item, prompt in zip(self.items, self.prompts, strict=True)],
            "decoding": dataclasses.asdict(self.decoding),
            "seed": self.seed,
            "chat": self.chat,
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def make_plan(
    engine: Engine,
    benchmark: Benchmark,
    items: Sequence[Item],
    *,
    changes: Mapping[str, float] | None = None,
    reading: str | None = None,
) -> Plan:
    """Make the plan for the given items; `reading` None takes the registry's prompt, and no `changes` its decoding."""
    prompt_of = partial(prompts.build, None if engine.chat else engine.tokenizer, reading or benchmark.prompt)
    built = [prompt_of(item.problem, PROMPT_LIMIT) for item in items]
    # A prompt that was cut, or whose length only the server can count, gets the whole limit.
    longest = max(PROMPT_LIMIT if prompt.cut or prompt.tokens is None else prompt.tokens for prompt in built)
    drawn, positions = decoding(benchmark, changes or {}), engine.positions
    if positions is not None and longest + drawn.max_tokens > positions:
        if longest >= positions:
            raise ConfigError(f"{benchmark.key}: a prompt of {longest} tokens, the model has {positions} positions")
        drawn = dataclasses.replace(drawn, max_tokens=positions - longest)
    return Plan(benchmark, tuple(items), tuple(built), drawn, engine.settings.seed, engine.chat)


def decoding(benchmark: Benchmark, changes: Mapping[str, Any]) -> Decoding:
    """Return the registry's decoding with fields replaced; ConfigError for greedy copies, with the options to set."""
    try:
        return dataclasses.replace(benchmark.decoding, **changes)
    except ConfigError as error:
        raise ConfigError(f"{benchmark.key}: {error}; set --samples 1, or --temperature above 0") from error


def draw(engine: Engine, plan: Plan, folder: Path, label: str = "generate") -> list[Row]:
    """Return all responses, items in order and samples in order within an item.

    folder: where an engine may keep responses until all are complete.
    """
    import transformers

    # no progress reports; warnings of lm-eval and transformers stay
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    requests = [
        Request(
            item.item_id, sample, prompt.text, per_sample_seed(plan.seed, sample) if engine.own_seeds else plan.seed
        )
        for item, prompt in zip(plan.items, plan.prompts, strict=True)
        for sample in range(plan.decoding.samples)
    ]
    progress = Progress(f"{label} {plan.benchmark.key}", len(requests))
    rows = []
    for request, found in zip(requests, engine.generate(requests, plan.decoding, folder, progress), strict=True):
        tokens, stop = found.tokens, found.stop
        if tokens is None and engine.tokenizer is not None:  # not observed: counted by encoding the text again
            tokens = len(engine.tokenizer.encode(found.text, add_special_tokens=False))
        if stop == "unknown" and tokens is not None:
            stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
        row = request._asdict() | {"prompt_sha256": sha256_bytes(request.prompt.encode())}
        rows.append(row | {"response": clean(found.text), "stop": stop, "tokens": tokens})
    return rows


def distinct_fraction(rows: Sequence[Row]) -> float | None:
    """Return the item mean of (distinct responses - 1) / (samples - 1): 0 all equal, 1 all distinct; None at k = 1."""
    texts: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        texts[row["item_id"]].append(row["response"])
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in texts.values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None
