"""A tiny random model, prompts and a reward that reads letters: everything a run needs, made in a second; and what a
run's folder holds afterwards."""

import json
from pathlib import Path
from typing import Any

from core.files import read_growing_csv
from core.provenance import sha256_file
from methods.training.spec import Spec

TRAINING: dict[str, Any] = {
    "rollouts": 2,
    "prompts_per_rollout": 4,
    "samples_per_prompt": 4,
    "minibatches": 2,
    "passes": 2,
    "oversample": 1.5,
    "learning_rate": 3e-3,
    "weight_decay": 0.0,
    "gradient_clip": 1.0,
    "temperature": 1.0,
    "max_completion_tokens": 8,
    "save_every": 1,
}


def even(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    """1 for a response whose bytes sum to an even number: a coin that depends on every token."""
    return [float(sum(response.encode()) % 2 == 0) for response in responses]


def never(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [0.0] * len(responses)


def rarely(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    """1 for about one response in twenty: most groups of four are constant."""
    return [float(sum(response.encode()) % 20 == 0) for response in responses]


def one_short(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [0.0] * (len(responses) - 1)


def one_nan(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    return [float("nan"), *[0.0] * (len(responses) - 1)]


def one_none(prompts: list[str], responses: list[str], answers: list[str]) -> list[float | None]:
    return [None, *[0.0] * (len(responses) - 1)]


def build(folder: Path, prompts: int = 40, hidden: int = 32, model_type: str = "qwen2") -> Path:
    """`folder/base` (a random model) and `folder/prompts.jsonl`; the same bytes each time."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    from models.tiny import VOCAB_SIZE, tokenizer

    torch.manual_seed(0)
    made = tokenizer()
    own = {"mistral": {"sliding_window": None}, "qwen3": {"head_dim": hidden // 2}}  # as the paper's models have it
    config = AutoConfig.for_model(
        model_type,
        **own.get(model_type, {}),
        vocab_size=VOCAB_SIZE,
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        tie_word_embeddings=model_type == "qwen2",  # both kinds: FSDP2 treats an output head of its own otherwise
        initializer_range=0.2,
        pad_token_id=made.pad_token_id,
        bos_token_id=made.bos_token_id,
        eos_token_id=made.eos_token_id,
    )
    model = AutoModelForCausalLM.from_config(config)
    # A random model hardly ever says its end token; with 40 of them responses have all lengths.
    model.generation_config = GenerationConfig(
        pad_token_id=made.pad_token_id,
        bos_token_id=made.bos_token_id,
        eos_token_id=[made.eos_token_id, *range(60, 100)],
    )
    model.save_pretrained(str(folder / "base"))
    made.save_pretrained(str(folder / "base"))
    lines = [json.dumps({"prompt": f"<bos>{'ab' * (i % 3)}{i}\nis", "answer": str(i)}) for i in range(prompts)]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def spec(world: Path, method: str = "tepo", checkpoints: tuple[int, ...] = (2,), **changes: Any) -> dict[str, Any]:
    """A run specification in `world`; `changes` go to the top level if they are keys of it, else into `training`."""
    top: dict[str, Any] = {
        "scale": "test",
        "model": "random",
        "method": method,
        "seed": 1,
        "trainer": "trl",
        "base": str(world / "base"),
        "prompts": str(world / "prompts.jsonl"),
        "reward": "tests.adapters.worlds:even",
        "training": dict(TRAINING),
        "checkpoints": list(checkpoints),
    }
    for key, value in changes.items():
        (top if key in Spec.model_fields else top["training"])[key] = value
    return top


def numbers(out: Path) -> list[dict[str, str]]:
    """The curve of a finished run without timings."""
    rows = read_growing_csv(out / "curve.csv")
    return [{name: value for name, value in row.items() if not name.startswith("seconds_")} for row in rows]


def weights(out: Path, step: int = 2) -> str:
    """sha256 of a checkpoint's weights."""
    return sha256_file(out / "checkpoints" / f"step{step}" / "model.safetensors")


def assert_same(out: Path, undisturbed: Path, *steps: int) -> None:
    """One curve, and the same weights at these checkpoints."""
    assert numbers(out) == numbers(undisturbed)
    for step in steps:
        assert weights(out, step) == weights(undisturbed, step)
