"""What a model is asked on one benchmark (prompts, effective decoding, deviations), and the lm-eval task file of it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.prompts import INSTRUCTION, Prompt
from records.errors import ConfigError, CorruptInputError
from records.files import write_text

if TYPE_CHECKING:
    from lm_eval.api.task import ConfigurableTask

    from evals.generation.engine import Engine

PROMPT_LIMIT = 2048  # tokens; longer prompts are cut on the left and kept, as the evaluation behind the paper does


@dataclass(frozen=True)
class Plan:
    """One benchmark for one engine."""

    benchmark: Benchmark
    items: tuple[Item, ...]
    prompts: tuple[Prompt, ...]
    decoding: Decoding  # the registry's, with fewer tokens where the model is too short
    seed: int
    chat: bool  # prompts are conversations as JSON, rendered by the engine's own template
    deviations: tuple[str, ...]  # sentences on how this differs from the registry's entry

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

    def prompt_of(problem: str) -> Prompt:
        if engine.chat:
            return prompts.for_chat(reading, problem)
        if engine.tokenizer is None:
            return Prompt(prompts.plain(reading, problem), None, 0, f"{reading}, no chat template")
        return prompts.build(engine.tokenizer, reading, template, problem, limit)

    built = tuple(prompt_of(item.problem) for item in items)
    if reading != benchmark.prompt:
        deviations += (f"prompt reading {reading}, the registry's is {benchmark.prompt}",)
    if len(items) != benchmark.n:
        deviations += (f"the first {len(items)} of {benchmark.n} items",)
    if cut := sum(prompt.cut > 0 for prompt in built):
        deviations += (f"{cut} prompts cut on the left to {limit} tokens",)
    return Plan(benchmark, tuple(items), built, decoding, seed, engine.chat, deviations)


def room(decoding: Decoding, prompt_limit: int, positions: int | None) -> tuple[int, Decoding, tuple[str, ...]]:
    """Prompt limit, decoding and deviations when a model has `positions` positions (None: as many as needed).

    A model too short for both keeps the whole prompt limit if that leaves at least half of its positions for the
    response; else prompt and response get half each. Raises ConfigError when nothing is left for one of them.
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


# The lm-eval task file of a plan: `<folder>/<key>.yaml`, and the prompts beside it.
#
# Any lm-eval of the pinned version can run it (`lm_eval run --tasks FOLDER/KEY.yaml`). It holds no grading: the only
# metric is lm-eval's own placeholder `bypass`, the only filter keeps all k responses.

CACHE = "datasets"  # where the datasets library keeps its copy, beside the task file


def config(plan: Plan, items: Path, extras: dict[str, Any]) -> dict[str, Any]:
    """The task as lm-eval reads it. extras: generation arguments that only some engines know (`top_k`)."""
    k = plan.decoding.samples
    return {
        "task": plan.benchmark.key,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(items)}, "cache_dir": str(items.parent / CACHE)},
        "test_split": "test",
        "output_type": "generate_until",
        "doc_to_text": "prompt",
        "doc_to_target": "item_id",
        "repeats": k,
        "generation_kwargs": plan.generation | ({} if plan.decoding.greedy else extras),
        "filter_list": [{"name": "responses", "filter": [{"function": "take_first_k", "k": k}]}],
        "metric_list": [{"metric": "bypass", "aggregation": "bypass", "higher_is_better": True}],
        "metadata": {"version": 1.0, "task_hash": plan.task_hash, "instruction": INSTRUCTION},
    }


def write(plan: Plan, folder: Path, extras: dict[str, Any]) -> Path:
    """Write prompts and task file; the path of the latter."""
    import yaml

    folder = folder.resolve()
    items = folder / "prompts.jsonl"
    rows = zip(plan.items, plan.prompts, strict=True)
    lines = [json.dumps({"item_id": item.item_id, "prompt": prompt.text}, ensure_ascii=False) for item, prompt in rows]
    write_text(items, "\n".join(lines) + "\n")
    path = folder / f"{plan.benchmark.key}.yaml"
    write_text(path, yaml.safe_dump(config(plan, items, extras), sort_keys=False, allow_unicode=True))
    return path


def load(path: Path) -> ConfigurableTask:
    """The task as an object of lm-eval, from the file alone: the thousands of built-in tasks are not scanned."""
    import datasets
    from lm_eval.tasks import TaskManager

    datasets.disable_progress_bars()
    tasks = TaskManager(include_defaults=False).load([str(path)])["tasks"]
    if len(tasks) != 1:
        raise CorruptInputError(f"{path}: lm-eval reads {len(tasks)} tasks from it, expected 1")
    return next(iter(tasks.values()))
