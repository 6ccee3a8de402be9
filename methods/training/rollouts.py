"""Rollout logic shared by all trainers: prompts, groups to train on, their minibatches, recorded figures.

Pure functions, independent of the trainer. All randomness is derived from the run's seed by name. Methods and trainers
therefore get the same prompts, and a resumed run draws what the interrupted run would have drawn.
"""

from __future__ import annotations

import hashlib
import math
import random
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.files import read_growing_csv, read_jsonl
from methods.batch import Batch
from methods.training.spec import Spec

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

# A run stops after this many consecutive rollouts whose mean reward is within this limit of the lowest reward seen.
# Without right answers every group is constant, there is nothing to learn from, and the rest of the run would waste
# time. 0.005 corresponds to two right answers among the 512 of the paper's rollout, so at most two informative groups
# of 64; a small base model may start at a few per cent and still learn.
COLLAPSE_REWARD, COLLAPSE_ROLLOUTS = 0.005, 5

# --- Groups and minibatches -------------------------------------------------------------------------------------------


def figures(
    rollout: int,
    rewards: Sequence[float | None],
    kept_groups: Sequence[int],
    samples: int,
    tokens: Sequence[int],
    truncated: Sequence[bool],
    given: Sequence[float | None] | None = None,
) -> dict[str, Any]:
    """Return the columns of `curve.csv` that all updates of a rollout share, and `extremes`, for `collapsed`.

    Rows: group by group of `samples`.
    rewards: true; None: not graded, which the means leave out. kept_groups: as `choose` returns them; given: the
    rewards passed to the method if they are a placebo's. Raises `CorruptInputError` if no response has a reward.
    """
    graded = [reward for reward in rewards if reward is not None]
    if not graded:
        raise CorruptInputError(f"rollout {rollout}: none of {len(rewards)} responses has a reward: each was None")
    kept = [rewards[row] or 0.0 for group in kept_groups for row in range(group * samples, (group + 1) * samples)]
    passed = graded if given is None else [reward for reward in given if reward is not None]
    groups = len(rewards) // samples
    return {
        "rollout": rollout,  # 1-based
        "reward": _mean(graded),
        "reward_kept": _mean(kept) if kept else None,  # of the responses trained on
        "reward_given": _mean(passed),
        "groups_sampled": groups,
        "groups_kept": len(kept_groups),
        "groups_discarded": groups - len(kept_groups),
        "response_tokens": _mean(tokens),
        "truncated_fraction": _mean(truncated),  # share cut at the token limit
        "reward_timeouts": len(rewards) - len(graded),  # it timed out, or grading failed
        "extremes": (min(passed), max(passed)),
    }


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)  # `sum` rounds differently before and after Python 3.12


def collapsed(rewards: Mapping[int, float], rollout: int, extremes: Sequence[float]) -> bool:
    """Return whether the mean rewards (by rollout) of the last rollouts up to this one are all nearly the lowest.

    rewards: as passed to the method. A placebo may leave something to learn from even if no answer is right.
    extremes: lowest and highest reward of a response in the whole run; a penalty seen once is the lowest from then on.
    If all were equal, 0 or less counts as lowest: 1 for every response is a solved task.
    """
    last = [rewards.get(r) for r in range(rollout - COLLAPSE_ROLLOUTS + 1, rollout + 1)]
    if None in last:
        return False
    lowest, highest = extremes
    if lowest == highest:
        return lowest <= 0
    limit = lowest + COLLAPSE_REWARD * min(highest - lowest, 1.0)  # at most 1: one outlier must not widen the limit
    return all(reward is not None and reward < limit for reward in last)


def choose(rewards: Sequence[float | None], samples: int, wanted: int, filtering: str) -> list[int]:
    """Return the groups to train on, in the order drawn: the first `wanted` informative ones; any with filter `none`.

    rewards: group by group of `samples`, as passed to the method. A group of equal rewards has advantage 0 everywhere.
    A group with a reward None (not graded) is dropped whole: imputing a reward would be arbitrary, and leaving the
    row out would change the group's mean.

    The filters differ in the number of prompts drawn before (`oversample`: more at once; `refill`: likewise, and
    additional ones if groups are missing; `mask`: none, so the rollout is smaller), not in the groups kept:
    informative groups beyond `wanted` are dropped.
    """
    groups = [rewards[start : start + samples] for start in range(0, len(rewards), samples)]
    graded = [number for number, group in enumerate(groups) if None not in group]
    return [number for number in graded if filtering == "none" or len(set(groups[number])) > 1][:wanted]


def deal(kept: Sequence[int], minibatches: int) -> list[list[int]]:
    """Return the groups of each minibatch, dealt in turn, so that missing groups shrink all minibatches evenly."""
    return [list(kept[m::minibatches]) for m in range(minibatches)]


