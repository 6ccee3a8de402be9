"""C7: what we override inside TRL 1.16.0 and verl 0.9.1. If one fails after an upgrade, read that place again."""

import inspect

import pytest

from core.provenance import version
from methods.adapters import TRL_VERSION, VERL_VERSION, resolved

# Methods of the trainers that ours override or call, with their parameters.
TRL = {
    "_get_per_token_logps_and_entropies": [
        "self", "model", "input_ids", "attention_mask", "logits_to_keep", "batch_size", "compute_entropy",
    ],
    "_generate_and_score_completions": ["self", "inputs"],
    "_tokenize_prompts": ["self", "prompts"],
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
VERL = {
    "on_init_end": ["self"],
    "on_step_begin": ["self"],
    "on_step_end": ["self"],
    "_build_replay_buffer": ["self"],
    "_next_train_batch": ["self", "num_prompts"],
    "_step_once": ["self", "metrics", "timing_raw", "sample_batch_size"],
    "_get_required_batch_multiple": ["self", "dp_size"],
    "_compute_old_log_prob": ["self", "batch", "metrics"],
    "_balance_batch": ["self", "batch", "metrics", "logging_prefix", "keep_minibatch"],
    "_save_checkpoint": ["self"],
    "_compute_metrics": ["self", "batch", "metrics", "timing_raw", "global_steps", "epoch"],
}


VERLS = "verl.trainer.ppo.v1.trainer_sync:PPOTrainerSync"
TRAINERS = {
    "trl": (TRL, TRL_VERSION, "methods.adapters.trl.trainer:MethodTrainer", "trl:GRPOTrainer"),
    "verl": (VERL, VERL_VERSION, "methods.adapters.verl.trainer:MethodTrainer", VERLS),
}


@pytest.mark.parametrize("trainer", TRAINERS)
def test_every_override_exists_with_its_parameters(trainer: str) -> None:
    pinned, pin, *names = TRAINERS[trainer]
    assert version(trainer) == pin
    ours, theirs = map(resolved, names)
    found = {name: list(inspect.signature(inspect.unwrap(getattr(theirs, name))).parameters) for name in pinned}
    assert {name: found[name][: len(names)] for name, names in pinned.items()} == pinned
    overridden = {n for n, f in vars(ours).items() if inspect.isfunction(f) and hasattr(theirs, n)} - {"__init__"}
    assert overridden == set(pinned)


def test_a_head_in_a_narrower_buffer_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """TRL's head reads its width at each call; log-probs, entropies and every gradient are equal bit for bit."""
    import torch
    from trl.trainer import utils

    from methods.adapters.trl.trainer import HEAD_COLUMNS
    from models import recipe, tiny

    model = tiny.fresh(recipe.recipe("tiny_qwen2", "wide", 1).start.architecture, seed=0)
    utils.add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    ids = torch.randint(264, (66, 70), generator=torch.Generator().manual_seed(0))  # more than one tile of positions
    found = []
    for width in (HEAD_COLUMNS, model.config.vocab_size):
        monkeypatch.setattr(utils, "_CHUNKED_LOGPROB_CHUNK_SIZE", width)
        model.zero_grad()
        scored = model(input_ids=ids, labels=ids, fused_lm_head=True)
        (scored.log_probs.sum() + scored.entropy.square().sum()).backward()
        found.append([scored.log_probs, scored.entropy, *(p.grad for p in model.parameters())])
    assert all(wide.any() and torch.equal(wide, narrow) for wide, narrow in zip(*found, strict=True))
