"""Random models of Qwen2's architecture with a tokenizer of Qwen2's class: nothing is downloaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2 model."""

    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    vocabulary: int
    tied: bool = True  # whether the output layer is the embedding

    @property
    def parameters(self) -> int:
        """Of weights, biases of attention included."""
        head = self.hidden // self.heads
        key_value = 2 * self.key_value_heads * head
        attention = 2 * self.hidden * self.hidden + (self.hidden + 1) * key_value + self.hidden
        layer = attention + 3 * self.hidden * self.intermediate + 2 * self.hidden
        return self.layers * layer + self.hidden + self.vocabulary * self.hidden * (1 if self.tied else 2)


SMALL = Shape(512, 4, 8, 2, 1408, 2048)
WIDE_7B = Shape(3584, 2, 28, 4, 18944, 152064, tied=False)  # two layers of Qwen2.5-7B
WIDE_1_5B = Shape(1536, 2, 12, 2, 8960, 151936)  # two layers of Qwen2.5-1.5B
MEDIUM_1_5B = Shape(1536, 28, 12, 2, 8960, 151936)  # Qwen2.5-1.5B
MEDIUM_0_5B = Shape(896, 24, 14, 2, 4864, 151936)  # Qwen2.5-0.5B
TOY = Shape(64, 2, 4, 2, 128, 512)


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

    config = Qwen2Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads,
        max_position_embeddings=positions,
        tie_word_embeddings=shape.tied,
        initializer_range=spread,
        pad_token_id=0,
        bos_token_id=0,
        eos_token_id=0,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen2ForCausalLM(config)
    model.generation_config = GenerationConfig(pad_token_id=0, bos_token_id=0, eos_token_id=0)
    return model


def save(folder: Path, shape: Shape, **options: Any) -> Path:
    """The model and its tokenizer as an ordinary model folder."""
    build(shape, **options).save_pretrained(str(folder))
    tokenizer(shape.vocabulary).save_pretrained(str(folder))
    return folder
