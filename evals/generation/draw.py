"""Draw the responses of one engine to one benchmark through lm-eval's model classes.

In the order of this file: the plan (prompts, effective decoding, deviations from the registry), the responses, and the
check that k samples are k draws.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import ConfigError, CorruptInputError
from core.progress import Progress
from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.engine import Engine
from evals.generation.prompts import Prompt
from evals.store import Response, clean, prompt_sha256

PROMPT_LIMIT = 2048  # tokens; longer prompts are cut on the left and kept, as in the evaluation behind the paper


@dataclass(frozen=True)
class Plan:
    """One benchmark for one engine."""

    benchmark: Benchmark
    items: tuple[Item, ...]
    prompts: tuple[Prompt, ...]
    decoding: Decoding  # the registry's, with fewer tokens where the model's context is too short
    seed: int
    chat: bool  # prompts are conversations as JSON, rendered by the engine's own template
    deviations: tuple[str, ...]  # sentences: differences from the registry's entry

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
    reading, changes = reading or benchmark.prompt, changes or {}

    def prompt_of(problem: str, limit: int) -> Prompt:
        if engine.chat:
            return prompts.for_chat(reading, problem)
        if engine.tokenizer is None:
            return Prompt(prompts.plain(reading, problem), None, 0, f"{reading}, no chat template")
        return prompts.build(engine.tokenizer, reading, problem, limit)

    built = [prompt_of(item.problem, PROMPT_LIMIT) for item in items]
    # A prompt that was cut, or whose length only the server can count, gets the whole limit.
    longest = max(PROMPT_LIMIT if prompt.cut or prompt.tokens is None else prompt.tokens for prompt in built)
    limit, drawn, deviations = room(decoding(benchmark, changes), longest, engine.positions)
    for place, prompt in enumerate(built):
        if (prompt.tokens or 0) > limit:
            built[place] = prompt_of(items[place].problem, limit)
    for name, value in changes.items():
        if value != (registered := getattr(benchmark.decoding, name)):
            deviations += (f"{name} {value:g}, the registry's is {registered:g}",)
    if reading != benchmark.prompt:
        deviations += (f"prompt reading {reading}, the registry's is {benchmark.prompt}",)
    if len(items) != benchmark.n:
        deviations += (f"the first {len(items)} of {benchmark.n} items",)
    if cut := sum(prompt.cut > 0 for prompt in built):
        deviations += (f"{cut} prompts cut on the left to {limit} tokens",)
    return Plan(benchmark, tuple(items), tuple(built), drawn, engine.settings.seed, engine.chat, deviations)


def decoding(benchmark: Benchmark, changes: Mapping[str, Any]) -> Decoding:
    """Return the registry's decoding with fields replaced; ConfigError for greedy copies, with the options to set."""
    try:
        return dataclasses.replace(benchmark.decoding, **changes)
    except ConfigError as error:
        raise ConfigError(f"{benchmark.key}: {error}; set --samples 1, or --temperature above 0") from error


