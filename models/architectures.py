"""A freshly initialised tiny model of one of four transformers classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from models.registry import Architecture
from models.tokenizer import SPECIALS, VOCAB_SIZE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

CONTEXT = 256  # positions


def fresh(architecture: Architecture, *, seed: int) -> PreTrainedModel:
    """The model with default initialisation in float32; the caller's random state is left as it was."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    pad, bos, eos = range(len(SPECIALS))
    config = AutoConfig.for_model(
        architecture.model_type,
        hidden_size=architecture.hidden_size,
        intermediate_size=architecture.intermediate_size,
        num_hidden_layers=architecture.num_hidden_layers,
        num_attention_heads=architecture.num_attention_heads,
        num_key_value_heads=architecture.num_key_value_heads,
        head_dim=architecture.head_dim,
        vocab_size=VOCAB_SIZE,
        max_position_embeddings=CONTEXT,
        tie_word_embeddings=False,
        sliding_window=None,
        attention_dropout=0.0,
        pad_token_id=pad,
        bos_token_id=bos,
        eos_token_id=eos,
        dtype="float32",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    # Qwen2Config has none by default: without it generation never stops.
    model.generation_config = GenerationConfig(pad_token_id=pad, bos_token_id=bos, eos_token_id=eos)
    return model
