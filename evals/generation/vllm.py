"""The vllm backend: lm-eval's VLLM with one seed per sample.

lm-eval passes one set of arguments for all repeats of a prompt. A seed among them would make all repeats equal; without
one, a response would depend on the rest of its batch. Here the s-th repeat of every item gets its own seed, which the
samples record.
"""

from __future__ import annotations

import dataclasses
import os
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from core.caches import engine_caches
from core.errors import MissingInputError
from evals.generation.engine import Engine, Observations, construct, per_sample_seed, sample_numbers

if TYPE_CHECKING:
    from lm_eval.api.model import LM


class Vllm(Engine):
    """vLLM in this process. On GPU not bitwise reproducible across versions, batch order and parallel sizes."""

    backend = "vllm"
    packages = (*Engine.packages, "torch", "vllm")
    extras = {"top_k": 0}  # noqa: RUF012 - as hf
    default_batch_size = 256  # vLLM's own max_num_seqs; lm-eval hands it all requests at once

    def sample_seed(self, sample: int) -> int:
        return per_sample_seed(self.settings.seed, sample)

    def load(self, max_length: int | None) -> LM:
        # before vLLM is imported; the folder is deleted with this object, at the latest at process exit
        self._caches = TemporaryDirectory(prefix="tepo-engine-", ignore_cleanup_errors=True)
        os.environ.update(engine_caches(Path(self._caches.name)))
        return construct(
            _observed_vllm(),
            self.settings.more,
            self.seen,
            self.settings.seed,
            pretrained=str(self.folder),
            batch_size="auto",
            max_num_seqs=self.batch_size,
            max_model_len=max_length,
            dtype=self.settings.dtype,
            add_bos_token=False,  # the prompts already hold it
            seed=self.settings.seed,
        )


@cache
def _observed_vllm() -> type[LM]:
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise MissingInputError("backend vllm: the package vllm is not installed here; see docs/evaluation.md")
    from lm_eval.models.vllm_causallms import VLLM

    class ObservedVLLM(VLLM):
        def __init__(self, seen: Observations, base_seed: int, **arguments: Any):
            super().__init__(**arguments)
            self.seen, self.base_seed = seen, base_seed

        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return super().generate_until(seeded(requests, self.base_seed), disable_tqdm=True)

        def _model_generate(self, *args: Any, **arguments: Any) -> Any:
            outputs = super()._model_generate(*args, **arguments)
            total = 0
            for output in outputs:
                answer = output.outputs[0]
                ended = answer.finish_reason == "stop"
                at_end = bool(answer.token_ids) and answer.token_ids[-1] in self._ends()
                tokens = len(answer.token_ids) - (ended and at_end)  # the end token is not counted
                total += tokens
                self.seen.note(answer.text, tokens, answer.finish_reason or "unknown")
            self.seen.show_progress(len(outputs), total)
            return outputs

        def _ends(self) -> set[int]:
            own = getattr(self._config, "eos_token_id", None)
            return {*(own if isinstance(own, list) else [own]), self.tokenizer.eos_token_id}

    return ObservedVLLM


def seeded(requests: list[Any], seed: int) -> list[Any]:
    """Copy lm-eval's requests so that the s-th repeat of a sampled one carries its own seed.

    Special tokens are left out of the text, as in hf; lm-eval's default here is to print them.
    """
    copies = []
    for request, sample in zip(requests, sample_numbers(requests), strict=True):
        text, arguments = request.args[0], request.args[1] | {"skip_special_tokens": True}
        if arguments.get("do_sample"):
            arguments = {**arguments, "seed": per_sample_seed(seed, sample)}
        copies.append(dataclasses.replace(request, arguments=(text, arguments)))
    return copies
