"""The tokenizer of all tiny models, and a freshly initialised tiny model.

The tokenizer has 256 bytes without merges, pad, bos and eos, and `\\boxed{` as one token. Bytes come out the same
under every class that AutoTokenizer loads; Qwen2Tokenizer would lose the newlines of a word-level vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evals.arithmetic import BOS
from models.registry import Architecture

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PAD, EOS, BOX = "<pad>", "<eos>", "\\boxed{"
SPECIALS = (PAD, BOS, EOS)
# Qwen2Tokenizer adds a token of its own on loading (261 against 260), so every model gets the same wider table.
VOCAB_SIZE = 264
CONTEXT = 256  # positions


def tokenizer() -> PreTrainedTokenizerFast:
    """A fresh tokenizer; no chat template, no token added around a text: `<bos>` is written in the prompt string."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIALS, *alphabet))}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=CONTEXT,
    )
    wrapped.add_tokens([tokenizers.AddedToken(BOX, special=False, normalized=False)])
    return wrapped


def save(folder: Path | str) -> None:
    """Write the tokenizer's files into a model folder."""
    tokenizer().save_pretrained(str(folder))


def fresh(architecture: Architecture, *, seed: int) -> PreTrainedModel:
    """A model with default initialisation in float32; the caller's random state is left as it was."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    pad, bos, eos = range(len(SPECIALS))
    config = AutoConfig.for_model(
        **architecture.model_dump(),
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
