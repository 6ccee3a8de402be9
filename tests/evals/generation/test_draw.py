"""Plans: room in short models, recorded deviations, a digest that sees every part of the question."""

from __future__ import annotations

import copy
import itertools
import os
import tempfile
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from core.errors import ConfigError
from evals import arithmetic, data
from evals.benchmark import benchmark
from evals.generation import draw, prompts
from evals.generation.draw import Plan, load_task, make_plan, write_task
from evals.generation.engine import Settings, engine
from evals.generation.prompts import INSTRUCTION
from tests.evals.conftest import few


@pytest.fixture(scope="module")
def items() -> list[data.Item]:
    source: Any = benchmark("syn_mix3").source
    return data.items(source.make())


def made(tiny: Path, items: list[data.Item], seed: int = 1, **given: Any) -> Plan:
    return make_plan(engine("hf", Settings(str(tiny), seed=seed)), few("syn_mix3"), items, **given)


def test_a_short_model_reserves_its_longest_prompt_and_no_more(tiny: Path, items: list[data.Item]) -> None:
    """Not the limit of 2,048 tokens, and at most half of its positions where the response could use the others."""
    asked = engine("hf", Settings(str(tiny), seed=1))
    for positions, most, response, cut in (
        (None, 64, 64, 0),
        (73, 64, 64, 0),
        (72, 64, 63, 0),
        (18, 64, 9, 0),
        (16, 64, 8, 20),
        (12, 4, 4, 20),
    ):
        vars(asked)["positions"] = positions
        found = make_plan(asked, few("syn_mix3"), items, changes={"max_tokens": most})
        assert found.decoding.max_tokens == response, positions
        assert max(prompt.tokens or 0 for prompt in found.prompts) == (8 if cut else 9), positions
        assert sum(prompt.cut > 0 for prompt in found.prompts) == cut, positions
        assert any(text.startswith("at most") for text in found.deviations) == (response < most), positions
    vars(asked)["positions"] = 1
    with pytest.raises(ConfigError, match="no room"):
        make_plan(asked, few("syn_mix3"), items)


def test_every_deviation_is_said(tiny: Path, items: list[data.Item], monkeypatch: pytest.MonkeyPatch) -> None:
    assert made(tiny, items).deviations == ()
    monkeypatch.setattr(draw, "PROMPT_LIMIT", 8)
    said = made(tiny, items[:3], reading="none").deviations
    assert [text.split(",")[0] for text in said] == [
        "prompt reading none",
        "the first 3 of 20 items",
        "3 prompts cut on the left to 8 tokens",
    ]


def test_a_task_file_never_holds_a_seed_and_greedy_never_a_temperature(tiny: Path, tmp_path: Path) -> None:
    """A seed among the generation arguments made 4 repeats 1 sample (measured). hf and vllm get the same file."""
    for key in ("syn_mix3", "syn_as3"):
        entry: Any = benchmark(key)
        texts = []
        for backend in ("hf", "vllm"):
            asked = engine(backend, Settings(str(tiny), seed=1))
            found = make_plan(asked, entry, data.items(entry.source.make()))
            texts.append(write_task(found, tmp_path, asked.extras).read_text())
        assert texts[0] == texts[1]
        config = yaml.safe_load(texts[0])
        wanted = {"do_sample": False, "max_gen_toks": 64, "until": []}
        if not entry.decoding.greedy:
            wanted |= {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
        assert config["generation_kwargs"] == wanted
        assert config["repeats"] == entry.decoding.samples


def test_lm_eval_itself_reads_the_task_file_at_a_long_path_and_leaves_nothing(
    tiny: Path, items: list[data.Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The datasets library makes one file name of the whole path of its copy; 255 bytes are the most a name has."""
    temporary, home = tmp_path / "tmp", datasets.config.HF_DATASETS_CACHE
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    found = made(tiny, items)
    folder = tmp_path.joinpath(*["a long name in a path" * 8] * 3)
    task = load_task(write_task(found, folder, {}))
    assert [task.doc_to_text(doc) for doc in task.test_docs()] == [prompt.text for prompt in found.prompts]
    assert task.config.repeats == 8
    assert sorted(path.name for path in folder.iterdir()) == ["prompts.jsonl", "syn_mix3.yaml"]
    assert list(temporary.iterdir()) == []
    assert home == datasets.config.HF_DATASETS_CACHE


def test_vllm_compiles_into_a_folder_that_goes_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not into the home folder. Set before the package is imported, which reads its variables once."""
    from core import caches
    from evals.generation import vllm

    for name in (caches.VARIABLE, *caches.FOLDERS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    seen: dict[str, str] = {}
    monkeypatch.setattr(vllm, "_observed_vllm", lambda: lambda *_, **__: seen.update(os.environ))
    made = vllm.Vllm(Settings(model="model", seed=1))
    made.__dict__["folder"] = tmp_path
    made.load(None)
    folders = {Path(seen[name]).parent for name in caches.FOLDERS}
    assert len(folders) == 1
    assert folders.pop().parent == tmp_path


PROBLEM = "What is $3+4$?"
CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}<assistant>"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHAT
WITH_BEGIN = "{{ bos_token }}" + CHAT


@pytest.fixture(scope="module")
def tiny_tokenizer(tiny: Path) -> Any:
    return AutoTokenizer.from_pretrained(tiny)


@pytest.fixture
def tokenizer(tiny_tokenizer: Any) -> Any:
    """A copy, to be changed."""
    return copy.deepcopy(tiny_tokenizer)


def build(tokenizer: Any, reading: str, limit: int | None = None) -> prompts.Prompt:
    return prompts.build(tokenizer, reading, PROBLEM, limit)


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


def test_each_reading_is_what_it_says_and_an_unknown_one_names_the_allowed(tokenizer: Any) -> None:
    for reading, chat, text, how in READINGS:
        tokenizer.chat_template = chat
        found = build(tokenizer, reading)
        assert (found.text, found.how, found.cut) == (text, how, 0)
    for tokenizer.chat_template in (None, CHAT):
        with pytest.raises(ConfigError, match="allowed: "):
            build(tokenizer, "sytem")


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
def test_a_cut_prompt_fits_and_is_the_end_of_the_whole(tiny_tokenizer: Any, text: str, limit: int) -> None:
    whole = prompts.plain("none", text)
    found = prompts.build(tiny_tokenizer, "none", text, limit)
    length = len(prompts.ids(tiny_tokenizer, whole))
    assert whole.endswith(found.text)
    assert found.tokens == len(prompts.ids(tiny_tokenizer, found.text)) <= limit
    assert found.cut == length - (found.tokens or 0)
    assert (found.cut > 0) == (length > limit)
