"""Random models of Qwen2's architecture with a tokenizer of Qwen2's class: nothing is downloaded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from models import registry
from models.registry import Shape

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def hub(model: str, **changes: int) -> Shape:
    """The sizes that a model's file in config/models has."""
    shape = registry.model(model).shape
    assert shape is not None
    return shape.model_copy(update=changes)


MEDIUM = hub("qwen2.5_0.5b", num_hidden_layers=8, vocab_size=49152)  # 0.16e9 parameters: a state has 2 GB
SMALL = hub(
    "qwen2.5_0.5b", hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=1408, vocab_size=2048
)
TOY = hub(
    "qwen2.5_0.5b", hidden_size=64, num_hidden_layers=2, num_attention_heads=4, head_dim=16, intermediate_size=128,
    vocab_size=512,
)  # fmt: skip


def tokenizer(vocabulary: int) -> PreTrainedTokenizerBase:
    """Qwen2's class with 256 bytes, no merges, and words that no text is encoded to but every one of which decodes:
    a random model samples all of its vocabulary."""
    import tokenizers
    from transformers import Qwen2Tokenizer

    letters = [END, START, STOP, *sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())]
    words = letters + [f"w{n}" for n in range(vocabulary - len(letters))]
    made = Qwen2Tokenizer(
        vocab={word: index for index, word in enumerate(words)}, merges=[], eos_token=END, pad_token=END
    )
    made.add_special_tokens({"additional_special_tokens": [START, STOP]})
    made.chat_template = CHAT
    return made


def build(shape: Shape, *, seed: int = 0, positions: int = 32768, spread: float = 0.02) -> PreTrainedModel:
    """A random model in float32. spread: standard deviation of its weights."""
    import torch
    from transformers import GenerationConfig, Qwen2Config, Qwen2ForCausalLM

    ends = {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    sizes = shape.model_dump(exclude={"model_type", "head_dim", "source"})
    config = Qwen2Config(**sizes, **ends, max_position_embeddings=positions, initializer_range=spread)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(**ends)
    return model


def save(folder: Path, shape: Shape, **options: Any) -> Path:
    """The model and its tokenizer as an ordinary model folder."""
    build(shape, **options).save_pretrained(str(folder))
    tokenizer(shape.vocab_size).save_pretrained(str(folder))
    return folder
