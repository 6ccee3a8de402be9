"""The tiny models: tokenizer and fresh weights, training batches and their gradient, and the figures of a base.

The tokenizer has 256 bytes without merges, pad, bos and eos, and `\\boxed{` as one token. Bytes are tokenised equally
by every class that AutoTokenizer loads; Qwen2Tokenizer would lose the newlines of a word-level vocabulary.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evals.arithmetic import BOS, Problem, prompt_string, solution, training_problem
from methods import sampling
from models.recipe import Noisy
from models.registry import Architecture

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

PAD, EOS, BOX = "<pad>", "<eos>", "\\boxed{"
SPECIALS = (PAD, BOS, EOS)
# Qwen2Tokenizer adds a token on loading (261 instead of 260), so every model gets the same larger table.
VOCAB_SIZE = 264
CONTEXT = 256  # positions


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a new tokenizer, without chat template or added tokens: `<bos>` is part of the prompt string."""
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
    """Return a model with default initialisation in float32; the caller's random state is unchanged."""
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
    # Qwen2Config has no end token by default, and generation would never stop.
    model.generation_config = GenerationConfig(pad_token_id=pad, bos_token_id=bos, eos_token_id=eos)
    return model


# Training batches: problems with solutions, as token tensors, and the gradient of their loss.
#
# The gradient is computed in two parts, on one thread or two, with the same bits. Torch's threads round differently,
# and on a busy machine they wait for each other (measured: 30 times slower).

Pair = tuple[str, str]  # prompt string, answer without end token
IGNORED = -100  # torch's cross_entropy skips such targets


def clean_pairs(rng: random.Random, ladder: str, count: int) -> list[Pair]:
    """Return (prompt string, worked solution) of `count` training problems."""
    problems = [training_problem(rng, ladder) for _ in range(count)]
    return [(prompt_string(problem.prompt), solution(problem)) for problem in problems]


def noisy_pairs(rng: random.Random, ladder: str, noisy: Noisy) -> list[Pair]:
    """Return (prompt string, solution in a drawn style with slips) of one batch."""
    names, shares = zip(*noisy.styles, strict=True)
    pairs = []
    for style in rng.choices(names, shares, k=noisy.batch):
        problem = training_problem(rng, ladder)
        pairs.append((prompt_string(problem.prompt), solution(problem, style, noisy.noise, rng)))
    return pairs


def tensors(pairs: Sequence[Pair], tokenizer: PreTrainedTokenizerFast) -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs and targets (B, T), padded on the right; targets are next tokens, IGNORED in prompt and padding.

    Padding needs no attention mask: attention is causal, and padding comes after all real tokens.
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
    """Callable that adds the gradient of the mean cross-entropy over a batch's answer tokens to the model's `.grad`."""

    def __init__(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, pool: Executor | None):
        self.model, self.tokenizer, self.pool = model, tokenizer, pool
        self.second = model
        if pool is not None:  # the second thread reads the same weights and accumulates separate gradients
            self.second = copy.deepcopy(model)
            for ours, theirs in zip(model.parameters(), self.second.parameters(), strict=True):
                theirs.data = ours.data

    def __call__(self, pairs: Sequence[Pair]) -> float:
        """Add the gradient and return the loss; the model's `.grad` must be None before."""
        short, long = (tensors(part, self.tokenizer) for part in by_length(pairs))
        tokens = int((short[1] != IGNORED).sum() + (long[1] != IGNORED).sum())
        # Both parts divide by the tokens of the whole batch, so that their gradients add up to that of its mean.
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
    """Yield `Gradients` on one thread, or on two for any `threads` above one."""
    pool = ThreadPoolExecutor(1) if threads > 1 else None
    try:
        with one_torch_thread():
            yield Gradients(model, tokenizer, pool)
    finally:
        if pool is not None:
            pool.shutdown()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run operations on one thread, so that they round alike on every machine."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def by_length(pairs: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    """Split into shorter and longer pairs, so that both parts have about the same number of padded tokens."""
    ordered = sorted(pairs, key=_length)
    longest = _length(ordered[-1])
    cut = next(at for at in range(1, len(ordered)) if at * _length(ordered[at]) >= (len(ordered) - at) * longest)
    return ordered[:cut], ordered[cut:]


def _length(pair: Pair) -> int:
    """Return the length in tokens, up to a constant: the box and the begin token are one token each."""
    return len(pair[0]) + len(pair[1]) - len(BOS) - len(BOX)


def _backward(model: PreTrainedModel, ids_BT: torch.Tensor, target_BT: torch.Tensor, tokens: int) -> float:
    """Add the gradient of this part's share of the mean over `tokens`; return the share."""
    import torch

    answer_BT = target_BT != IGNORED
    hidden_BTH = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    logits_NV = model.lm_head(hidden_BTH[answer_BT])  # only positions in the loss: half of all
    loss = torch.nn.functional.cross_entropy(logits_NV, target_BT[answer_BT], reduction="sum") / tokens
    loss.backward()
    return loss.item()


# The figures that a base's aims constrain, from answers sampled at temperature 1.

_BOXED = re.compile(re.escape(BOX) + r"([^}]*)\}")


@dataclass(frozen=True)
class Figures:
    """The figures of one base."""

    accuracy: float  # share of responses with the right answer
    entropy: float  # nats per token
    mixed_groups: float  # share of prompts with both right and wrong samples: only these give RL a signal
    direct_share: float  # share of responses that begin with the box, without any working
    length: float  # tokens, including the end token
    unfinished: float  # share of responses without an end token

    def json(self) -> dict[str, float]:
        return {name: round(value, 4) for name, value in asdict(self).items()}


def correct(response: str, answer: str) -> bool:
    """Return whether the last box of the response contains exactly `answer`."""
    boxes = _BOXED.findall(response)
    return bool(boxes) and boxes[-1] == answer


def accuracy(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, ladder: str, *, count: int, tokens: int, seed: str
) -> float:
    """Return the share of right answers to `count` training problems, one sample each at temperature 1."""
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
    """Return the figures of `samples` responses to each of `prompts` training problems of the ladder."""
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
    """Return prompts (N, T), padded on the left, and responses (N, T) of at most `tokens`, sampled at temperature 1.

    The caller's random state is unchanged.
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
        "top_k": 0,  # 0 and 1.0 disable the filters: sample from the model's distribution
        "top_p": 1.0,
    }
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(random.Random(seed).getrandbits(63))
        if sampling.unsupported(model, asked) is None:  # the same tokens, faster
            ends, pad = [tokenizer.eos_token_id], tokenizer.pad_token_id
            return ids, sampling.sample(model, ids, mask, max_new_tokens=tokens, ends=ends, pad=pad).tokens
        both_NT = model.generate(input_ids=ids, attention_mask=mask, **asked)
    return ids, both_NT[:, ids.shape[1] :]


def _problems(ladder: str, count: int, seed: str) -> list[Problem]:
    rng = random.Random(seed)
    return [training_problem(rng, ladder) for _ in range(count)]


def _entropy(model: PreTrainedModel, prompt_NT: torch.Tensor, response_NT: torch.Tensor, pad: int) -> torch.Tensor:
    """Return the entropy in nats of the next-token distribution at each response token, (N, T)."""
    import torch

    parts = []
    rows = 256  # per pass: the logits of a thousand responses at once would fill the memory of a small machine
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
