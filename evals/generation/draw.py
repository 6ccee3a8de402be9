"""Draw the responses of one engine to one benchmark through lm-eval.

In the order of this file: the plan (prompts, effective decoding, deviations from the registry), the lm-eval task file
written from it, the responses, and the check that k samples are k draws.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
import random
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError, CorruptInputError
from core.files import write_text
from core.progress import Progress
from evals.benchmark import Benchmark, Decoding, Item
from evals.generation import prompts
from evals.generation.engine import Engine
from evals.generation.prompts import INSTRUCTION, Prompt
from evals.store import Response, clean, prompt_sha256

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import ConfigurableTask

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
    def task_hash(self) -> str:
        """Digest of everything that decides the requests: items and prompts in order, decoding, seed."""
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
    """The plan for the given items; `reading` None takes the registry's prompt, and no `changes` its decoding."""
    reading, changes = reading or benchmark.prompt, changes or {}

    def prompt_of(problem: str, limit: int) -> Prompt:
        if engine.chat:
            return prompts.for_chat(reading, problem)
        if engine.tokenizer is None:
            return Prompt(prompts.plain(reading, problem), None, 0, f"{reading}, no chat template")
        return prompts.build(engine.tokenizer, reading, problem, limit)

    built = [prompt_of(item.problem, PROMPT_LIMIT) for item in items]
    # A prompt that was cut, or whose length only the server knows, takes all that it may.
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
    """The registry's decoding with some fields replaced; ConfigError for greedy copies, with the options to set."""
    try:
        return dataclasses.replace(benchmark.decoding, **changes)
    except ConfigError as error:
        raise ConfigError(f"{benchmark.key}: {error}; set --samples 1, or --temperature above 0") from error


