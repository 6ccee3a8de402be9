"""Training batches of a tiny base: problems with solutions, as token tensors, and the gradient of their loss.

The gradient is computed in two parts, on one thread or two, with the same bits. Torch's own threads round differently,
and on a busy machine they wait for each other (measured: 30 times slower).
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evals.arithmetic import BOS, prompt_string, solution, training_problem
from models.recipe import Noisy
from models.tokenizer import BOX, EOS

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Pair = tuple[str, str]  # prompt string, answer without end token
IGNORED = -100  # torch's cross_entropy leaves such targets out


def clean_pairs(rng: random.Random, ladder: str, count: int) -> list[Pair]:
    """(prompt string, worked solution) of `count` training problems."""
    problems = [training_problem(rng, ladder) for _ in range(count)]
    return [(prompt_string(problem.prompt), solution(problem)) for problem in problems]


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

    Padding needs no attention mask: attention looks back, and padding comes after all real tokens.
    """
    import torch

    prompts = tokenizer([prompt for prompt, _ in pairs])["input_ids"]
    answers = tokenizer([answer + EOS for _, answer in pairs])["input_ids"]
    width = max(len(prompt) + len(answer) for prompt, answer in zip(prompts, answers, strict=True)) - 1
    pad = tokenizer.pad_token_id
    ids, targets = [], []
    for prompt, answer in zip(prompts, answers, strict=True):
        padding = width + 1 - len(prompt) - len(answer)
        ids.append([*prompt, *answer[:-1], *[pad] * padding])
        targets.append([*[IGNORED] * (len(prompt) - 1), *answer, *[IGNORED] * padding])
    return torch.tensor(ids), torch.tensor(targets)


class Gradients:
    """Adds the gradient of the mean cross-entropy over a batch's answer tokens to the model's `.grad`."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, pool: Executor | None):
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
        self.second = model
        if pool is not None:  # the second thread reads the same weights and collects gradients of its own
            self.second = copy.deepcopy(model)
            for ours, theirs in zip(model.parameters(), self.second.parameters(), strict=True):
                theirs.data = ours.data

    def __call__(self, pairs: Sequence[Pair]) -> float:
        """The loss; the model's `.grad` must be None before."""
        short, long = (tensors(part, self.tokenizer) for part in by_length(pairs))
        tokens = int((short[1] != IGNORED).sum() + (long[1] != IGNORED).sum())
        # Both parts divide by the tokens of the whole batch, so that their gradients add up to its mean's.
        if self.pool is None:
            return _backward(self.model, *short, tokens) + _backward(self.model, *long, tokens)
        future = self.pool.submit(_backward, self.second, *long, tokens)
        loss = _backward(self.model, *short, tokens)
        loss += future.result()
        for ours, theirs in zip(self.model.parameters(), self.second.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            ours.grad += theirs.grad  # the same single addition that the second backward makes without a pool
            theirs.grad = None
        return loss


@contextmanager
def gradients(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, threads: int) -> Iterator[Gradients]:
    """`Gradients` on one thread, or on two for any `threads` above one."""
    pool = ThreadPoolExecutor(1) if threads > 1 else None
    try:
        with one_torch_thread():
            yield Gradients(model, tokenizer, pool)
    finally:
        if pool is not None:
            pool.shutdown()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Operations run on one thread, whatever the machine, so that they round alike."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_length(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """The shorter and the longer pairs, so that both parts hold about the same number of padded tokens."""
    ordered = sorted(pairs, key=_length)
    longest = _length(ordered[-1])
    cut = next(at for at in range(1, len(ordered)) if at * _length(ordered[at]) >= (len(ordered) - at) * longest)
    return ordered[:cut], ordered[cut:]


def _length(pair: Pair) -> int:
    """In tokens, up to a constant: the box and the beginning are one token each."""
    return len(pair[0]) + len(pair[1]) - len(BOS) - len(BOX)


def _backward(model: PreTrainedModel, ids_BT: torch.Tensor, target_BT: torch.Tensor, tokens: int) -> float:
    """Add the gradient of this part's share of the mean over `tokens`; returns the share."""
    import torch

    answer_BT = target_BT != IGNORED
    hidden_BTH = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    logits_NV = model.lm_head(hidden_BTH[answer_BT])  # only where the loss looks: half of the positions
    loss = torch.nn.functional.cross_entropy(logits_NV, target_BT[answer_BT], reduction="sum") / tokens
    loss.backward()
    return loss.item()
