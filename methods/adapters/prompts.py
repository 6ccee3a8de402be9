"""Which prompts a run sees, in which order (by its seed alone), and whether the model can read them."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from methods.adapters.seeds import derive
from records.errors import ConfigError, CorruptInputError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def order(count: int, length: int, seed: int) -> list[int]:
    """`length` of `count` prompts: shuffled passes over all of them, one after the other."""
    passes = -(-length // count)
    return [index for nth in range(passes) for index in shuffled(count, seed, nth)][:length]


@lru_cache(maxsize=4)
def shuffled(count: int, seed: int, nth: int) -> tuple[int, ...]:
    """The `nth` pass over `count` prompts."""
    indices = list(range(count))
    random.Random(derive(seed, "prompts", nth)).shuffle(indices)
    return tuple(indices)


class Refill:
    """The private stream that filter `refill` draws from; `position` is all there is to save."""

    def __init__(self, count: int, seed: int, position: int = 0):
        self.count, self.seed, self.position = count, seed, position

    def draw(self, wanted: int, used: Collection[int]) -> list[int]:
        """The next prompts of the stream, passing over those already in this rollout; fewer when none are left."""
        drawn: list[int] = []
        while len(drawn) < wanted and len(drawn) + len(used) < self.count:
            nth, at = divmod(self.position, self.count)
            index = shuffled(self.count, derive(self.seed, "refill"), nth)[at]
            self.position += 1
            if index not in used and index not in drawn:
                drawn.append(index)
        return drawn


def check_count(count: int, drawn: int, path: str) -> None:
    """A prompt may come once per rollout only: its samples are one group."""
    if count < drawn:
        raise ConfigError(f"{path}: holds {count} prompts, one rollout draws {drawn} different ones")


def check_readable(
    prompts: Iterable[str],
    tokenizer: PreTrainedTokenizerBase,
    longest: int | None,
    response: int,
    path: str,
    *,
    limit: int | None = None,
) -> None:
    """Raise for a prompt that does not survive tokenising, that with its response exceeds the model's positions, or
    that has more than `limit` tokens (`training.max_prompt_tokens`, for a trainer that cuts nothing)."""
    for line, prompt in enumerate(prompts, 1):
        ids: list[int] = tokenizer(prompt)["input_ids"]
        decoded = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
        if _plain(prompt) not in _plain(str(decoded)):
            raise CorruptInputError(
                f"{path}: line {line}: prompt: the tokenizer loses text: {prompt[:60]!r} comes back as "
                f"{str(decoded)[:60]!r}"
            )
        if limit is not None and len(ids) > limit:
            raise ConfigError(f"{path}: line {line}: prompt: {len(ids)} tokens; training.max_prompt_tokens is {limit}")
        if longest is not None and len(ids) + response > longest:
            raise ConfigError(
                f"{path}: line {line}: prompt: {len(ids)} tokens and a response of {response} exceed the model's "
                f"{longest} positions"
            )


def _plain(text: str) -> str:
    """Normal form C: tokenizers may compose characters, which loses nothing."""
    return unicodedata.normalize("NFC", text)


def rows_of(prompts: list[dict[str, Any]], indices: Iterable[int]) -> list[dict[str, Any]]:
    """Dataset rows: prompt, answer and the prompt's index."""
    return [{"prompt": prompts[i]["prompt"], "answer": prompts[i]["answer"], "index": i} for i in indices]
