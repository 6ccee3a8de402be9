"""`training.sampler: vllm`: rollouts are sampled by vLLM in the trainer's process (TRL's mode `colocate`).

TRL builds the engine and copies the trainer's weights into it. Requests are ours: TRL gives all of them one set of
sampling parameters, and with one seed all samples of a prompt would be equal.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.caches import engine_caches
from core.errors import MissingInputError
from methods.training import rollouts
from methods.training.spec import Training

if TYPE_CHECKING:
    from torch import Tensor

    from methods.adapters.trl.trainer import MethodTrainer


def check() -> None:
    """Raise `MissingInputError` where vLLM is not installed."""
    if find_spec("vllm") is None:
        raise MissingInputError(
            "spec: training.sampler: vllm: the package vllm is not installed here; set null, or see docs/scale.md"
        )


def arguments(t: Training) -> dict[str, Any]:
    """Prepare vLLM for import and return its arguments of `GRPOConfig`."""
    os.environ.update(engine_caches(Path(tempfile.gettempdir())))  # a run's own folder, removed at its end
    if t.device == "cpu":
        from trl.generation import vllm_generation
        from vllm import _custom_ops

        # oneDNN computes with packed copies of the weights, which would stay those of the base model.
        _custom_ops._supports_onednn = False
        # TRL has no argument for these. Compiling takes minutes on a CPU, and `auto` would round float32 to bfloat16.
        vllm_generation.LLM = partial(vllm_generation.LLM, enforce_eager=True, dtype=t.precision)
    return {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_gpu_memory_utilization": t.rollout_memory,
        "vllm_max_model_length": t.max_prompt_tokens + t.max_completion_tokens,
    }


def sample(trainer: MethodTrainer, prompt_ids: list[list[int]], seed: int) -> tuple[list[list[int]], Tensor]:
    """Return the tokens of one response to each of N prompts, and their log-probs (N, C) at the temperature.

    seed: of this draw. The engine gets the trainer's weights first, unless it has those of this update.
    """
    import torch
    from vllm import SamplingParams

    if trainer.state.global_step != trainer._last_loaded_step:
        trainer.vllm_generation.sync_weights()
        trainer._last_loaded_step = trainer.state.global_step
    shared: dict[str, Any] = {
        "temperature": trainer.temperature,
        "max_tokens": trainer.max_completion_length,
        "stop_token_ids": trainer.eos_token_ids,
        "logprobs": 0,  # of the sampled token alone
    }
    outputs = trainer.vllm_generation.llm.generate(
        [{"prompt_token_ids": ids} for ids in prompt_ids],
        [SamplingParams(seed=rollouts.derive(seed, "response", n), **shared) for n in range(len(prompt_ids))],
        use_tqdm=False,
    )
    responses = [output.outputs[0] for output in outputs]
    logp = [
        torch.tensor([at[token].logprob for token, at in zip(r.token_ids, r.logprobs, strict=True)]) for r in responses
    ]
    return [list(r.token_ids) for r in responses], torch.nn.utils.rnn.pad_sequence(logp, batch_first=True)
