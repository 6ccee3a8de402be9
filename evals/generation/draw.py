"""Ask an engine for all responses of one plan through lm-eval, and turn what comes back into rows."""

from __future__ import annotations

import logging
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.generation import plan as taskfile
from evals.generation.engine import Engine, Observed
from evals.generation.plan import Plan
from evals.generation.store import Response, clean, prompt_sha256
from records.errors import CorruptInputError
from records.progress import Progress

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import ConfigurableTask


def draw(engine: Engine, plan: Plan, folder: Path, max_length: int | None, label: str = "generate") -> list[Response]:
    """All responses, items in order and samples in order within an item. Writes the task file into `folder`.

    max_length: the longest prompt and response together that the engine must hold, over all plans it will be asked.
    """
    quiet()
    lm = engine.lm(max_length)
    progress = Progress(f"{label} {plan.benchmark.key}", len(plan.items) * plan.decoding.samples)
    began = time.monotonic()

    def report(responses: int, tokens: int) -> None:
        seconds = max(time.monotonic() - began, 1e-9)
        progress.update(responses, tokens_per_second=round(tokens / seconds))

    engine.seen.clear()
    engine.seen.report = report
    task = taskfile.load(taskfile.write(plan, folder, engine.extras))
    found = _ask(lm, task, plan)
    shutil.rmtree(folder / taskfile.CACHE)  # a copy of the prompts in another format
    return list(_rows(engine, plan, found))


def quiet() -> None:
    """lm-eval and transformers narrate at length; their warnings stay."""
    import transformers

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()


def _ask(lm: LM, task: ConfigurableTask, plan: Plan) -> dict[str, list[str]]:
    """item_id -> k responses.

    `evaluate`, not `simple_evaluate`: the latter runs a survey of the machine after each call (subprocesses, .7
    s). The four seeds it would set are set here.
    """
    import numpy
    import torch
    from lm_eval.evaluator import evaluate

    random.seed(plan.seed)
    numpy.random.seed(plan.seed % 2**32)
    torch.manual_seed(plan.seed)
    task.set_config(key="num_fewshot", value=0)
    task.set_fewshot_seed(seed=plan.seed)
    done: Any = evaluate(
        lm=lm,
        task_dict={"tasks": {plan.benchmark.key: task}, "groups": {}},
        bootstrap_iters=0,
        log_samples=True,
    )
    samples: list[dict[str, Any]] = done["samples"][plan.benchmark.key]
    prompts = {item.item_id: prompt.text for item, prompt in zip(plan.items, plan.prompts, strict=True)}
    found = {}
    for sample in samples:
        item_id = sample["doc"]["item_id"]
        asked = sample["arguments"][0][0]
        if asked != prompts[item_id]:
            raise CorruptInputError(f"{plan.benchmark.key}: {item_id}: lm-eval asked {asked!r}, not the planned prompt")
        found[item_id] = [str(text) for text in sample["resps"][0]]
    return found


def _rows(engine: Engine, plan: Plan, found: dict[str, list[str]]) -> Iterator[Response]:
    k = plan.decoding.samples
    for item, prompt in zip(plan.items, plan.prompts, strict=True):
        texts = found.get(item.item_id, [])
        if len(texts) != k:
            raise CorruptInputError(f"{plan.benchmark.key}: {item.item_id}: {len(texts)} responses, expected {k}")
        for sample, text in enumerate(texts):
            seen = _complete(engine, plan, text, engine.seen.take(text))
            yield Response(
                item_id=item.item_id,
                sample=sample,
                prompt=prompt.text,
                prompt_sha256=prompt_sha256(prompt.text),
                response=clean(text),
                stop=seen.stop,
                tokens=seen.tokens,
                seed=engine.sample_seed(sample),
            )


def _complete(engine: Engine, plan: Plan, text: str, seen: Observed | None) -> Observed:
    """What the engine noted; what it did not, by encoding the text again."""
    tokens, stop = seen or Observed(None, "unknown")
    if tokens is None and engine.tokenizer is not None:
        tokens = len(engine.tokenizer.encode(text, add_special_tokens=False))
    if stop == "unknown" and tokens is not None:
        stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
    return Observed(tokens, stop)


# Are k samples really k draws? Telling a broken seed from a model that has only one answer left.
#
# Equal samples alone prove nothing: a converged or collapsed policy repeats itself at temperature .6 too. But then it
# repeats its likeliest answer, the greedy one. Samples that equal each other and not the greedy response come from one
# draw, copied.


SUSPECT = 0.5  # share of items whose samples are all equal
PROBED = 20  # items asked once more, greedily
FEWEST_SAMPLES = 4


def by_item(responses: Sequence[Response]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for response in responses:
        found[response.item_id].append(response.response)
    return dict(found)


def distinct_fraction(responses: Sequence[Response]) -> float | None:
    """Mean over items of (different responses - 1) / (samples - 1): 0 all equal, 1 all different; None for k = 1."""
    texts = by_item(responses)
    shares = [(len(set(own)) - 1) / (len(own) - 1) for own in texts.values() if len(own) > 1]
    return sum(shares) / len(shares) if shares else None


def suspects(responses: Sequence[Response]) -> list[str]:
    """Items to probe: those with all samples equal, at most `PROBED`, when they are most of the set; else none."""
    texts = {item: own for item, own in by_item(responses).items() if len(own) >= FEWEST_SAMPLES}
    equal = [item for item, own in texts.items() if len(set(own)) == 1]
    return equal[:PROBED] if texts and len(equal) > SUSPECT * len(texts) else []


def check(benchmark: str, responses: Sequence[Response], greedy: Mapping[str, str]) -> None:
    """CorruptInputError when most probed items repeat something else than their greedy response."""
    texts = by_item(responses)
    other = [item for item, text in greedy.items() if set(texts[item]) != {text}]
    if len(other) > SUSPECT * len(greedy):
        raise CorruptInputError(
            f"{benchmark}: the samples of an item are copies of one draw: on {len(other)} of {len(greedy)} probed items"
            " all are equal and differ from the greedy response; look for a seed that the engine uses for every sample"
        )
