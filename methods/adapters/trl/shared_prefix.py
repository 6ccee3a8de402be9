"""Score a group's prompt once, in a row with all its responses; a response attends to the prompt and to itself.

    prompt | response 1 | response 2 | ... | padding

Positions restart after the prompt at every response, so that each state equals that in a separate row, up to rounding
(float32: log-probs differ by about 1e-5, gradients by 1e-6 relative). K responses cost one prompt instead of K.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import ConfigError
from core.files import read_json
from methods.sampling import CLASSES

if TYPE_CHECKING:
    from torch import Tensor


def check(base: str) -> None:
    """Raise `ConfigError` for a model folder whose attention or output head this module does not support.

    In `sampling.CLASSES` attention accepts any mask, and logits are states times a matrix. A sliding window would add
    a second mask, by distances in the shared row.
    """
    path = Path(base) / "config.json"
    config = read_json(path, "model configuration")
    off = "set training.shared_prefix to false"
    names = config.get("architectures") or [None]
    if names[0] not in CLASSES:
        raise ConfigError(f"{path}: architectures: {names[0]!r}: allowed: {', '.join(CLASSES)}; or {off}")
    layers = config.get("layer_types") or ()
    always = names[0] == "MistralForCausalLM" and config.get("sliding_window") is not None
    if always or config.get("use_sliding_window") or "sliding_attention" in layers:
        raise ConfigError(
            f"{path}: sliding_window: {config.get('sliding_window')!r}: training.shared_prefix needs layers "
            f"that see all tokens; {off}"
        )


@dataclass(frozen=True)
class Packed:
    """R packed rows of L tokens for N responses of at most C tokens."""

    ids: Tensor  # (R, L) long
    positions: Tensor  # (R, L) long
    seen: Tensor  # (R, L, L) bool: whether the token of the second index attends to that of the third
    state: Tensor  # (N, C) long: index in (R * L) of the state that predicts each response token; 0 at padding


def pack(ids: Tensor, mask: Tensor, width: int) -> Packed:
    """Pack adjacent rows with equal prompts into one row; a part of a group becomes a row too.

    ids, mask (N, P + C) long: prompts padded on the left, responses of C = width tokens padded on the right. A
    response's last token predicts nothing and is left out.
    """
    import torch

    prompt_NP, answer_NC = ids[:, :-width], ids[:, -width:]
    is_prompt_NP, is_answer_NC = mask[:, :-width].bool(), mask[:, -width:].bool()
    both = torch.cat([prompt_NP * is_prompt_NP, is_prompt_NP], 1)
    first_N = torch.cat([is_answer_NC.new_ones(1), (both[1:] != both[:-1]).any(1)])
    row_N = first_N.cumsum(0) - 1
    prompt_R = is_prompt_NP[first_N].sum(1)
    read_NC = torch.cat([is_answer_NC[:, 1:], torch.zeros_like(is_answer_NC[:, :1])], 1)
    read_N = read_NC.sum(1)
    before_N = read_N.cumsum(0) - read_N
    start_N = prompt_R[row_N] + before_N - before_N[first_N][row_N]  # column of a response's first token
    rows, columns = len(prompt_R), int((start_N + read_N).max())

    packed, positions, block = (ids.new_zeros(rows, columns) for _ in range(3))
    row, column = is_prompt_NP[first_N].nonzero(as_tuple=True)
    column = column - (is_prompt_NP.shape[1] - prompt_R)[row]
    packed[row, column] = prompt_NP[first_N][is_prompt_NP[first_N]]
    positions[row, column] = column
    block[row, column] = -1  # the prompt; 0 is padding, which attends to itself, so that no row of the mask is empty
    response, nth = read_NC.nonzero(as_tuple=True)
    row, column = row_N[response], start_N[response] + nth
    packed[row, column] = answer_NC[response, nth]
    positions[row, column] = prompt_R[row] + nth
    block[row, column] = response + 1
    seen = (block[:, :, None] == block[:, None]) | (block[:, None] == -1)
    nth_C = torch.arange(width, device=ids.device)
    state_NC = torch.where(nth_C > 0, start_N[:, None] + nth_C - 1, prompt_R[row_N, None] - 1)
    state_NC = (state_NC + row_N[:, None] * columns) * is_answer_NC
    return Packed(packed, positions, seen.tril(), state_NC)


def states(model: Any, ids: Tensor, mask: Tensor, width: int) -> Tensor:
    """Return the states (tokens, D) before the output head that predict each response token, row by row."""
    import torch
    from torch.nn.functional import embedding

    packed = pack(ids, mask, width)
    seen = packed.seen[:, None]
    if model.config._attn_implementation == "eager":  # eager attention adds the mask to the scores
        seen = torch.where(seen, 0.0, torch.finfo(model.dtype).min).to(model.dtype)
    hidden: Tensor = model.base_model(
        input_ids=packed.ids, position_ids=packed.positions, attention_mask=seen, use_cache=False
    ).last_hidden_state
    # A state is read once by each response. The backward pass of an index adds them up in the order of threads.
    return embedding(packed.state[mask[:, -width:].bool()], hidden.flatten(0, 1))


def separate(model: Any, ids: Tensor, mask: Tensor, width: int) -> Tensor:
    """Return what `states` returns, from a row for each response with its prompt."""
    hidden: Tensor = model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    return hidden[:, -width - 1 : -1][mask[:, -width:].bool()]


def score(
    model: Any, ids: Tensor, mask: Tensor, width: int, temperature: float, *, shared: bool = True
) -> tuple[Tensor, ...]:
    """Return log-probs and entropies (n, C) of responses of C = width tokens, 0 at padding."""
    from methods.parts.entropy import logp_and_entropy

    valid = mask[:, -width:].bool()
    hidden = (states if shared else separate)(model, ids, mask, width)
    found = logp_and_entropy(hidden, model.lm_head.weight, ids[:, -width:][valid], temperature=temperature)
    return tuple(x.new_zeros(valid.shape).masked_scatter(valid, x) for x in found)


def full_logp(model: Any, ids: Tensor, mask: Tensor, width: int, temperature: float) -> Tensor:
    """Return all log-probs (n, C, V), 0 at padding."""
    valid = mask[:, -width:, None].bool()
    found = model.lm_head(states(model, ids, mask, width)).float() / temperature
    return found.new_zeros(*valid.shape[:2], found.shape[1]).masked_scatter(valid, found.log_softmax(-1))
