r"""Turn a problem into a prompt (reading E3), the same text for every engine.

    system      the instruction as system message, the problem as user message (Qwen's convention; default)
    user        the instruction after the problem, one user message
    none        the problem alone
    arithmetic  `evals.arithmetic.prompt_string`, for the tiny models; never a chat template
    questions   `evals.questions.prompt_string`, with solved examples; never a chat template

The paper states only that the prompt requests a boxed answer. Templates are applied and prompts cut here, not by
lm-eval: it would record neither in the samples, and a system message that a template refuses would be dropped
together with the instruction.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from core.errors import ConfigError, unknown
from evals import arithmetic, questions
from evals.benchmark import GENERATED, PROMPTS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Prompt:
    """One problem as an engine receives it."""

    text: str
    tokens: int | None  # length of the text; None without a tokenizer
    cut: int  # tokens removed on the left
    how: str  # the reading and its changes, for samples.json


def messages(reading: str, problem: str) -> Messages:
    """Return the conversation of a reading, for a chat template or a chat endpoint."""
    conversations = {
        "system": [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": problem}],
        "user": [{"role": "user", "content": f"{problem}\n{INSTRUCTION}"}],
        "none": [{"role": "user", "content": problem}],
    }
    if reading in GENERATED:
        raise ConfigError(f"--chat: the prompt {reading!r} is not a conversation; set --prompt system, user or none")
    if reading not in conversations:
        raise unknown("prompt", "reading", reading, PROMPTS)
    return conversations[reading]


def plain(reading: str, problem: str) -> str:
    """Return the text of a reading for a model without a chat template."""
    if reading in GENERATED:
        return {"arithmetic": arithmetic, "questions": questions}[reading].prompt_string(problem)
    return "".join(f"{message['content']}\n\n" for message in messages(reading, problem))


def build(tokenizer: PreTrainedTokenizerBase | None, reading: str, problem: str, limit: int | None) -> Prompt:
    """Build the prompt of a problem, with the model's chat template if it has one, cut on the left to `limit` tokens.

    tokenizer: None for an endpoint that applies its own template: it gets the conversation as JSON. Raises ConfigError
    for an unknown reading.
    """
    if tokenizer is None:
        text = json.dumps(messages(reading, problem), ensure_ascii=False)
        return Prompt(text, tokens=None, cut=0, how=f"{reading}, the endpoint's chat template")
    if reading in GENERATED or getattr(tokenizer, "chat_template", None) is None:
        text, how = plain(reading, problem), f"{reading}, no chat template"
    else:
        text, how = _templated(tokenizer, reading, problem)
    return _fit(tokenizer, text, how, limit)


def _templated(tokenizer: PreTrainedTokenizerBase, reading: str, problem: str) -> tuple[str, str]:
    from jinja2.exceptions import TemplateError

    render = partial(tokenizer.apply_chat_template, tokenize=False, add_generation_prompt=True)
    conversation = messages(reading, problem)
    try:
        return str(render(conversation)), f"{reading}, chat template"
    except TemplateError:
        if conversation[0]["role"] != "system":
            raise
    # Some templates refuse a system message. The instruction must not be lost, so it opens the user message.
    text = "\n\n".join(message["content"] for message in conversation)
    return str(render([{"role": "user", "content": text}])), f"{reading}, chat template without system role"


def ids(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return token ids of a finished prompt; no special token is added, as the text already contains them."""
    return list(tokenizer.encode(text, add_special_tokens=False, verbose=False))


def _with_begin_token(tokenizer: PreTrainedTokenizerBase, text: str) -> str:
    """Return the text with the begin token written out, if the tokenizer would add one and it is missing.

    Engines then encode without adding anything. Otherwise they decide by the first prompt of a batch (lm-eval's hf) or
    add a second begin token to a template's (servers).
    """
    begin = tokenizer.bos_token
    adds = begin is not None and list(tokenizer.encode("0"))[:1] == [tokenizer.bos_token_id]
    return begin + text if adds and not text.startswith(begin) else text


def _fit(tokenizer: PreTrainedTokenizerBase, text: str, how: str, limit: int | None) -> Prompt:
    """Keep the last `limit` tokens. If a cut falls inside a character, the rest of that character is dropped."""
    text = _with_begin_token(tokenizer, text)
    all_ids = ids(tokenizer, text)
    if limit is None or len(all_ids) <= limit:
        return Prompt(text, len(all_ids), 0, how)
    # Encoding the cut text again may give more tokens than the limit. Then one token fewer is kept, until it fits.
    for count in range(limit, 0, -1):
        tail = tokenizer.decode(all_ids[-count:], skip_special_tokens=False).lstrip("\N{REPLACEMENT CHARACTER}")
        shorter = _with_begin_token(tokenizer, tail) if tail else ""
        length = len(ids(tokenizer, shorter))
        if shorter and length <= limit:
            return Prompt(shorter, length, len(all_ids) - length, how)
    raise ConfigError(f"prompt: nothing of a problem fits into {limit} tokens")
