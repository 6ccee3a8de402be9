"""C7: what we rely on inside TRL 1.16.0. If one fails after an upgrade, read that method again before pinning."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from methods.adapters import TRL_VERSION

SIGNATURES = {
    "_get_per_token_logps_and_entropies": [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
    ],
    "_generate_and_score_completions": ["self", "inputs"],
    "_generate_single_turn": [
        "self", "prompt_ids", "images", "multimodal_fields", "num_generations", "has_tool_images",
    ],
    "_calculate_rewards": ["self", "inputs", "prompts", "completions", "completion_ids_list"],
    "_compute_loss": ["self", "model", "inputs"],
    "_prepare_inputs": ["self", "generation_batch"],
    "get_decay_parameter_names": ["self", "model"],
    "get_train_dataloader": ["self"],
    "_clip_grad_norm": ["self", "model"],
    "_save_checkpoint": ["self", "model", "trial"],
}  # fmt: skip


def test_version_is_the_pinned_one() -> None:
    import trl

    assert trl.__version__ == TRL_VERSION


def test_own_sampling_makes_what_trl_makes_of_generate() -> None:
    """Lists without padding, the end token included, and no log-probs; it starts from the same generation settings."""
    from trl import GRPOTrainer

    text = inspect.getsource(GRPOTrainer._generate_single_turn)
    for line in (
        "**generate_inputs, generation_config=self.generation_config",
        "completion_mask = (sequence_indices <= eos_idx.unsqueeze(1)).int()",
        "logprobs = None  # not used in this case",
    ):
        assert line in text
    built = inspect.getsource(GRPOTrainer.__init__)
    for line in ('"max_new_tokens": self.max_completion_length', '"eos_token_id": self.eos_token_ids'):
        assert line in built


def test_signatures() -> None:
    from trl import GRPOTrainer

    found = {name: list(inspect.signature(getattr(GRPOTrainer, name)).parameters) for name in SIGNATURES}
    assert {name: found[name][: len(theirs)] for name, theirs in SIGNATURES.items()} == SIGNATURES


def test_every_override_exists_in_trl_and_calls_super() -> None:
    from trl import GRPOTrainer

    from methods.adapters.trl.trainer import MethodTrainer

    ours = {n for n, f in vars(MethodTrainer).items() if inspect.isfunction(f) and hasattr(GRPOTrainer, n)}
    assert ours - {"__init__"} == set(SIGNATURES)
    for name in ours - {"_compute_loss", "get_decay_parameter_names", "_generate_and_score_completions"}:
        assert f"super().{name}(" in inspect.getsource(vars(MethodTrainer)[name])
    assert "super()._generate_and_score_completions(" in inspect.getsource(MethodTrainer._draw)


def test_a_head_in_a_narrower_buffer_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's head reads its width at each call; log-probs, entropies and every gradient are equal bit for bit."""
    import torch
    from trl.trainer import utils

    from methods.adapters.trl.trainer import HEAD_COLUMNS
    from models import recipe, tokenizer

    model = tokenizer.fresh(recipe.recipe("tiny_qwen2", "wide", 1).start.architecture, seed=0)
    utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.randint(264, (66, 70), generator=torch.Generator().manual_seed(0))  # more than one tile of positions
    widths, found = [], []
    apply = utils._ChunkedLogProbFunction.apply

    def spy(*args: Any) -> Any:
        widths.append(args[5])
        return apply(*args)

    monkeypatch.setattr(utils._ChunkedLogProbFunction, "apply", spy)
    for width in (HEAD_COLUMNS, model.config.vocab_size):
        monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", width)
        model.zero_grad()
        scored = model(input_ids=ids, labels=ids, fused_lm_head=True)
        (scored.log_probs.sum() + scored.entropy.square().sum()).backward()
        found.append([scored.log_probs, scored.entropy, *(p.grad for p in model.parameters())])
    assert widths == [32768, 264]  # TRL's, and the tiny models'
    for wide, narrow in zip(*found, strict=True):
        assert wide.any()
        assert torch.equal(wide, narrow)
