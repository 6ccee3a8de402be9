"""From tokens to a scalar.

Denominators are those of the update minibatch: a trainer that splits it passes the minibatch's counts with every
micro-batch, and the micro-batches' losses then add up to the minibatch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, Union

from core.errors import ConfigError, CorruptInputError
from methods.parts import Part, part, pick
from methods.parts.advantages import by_group

if TYPE_CHECKING:
    from torch import Tensor

    from methods.batch import Batch

Count: TypeAlias = Union[int, float, "Tensor", None]  # None: count in the batch at hand


def denominator(minibatch: Count, counted: int, unit: str, batch: Batch) -> int | float | Tensor:
    """The minibatch's count if the trainer gave one, else the batch's own; counting nothing is an error."""
    if minibatch is not None:
        return minibatch
    if counted == 0:
        raise CorruptInputError(f"{batch.label}: mask: holds no {unit}, and no {unit} count of the minibatch was given")
    return counted


def row_sums(x: Tensor, batch: Batch) -> Tensor:
    """sum_t m x per row, (B,); x is (B, T), or (B, 1) when equal for all tokens of a row."""
    return x.squeeze(1) * batch.lengths_B if x.shape[1] == 1 else (x * batch.weight_BT).sum(1)


def token_mean(*, scope: str) -> Part:
    """(1/N) sum_i sum_t x; `scope` says whose N: the minibatch's, each prompt group's, the micro-batch's (R20)."""
    choices = {"minibatch": token_mean_minibatch, "group": token_mean_group, "microbatch": token_mean_microbatch}
    return pick(choices, "agg-scope", scope)()


@part()
def token_mean_minibatch(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """(1/N) sum_i sum_t x, N = tokens of the update minibatch (TEPO Table 5, token-mean; verl >= 0.7, TRL `dapo`)."""
    return row_sums(x, batch).sum() / denominator(tokens, batch.tokens, "token", batch)


@part()
def token_mean_group(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """(1/K) sum_k (1/N_k) sum_{i in k} sum_t x over K prompt groups: TEPO's eq. 4 and DAPO's, averaged over prompts."""
    if batch.group_tokens is not None and batch.groups is not None:
        tokens_B, groups = batch.group_tokens, batch.groups
    elif tokens is not None or sequences is not None:
        raise ConfigError(
            f"{batch.label}: agg-scope=group: a micro-batch needs `group_tokens` and `groups` of its minibatch"
        )
    else:
        tokens_K, _, index_B = by_group(batch.lengths_B, batch.group)
        tokens_B, groups = tokens_K[index_B], int(tokens_K.count_nonzero())
    # clamped: a group of dropped rows has no token, its sum is 0 and it is not among the `groups`
    return (row_sums(x, batch) / tokens_B.clamp(min=1)).sum() / denominator(None, groups, "group", batch)


@part(scope="batch")
def token_mean_microbatch(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """Token mean over the rows at hand, weighted by their share of the sequences: older verl, the paper's lineage."""
    # divides by the tokens at hand on purpose, even when the trainer passed the minibatch's count: that is the reading
    mean = row_sums(x, batch).sum() / max(batch.tokens, 1)
    return mean * batch.sequences / denominator(sequences, batch.sequences, "sequence", batch)


@part(scope="sequence")
def seq_mean_token_mean(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """(1/B) sum_i (1/|y_i|) sum_t x, B = sequences of the update minibatch (TEPO Table 5; GRPO, GSPO)."""
    means_B = row_sums(x, batch) / batch.lengths_B.clamp(min=1)
    return means_B.sum() / denominator(sequences, batch.sequences, "sequence", batch)


@part()
def seq_mean_token_sum(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """(1/B) sum_i sum_t x (TEPO Table 5)."""
    return row_sums(x, batch).sum() / denominator(sequences, batch.sequences, "sequence", batch)


@part("max_tokens")
def seq_mean_token_sum_norm(x: Tensor, batch: Batch, tokens: Count, sequences: Count) -> Tensor:
    """(1/(B L)) sum_i sum_t x, L = most tokens a response may have (Dr. GRPO, arXiv 2503.20783; TRL `dr_grpo`)."""
    assert batch.max_tokens is not None
    return seq_mean_token_sum()(x, batch, tokens, sequences) / batch.max_tokens
