"""`methods.sampling` against `generate`: the same tokens from the same seed, the same log-probs, as much noise used."""

from itertools import product
from typing import Any

import pytest
import torch
import transformers

from core.errors import CorruptInputError
from methods import sampling

PAD, BOS, VOCAB = 0, 1, 264
SIZES: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,  # far from uniform: a wrong mask or position gives other tokens
    "pad_token_id": PAD,
    "bos_token_id": BOS,
    "eos_token_id": 2,
}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"num_key_value_heads": 4},
    "mistral": {"num_key_value_heads": 2, "sliding_window": None},
    "qwen2": {"num_key_value_heads": 2},
    "qwen3": {"num_key_value_heads": 2, "head_dim": 20},
}
# Rows end one by one over the whole length, hardly ever, or nearly all at once
MANY_ENDS, FEW_ENDS = [2, *range(100, 116)], [2, 3]
ASKED = {  # end tokens, arguments of `generate`
    "sampled": (MANY_ENDS, {"do_sample": True, "temperature": 1.0}),
    "top_p": (MANY_ENDS, {"do_sample": True, "temperature": 0.6, "top_p": 0.95}),
    "greedy": (MANY_ENDS, {"do_sample": False}),
    "length limit": (FEW_ENDS, {"do_sample": True, "temperature": 1.0}),
    "one token": (FEW_ENDS, {"do_sample": True, "temperature": 1.0, "max_new_tokens": 1}),
    "ends at once": (list(range(2, 200)), {"do_sample": True, "temperature": 1.0}),
}
COUNTS = {"few": (3, 1), "odd": (9, 5), "many": (12, 8)}  # prompts, samples of each


def built(name: str, attention: str = "eager", **config: Any) -> Any:
    torch.manual_seed(0)
    made = transformers.AutoConfig.for_model(name, **SIZES | MODELS[name] | config)
    return transformers.AutoModelForCausalLM.from_config(made, attn_implementation=attention).eval()


def prompts(count: int, samples: int) -> tuple[Any, Any]:
    """(N, P) ids and mask, padded on the left; samples of a prompt lie together."""
    made = torch.Generator().manual_seed(1)
    lengths = torch.randint(2, 12, (count,), generator=made).tolist()
    lengths[0] = 12
    ids, mask = torch.full((count, 12), PAD), torch.zeros(count, 12, dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, -length:] = torch.randint(3, VOCAB, (length,), generator=made)
        mask[row, -length:] = 1
    return ids.repeat_interleave(samples, 0), mask.repeat_interleave(samples, 0)


def both(model: Any, ids: Any, mask: Any, ends: list[int], asked: dict[str, Any]) -> Any:
    """`generate`'s tokens and log-probs, ours, and whether both left the generator in the same state."""
    asked = {"max_new_tokens": 24, "top_k": 0, **asked}
    temperature = asked.get("temperature", 1.0)
    config = transformers.GenerationConfig(**asked, eos_token_id=ends, pad_token_id=PAD, bos_token_id=BOS)
    assert sampling.unsupported(model, config.to_diff_dict()) is None
    with torch.no_grad():
        torch.manual_seed(5)
        more = {"return_dict_in_generate": True, "output_logits": True}
        out = model.generate(input_ids=ids, attention_mask=mask, generation_config=config, **more)
        after = torch.random.get_rng_state()
        torch.manual_seed(5)
        ours = sampling.sample(
            model,
            ids,
            mask,
            max_new_tokens=asked["max_new_tokens"],
            ends=ends,
            pad=PAD,
            greedy=not asked["do_sample"],
            temperature=temperature,
            top_p=asked.get("top_p", 1.0),
        )
    tokens = out.sequences[:, ids.shape[1] :]
    logp = (torch.stack(out.logits, 1) / temperature).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    return tokens, logp, ours, torch.equal(after, torch.random.get_rng_state())


CASES = [
    *product(MODELS, ASKED, ["many"], ["eager"], [True]),
    # without padding sdpa gets no mask at all; few rows are never cut; odd numbers leave a part of a block
    *product(["qwen2"], ["sampled"], COUNTS, ["eager", "sdpa"], [True, False]),
]