def room(decoding: Decoding, longest: int, positions: int | None) -> tuple[int, Decoding, tuple[str, ...]]:
    """Prompt limit, decoding and deviations when a model has `positions` positions (None: as many as needed).

    longest: tokens of the longest prompt. A model too short for it and the response leaves it whole if at least half of
    the positions remain for the response; else prompt and response get half each. Raises ConfigError when nothing is
    left for one of them.
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


# The lm-eval task file of a plan: `<folder>/<key>.yaml`, and the prompts beside it.
#
# Any lm-eval of the pinned version can run it (`lm_eval run --tasks FOLDER/KEY.yaml`). It holds no grading: the only
# metric is lm-eval's own placeholder `bypass`. The tasks in evals/lm_eval are graded.


def requests(decoding: Decoding, extras: dict[str, Any]) -> dict[str, Any]:
    """The fields of a task file by which lm-eval asks: k responses to each item, and a filter that keeps all.

    extras: generation arguments that only some engines know (`top_k`). A seed would make all samples the same.
    """
    sampling = {"temperature": decoding.temperature, "top_p": decoding.top_p, **extras}
    return {
        "output_type": "generate_until",
        "repeats": decoding.samples,
        "generation_kwargs": {
            "do_sample": not decoding.greedy,
            "max_gen_toks": decoding.max_tokens,
            "until": [],  # only end tokens: without this key lm-eval stops at a blank line
            **({} if decoding.greedy else sampling),
        },
        "filter_list": [{"name": "responses", "filter": [{"function": "take_first_k", "k": decoding.samples}]}],
    }


def write_task(plan: Plan, folder: Path, extras: dict[str, Any]) -> Path:
    """Write prompts and task file; the path of the latter. extras: as in `requests`."""
    import yaml

    folder = folder.resolve()
    items = folder / "prompts.jsonl"
    rows = zip(plan.items, plan.prompts, strict=True)
    lines = [json.dumps({"item_id": item.item_id, "prompt": prompt.text}, ensure_ascii=False) for item, prompt in rows]
    write_text(items, "\n".join(lines) + "\n")
    config = {
        "task": plan.benchmark.key,
        "dataset_path": "json",
        # in memory, because `load_task` removes the copy on disk
        "dataset_kwargs": {"data_files": {"test": str(items)}, "keep_in_memory": True},
        "test_split": "test",
        "doc_to_text": "prompt",
        "doc_to_target": "item_id",
        **requests(plan.decoding, extras),
        "metric_list": [{"metric": "bypass", "aggregation": "bypass", "higher_is_better": True}],
        "metadata": {"version": 1.0, "task_hash": plan.task_hash, "instruction": INSTRUCTION},
    }
    path = folder / f"{plan.benchmark.key}.yaml"
    write_text(path, yaml.safe_dump(config, sort_keys=False, allow_unicode=True))
    return path


def load_task(path: Path) -> ConfigurableTask:
    """The task as an object of lm-eval, from the file alone: the thousands of built-in tasks are not scanned."""
    import datasets
    from lm_eval.tasks import TaskManager

    datasets.disable_progress_bars()
    # The datasets library keeps a copy of the prompts while it reads them, and names a lock after the whole path of the
    # copy: beside the task file that name is too long for a file where the project's own path has 100 letters.
    usual = datasets.config.HF_DATASETS_CACHE, datasets.config.DOWNLOADED_DATASETS_PATH
    with tempfile.TemporaryDirectory(prefix="tepo-prompts-") as copy:
        try:
            datasets.config.HF_DATASETS_CACHE = Path(copy)
            datasets.config.DOWNLOADED_DATASETS_PATH = Path(copy, "downloads")
            tasks = TaskManager(include_defaults=False).load([str(path)])["tasks"]
        finally:
            datasets.config.HF_DATASETS_CACHE, datasets.config.DOWNLOADED_DATASETS_PATH = usual
    (task,) = tasks.values()
    return task


# The responses


def draw(engine: Engine, plan: Plan, folder: Path, max_length: int | None, label: str = "generate") -> list[Response]:
    """All responses, items in order and samples in order within an item. Writes the task file into `folder`.

    max_length: the longest prompt and response together, in tokens, over all plans that the engine will serve.
    Raises CorruptInputError when lm-eval sent another prompt than the planned one, or returned too few responses.
    """
    import transformers

    # no progress reports; warnings of lm-eval and transformers stay
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()
    lm = engine.lm(max_length)
    progress = Progress(f"{label} {plan.benchmark.key}", len(plan.items) * plan.decoding.samples)
    engine.seen.begin(progress, folder, plan.task_hash)
    task = load_task(write_task(plan, folder, engine.extras))
    texts = ask(lm, task, plan)
    return _responses(engine, plan, texts)


def ask(lm: LM, task: ConfigurableTask, plan: Plan) -> dict[str, list[str]]:
    """item_id -> the texts of its samples."""
    import numpy
    import torch
    from lm_eval.evaluator import evaluate

    # `evaluate`, not `simple_evaluate`: the latter inspects the machine after each call (subprocesses, 0.7 s). It
    # would also set these four seeds, so they are set here.
    random.seed(plan.seed)
    numpy.random.seed(plan.seed % 2**32)
    torch.manual_seed(plan.seed)
    task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=plan.seed)
    key = plan.benchmark.key
    result: Any = evaluate(
        lm=lm,
        task_dict={"tasks": {key: task}, "groups": {}},
        bootstrap_iters=0,  # scores and intervals are computed by evals.score
        log_samples=True,
    )
    prompts = {item.item_id: prompt.text for item, prompt in zip(plan.items, plan.prompts, strict=True)}
    texts = {}
    for sample in result["samples"][key]:
        item_id = sample["doc"]["item_id"]
        prompt = sample["arguments"][0][0]
        if prompt != prompts[item_id]:
            raise CorruptInputError(f"{key}: {item_id}: lm-eval asked {prompt!r}, not the planned prompt")
        texts[item_id] = [str(text) for text in sample["resps"][0]]
    return texts


def _responses(engine: Engine, plan: Plan, texts: Mapping[str, list[str]]) -> list[Response]:
    k = plan.decoding.samples
    responses = []
    for item, prompt in zip(plan.items, plan.prompts, strict=True):
        own = texts.get(item.item_id, [])
        if len(own) != k:
            raise CorruptInputError(f"{plan.benchmark.key}: {item.item_id}: {len(own)} responses, expected {k}")
        for sample, text in enumerate(own):
            # what the engine did not observe, from encoding the text again
            tokens, stop = engine.seen.take(text) or (None, "unknown")
            if tokens is None and engine.tokenizer is not None:
                tokens = len(engine.tokenizer.encode(text, add_special_tokens=False))
            if stop == "unknown" and tokens is not None:
                stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
            responses.append(
                Response(
                    item_id=item.item_id,
                    sample=sample,
                    prompt=prompt.text,
                    prompt_sha256=prompt_sha256(prompt.text),
                    response=clean(text),
                    stop=stop,
                    tokens=tokens,
                    seed=engine.sample_seed(sample),
                )
            )
    return responses


# Are k samples really k draws? A fixed seed that an engine uses for every sample would copy one draw k times.
#
# Equal samples alone prove nothing: a converged or collapsed policy repeats itself at temperature 0.6 too. But then it
# repeats its likeliest answer, the greedy one. So where most items have all samples equal, some of these items are
# drawn once more, greedily. Samples that equal each other but not the greedy response are copies of one draw.

SUSPECT = 0.5  # share of items: below it, a fixed seed is ruled out, since it would make all items suspect
PROBED = 20  # items drawn once more: few enough to cost little, enough to see a share
FEWEST_SAMPLES = 4  # with two or three samples, equal ones are common


def by_item(responses: Sequence[Response]) -> dict[str, list[str]]:
    """item_id -> the texts of its samples, in order."""
    texts: dict[str, list[str]] = defaultdict(list)
    for response in responses:
        texts[response.item_id].append(response.response)
    return texts


def distinct_fraction(responses: Sequence[Response]) -> float | None:
    """Mean over items of (different responses - 1) / (samples - 1): 0 all equal, 1 all different; None for k = 1."""
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in by_item(responses).values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None


def suspects(responses: Sequence[Response]) -> list[str]:
    """Items to probe: those with all samples equal, at most `PROBED`, when they are most of the set; else none."""
    texts = {item: own for item, own in by_item(responses).items() if len(own) >= FEWEST_SAMPLES}
    equal = [item for item, own in texts.items() if len(set(own)) == 1]
    return equal[:PROBED] if texts and len(equal) > SUSPECT * len(texts) else []


def greedy(plan: Plan, item_ids: Sequence[str]) -> Plan:
    """The plan for one greedy response to some items of `plan`."""
    places = [place for place, item in enumerate(plan.items) if item.item_id in set(item_ids)]
    return dataclasses.replace(
        plan,
        items=tuple(plan.items[place] for place in places),
        prompts=tuple(plan.prompts[place] for place in places),
        decoding=dataclasses.replace(plan.decoding, samples=1, temperature=0.0),
    )


def check(benchmark: str, responses: Sequence[Response], greedy: Mapping[str, str]) -> None:
    """CorruptInputError when most probed items repeat something else than their greedy response."""
    texts = by_item(responses)
    other = [item for item, text in greedy.items() if set(texts[item]) != {text}]
    if len(other) > SUSPECT * len(greedy):
        raise CorruptInputError(
            f"{benchmark}: the samples of an item are copies of one draw: on {len(other)} of {len(greedy)} probed items"
            " all are equal and differ from the greedy response; look for a seed that the engine uses for every sample"
        )
