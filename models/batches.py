"""Problems with solutions as token tensors, for cross-entropy on the answer only."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from evals.arithmetic import prompt_string, solution, training_problem
from models.recipe import Noisy
from models.tokenizer import EOS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedTokenizerFast

Pair = tuple[str, str]  # prompt string, answer without end token
IGNORED = -100  # torch's cross_entropy leaves such targets out


def clean_pairs(rng: random.Random, ladder: str, count: int) -> list[Pair]:
    """(prompt string, worked solution) of `count` training problems."""
    return [(prompt_string(p.prompt), solution(p)) for p in (training_problem(rng, ladder) for _ in range(count))]


def noisy_pairs(rng: random.Random, ladder: str, noisy: Noisy) -> list[Pair]:
    """(prompt string, solution in a drawn style with slips) of one batch."""
    names, shares = zip(*noisy.styles, strict=True)
    pairs = []
    for style in rng.choices(names, shares, k=noisy.batch):
        problem = training_problem(rng, ladder)
        pairs.append((prompt_string(problem.prompt), solution(problem, style, noisy.noise, rng)))
    return pairs


def tensors(pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerFast) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and targets (B, T), padded on the right; targets are the next tokens, IGNORED inside prompt and padding.

    Padding needs no attention mask: it lies behind everything that is read.
    """
    import torch

    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    answers = tokenizer([answer + EOS for _, answer in pairs])["input_ids"]
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)) - 1
    pad = tokenizer.pad_token_id
    ids, targets = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        behind = width + 1 - len(prompt) - len(answer)
        ids.append([*prompt, *answer[:-1], *[pad] * behind])
        targets.append([*[IGNORED] * (len(prompt) - 1), *answer, *[IGNORED] * behind])
    return torch.tensor(ids), torch.tensor(targets)
