"""The vllm backend: lm-eval's VLLM with one seed per sample.

Without a seed, a response would depend on the rest of its batch; one seed for all requests would make all samples of an
item equal. Here sample s of every item has its own seed, which the samples record.
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.caches import engine_caches
from core.errors import MissingInputError
from evals.benchmark import Decoding
from evals.generation.engine import Drawn, Local, Request


class Vllm(Local):
    """vLLM in this process. On GPU not bitwise reproducible across versions, batch order and parallel sizes."""

    backend = "vllm"
    packages = (*Local.packages, "torch", "vllm")
    default_batch_size = 256  # vLLM's own max_num_seqs; lm-eval hands it all requests at once

    def arguments(self, request: Request, decoding: Decoding) -> dict[str, Any]:
        # Special tokens are left out of the text, as in hf; lm-eval's default here is to print them.
        seed = {} if decoding.greedy else {"seed": request.seed}
        return super().arguments(request, decoding) | {"skip_special_tokens": True} | seed

    def load(self, max_length: int | None) -> Any:
        if find_spec("vllm") is None:
            raise MissingInputError("backend vllm: the package vllm is not installed here; see docs/evaluation.md")
        # before vLLM is imported; the folder is deleted with this object, at the latest at process exit
        self._caches = TemporaryDirectory(prefix="tepo-engine-", ignore_cleanup_errors=True)
        os.environ.update(engine_caches(Path(self._caches.name)))
        # The engine in this process: nothing to end at exit, and an order of batches that repeats (vLLM's advice).
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
        from lm_eval.models.vllm_causallms import VLLM

        asked = {"max_num_seqs": self.batch_size, "max_model_len": max_length, "seed": self.settings.seed}
        lm = self.construct(VLLM, batch_size="auto", **asked)
        own = getattr(lm._config, "eos_token_id", None)
        self.ends = {*(own if isinstance(own, list) else [own]), lm.tokenizer.eos_token_id}
        return lm

    def batch(self, *args: Any, **arguments: Any) -> Any:
        """Return vLLM's outputs, and record the responses: VLLM's `_model_generate`."""
        outputs = self.theirs(*args, **arguments)
        self.observe(self._found(output.outputs[0]) for output in outputs)
        return outputs

    def _found(self, answer: Any) -> Drawn:
        ended = answer.finish_reason == "stop" and bool(answer.token_ids) and answer.token_ids[-1] in self.ends
        # the end token is not counted
        return Drawn(answer.text, len(answer.token_ids) - ended, answer.finish_reason or "unknown")