def together(batches: Sequence[Batch]) -> Batch:
    """Concatenate micro-batches to their minibatch, without gradient, for diagnostics."""
    import torch

    if len(batches) == 1:
        return batches[0]
    width = max(b.logp.shape[1] for b in batches)
    columns: dict[str, Any] = {}
    for f in fields(Batch):
        values = [getattr(b, f.name) for b in batches]
        if not all(isinstance(v, torch.Tensor) for v in values) or f.name == "group_tokens":
            continue  # not per-row, or absent; the loss counts the groups of a whole minibatch
        columns[f.name] = torch.cat([_widened(v.detach(), width) for v in values])
    first = batches[0]
    return Batch(**columns, max_tokens=first.max_tokens, precision=first.precision, label=first.label)


def rows_selected(selected: Mapping[str, Tensor], index_B: Tensor, like: Tensor) -> dict[str, Tensor]:
    """Return rows `index_B` of a minibatch's `Method.select`, in the shape and on the device of `like` (B, T).

    A micro-batch is as wide as its longest row, its minibatch as wide as the longest row of all.
    """
    width = like.shape[1]
    return {name: _widened(x[index_B, :width], width).to(like.device) for name, x in selected.items()}


def _widened(x: Tensor, width: int) -> Tensor:
    from torch.nn.functional import pad

    if x.ndim < 2:
        return x
    return pad(x, (0, 0) * (x.ndim - 2) + (0, width - x.shape[1]), value=False if str(x.dtype) == "torch.bool" else 0)


# --- The sampler ------------------------------------------------------------------------------------------------------

# If the gap is above its limit and the correlation below its limit, the sampler's policy is not the trainer's.
# The limits are ten times the values of the first rollout, which is sampled with the base model's weights and so shows
# the difference of engines and precisions. They stay within these bounds; the first rollout is compared with the wide
# ones. Measured on a CPU in float32, four updates per rollout, weights never sent: after one rollout .47 and .76 at a
# learning rate of 3e-3, .031 and .997 at 1e-4; weights sent: never beyond 5e-7 and 1 - 1e-12. On a GPU in half
# precision about .02 and .99 are reported for healthy runs (not measured here). Both limits must be exceeded: if a
# policy is certain of nearly all tokens, the correlation of its probabilities is rounding noise.
TIMES, GAP, UNCORRELATED = 10, (1e-3, 0.1), (1e-6, 0.05)  # gap in nats; 1 - correlation


class SamplerError(BenchError, RuntimeError):
    """The sampling policy is not the policy that is trained."""


class SamplerCheck:
    """Check of each row of a curve against the rows of the first rollout."""

    def __init__(self, where: str):
        self.where = where
        self.first: list[tuple[float, float]] = []  # gap and 1 - correlation of the first rollout's rows

    def __call__(self, row: Mapping[str, Any]) -> None:
        """Raise `SamplerError` if sampler and trainer disagree; skip rows without the sampler's log-probs.

        An error rather than a warning, because all later rollouts would be samples of an older policy. Nothing else
        would reveal that: a method's ratio uses the trainer's log-probs.
        """
        if row["sampling_gap_mean"] in (None, "") or row["sampling_correlation"] in (None, ""):
            return
        found = float(row["sampling_gap_mean"]), 1 - float(row["sampling_correlation"])
        most = GAP[1], UNCORRELATED[1]
        if int(row["rollout"]) == 1:
            self.first.append(found)
        elif self.first:
            usual = (max(values) for values in zip(*self.first, strict=True))
            bounds = zip(usual, (GAP, UNCORRELATED), strict=True)
            most = tuple(min(max(TIMES * x, least), wide) for x, (least, wide) in bounds)
        if found[0] > most[0] and found[1] > most[1]:
            raise SamplerError(
                f"{self.where}: rollout {row['rollout']}: the sampler has another policy than the trainer: "
                f"sampling_gap_mean {found[0]:.3g} (at most {most[0]:.3g}), sampling_correlation {1 - found[1]:.6f} "
                f"(at least {1 - most[1]:.6f}): were its weights updated? training.sampler_check: false goes on"
            )


# --- Seeds and prompts ------------------------------------------------------------------------------------------------


