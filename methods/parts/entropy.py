"""Log-probs of the sampled tokens and full-vocabulary entropies without the full logits in memory, with gradient.

For N tokens and a vocabulary of V the logits take N x V numbers, for a training step often more than the model itself.
`logp_and_entropy` computes them a chunk of tokens at a time from the states before the output head:

    logp, entropy = logp_and_entropy(hidden, model.lm_head.weight, tokens, temperature=1.0)

Both go into a `Batch` as they are, so it is called before the loss. Nothing in it depends on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def logp_and_entropy(
    hidden: Tensor, weight: Tensor, token: Tensor, *, temperature: float = 1.0, chunk: int = 128
) -> tuple[Tensor, Tensor]:
    """log pi(token) and H(pi) in nats, each of the shape of `token`, float32 or wider.

    hidden (..., D): states before the output head; weight (V, D): the head; token (...,) long.
    pi = softmax(hidden weight^T / temperature). One chunk's logits live at a time; backward computes them once more.
    Memory beyond inputs, outputs and gradients is a few times chunk x V, whatever the number of tokens. At the default
    of 128 tokens and a vocabulary of 152,000, one chunk's logits take 78 MB in float32.
    """
    logp_N, entropy_N = _Chunked.apply(hidden.flatten(0, -2), weight, token.flatten(), temperature, chunk)
    return logp_N.view(token.shape), entropy_N.view(token.shape)


def _log_probs(hidden_nD: Tensor, weight: Tensor, temperature: float) -> Tensor:
    logits_nV = hidden_nD @ weight.T
    # half precision is widened here: log_softmax over a large vocabulary loses its small terms otherwise
    return (logits_nV.to(torch.promote_types(logits_nV.dtype, torch.float32)) / temperature).log_softmax(-1)


class _Chunked(torch.autograd.Function):
    """With z the logits: d log p_y / dz = 1[y] - p;  dH / dz = -p (log p + H), TEPO's eq. 1 with the minus it lacks."""

    @staticmethod
    def forward(
        ctx: Any, hidden_ND: Tensor, weight: Tensor, token_N: Tensor, temperature: float, chunk: int
    ) -> tuple[Tensor, Tensor]:
        wide = torch.promote_types(hidden_ND.dtype, torch.float32)
        logp_N, entropy_N = (torch.empty(len(token_N), dtype=wide, device=hidden_ND.device) for _ in range(2))
        for rows in _chunks(len(token_N), chunk):
            logp_nV = _log_probs(hidden_ND[rows], weight, temperature)
            logp_N[rows] = logp_nV.gather(1, token_N[rows, None]).squeeze(1)
            entropy_N[rows] = -(logp_nV.exp() * logp_nV).sum(1)
        # the entropies are kept because backward reads H; the log-probs of the whole vocabulary are not
        ctx.save_for_backward(hidden_ND, weight, token_N, entropy_N)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logp_N, entropy_N

    @staticmethod
    def backward(ctx: Any, by_logp_N: Tensor, by_entropy_N: Tensor) -> tuple[Tensor | None, ...]:
        hidden_ND, weight, token_N, entropy_N = ctx.saved_tensors
        # rows are written once each, while every chunk adds to the head's gradient
        by_hidden_ND, by_weight = torch.empty_like(hidden_ND), torch.zeros_like(weight)
        for rows in _chunks(len(token_N), ctx.chunk):
            logp_nV = _log_probs(hidden_ND[rows], weight, ctx.temperature)
            by_logp_n1, by_entropy_n1 = by_logp_N[rows, None], by_entropy_N[rows, None]
            by_logits_nV = -logp_nV.exp() * (by_logp_n1 + by_entropy_n1 * (logp_nV + entropy_N[rows, None]))
            by_logits_nV.scatter_add_(1, token_N[rows, None], by_logp_n1)
            by_logits_nV = (by_logits_nV / ctx.temperature).to(weight.dtype)
            by_hidden_ND[rows] = by_logits_nV @ weight
            by_weight.addmm_(by_logits_nV.T, hidden_ND[rows])
        return by_hidden_ND, by_weight, None, None, None


def _chunks(total: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, total, size))
