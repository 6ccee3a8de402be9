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


LENGTHS = {  # style: tokens of an answer of `steps` steps with `step` tokens each, end token included
    "worked": lambda steps, step: step * steps + 4,
    "check": lambda steps, step: step * steps * (2 if steps <= 4 else 1) + 4,
    "direct": lambda steps, step: 4,
}


def test_answer_lengths(made: Any) -> None:
    most = recipe("tiny_qwen2", "wide", 1).start.completion_tokens
    for family, k in sorted({cell for ladder in arithmetic.LADDERS.values() for cell in ladder}):
        for problem in arithmetic.held_out(family, k, 10, seed=0):
            for style in LENGTHS:
                tokens = len(made(arithmetic.solution(problem, style) + tokenizer.EOS)["input_ids"])
                assert tokens <= most
                if family == "add2":
                    expected = {"worked": (19, 20), "check": (33, 35), "direct": (5,)}[style]
                elif family == "sort":  # step i has i digits on its right
                    worked = sum(3 + i for i in range(1, k + 1))
                    expected = ({"worked": worked, "check": 2 * worked, "direct": 0}[style] + 3 + k,)
                else:
                    step = {"swap": 5, "iter": 4}.get(family, 6)  # such as `13=5;`, `2=1;`, `3+2=5;`
                    expected = (LENGTHS[style](k + 2 if family == "seq" else k, step),)
                assert tokens in expected, (problem, style)


ARCHITECTURES = {  # class and millions of parameters
    "tiny_qwen2": ("Qwen2ForCausalLM", 0.173),
    "tiny_qwen3": ("Qwen3ForCausalLM", 0.173),
    "tiny_llama": ("LlamaForCausalLM", 0.185),
    "tiny_mistral": ("MistralForCausalLM", 0.172),
    "tiny_qwen2_distilled": ("Qwen2ForCausalLM", 0.173),
}


def test_architectures() -> None:
    for model, (class_name, millions) in ARCHITECTURES.items():
        made = recipe(model, "wide", 1).start
        built = fresh(made.architecture, seed=made.seed)
        assert type(built).__name__ == class_name
        assert round(sum(p.numel() for p in built.parameters()) / 1e6, 3) == pytest.approx(millions, abs=0.0015), model
        assert not built.config.tie_word_embeddings
        assert built.config.vocab_size == tokenizer.VOCAB_SIZE
        assert getattr(built.config, "sliding_window", None) is None
        assert built.generation_config.eos_token_id == 2