@pytest.mark.parametrize(("name", "asked", "count", "attention", "padded"), CASES)
def test_same_tokens_as_generate(name: str, asked: str, count: str, attention: str, padded: bool) -> None:
    ends, arguments = ASKED[asked]
    ids, mask = (x if padded else x[:, -2:] for x in prompts(*COUNTS[count]))
    tokens, logp, ours, same_noise = both(built(name, attention), ids, mask, ends, arguments)
    assert torch.equal(ours.tokens, tokens)
    assert same_noise
    ended = torch.isin(tokens, torch.tensor(ends))
    lengths = torch.where(ended.any(1), ended.int().argmax(1) + 1, tokens.shape[1])
    assert torch.equal(ours.lengths, lengths)
    own = torch.arange(tokens.shape[1]) < lengths[:, None]
    assert bool(own.all()) == (asked == "one token"), "rows are meant to end one by one"
    assert asked != "length limit" or int((lengths == tokens.shape[1]).sum()) > 64
    torch.testing.assert_close(ours.logp[own], logp[own], rtol=0, atol=4e-6)  # another sum over the vocabulary
    assert not ours.logp[~own].any()


def test_weights_that_are_not_finite_draw_nothing() -> None:
    """Of numbers that are none, the first token would be the largest."""
    model, (ids, mask) = built("qwen2"), prompts(*COUNTS["few"])
    model.lm_head.weight.data[7] = torch.nan
    line = r"^sampling: response 0, token 0: its log-probability is nan[^\n]*$"
    with torch.no_grad(), pytest.raises(CorruptInputError, match=line):
        sampling.sample(model, ids, mask, max_new_tokens=3, ends=FEW_ENDS, pad=PAD)


def test_equal_prompts_of_other_lengths_are_told_apart() -> None:
    """Padding is known by the mask alone: a prompt may begin with the padding token."""
    ids, mask = prompts(24, 2)
    ids[1::2, :-2], mask[1::2, :] = PAD, 1
    ids[::2, :-2], mask[::2, :-2] = PAD, 0
    tokens, _, ours, _ = both(built("qwen2"), ids, mask, *ASKED["sampled"])
    assert torch.equal(ours.tokens, tokens)


FINE = {"do_sample": True, "top_k": 0, "temperature": 1.0}


def test_what_is_not_followed_is_refused() -> None:
    model = built("qwen2")
    assert sampling.unsupported(model, FINE) is None
    for more in ({"top_k": 50}, {"top_k": None}, {"min_p": 0.1}, {"repetition_penalty": 1.1}, {"num_beams": 2},
                 {"min_new_tokens": 3}, {"suppress_tokens": [5]}, {"stop_strings": ["."]}):  # fmt: skip
        assert sampling.unsupported(model, FINE | more), more
    model.generation_config.repetition_penalty = 1.05  # `generate` would take it from there
    assert "repetition_penalty" in str(sampling.unsupported(model, FINE))


def test_models_that_compute_otherwise_are_refused() -> None:
    window = {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 1}
    angles = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    checkpointed = built("qwen2")
    checkpointed.gradient_checkpointing_enable()
    assert sampling.unsupported(checkpointed, FINE) is None
    for word, model in (
        ("sliding", built("mistral", sliding_window=8)),
        ("sliding", built("qwen2", **window)),
        ("rope_type", built("llama", rope_parameters=angles)),
        ("bfloat16", built("llama").to(torch.bfloat16)),
        ("GPT2LMHeadModel", transformers.GPT2LMHeadModel(transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8))),
        ("dropout", built("qwen2", attention_dropout=0.1).train()),
        # a class of the user's own under a known name, and layers that forget what they are given to remember
        (
            "is not transformers' class",
            type("Qwen2ForCausalLM", (transformers.Qwen2ForCausalLM,), {})(checkpointed.config),
        ),
        ("gradient checkpointing", checkpointed.train()),
    ):
        assert word in str(sampling.unsupported(model, FINE)), word
