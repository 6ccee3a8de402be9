"""Prompts: what each reading says, that nothing is added or lost behind our back, and that cuts fit."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from core.errors import ConfigError
from evals import arithmetic
from evals.generation import prompts
from evals.generation.prompts import INSTRUCTION

PROBLEM = "What is $3+4$?"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
WITH_BEGIN = "{{ bos_token }}" + CHAT


@pytest.fixture
def tokenizer(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


def build(tokenizer: Any, reading: str, template: str = "auto", limit: int | None = None) -> prompts.Prompt:
    return prompts.build(tokenizer, reading, template, PROBLEM, limit)


READINGS = [  # reading, chat template -> text, how
    ("system", CHAT, f"<system>{INSTRUCTION}</><user>{PROBLEM}</><assistant>", "system, chat template"),
    ("user", CHAT, f"<user>{PROBLEM}\n{INSTRUCTION}</><assistant>", "user, chat template"),
    ("none", CHAT, f"<user>{PROBLEM}</><assistant>", "none, chat template"),
    (
        "system", NO_SYSTEM, f"<user>{INSTRUCTION}\n\n{PROBLEM}</><assistant>",
        "system, chat template without system role",
    ),
    ("system", None, f"{INSTRUCTION}\n\n{PROBLEM}\n\n", "system, no chat template"),
    ("user", None, f"{PROBLEM}\n{INSTRUCTION}\n\n", "user, no chat template"),
    ("none", None, f"{PROBLEM}\n\n", "none, no chat template"),
    ("arithmetic", CHAT, arithmetic.prompt_string(PROBLEM), "arithmetic, no chat template"),
]  # fmt: skip


def test_each_reading_is_what_it_says(tokenizer: Any) -> None:
    for reading, chat, text, how in READINGS:
        tokenizer.chat_template = chat
        found = build(tokenizer, reading)
        assert (found.text, found.how, found.cut) == (text, how, 0)


def test_a_template_can_be_switched_off_but_not_wished_for(tokenizer: Any) -> None:
    tokenizer.chat_template = CHAT
    assert build(tokenizer, "user", "no").text == f"{PROBLEM}\n{INSTRUCTION}\n\n"
    tokenizer.chat_template = None
    with pytest.raises(ConfigError, match="tokenizer has none"):
        build(tokenizer, "user", "yes")


def test_an_unknown_choice_names_the_allowed_ones(tokenizer: Any) -> None:
    for reading, template in (("sytem", "auto"), ("system", "maybe")):
        with pytest.raises(ConfigError, match="allowed: "):
            build(tokenizer, reading, template)


def adds_begin(tokenizer: Any) -> Any:
    """The tokenizer as Llama's behave: a begin token in front of every text it encodes."""
    from tokenizers.processors import TemplateProcessing

    begin = tokenizer.bos_token
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, tokenizer.bos_token_id)]
    )
    return tokenizer


def test_a_begin_token_is_there_once_when_the_tokenizer_adds_one_and_else_never(tokenizer: Any) -> None:
    assert tokenizer.bos_token_id not in prompts.ids(tokenizer, build(tokenizer, "system").text)
    tokenizer = adds_begin(tokenizer)
    for chat, limit in itertools.product((None, CHAT, WITH_BEGIN), (None, 20)):
        tokenizer.chat_template = chat
        ids = prompts.ids(tokenizer, build(tokenizer, "system", limit=limit).text)
        assert ids.count(tokenizer.bos_token_id) == 1, (chat, limit)
        assert ids[0] == tokenizer.bos_token_id, (chat, limit)
        assert limit is None or len(ids) <= limit


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=60)


@settings(max_examples=60, deadline=None)
@given(text=TEXTS, limit=st.integers(4, 40))
def test_a_cut_prompt_fits_and_is_the_end_of_the_whole(
    tiny_tokenizer: PreTrainedTokenizerBase, text: str, limit: int
) -> None:
    whole = prompts.plain("none", text)
    found = prompts.build(tiny_tokenizer, "none", "no", text, limit)
    length = len(prompts.ids(tiny_tokenizer, whole))
    assert whole.endswith(found.text)
    assert found.tokens == len(prompts.ids(tiny_tokenizer, found.text)) <= limit
    assert found.cut == length - (found.tokens or 0)
    assert (found.cut > 0) == (length > limit)


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


def test_a_chat_endpoint_gets_the_conversation(tokenizer: Any) -> None:
    found = prompts.for_chat("system", PROBLEM)
    assert json.loads(found.text) == prompts.messages("system", PROBLEM)
    assert found.tokens is None