def derive(*name: str | int) -> int:
    """Return a seed below 2^63 for the draw `name`, the run's seed first; the same in every process on every machine.

    Each draw has a separate seed, so none depends on how many random numbers another one consumed.

    >>> derive(1, "rollout", 3) == derive(1, "rollout", 3) != derive(1, "rollout", 4)
    True
    """
    # sha256 instead of `hash`, whose salt differs in every Python process
    digest = hashlib.sha256("/".join(str(part) for part in name).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def stream_seed(spec: Spec) -> int:
    """Return the seed of everything a run draws except its prompts: the run's seed, or that of another stream."""
    return spec.seed if spec.stream == 0 else derive(spec.seed, "stream", spec.stream)


def order(count: int, length: int, seed: int) -> list[int]:
    """Return `length` indices of `count` prompts: consecutive shuffled passes over all of them."""
    # Passes are shuffled separately, so a longer run starts with the prompts of a shorter one.
    passes = -(-length // count)
    return [index for nth in range(passes) for index in shuffled(count, seed, nth)][:length]


@lru_cache(maxsize=4)  # few passes are in use at a time: the run's and the refill stream's
def shuffled(count: int, seed: int, nth: int) -> tuple[int, ...]:
    """Return the `nth` pass over `count` prompts."""
    indices = list(range(count))
    random.Random(derive(seed, "prompts", nth)).shuffle(indices)
    return tuple(indices)


class Refill:
    """The separate stream that filter `refill` draws from; `position` is its only state."""

    def __init__(self, count: int, seed: int, position: int = 0):
        self.count, self.seed, self.position = count, seed, position

    def draw(self, wanted: int, used: Collection[int]) -> list[int]:
        """Return the next prompts of the stream, skipping those already in this rollout; fewer if none are left."""
        drawn: list[int] = []
        while len(drawn) < wanted and len(drawn) + len(used) < self.count:
            nth, at = divmod(self.position, self.count)
            index = shuffled(self.count, derive(self.seed, "refill"), nth)[at]
            self.position += 1
            if index not in used and index not in drawn:
                drawn.append(index)
        return drawn


# --- A run's input files ----------------------------------------------------------------------------------------------


def prompts(spec: Spec) -> list[dict[str, Any]]:
    """Return the run's training prompts, in the order of their file."""
    rows = read_jsonl(spec.prompts, "training prompts")
    for number, row in enumerate(rows, 1):
        for key in ("prompt", "answer"):
            if not isinstance(row.get(key), str):
                raise CorruptInputError(f"{spec.prompts}: line {number}: {key}: must be text, got {row.get(key)!r}")
    return rows


def kl_targets(spec: Spec) -> tuple[float, ...] | None:
    """Return the KL, in nats per token, by which each rollout moves the policy; None: as far as the method moves it.

    A yoked run has the `kl_step` of the run that it follows. Raises `CorruptInputError` if that has fewer rollouts.
    """
    target, rollouts = spec.training.kl_target, spec.training.rollouts
    if isinstance(target, float):
        return (target,) * rollouts
    if spec.yoke is None:
        return target if isinstance(target, tuple) else None
    try:
        # a KL of nearly 0 may have been rounded below it
        found = {
            int(row["rollout"]): max(0.0, float(row["kl_step"]))
            for row in read_growing_csv(Path(spec.yoke))
            if row["kl_step"]
        }
        return tuple(found[rollout] for rollout in range(1, rollouts + 1))
    except (KeyError, ValueError) as error:
        raise CorruptInputError(
            f"{spec.yoke}: kl_step: is missing or not a number ({error}); a yoke needs a run of {rollouts} rollouts"
        ) from error


def rows_of(prompts: list[dict[str, Any]], indices: Iterable[int]) -> list[dict[str, Any]]:
    """Return dataset rows: prompt, answer and the prompt's index."""
    return [{"prompt": prompts[i]["prompt"], "answer": prompts[i]["answer"], "index": i} for i in indices]


def check_inputs(spec: Spec, prompts_drawn: int) -> None:
    """Raise `MissingInputError` for a folder without a model, `ConfigError` for fewer prompts than a rollout draws."""
    for name in ("config.json", "tokenizer_config.json"):
        if not (Path(spec.base) / name).is_file():
            raise MissingInputError(f"{spec.base}: {name} is missing: not a model folder")
    count = len(prompts(spec))
    if count < prompts_drawn:  # a rollout may contain a prompt twice only if a pass over all prompts ends inside it
        raise ConfigError(f"{spec.prompts}: holds {count} prompts, one rollout draws {prompts_drawn} different ones")


def check_readable(spec: Spec, prompts: Iterable[str], tokenizer: PreTrainedTokenizerBase) -> None:
    """Raise for a prompt that tokenising changes, that has more than `training.max_prompt_tokens` tokens, or that
    exceeds the model's positions together with its response.

    Called before training, because a trainer would silently truncate or lose text. For example, transformers may
    replace a tokenizer next to a `qwen2` config with its built-in one.
    """
    from transformers import AutoConfig

    positions: int | None = getattr(AutoConfig.from_pretrained(spec.base), "max_position_embeddings", None)
    limit, response = spec.training.max_prompt_tokens, spec.training.max_completion_tokens
    for line, prompt in enumerate(prompts, 1):
        where = f"{spec.prompts}: line {line}: prompt"
        ids: list[int] = tokenizer(prompt, add_special_tokens=False)["input_ids"]  # as both trainers do
        decoded = str(tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False))
        if _composed(prompt) not in _composed(decoded):
            raise CorruptInputError(
                f"{where}: the tokenizer loses text: {prompt[:60]!r} comes back as {decoded[:60]!r}"
            )
        if len(ids) > limit:
            raise ConfigError(f"{where}: {len(ids)} tokens; training.max_prompt_tokens is {limit}")
        if positions is not None and len(ids) + response > positions:
            raise ConfigError(
                f"{where}: {len(ids)} tokens and a response of {response} exceed the model's {positions} positions"
            )


def _composed(text: str) -> str:
    """Return normal form C: tokenizers may compose characters, which loses no information."""
    return unicodedata.normalize("NFC", text)
