"""Log-probs of the sampled tokens and full-vocabulary entropies, with gradient, without the full logits in memory.

For N tokens and a vocabulary of V the logits have N x V elements, in a training step often more than the model.
`logp_and_entropy` computes them one chunk of tokens at a time from the states before the output head:

    hidden = model.model(ids).last_hidden_state[:, P - 1 : -1]  # of a prompt of P tokens; a state predicts the next
    logp, entropy = logp_and_entropy(hidden, model.lm_head.weight, ids[:, P:], temperature=1.0)

Both go into a `Batch` unchanged, so it is called before the loss.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from core.errors import ConfigError, CorruptInputError
from methods.batch import FLOATS, check_tensor

# Bytes of a chunk's logits elsewhere than on a CPU, where 128 tokens are best. Every chunk reads the whole head and
# adds to all of its gradient: with more tokens a GPU does that less often. A constant, not a share of the free memory:
# another chunk has other last bits, and a resumed run must have the same ones.
LOGITS = 1.25e9


def default_chunk(device: str, vocabulary: int) -> int:
    """Return the tokens of a chunk on a type of device: 128 on a CPU, else at most 4,096 that fit into `LOGITS`."""
    return 128 if device == "cpu" else max(128, min(4096, int(LOGITS / (8 * vocabulary))))


def logp_and_entropy(
    hidden: Tensor, weight: Tensor, token: Tensor, *, temperature: float = 1.0, chunk: int | None = None
) -> tuple[Tensor, Tensor]:
    """Return log pi(token) and H(pi) in nats, each of the shape of `token`, float32 or wider.

    hidden (..., D): states before the output head; weight (V, D): the head; token (...,) long.
    pi = softmax(hidden weight^T / temperature). Only one chunk's logits exist at a time; backward recomputes them.
    Memory beyond inputs, outputs and gradients is 8 bytes x chunk x V (16 in float64) for any number of tokens:
    156 MB at 128 tokens and a vocabulary of 152,000. chunk: `default_chunk`. In half precision the sum of the head's
    gradient over chunks is kept in float32: 4 bytes x V x D more, and 2 for the product that is added to it.
    Under autocast the logits are computed in its precision, both forward and backward.
    Raises `CorruptInputError` for a wrong type, shape or dtype and for a token that is not in the vocabulary, also at
    padding; `ConfigError` for a temperature or chunk not above 0.
    """
    check_tensor("token", token, getattr(token, "shape", ("...",)), ("int64",))
    check_tensor("weight", weight, ("V", "D"), FLOATS)
    check_tensor("hidden", hidden, (*token.shape, weight.shape[1]), FLOATS)
    device = hidden.device.type
    chunk = default_chunk(device, len(weight)) if chunk is None else chunk
    for name, value, least in (("temperature", temperature, 0.0), ("chunk", chunk, 0)):
        if not value > least:
            raise ConfigError(f"{name}: got {value}, allowed: above {least}")
    outside = (token < 0) | (token >= len(weight))
    if bool(outside.any()):
        index = tuple(outside.nonzero()[0].tolist())
        raise CorruptInputError(
            f"token: {int(token[index])} at {list(index)}, expected 0 to {len(weight) - 1}, at padding too"
        )
    if torch.is_autocast_enabled(device):
        # cast here, not by autocast: backward runs outside of it and would compute the logits in another precision
        half = torch.get_autocast_dtype(device)
        hidden, weight = hidden.to(half), weight.to(half)
    if hidden.dtype != weight.dtype:
        raise CorruptInputError(f"hidden: dtype {hidden.dtype}, expected {weight.dtype} as weight; cast one of them")
    logp_N, entropy_N = _Chunked.apply(hidden.flatten(0, -2), weight, token.flatten(), temperature, chunk)
    return logp_N.view(token.shape), entropy_N.view(token.shape)


def _log_probs(hidden_nD: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits_nV = hidden_nD @ weight.T
    # half precision is widened here: otherwise log_softmax over a large vocabulary loses its small terms
    logits_nV = logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32))
    return logits_nV.div_(temperature).log_softmax(-1)


class _Chunked(torch.autograd.Function):
    """With z the logits: d log p_y / dz = 1[y] - p;  dH / dz = -p (log p + H), TEPO's eq. 1 with the missing minus."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight: Tensor, token_N: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        logp_N, entropy_N = (torch.empty(len(token_N), dtype=wide, device=hidden_ND.device) for _ in range(2))
        for rows in _chunks(len(token_N), chunk):
            logp_nV = _log_probs(hidden_ND[rows], weight, temperature)
            logp_N[rows] = logp_nV.gather(1, token_N[rows, None]).squeeze(1)
            entropy_N[rows] = -logp_nV.exp().mul_(logp_nV).sum(1)  # in place: each (n, V) counts
        # entropies are saved because backward reads H; log-probs of the whole vocabulary are not
        ctx.save_for_backward(hidden_ND, weight, token_N, entropy_N)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, by_logp_N: Tensor, by_entropy_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight, token_N, entropy_N = ctx.saved_tensors
        # Each row is written once, but every chunk adds to the head's gradient: a sum over many chunks in half
        # precision would lose small terms, so it is kept in float32 or wider.
        by_hidden_ND = torch.empty_like(hidden_ND)
        by_weight = torch.zeros_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
        for rows in _chunks(len(token_N), ctx.chunk):
            logp_nV = _log_probs(hidden_ND[rows], weight, ctx.temperature)
            by_logp_n1, by_entropy_n1 = by_logp_N[rows, None], by_entropy_N[rows, None]
            # -p (by_logp + by_entropy (log p + H)), in place: each (n, V) counts
            by_logits_nV = logp_nV.exp().neg_()
            by_logits_nV.mul_(logp_nV.add_(entropy_N[rows, None]).mul_(by_entropy_n1).add_(by_logp_n1))
            del logp_nV
            by_logits_nV.scatter_add_(1, token_N[rows, None], by_logp_n1)
            half_nV = by_logits_nV.div_(ctx.temperature).to(weight.dtype)
            del by_logits_nV
            by_hidden_ND[rows] = half_nV @ weight
            by_weight += half_nV.T @ hidden_ND[rows]
        return by_hidden_ND, by_weight.to(weight.dtype), None, None, None


def _chunks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, total, size))
