"""Measure a tiny base: sample answers at temperature 1 and compute the figures that its aims are about."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from evals.arithmetic import Problem, prompt_string, training_problem
from methods import sampling
from models.tokenizer import BOX

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

_BOXED = re.compile(re.escape(BOX) + r"([^}]*)\}")


@dataclass(frozen=True)
class Figures:
    """The figures of one base."""

    accuracy: float  # share of responses with the right answer
    entropy: float  # nats per token
    mixed_groups: float  # share of prompts with right and wrong samples: only these give RL a signal
    direct_share: float  # share of responses that begin with the box, without any working
    length: float  # tokens, the end token included
    unfinished: float  # share of responses without an end token

    def json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def correct(response: str, answer: str) -> bool:
    """Whether the last box of the response holds exactly `answer`."""
    boxes = _BOXED.findall(response)
    return bool(boxes) and boxes[-1] == answer


def accuracy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, ladder: str, *, count: int, tokens: int, seed: str
) -> float:
    """Share of right answers to `count` training problems, one sample each at temperature 1."""
    problems = _problems(ladder, count, seed)
    _, response_NT = sample(model, tokenizer, problems, tokens=tokens, seed=seed)
    texts = tokenizer.batch_decode(response_NT, skip_special_tokens=True)
    return sum(correct(text, p.answer) for text, p in zip(texts, problems, strict=True)) / count


def figures(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    ladder: str,
    *,
    prompts: int,
    samples: int,
    tokens: int,
    seed: str,
) -> Figures:
    """Figures of `samples` responses to each of `prompts` training problems of the ladder."""
    problems = [problem for problem in _problems(ladder, prompts, seed) for _ in range(samples)]
    prompt_NT, response_NT = sample(model, tokenizer, problems, tokens=tokens, seed=seed)
    ends_NT = (response_NT == tokenizer.eos_token_id).long()
    valid_NT = (ends_NT.cumsum(1) - ends_NT) == 0  # up to and including the first end token
    texts = tokenizer.batch_decode(response_NT, skip_special_tokens=True)
    right = [correct(text, p.answer) for text, p in zip(texts, problems, strict=True)]
    groups = [sum(right[at : at + samples]) for at in range(0, len(right), samples)]
    entropy_NT = _entropy(model, prompt_NT, response_NT, tokenizer.pad_token_id)
    box = tokenizer.convert_tokens_to_ids(BOX)
    return Figures(
        accuracy=sum(right) / len(right),
        entropy=float(entropy_NT[valid_NT].mean()),
        mixed_groups=sum(0 < hits < samples for hits in groups) / prompts,
        direct_share=float((response_NT[:, 0] == box).float().mean()),
        length=float(valid_NT.sum(1).float().mean()),
        unfinished=float((ends_NT.sum(1) == 0).float().mean()),
    )


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    problems: Sequence[Problem],
    *,
    tokens: int,
    seed: str,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts (N, T), padded on the left, and responses (N, T) of at most `tokens`, sampled at temperature 1.

    The caller's random state is left as it was.
    """
    import torch

    batch = tokenizer(
        [prompt_string(p.prompt) for p in problems], padding=True, padding_side="left", return_tensors="pt"
    )
    ids, mask = batch["input_ids"], batch["attention_mask"]
    asked = {
        "max_new_tokens": tokens,
        "do_sample": True,
        "temperature": 1.0,
        "top_k": 0,  # 0 and 1.0 switch the filters off: sample from the model's own distribution
        "top_p": 1.0,
    }
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(random.Random(seed).getrandbits(63))
        if sampling.unsupported(model, asked) is None:  # the same tokens for less
            ends, pad = [tokenizer.eos_token_id], tokenizer.pad_token_id
            return ids, sampling.sample(model, ids, mask, max_new_tokens=tokens, ends=ends, pad=pad).tokens
        both_NT = model.generate(input_ids=ids, attention_mask=mask, **asked)
    return ids, both_NT[:, ids.shape[1] :]


def _problems(ladder: str, count: int, seed: str) -> list[Problem]:
    rng = random.Random(seed)
    return [training_problem(rng, ladder) for _ in range(count)]


def _entropy(model: PreTrainedModel, prompt_NT: torch.Tensor, response_NT: torch.Tensor, pad: int) -> torch.Tensor:
    """Entropy in nats of the next-token distribution at each response token, (N, T)."""
    import torch

    parts = []
    rows = 256  # at a time: the logits of a thousand responses at once would fill the memory of a small machine
    for start in range(0, len(prompt_NT), rows):
        prompt_BT, response_BT = prompt_NT[start : start + rows], response_NT[start : start + rows]
        ids_BT = torch.cat([prompt_BT, response_BT], 1)
        mask_BT = torch.cat([prompt_BT != pad, torch.ones_like(response_BT, dtype=torch.bool)], 1).long()
        position_BT = (mask_BT.cumsum(1) - 1).clamp(min=0)
        with torch.inference_mode():
            logits_BTV = model(
                input_ids=ids_BT, attention_mask=mask_BT, position_ids=position_BT, use_cache=False
            ).logits
        logp_BTV = logits_BTV[:, prompt_BT.shape[1] - 1 : -1].log_softmax(-1)
        parts.append(-(logp_BTV.exp() * logp_BTV).sum(-1))
    return torch.cat(parts)
