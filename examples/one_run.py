"""Run reinforcement learning in plain PyTorch and transformers: sample, reward, filter, score, loss, step.

    python examples/one_run.py BASE PROMPTS "tepo+beta=0.5"    # any key: tepo_bench.catalog.keys(), docs/methods.md

BASE is a folder with a causal model and its tokenizer. PROMPTS is a JSONL file with `prompt` and `answer` in each line.
It uses one process on one GPU or CPU. The harness (`python -m methods.train`) adds checkpoints, resuming, other
filters and micro-batches; with the same base, seed and reward, its curve begins with these rows, up to rounding.
"""

import hashlib
import json
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer

import tepo_bench

# In place of the model's defaults (generation_config.json), which `score` does not apply.
NEUTRAL = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "num_beams": 1}


@dataclass(frozen=True)
class Sizes:
    rollouts: int = 4
    prompts_drawn: int = 12  # per rollout
    prompts_kept: int = 8  # of these, at most; prompts whose samples all have the same reward are dropped
    samples: int = 8  # per prompt: one group
    minibatches: int = 2  # whole groups each
    passes: int = 1  # over the minibatches
    max_tokens: int = 64  # of a response
    temperature: float = 1.0
    learning_rate: float = 1e-5  # constant
    gradient_clip: float = 1.0


def boxed(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    """Return 1 where the last \\boxed{...} equals the answer exactly."""
    found = [re.findall(r"\\boxed\{([^{}]*)\}", response) for response in responses]
    return [float(bool(boxes) and boxes[-1].strip() == answer) for boxes, answer in zip(found, answers, strict=True)]


def derive(*name: str | int) -> int:
    """Return a seed for the draw called `name`: no draw depends on how many random numbers another one consumed."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, name)).encode()).digest()[:8], "big") >> 1


def order(count: int, seed: int) -> Iterator[int]:
    """Yield shuffled passes over `count` prompts, one after the other."""
    for nth in range(sys.maxsize):
        indices = list(range(count))
        random.Random(derive(seed, "prompts", nth)).shuffle(indices)
        yield from indices


class Policy:
    """Model and tokenizer. A rollout: (N, P) prompts, padded on the left, then (N, T) responses."""

    def __init__(self, base: str, sizes: Sizes):
        self.model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
        self.tokenizer: Any = AutoTokenizer.from_pretrained(base, padding_side="left")
        self.sizes = sizes

    def sample(self, prompts: list[str], seed: int) -> tuple[Tensor, Tensor, int]:
        """Return tokens (N, P + T), their mask, and P. A response ends with its end token."""
        # prompts are complete: many tokenizers would add a second begin token
        asked, s = self.tokenizer(prompts, return_tensors="pt", padding=True, add_special_tokens=False), self.sizes
        width = asked["input_ids"].shape[1]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            ids = self.model.generate(
                **asked, do_sample=True, temperature=s.temperature, max_new_tokens=s.max_tokens,
                pad_token_id=self.tokenizer.pad_token_id, **NEUTRAL,
            )  # fmt: skip
        ended = torch.isin(ids[:, width:], torch.tensor(self.model.generation_config.eos_token_id).flatten())
        mask = ended.long().cumsum(1) - ended.long() == 0
        return ids, torch.cat([asked["attention_mask"], mask.long()], 1), width

    def score(self, ids: Tensor, mask: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies (N, T) of the responses at the sampling temperature."""
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        states = self.model.model(input_ids=ids, attention_mask=mask, position_ids=positions).last_hidden_state
        head, temperature = self.model.lm_head.weight, self.sizes.temperature
        return tepo_bench.logp_and_entropy(states[:, width - 1 : -1], head, ids[:, width:], temperature=temperature)


def train(
    base: str, prompts: list[dict[str, str]], key: str, reward: Callable[..., list[float]], sizes: Sizes, seed: int
) -> Iterator[dict[str, Any]]:
    """Train, and yield a row of metrics for each update."""
    method, s, policy = tepo_bench.parse(key), sizes, Policy(base, sizes)
    if "full_logp" in method.needs:
        raise tepo_bench.ConfigError(f"method: {key}: needs whole distributions; allowed: another kl-estimator")
    reference = Policy(base, sizes) if "ref_logp" in method.needs else None
    optimizer = torch.optim.AdamW(policy.model.parameters(), s.learning_rate, weight_decay=0.0)
    drawn, update = order(len(prompts), seed), 0
    for rollout in range(s.rollouts):
        # sample
        rows = [prompts[index] for index in (next(drawn) for _ in range(s.prompts_drawn)) for _ in range(s.samples)]
        texts = [row["prompt"] for row in rows]
        policy.model.eval()
        ids, mask, width = policy.sample(texts, derive(seed, "rollout", rollout, 0))
        of_response = mask[:, width:].bool()
        # reward
        responses = [
            policy.tokenizer.decode(row[kept], skip_special_tokens=True)
            for row, kept in zip(ids[:, width:], of_response, strict=True)
        ]
        reward_N = torch.tensor(reward(texts, responses, [row["answer"] for row in rows]))
        # filter: a group of equal rewards has advantage 0 everywhere
        reward_KG = reward_N.view(-1, s.samples)
        groups = (reward_KG.amax(1) > reward_KG.amin(1)).nonzero().flatten()[: s.prompts_kept]
        rows_of = (groups[:, None] * s.samples + torch.arange(s.samples)).flatten()
        advantage_N = torch.zeros(len(rows))
        if len(groups):
            lengths = of_response.sum(1)[rows_of]
            advantage_N[rows_of] = method.advantage(reward_N[rows_of], rows_of // s.samples, lengths)
        # score: the policy that sampled, on the same minibatches that are trained
        minibatches = []
        for number in range(s.minibatches):
            at = (groups[number :: s.minibatches, None] * s.samples + torch.arange(s.samples)).flatten()
            if len(at):  # a minibatch without a group does not change the weights
                with torch.no_grad():
                    old = policy.score(ids[at], mask[at], width)
                    ref = reference.score(ids[at], mask[at], width)[0] if reference else None
                minibatches.append((at, old, ref))
        # loss
        for at, old, ref in minibatches * s.passes:
            logp, entropy = policy.score(ids[at], mask[at], width)
            batch = tepo_bench.Batch(
                logp=logp, entropy=entropy, old_logp=old[0], old_entropy=old[1], ref_logp=ref,
                advantage=advantage_N[at], mask=of_response[at], group=at // s.samples, max_tokens=s.max_tokens,
            )  # fmt: skip
            # Clip-Cov draws tokens; the update determines which
            loss = method.loss(batch, generator=torch.Generator().manual_seed(derive(seed, "selection", update)))
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(policy.model.parameters(), s.gradient_clip)
            figures = method.diagnostics(batch)
            optimizer.step()
            whole = {"rollout": rollout + 1, "update": update, "reward": float(reward_N.double().mean())}
            yield {**whole, "groups_kept": len(groups), "loss": loss.item(), "grad_norm": norm.item(), **figures}
            update += 1


def main(base: str, prompts: str, key: str = "tepo", seed: str = "1") -> None:
    lines = [json.loads(line) for line in Path(prompts).read_text(encoding="utf-8").splitlines()]
    for row in train(base, lines, key, boxed, Sizes(), int(seed)):
        print("  ".join(f"{name} {value:.4g}" for name, value in row.items() if value is not None))


if __name__ == "__main__":
    main(*sys.argv[1:])
