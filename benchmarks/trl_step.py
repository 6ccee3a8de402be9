"""How much our adapter costs: CPU seconds of a rollout with its updates, divided by stock GRPOTrainer's.

    python benchmarks/trl_step.py [--repeats 5] [--rollouts 2] [--tokens 20]

Same random model (tiny_qwen2's size), prompts, sizes and response lengths for all; the stock trainer computes its
`dapo` token loss. Runs are interleaved and their order rotates, so that a busy machine hurts all alike; the ratio is of
the sums. Ours pays for diagnostics and the curve; the group filter is off, because stock TRL has none. Bound: 1.15.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.update(HF_HUB_OFFLINE="1", HF_HUB_DISABLE_TELEMETRY="1", TOKENIZERS_PARALLELISM="false")

METHODS = ("grpo", "tepo")
BOUND = 1.15


def even(prompts: list[str], responses: list[str], answers: list[str]) -> list[float]:
    """A coin that depends on every byte: rewards differ within nearly every group."""
    return [float(sum(response.encode()) % 2 == 0) for response in responses]


def world(folder: Path) -> None:
    """A random model of tiny_qwen2's size, whose end token is never the sampled one, and 64 prompts."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from models.tokenizer import VOCAB_SIZE, tokenizer

    torch.manual_seed(0)
    made = tokenizer()
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        intermediate_size=256,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        pad_token_id=made.pad_token_id,
        bos_token_id=made.bos_token_id,
        eos_token_id=made.eos_token_id,
    )
    Qwen2ForCausalLM(config).save_pretrained(str(folder / "base"))
    made.save_pretrained(str(folder / "base"))
    lines = [json.dumps({"prompt": f"<bos>{i}+{i + 1}-{i + 2}?", "answer": str(i)}) for i in range(10, 74)]
    (folder / "prompts.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def specification(folder: Path, method: str, rollouts: int, tokens: int) -> dict[str, Any]:
    return {
        "scale": "benchmark",
        "model": "random",
        "method": method,
        "seed": 1,
        "trainer": "trl",
        "base": str(folder / "base"),
        "prompts": str(folder / "prompts.jsonl"),
        "reward": "benchmarks.trl_step:even",
        "training": {
            "rollouts": rollouts,
            "prompts_per_rollout": 32,
            "samples_per_prompt": 8,
            "minibatches": 4,
            "passes": 2,
            "filter": "none",
            "learning_rate": 1e-5,
            "weight_decay": 0.0,
            "gradient_clip": 1.0,
            "temperature": 1.0,
            "max_completion_tokens": tokens,
            "save_every": rollouts + 1,
        },
        "checkpoints": [rollouts],
    }


def ours(folder: Path, method: str, rollouts: int, tokens: int) -> Any:
    """Our trainer, ready to train, writing its curve to a folder that is thrown away."""
    from methods.adapters import trl
    from methods.adapters.trl.trainer import build_trainer
    from methods.training.run_folder import RunFolder
    from methods.training.spec import check

    spec = check(specification(folder, method, rollouts, tokens))
    run = RunFolder(Path(tempfile.mkdtemp(dir=folder)), spec)
    run.open()
    trainer = build_trainer(spec, run, lambda: False, trl.preflight(spec), even)
    trainer.recorder.write_weights = lambda _: None
    return trainer


def stock(folder: Path, rollouts: int, tokens: int) -> Any:
    """GRPOTrainer with the same settings and its own loss."""
    from datasets import Dataset
    from transformers import AutoTokenizer, PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    from methods import catalog
    from methods.adapters import trl
    from methods.training.spec import check

    spec = check(specification(folder, "grpo", rollouts, tokens))
    method = catalog.parse("grpo")
    arguments = trl.arguments(spec, trl.plan(spec.training, method), method, Path(tempfile.mkdtemp(dir=folder)))
    rows = [json.loads(line) for line in (folder / "prompts.jsonl").read_text(encoding="utf-8").splitlines()]

    def reward(prompts: list[str], completions: list[str], answer: list[str], **_: object) -> list[float]:
        return even(prompts, completions, answer)

    trainer = GRPOTrainer(
        model=spec.base,
        reward_funcs=reward,
        args=GRPOConfig(**arguments),
        train_dataset=Dataset.from_list((rows * rollouts)[: 32 * rollouts]),
        processing_class=AutoTokenizer.from_pretrained(spec.base, padding_side="left"),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def seconds(trainer: Any, tokens: int) -> float:
    """CPU seconds of training; every response is made exactly `tokens` long."""
    trainer.generation_config.min_new_tokens = tokens
    began = time.process_time()
    trainer.train()
    return time.process_time() - began


def main() -> None:
    from records.errors import whole  # after the path is set, as above

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=whole(1), default=5)
    parser.add_argument("--rollouts", type=whole(1), default=2)
    parser.add_argument("--tokens", type=whole(1), default=20, help="response length")
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    spent: dict[str, list[float]] = {name: [] for name in ("stock", *METHODS)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        world(folder)
        for repeat in range(-1, args.repeats):  # the first round warms up
            arms = list(spent)
            for arm in arms[repeat % 3 :] + arms[: repeat % 3]:
                make = (folder, args.rollouts, args.tokens)
                trainer = stock(*make) if arm == "stock" else ours(folder, arm, args.rollouts, args.tokens)
                took = seconds(trainer, args.tokens)
                if repeat >= 0:
                    spent[arm].append(took)
    base = sum(spent["stock"])
    print(f"{'trainer':8} CPU s per rollout   ratio to stock (each repeat)")
    for arm, times in spent.items():
        each = " ".join(f"{mine / theirs:.2f}" for mine, theirs in zip(times, spent["stock"], strict=True))
        print(f"{arm:8} {sum(times) / len(times) / args.rollouts:17.3f}   {sum(times) / base:.3f} ({each})")
    worst = max(sum(spent[arm]) / base for arm in METHODS)
    print(f"worst {worst:.3f}, bound {BOUND}: {'holds' if worst <= BOUND else 'BROKEN'}")
    sys.exit(worst > BOUND)


if __name__ == "__main__":
    main()