def room(decoding: Decoding, longest: int, positions: int | None) -> tuple[int, Decoding, tuple[str, ...]]:
    """Return prompt limit, decoding and deviations for a model with `positions` positions (None: as many as needed).

    longest: tokens of the longest prompt. Where the model cannot hold it and the response, it stays whole if at least
    half of the positions remain for the response; else prompt and response get half each. Raises ConfigError when no
    token is left for one of them.
    """
    if positions is None or longest + decoding.max_tokens <= positions:
        return longest, decoding, ()
    most = max(positions - longest, positions // 2)
    if most < 1 or positions - most < 1:
        raise ConfigError(f"model: {positions} positions leave no room for a prompt and a response")
    tokens = min(decoding.max_tokens, most)
    limit = min(longest, positions - tokens)
    note = f"at most {tokens} response tokens instead of {decoding.max_tokens}: the model has {positions} positions"
    notes = (note,) if tokens < decoding.max_tokens else ()
    return limit, dataclasses.replace(decoding, max_tokens=tokens), notes


# The responses


def arguments(decoding: Decoding, extras: Mapping[str, Any]) -> dict[str, Any]:
    """Return generation arguments for lm-eval. extras: those that only some engines accept (`top_k`).

    A seed among them would make all samples of an item identical.
    """
    sampling = {"temperature": float(decoding.temperature), "top_p": decoding.top_p, **extras}
    return {
        "do_sample": not decoding.greedy,
        "max_gen_toks": decoding.max_tokens,
        "until": [],  # only end tokens: without this key lm-eval stops at a blank line
        **({} if decoding.greedy else sampling),
    }


def draw(engine: Engine, plan: Plan, folder: Path, max_length: int | None, label: str = "generate") -> list[Response]:
    """Return all responses, items in order and samples in order within an item.

    folder: where an engine may keep responses until all are complete. max_length: the longest prompt and response
    together, in tokens, over all plans of the engine.
    """
    import numpy
    import torch
    import transformers
    from lm_eval.api.instance import Instance

    # no progress reports; warnings of lm-eval and transformers stay
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    lm = engine.lm(max_length)
    k = plan.decoding.samples
    engine.seen.begin(Progress(f"{label} {plan.benchmark.key}", len(plan.items) * k), folder)
    random.seed(plan.seed)
    numpy.random.seed(plan.seed % 2**32)
    torch.manual_seed(plan.seed)
    requests = [
        Instance(
            "generate_until", {"item_id": item.item_id}, (prompt.text, arguments(plan.decoding, engine.extras)), 0,
            metadata=(plan.benchmark.key, number, k),
        )
        for number, (item, prompt) in enumerate(zip(plan.items, plan.prompts, strict=True))
    ]  # fmt: skip
    # the samples of an item are one request object, repeated: `sample_numbers` counts on it, as lm-eval does
    texts = lm.generate_until([request for request in requests for _ in range(k)])
    return [
        _response(engine, plan, place, sample, texts[place * k + sample])
        for place in range(len(requests))
        for sample in range(k)
    ]


def _response(engine: Engine, plan: Plan, place: int, sample: int, text: str) -> Response:
    prompt = plan.prompts[place].text
    # not observed by the engine: from encoding the text again
    tokens, stop = engine.seen.take(text) or (None, "unknown")
    if tokens is None and engine.tokenizer is not None:
        tokens = len(engine.tokenizer.encode(text, add_special_tokens=False))
    if stop == "unknown" and tokens is not None:
        stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
    return Response(
        item_id=plan.items[place].item_id,
        sample=sample,
        prompt=prompt,
        prompt_sha256=prompt_sha256(prompt),
        response=clean(text),
        stop=stop,
        tokens=tokens,
        seed=engine.sample_seed(sample),
    )


# Are k samples really k draws? An engine with a fixed seed for every sample would copy one draw k times.
#
# Equal samples alone prove nothing: a converged or collapsed policy also repeats itself at temperature 0.6. But then it
# repeats its most likely answer, the greedy one. So where most items have all samples equal, some of these items are
# drawn again greedily. Samples that equal each other but not the greedy response are copies of one draw.

SUSPECT = 0.5  # share of items: below it, a fixed seed is ruled out, since it would make all items suspect
PROBED = 20  # items drawn once more: few enough to cost little, enough to see a share
FEWEST_SAMPLES = 4  # with two or three samples, equal ones are common


def by_item(responses: Sequence[Response]) -> dict[str, list[str]]:
    """Return the texts of the samples by item_id, in order."""
    texts: dict[str, list[str]] = defaultdict(list)
    for response in responses:
        texts[response.item_id].append(response.response)
    return texts


def distinct_fraction(responses: Sequence[Response]) -> float | None:
    """Return the item mean of (distinct responses - 1) / (samples - 1): 0 all equal, 1 all distinct; None at k = 1."""
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in by_item(responses).values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None


def suspects(responses: Sequence[Response]) -> list[str]:
    """Return items to probe: at most `PROBED` with all samples equal; empty unless these are most of the set."""
    texts = {item: own for item, own in by_item(responses).items() if len(own) >= FEWEST_SAMPLES}
    equal = [item for item, own in texts.items() if len(set(own)) == 1]
    return equal[:PROBED] if texts and len(equal) > SUSPECT * len(texts) else []


def greedy(plan: Plan, item_ids: Sequence[str]) -> Plan:
    """Return the plan for one greedy response to some items of `plan`."""
    places = [place for place, item in enumerate(plan.items) if item.item_id in set(item_ids)]
    return dataclasses.replace(
        plan,
        items=tuple(plan.items[place] for place in places),
        prompts=tuple(plan.prompts[place] for place in places),
        decoding=dataclasses.replace(plan.decoding, samples=1, temperature=0.0),
    )


def check(benchmark: str, responses: Sequence[Response], greedy: Mapping[str, str]) -> None:
    """Raise CorruptInputError when most probed items repeat a text other than their greedy response."""
    texts = by_item(responses)
    other = [item for item, text in greedy.items() if set(texts[item]) != {text}]
    if len(other) > SUSPECT * len(greedy):
        raise CorruptInputError(
            f"{benchmark}: the samples of an item are copies of one draw: on {len(other)} of {len(greedy)} probed items"
            " all are equal and differ from the greedy response; look for a seed that the engine uses for every sample"
        )
