"""One tokenizer for all tiny models: 256 bytes without merges, pad/bos/eos, and `\\boxed{` as one token.

Byte-level because of a trap: next to a config with `model_type: qwen2`, AutoTokenizer loads whatever lies
there as Qwen2Tokenizer and puts a byte-level pre-tokenizer before it. A word-level vocabulary would silently
lose newlines; bytes come out the same under every class. `\\boxed{` is an added token, or it would cost seven
tokens in answers of four.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from evals.arithmetic import BOS

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

PAD, EOS, BOX = "<pad>", "<eos>", "\\boxed{"
SPECIALS = (PAD, BOS, EOS)
# Qwen2Tokenizer adds a token of its own on loading (261 against 260), so every model gets the same wider table.
VOCAB_SIZE = 264


def tokenizer() -> PreTrainedTokenizerFast:
    """A fresh tokenizer; no chat template, no token added around a text: `<bos>` is written in the prompt string."""
    import tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIALS, *alphabet))}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    made = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PAD,
        bos_token=BOS,
        eos_token=EOS,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        model_max_length=256,
    )
    made.add_tokens([tokenizers.AddedToken(BOX, special=False, normalized=False)])
    return made


def save(folder: Path | str) -> None:
    """Write the tokenizer's files into a model folder."""
    tokenizer().save_pretrained(str(folder))
