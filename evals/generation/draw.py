"""The responses of one engine to one plan, through lm-eval; and the check that k samples are k draws."""

from __future__ import annotations

import dataclasses
import logging
import random
import shutil
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evals.generation import plan as task_file
from evals.generation.engine import Engine, Observed
from evals.generation.plan import Plan
from evals.store import Response, clean, prompt_sha256
from records.errors import CorruptInputError
from records.progress import Progress

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.api.task import ConfigurableTask


def draw(engine: Engine, plan: Plan, folder: Path, max_length: int | None, label: str = "generate") -> list[Response]:
    """All responses, items in order and samples in order within an item. Writes the task file into `folder`.

    max_length: the longest prompt and response together that the engine must hold, over all plans it will be asked.
    Raises CorruptInputError when lm-eval asked something else than the plan, or returned too few responses.
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
    task = task_file.load(task_file.write(plan, folder, engine.extras))
    texts = ask(lm, task, plan)
    shutil.rmtree(folder / task_file.CACHE)  # a copy of the prompts in another format
    return _responses(engine, plan, texts)


def quiet() -> None:
    """Silence the progress reports of lm-eval and transformers; their warnings stay."""
    import transformers

    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    transformers.logging.set_verbosity_error()


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
            seen = _complete(engine, plan, text, engine.seen.take(text))
            responses.append(
                Response(
                    item_id=item.item_id,
                    sample=sample,
                    prompt=prompt.text,
                    prompt_sha256=prompt_sha256(prompt.text),
                    response=clean(text),
                    stop=seen.stop,
                    tokens=seen.tokens,
                    seed=engine.sample_seed(sample),
                )
            )
    return responses


def _complete(engine: Engine, plan: Plan, text: str, seen: Observed | None) -> Observed:
    """What the engine observed; what it did not, from encoding the text again."""
    tokens, stop = seen or Observed(None, "unknown")
    if tokens is None and engine.tokenizer is not None:
        tokens = len(engine.tokenizer.encode(text, add_special_tokens=False))
    if stop == "unknown" and tokens is not None:
        stop = "length" if tokens >= plan.decoding.max_tokens else "stop"
    return Observed(tokens, stop)


# Are k samples really k draws? A fixed seed that an engine uses for every sample would copy one draw k times.
#
# Equal samples alone prove nothing: a converged or collapsed policy repeats itself at temperature 0.6 too. But then it
# repeats its likeliest answer, the greedy one. So where most items have all samples equal, some of these items are
# asked once more, greedily. Samples that equal each other and not the greedy response come from one draw, copied.

SUSPECT = 0.5  # share of items: below it, a fixed seed is ruled out, since it would make all items suspect
PROBED = 20  # items asked once more: few enough to cost nothing, enough to see a share
FEWEST_SAMPLES = 4  # with two or three samples, equal ones are common


def by_item(responses: Sequence[Response]) -> dict[str, list[str]]:
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
    """The plan for some items of `plan`, asked once and greedily."""
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
