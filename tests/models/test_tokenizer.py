"""One vocabulary, the same ids on every path: base training, RL, evaluation; and under every config class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evals import arithmetic
from models import tokenizer
from models.recipe import recipe
from models.registry import Architecture
from models.tokenizer import fresh

CLASSES = ("qwen2", "qwen3", "llama", "mistral")
TEXTS = [
    arithmetic.prompt_string("42+19?") + "2+9=11;1+4+1=6;\\boxed{61}" + tokenizer.EOS,
    arithmetic.prompt_string("4,1,4,,?"),
    "\\boxed{5}\n\n  spaces,\ttabs and é ∑ 数",
    "\\boxed {5} \\box \\\\boxed{",
]


def small(model_type: str) -> Architecture:
    return Architecture(
        model_type=model_type, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for model_type in CLASSES:
        made[model_type] = tmp_path_factory.mktemp(model_type)
        fresh(small(model_type), seed=1).save_pretrained(made[model_type])
        tokenizer.save(made[model_type])
    return made


@pytest.fixture(scope="module")
def made() -> Any:
    return tokenizer.tokenizer()


def test_auto_tokenizer_round_trips(folders: dict[str, Path], made: Any) -> None:
    from transformers import AutoTokenizer

    for model_type, folder in folders.items():
        loaded = AutoTokenizer.from_pretrained(folder)
        assert len(loaded) <= tokenizer.VOCAB_SIZE
        assert (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)
        for text in TEXTS:
            ids = made(text)["input_ids"]
            assert loaded(text)["input_ids"] == ids, (model_type, text)
            assert loaded.decode(ids) == made.decode(ids) == text, (model_type, text)
            assert max(ids) < tokenizer.VOCAB_SIZE
    lengths = {text: len(made(text)["input_ids"]) for text in ("\\boxed{", "\n", "<bos>", "<eos>", "7", "é")}
    assert list(lengths.values()) == [1, 1, 1, 1, 1, 2]


def test_evaluation_reads_the_same_ids_as_training(folders: dict[str, Path], made: Any) -> None:
    """lm-eval decides about special tokens by itself: the beginning must stand there once."""
    from lm_eval.models.huggingface import HFLM
    from transformers import AutoModelForCausalLM, AutoTokenizer

    text = arithmetic.prompt_string("6+8-9*9?")
    base_training = made([text])["input_ids"][0]
    assert base_training.count(made.bos_token_id) == 1
    for model_type, folder in folders.items():
        model = AutoModelForCausalLM.from_pretrained(folder)
        lm = HFLM(pretrained=model, tokenizer=AutoTokenizer.from_pretrained(folder), batch_size=1, device="cpu")
        assert lm.tok_encode(text) == base_training, model_type
        assert lm.tok_batch_encode([text])[0].tolist() == [base_training], model_type
        rl = AutoTokenizer.from_pretrained(folder)(text=[text])["input_ids"]  # as the RL trainer calls it
        assert rl == [base_training], model_type


def test_no_answer_is_longer_than_a_response_may_be(made: Any) -> None:
    most = recipe("tiny_qwen2", "wide", 1).start.completion_tokens
    for family, k in sorted({cell for ladder in arithmetic.LADDERS.values() for cell in ladder}):
        for problem in arithmetic.held_out(family, k, 10, seed=0):
            for style in arithmetic.STYLES:
                tokens = len(made(arithmetic.solution(problem, style) + tokenizer.EOS)["input_ids"])
                assert 4 <= tokens <= most, (problem, style)
