"""What will be asked of a model on one benchmark: prompts, effective decoding, and where that leaves the registry's."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.prompts import Prompt
from records.errors import ConfigError

if TYPE_CHECKING:
    from evals.generation.engine import Engine

PROMPT_LIMIT = 2048
"""Tokens; longer prompts are cut on the left and kept, as the evaluation behind the paper does."""


@dataclass(frozen=True)
class Plan:
    """One benchmark for one engine. deviations: sentences on how this differs from the registry's entry."""

    benchmark: Benchmark
    items: tuple[Item, ...]
    prompts: tuple[Prompt, ...]
    decoding: Decoding
    seed: int
    chat: bool
    deviations: tuple[str, ...]

    @property
    def generation(self) -> dict[str, Any]:
        """lm-eval's generation_kwargs. Never a seed: with repeats it would make every sample the same."""
        sampling = {"temperature": self.decoding.temperature, "top_p": self.decoding.top_p}
        return {
            "do_sample": not self.decoding.greedy,
            "max_gen_toks": self.decoding.max_tokens,
            "until": [],
            **({} if self.decoding.greedy else sampling),
        }

    @property
    def task_hash(self) -> str:
        """Digest of everything asked: items and prompts in order, decoding, seed."""
        asked = {
            "benchmark": self.benchmark.key,
            "content": [[item.item_id, prompt.text] for item, prompt in zip(self.items, self.prompts, strict=True)],
            "decoding": dataclasses.asdict(self.decoding),
            "seed": self.seed,
            "chat": self.chat,
        }
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()


def plan(
    engine: Engine,
    benchmark: Benchmark,
    items: Sequence[Item],
    *,
    seed: int,
    reading: str | None = None,
    template: str = "auto",
    prompt_limit: int = PROMPT_LIMIT,
) -> Plan:
    """The plan for the given items; `reading` None takes the registry's prompt."""
    limit, decoding, deviations = room(benchmark.decoding, prompt_limit, engine.positions)
    reading = reading or benchmark.prompt
    if engine.chat:
        made = [prompts.for_chat(reading, item.problem) for item in items]
    elif engine.tokenizer is None:
        made = [Prompt(prompts.plain(reading, item.problem), None, 0, f"{reading}, no chat template") for item in items]
    else:
        made = [prompts.build(engine.tokenizer, reading, template, item.problem, limit) for item in items]
    if reading != benchmark.prompt:
        deviations += (f"prompt reading {reading}, the registry's is {benchmark.prompt}",)
    if len(items) != benchmark.n:
        deviations += (f"the first {len(items)} of {benchmark.n} items",)
    if cut := sum(prompt.cut > 0 for prompt in made):
        deviations += (f"{cut} prompts cut on the left to {limit} tokens",)
    return Plan(benchmark, tuple(items), tuple(made), decoding, seed, engine.chat, deviations)


def room(decoding: Decoding, prompt_limit: int, positions: int | None) -> tuple[int, Decoding, tuple[str, ...]]:
    """Prompt limit, decoding and deviations when a model has `positions` positions (None: as many as needed).

    A model too short for both keeps the whole prompt limit if that leaves at least half of its positions for the
    response; else prompt and response get half each.
    """
    if positions is None or prompt_limit + decoding.max_tokens <= positions:
        return prompt_limit, decoding, ()
    most = max(positions - prompt_limit, positions // 2)
    if most < 1 or positions - most < 1:
        raise ConfigError(f"model: {positions} positions leave no room for a prompt and a response")
    tokens = min(decoding.max_tokens, most)
    limit = min(prompt_limit, positions - tokens)
    notes = []
    if tokens < decoding.max_tokens:
        notes.append(
            f"at most {tokens} response tokens instead of {decoding.max_tokens}: the model has {positions} positions"
        )
    return limit, dataclasses.replace(decoding, max_tokens=tokens), tuple(notes)
