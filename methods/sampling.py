"""Sample responses from a causal model: the tokens of transformers' `generate` in a third of the time for tiny models.

For every token `generate` prepares inputs, builds a mask, concatenates the cache and runs a chain of processors, and
it keeps computing rows that have ended. Here mask, positions and cache are allocated once, equal prompts are read
once, and ended rows leave the batch. The layers are the model's modules. Random numbers are consumed as by
`torch.multinomial` over the whole batch, so that a seed gives the same tokens as in `generate`
(tests/methods/test_sampling.py compares them). Log-probs equal those of `generate` bit for bit on Intel processors.
On others MKL's rounding depends on the memory address of a matrix. A prompt that is read once has another address than
in `generate`'s batch, and a log-prob may differ in its last bit or two.

Not every model and request is supported: `unsupported` returns the reason, and the caller then uses `generate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from core.errors import CorruptInputError

if TYPE_CHECKING:
    from torch import Tensor

# Classes whose forward pass is embeddings, layers, norm and head, with one causal mask for all layers. Before adding
# a class, read its forward pass.
CLASSES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
LIBRARIES = ("torch", "safetensors.torch", *(f"transformers:{name}" for name in CLASSES))  # for `core.worker`
# Arguments of `generate` that `sample` supports or that do not affect tokens, and values that disable other arguments.
FOLLOWED = {
    "max_length", "max_new_tokens", "do_sample", "temperature", "top_p", "eos_token_id", "pad_token_id", "bos_token_id",
    "use_cache", "disable_compile", "transformers_version", "_from_model_config",
}  # fmt: skip
OFF = {"top_k": 0, "repetition_penalty": 1.0, "num_beams": 1}
# A batch is cut to blocks of this many rows, some of which may have ended: matrix products over fewer than 9 rows,
# and the last elements of an odd number of rows, use other kernels, whose last bits differ (measured, MKL and torch).
BLOCK = 16
# Above this share of ended rows the batch is cut to the others. Each cut copies the cache of the remaining rows.
ENDED_SHARE = 0.15


@dataclass(frozen=True)
class Sampled:
    """Responses, padded to the longest."""

    tokens: Tensor  # (N, C) long
    lengths: Tensor  # (N,) long, end token included
    logp: Tensor  # (N, C) float32, of each token at the temperature and before top_p; 0 at padding


def unsupported(model: Any, asked: Mapping[str, Any]) -> str | None:
    """Return why `generate` is required; None if `sample` returns the same tokens. asked: arguments of `generate`."""
    import torch
    import transformers

    config, name = model.config, type(model).__name__
    if name not in CLASSES:
        return f"{name} is not one of {', '.join(CLASSES)}"
    if type(model) is not getattr(transformers, name):
        return f"{name} of {type(model).__module__} is not transformers' class, and may compute otherwise"
    # Elsewhere a batch of fewer rows may differ in the last bits, and the tokens have not been compared.
    if model.device.type != "cpu" or model.dtype != torch.float32:
        return f"{model.dtype} on {model.device.type}: only float32 on the CPU has been compared"
    if config._attn_implementation not in ("eager", "sdpa"):
        return f"attention {config._attn_implementation}: its mask has another form"
    if "sliding_attention" in (getattr(config, "layer_types", None) or ()) or (
        type(model).__name__ == "MistralForCausalLM" and config.sliding_window is not None
    ):
        return "sliding window: its mask is not the causal one"
    if config.rope_parameters.get("rope_type", "default") != "default":
        return f"rope_type {config.rope_parameters['rope_type']}: angles may depend on the length reached"
    if model.training and getattr(config, "attention_dropout", 0.0):
        return "attention_dropout in training mode draws random numbers"
    if model.training and model.is_gradient_checkpointing:
        return "gradient checkpointing in training mode: its layers take no cache"
    defaults = model.generation_config.to_diff_dict()  # `generate` uses them for arguments that are not passed
    asked = defaults | {name: value for name, value in asked.items() if value is not None}
    for name, value in asked.items():
        if name not in FOLLOWED and value is not None and value is not False and value != OFF.get(name):
            return f"{name} {value!r} is not followed"
    if asked.get("do_sample") and "top_k" not in asked:
        return "top_k: generate's default is 50"
    return None


class _Cache:
    """Keys and values of all layers in buffers of the final length; the part of transformers' Cache that layers use."""

    def __init__(self, length: int):
        self.length = length
        self.filled = 0  # columns filled before the current pass
        self.layers: dict[int, tuple[Tensor, Tensor]] = {}  # (N, heads, length, size) each

    def update(self, key: Tensor, value: Tensor, layer: int, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        end = self.filled + key.shape[2]
        if layer not in self.layers:
            n, heads, _new, size = key.shape
            shape = n, heads, self.length, size
            self.layers[layer] = key.new_empty(shape), value.new_empty(shape)
        keys, values = self.layers[layer]
        keys[:, :, self.filled : end] = key
        values[:, :, self.filled : end] = value
        return keys[:, :, :end], values[:, :, :end]

    def take(self, rows: Tensor) -> None:
        """Keep these rows, in this order; a row may be repeated."""
        for layer, (keys, values) in self.layers.items():
            taken = keys.new_empty(len(rows), *keys.shape[1:]), values.new_empty(len(rows), *values.shape[1:])
            for new, old in zip(taken, (keys, values), strict=True):
                new[:, :, : self.filled] = old[:, :, : self.filled].index_select(0, rows)
            self.layers[layer] = taken


class _Decoder:
    """The model's forward pass, with everything that is constant across tokens computed once."""

    def __init__(self, model: Any, mask_NT: Tensor):
        """Prepare a batch. mask_NT: 1 at tokens, over prompt and response."""
        import torch

        self.model, self.body = model, model.model
        self.cache = _Cache(mask_NT.shape[1])
        eager = model.config._attn_implementation == "eager"
        # As in transformers: without padding sdpa gets no mask (and applies a causal one to a prompt)
        self.mask: Tensor | None = None
        if eager or not bool(mask_NT.all()):
            seen = mask_NT.bool()[:, None, None, :]
            self.mask = torch.where(seen, 0.0, torch.finfo(model.dtype).min).to(model.dtype) if eager else seen
        self.eager = eager
        self.positions = (mask_NT.long().cumsum(1) - 1).clamp(min=0)

    def take(self, rows: Tensor) -> None:
        self.cache.take(rows)
        self.positions = self.positions[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def logits(self, ids: Tensor) -> Tensor:
        """Return logits (n, V), float32, after the last of the tokens (n, columns), which continue the earlier ones."""
        import torch

        columns, start = ids.shape[1], self.cache.filled
        mask = None if self.mask is None else self.mask[..., : start + columns]
        if mask is not None and columns > 1:  # the prompt: columns must not attend to later ones
            causal = torch.ones(columns, columns, dtype=torch.bool, device=ids.device).tril()
            mask = mask.where(causal, torch.finfo(mask.dtype).min) if self.eager else mask & causal
        hidden = self.body.embed_tokens(ids)
        positions = self.positions[:, start : start + columns]
        angles = self.body.rotary_emb(hidden, position_ids=positions)
        for layer in self.body.layers:
            hidden = layer(
                hidden,
                attention_mask=mask,
                position_ids=positions,
                past_key_values=self.cache,
                use_cache=True,
                position_embeddings=angles,
            )
        self.cache.filled += columns
        logits: Tensor = self.model.lm_head(self.body.norm(hidden[:, -1:]))[:, -1].float()
        return logits


def _blocks(rows: int) -> int:
    return -(-rows // BLOCK) * BLOCK


def sample(
    model: Any,
    prompt_ids: Tensor,
    prompt_mask: Tensor,
    *,
    max_new_tokens: int,
    ends: list[int],
    pad: int,
    greedy: bool = False,
    temperature: float = 1.0,
    top_p: float = 1.0,
) -> Sampled:
    """Sample one response to each prompt with torch's default generator; call it under no_grad.

    prompt_ids, prompt_mask: (N, P), padded on the left. ends: tokens that end a response and are part of it.
    """
    import torch
    from transformers.generation.logits_process import TopPLogitsWarper

    count, width = prompt_ids.shape
    ends_E = torch.tensor(ends, device=prompt_ids.device)
    nucleus = TopPLogitsWarper(top_p) if top_p < 1 and not greedy else None
    # Samples of one prompt share its pass. Two prompts are equal only if their masks are too.
    both = torch.cat([prompt_ids, prompt_mask], 1)
    own, copy_of = torch.unique(both, dim=0, return_inverse=True)
    if _blocks(len(own)) < count:
        both = own[torch.arange(_blocks(len(own)), device=own.device) % len(own)]
    else:
        copy_of = torch.arange(count, device=both.device)
    own_ids, own_mask = both[:, :width], both[:, width:]
    response = torch.ones(len(both), max_new_tokens, dtype=own_mask.dtype, device=own_mask.device)
    decoder = _Decoder(model, torch.cat([own_mask, response], 1))
    logits = decoder.logits(own_ids).index_select(0, copy_of)
    decoder.take(copy_of)
    tokens = torch.full((count, max_new_tokens), pad, dtype=torch.long, device=prompt_ids.device)
    logp = torch.zeros(count, max_new_tokens, device=prompt_ids.device)
    lengths = torch.full((count,), max_new_tokens, dtype=torch.long, device=prompt_ids.device)
    rows = torch.arange(count, device=prompt_ids.device)  # rows in the current batch, as indices of prompts
    alive = torch.ones(count, dtype=torch.bool, device=prompt_ids.device)  # whether each of these rows continues
    noise = torch.empty(count, logits.shape[1], dtype=torch.float64, device=prompt_ids.device)
    step = 0
    while True:
        scores = logits if temperature == 1 or greedy else logits / temperature
        if greedy:
            chosen = scores.argmax(-1)
        else:
            kept = scores if nucleus is None else nucleus(None, scores)
            # `torch.multinomial(probs, 1)`. Noise is drawn for ended rows too: other rows must not depend on them.
            # The noise is `exponential_(1)`, computed row-wise for the remaining rows only: the same numbers in a third
            # of the time (1 - u is exact because u is a multiple of 2^-53; abs, because 0 must not be -0).
            noise.uniform_()
            own = noise if len(rows) == count else noise.index_select(0, rows)
            chosen = kept.softmax(-1).div_((1 - own).log_().abs_().float()).argmax(-1)
        at = rows[alive]
        tokens[at, step] = chosen[alive]
        # a difference instead of log_softmax, which would write the whole vocabulary
        logp[at, step] = (scores.gather(1, chosen[:, None])[:, 0] - scores.logsumexp(1))[alive]
        ended = alive & torch.isin(chosen, ends_E)
        alive = alive & ~ended
        step += 1
        lengths[rows[ended]] = step
        left = int(alive.sum())
        if left == 0 or step == max_new_tokens:
            break
        size = _blocks(left)
        if size < (1 - ENDED_SHARE) * len(rows):
            keep = alive.int().argsort(descending=True, stable=True)[:size]
            decoder.take(keep)
            rows, chosen, alive = rows[keep], chosen[keep], alive[keep]
        logits = decoder.logits(chosen[:, None])
    check_finite("sampling", logp)
    return Sampled(tokens[:, :step], lengths, logp[:, :step])


def check_finite(where: str, logp: Tensor, first: int = 0) -> None:
    """Raise `CorruptInputError` for a token whose log-prob (N, C) is not finite; first: token number of column 0.

    From a distribution with a NaN, the first token of the vocabulary would be drawn without a message.
    """
    if not logp.isfinite().all():
        row, token = (~logp.isfinite()).nonzero()[0].tolist()
        raise CorruptInputError(
            f"{where}: response {row}, token {first + token}: its log-probability is {float(logp[row, token])}; "
            "the model's weights or logits are not finite: take an earlier checkpoint"
        )
