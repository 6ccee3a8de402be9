"""The tiny models: tokenizer and fresh weights, training batches and their gradient, and the figures of a base.

The tokenizer has 256 bytes without merges, pad, bos and eos, and `\\boxed{` as one token. Every class that
AutoTokenizer loads tokenises bytes alike; Qwen2Tokenizer would lose the newlines of a word-level vocabulary.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from evals.arithmetic import BOS, prompt_string, solution, training_problem
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
        tokenizer_object=backend, pad_token=PAD, bos_token=BOS, eos_token=EOS, padding_side="left",
        clean_up_tokenization_spaces=False, model_max_length=CONTEXT,
    )  # fmt: skip
    wrapped.add_tokens([tokenizers.AddedToken(BOX, special=False, normalized=False)])
    return wrapped


def fresh(architecture: Architecture, *, seed: int) -> PreTrainedModel:
    """Return a model with default initialisation in float32; the caller's random state is unchanged."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    pad, bos, eos = range(len(SPECIALS))
    config = AutoConfig.for_model(
        **architecture.model_dump(), vocab_size=VOCAB_SIZE, max_position_embeddings=CONTEXT, tie_word_embeddings=False,
        sliding_window=None, attention_dropout=0.0, pad_token_id=pad, bos_token_id=bos, eos_token_id=eos,
        dtype="float32",
    )  # fmt: skip
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


@contextmanager
def gradients(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, *, threads: int
) -> Iterator[Callable[[Sequence[Pair]], float]]:
    """Yield a function that adds the gradient of the mean cross-entropy over a batch's answer tokens to the model's
    `.grad`, which must be None before, and returns the loss; on one thread, or on two for any `threads` above one."""
    second = model
    if threads > 1:  # the second thread reads the same weights and accumulates separate gradients
        second = copy.deepcopy(model)
        for ours, theirs in zip(model.parameters(), second.parameters(), strict=True):
            theirs.data = ours.data

    def add(pairs: Sequence[Pair]) -> float:
        short, long = (tensors(part, tokenizer) for part in by_length(pairs))
        tokens = int((short[1] != IGNORED).sum() + (long[1] != IGNORED).sum())
        # Both parts divide by the tokens of the whole batch, so that their gradients add up to that of its mean.
        if pool is None:
            return _backward(model, *short, tokens) + _backward(model, *long, tokens)
        future = pool.submit(_backward, second, *long, tokens)
        loss = _backward(model, *short, tokens) + future.result()
        for ours, theirs in zip(model.parameters(), second.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            ours.grad += theirs.grad  # the same single addition that the second backward makes without a pool
            theirs.grad = None
        return loss

    pool: Executor | None
    with one_torch_thread(), ThreadPoolExecutor(1) if threads > 1 else nullcontext() as pool:
        yield add


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

    def length(pair: Pair) -> int:  # in tokens, up to a constant: the box and the begin token are one token each
        return len(pair[0]) + len(pair[1]) - len(BOS) - len(BOX)

    ordered = sorted(pairs, key=length)
    longest = length(ordered[-1])
    cut = next(at for at in range(1, len(ordered)) if at * length(ordered[at]) >= (len(ordered) - at) * longest)
    return ordered[:cut], ordered[cut:]


def _backward(model: PreTrainedModel, ids_BT: torch.Tensor, target_BT: torch.Tensor, tokens: int) -> float:
    """Add the gradient of this part's share of the mean over `tokens`; return the share."""
    import torch

    answer_BT = target_BT != IGNORED
    hidden_BTH = model.base_model(input_ids=ids_BT, use_cache=False).last_hidden_state
    logits_NV = model.lm_head(hidden_BTH[answer_BT])  # only positions in the loss: half of all
    loss = torch.nn.functional.cross_entropy(logits_NV, target_BT[answer_BT], reduction="sum") / tokens
    loss.backward()
    return loss.item()


# The figures that a base's aims constrain.

_BOXED = re.compile(re.escape(BOX) + r"([^}]*)\}")


def sample(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    ladder: str,
    *,
    prompts: int,
    samples: int = 1,
    tokens: int,
    seed: str,
) -> tuple[torch.Tensor, torch.Tensor, list[bool]]:
    """Sample at temperature 1 responses of at most `tokens` to training problems of the ladder.

    Returns prompts (N, T), padded on the left, responses (N, T), and whether the last box of each has exactly the
    answer; N = prompts x samples. The caller's random state is unchanged.
    """
    import torch

    rng = random.Random(seed)
    problems = [problem for _ in range(prompts) for problem in [training_problem(rng, ladder)] * samples]
    texts = [prompt_string(problem.prompt) for problem in problems]
    batch = tokenizer(texts, padding=True, padding_side="left", return_tensors="pt")
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        torch.manual_seed(random.Random(seed).getrandbits(63))
        response_NT = sampling.sample(
            model, batch["input_ids"], batch["attention_mask"], max_new_tokens=tokens,
            ends=[tokenizer.eos_token_id], pad=tokenizer.pad_token_id,
        ).tokens  # fmt: skip
    boxes = [_BOXED.findall(text) for text in tokenizer.batch_decode(response_NT, skip_special_tokens=True)]
    right = [found[-1:] == [problem.answer] for found, problem in zip(boxes, problems, strict=True)]
    return batch["input_ids"], response_NT, right


def figures(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    ladder: str,
    *,
    prompts: int,
    samples: int,
    tokens: int,
    seed: str,
) -> dict[str, float]:
    """Return the figures, to four decimals, of `samples` responses to each of `prompts` training problems."""
    prompt_NT, response_NT, right = sample(
        model, tokenizer, ladder, prompts=prompts, samples=samples, tokens=tokens, seed=seed
    )
    ends_NT = (response_NT == tokenizer.eos_token_id).long()
    valid_NT = (ends_NT.cumsum(1) - ends_NT) == 0  # up to and including the first end token
    groups = [sum(right[at : at + samples]) for at in range(0, len(right), samples)]
    entropy_NT = _entropy(model, prompt_NT, response_NT, tokenizer.pad_token_id)
    box = tokenizer.convert_tokens_to_ids(BOX)
    found = {
        "accuracy": sum(right) / len(right),  # share of responses with the right answer
        "entropy": float(entropy_NT[valid_NT].mean()),  # nats per token
        # share of prompts with both right and wrong samples: only these give RL a signal
        "mixed_groups": sum(0 < hits < samples for hits in groups) / prompts,
        "direct_share": float((response_NT[:, 0] == box).float().mean()),  # begin with the box, without any working
        "length": float(valid_NT.sum(1).float().mean()),  # tokens, including the end token
        "unfinished": float((ends_NT.sum(1) == 0).float().mean()),  # share of responses without an end token
    }
    return {name: round(value, 4) for name, value in found.items()}


def _entropy(model: PreTrainedModel, prompt_NT: torch.Tensor, response_NT: torch.Tensor, pad: int) -> torch.Tensor:
    """Return the entropy in nats of the next-token distribution at each response token, (N, T)."""
    import torch

    parts = []
    rows = 256  # per pass: the logits of a thousand responses at once would fill the memory of a small machine
    for prompt_BT, response_BT in zip(prompt_NT.split(rows), response_NT.split(rows), strict=True):
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
