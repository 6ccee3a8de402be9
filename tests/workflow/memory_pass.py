"""Run in a process of its own by test_plan.py: a forward and backward pass, and the memory that it took.

python -m tests.workflow.memory_pass SIZES TOKENS PRECISION    prints bytes beyond the model and its gradients
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from methods.adapters.verl.config import CHUNK
from methods.parts.entropy import logp_and_entropy


def resident(name: str) -> int:
    """Bytes of `VmRSS` (now) or `VmHWM` (at most since it was last reset) of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def one_pass(model: Any, tokens: int, half: bool) -> None:
    """Four packed sequences, log-probs and entropies with gradient: as verl's engine has it, without its processes."""
    ids = torch.randint(model.config.vocab_size, (1, tokens))
    positions = torch.arange(tokens // 4).repeat(4)[None]
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
        hidden = model.model(input_ids=ids, attention_mask=None, position_ids=positions, use_cache=False)[0]
        logp, entropy = logp_and_entropy(hidden, model.lm_head.weight, ids, chunk=CHUNK)
    (logp + entropy).sum().backward()


def main(sizes: str, tokens: int, precision: str) -> None:
    torch.set_num_threads(1)
    dtype = getattr(torch, precision)
    config = AutoConfig.for_model(**json.loads(sizes))
    model = AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa")
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    one_pass(model, 64, precision == "bfloat16")  # what libraries keep from their first use on
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # resets VmHWM
    one_pass(model, tokens, precision == "bfloat16")
    print(resident("VmHWM") - before)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
