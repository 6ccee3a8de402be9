"""The hf backend: lm-eval's HFLM, observed while it generates.

It gives the same responses as stock HFLM and differs in three ways. Token counts and stop reasons are recorded. The
model's own sampling defaults (generation_config.json: top_k, repetition_penalty, ...) do not apply, because decoding is
defined only by the task file. Where `methods.sampling` can reproduce the tokens of `generate`, it draws them.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from evals.generation.engine import Drawn, Local
from methods import sampling

TINY_BYTES = 50_000_000  # of weights; below it a decoding step costs the same for 16 rows as for 256


class HuggingFace(Local):
    """transformers' `generate`, on CPU or one GPU. Reproducible at a fixed batch size on one machine."""

    backend = "hf"
    packages = (*Local.packages, "torch", "accelerate")
    own_seeds = False

    @cached_property
    def device(self) -> str:
        """The requested device; by default a GPU if there is one, else the CPU."""
        import torch

        return self.settings.device or ("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def batch_size(self) -> int:
        weights = sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))
        return self.settings.batch_size or (256 if weights < TINY_BYTES else 16)

    def describe(self) -> dict[str, Any]:
        return super().describe() | {"device": self.device}

    def load(self, max_length: int | None) -> Any:
        from lm_eval.models.huggingface import HFLM
        from transformers import GenerationConfig

        lm = self.construct(HFLM, batch_size=self.batch_size, max_length=max_length, device=self.device)
        own = lm.model.generation_config.eos_token_id
        ends = {*(own if isinstance(own, list) else [own]), lm.tokenizer.eos_token_id} - {None}
        # A new config drops the model's own sampling defaults; only the special tokens are carried over.
        lm.model.generation_config = GenerationConfig(
            eos_token_id=sorted(ends), pad_token_id=lm.tokenizer.pad_token_id, bos_token_id=lm.tokenizer.bos_token_id
        )
        self.refusal = ""  # the last reason for `generate` that was printed
        # Encoded once per prompt: HFLM sorts requests by length, and every sample is a request.
        encode, encoded = lm.tok_encode, dict[str, list[int]]()
        lm.tok_encode = lambda text: encoded.get(text) or encoded.setdefault(text, encode(text))
        return lm

    def batch(self, context: Any, max_length: int, stop: list[str], attention_mask: Any, **asked: Any) -> Any:
        """Return the prompts and responses of a batch, and record the responses: HFLM's `_model_generate`."""
        import torch

        lm = self.lm
        ends = lm.model.generation_config.eos_token_id
        end = lm.tok_decode(lm.eot_token_id, skip_special_tokens=False)
        refusal = sampling.unsupported(lm.model, asked)
        # The end token's text is the only stop that lm-eval adds, and `ends` holds the token.
        if stop != [end] or lm.mixed_precision_dtype:
            refusal = f"until {stop}" if stop != [end] else f"mixed precision {lm.mixed_precision_dtype}"
        with torch.inference_mode():
            if refusal:
                if refusal != self.refusal:
                    print(f"sampling by transformers' generate: {refusal}", flush=True)
                    self.refusal = refusal
                out = self.theirs(context, max_length, stop, attention_mask=attention_mask, **asked)
                response_BT = out[:, context.shape[1] :]
            else:  # the same, computed faster
                response_BT = sampling.sample(
                    lm.model,
                    context,
                    attention_mask,
                    max_new_tokens=max_length - context.shape[1],
                    ends=ends,
                    pad=lm.tokenizer.pad_token_id,
                    greedy=not asked.get("do_sample"),
                    temperature=asked.get("temperature") or 1.0,
                    top_p=asked.get("top_p") or 1.0,
                ).tokens
            ended_BT = torch.isin(response_BT, torch.tensor(ends, device=response_BT.device))
            ended_B = ended_BT.any(dim=1)
            # argmax finds the first end token; the rest of the row is batch padding
            tokens_B = torch.where(ended_B, ended_BT.int().argmax(dim=1), response_BT.shape[1])
            stops = ["stop" if ended else "length" for ended in ended_B.tolist()]
            self.observe(
                map(Drawn, lm.tokenizer.batch_decode(response_BT, skip_special_tokens=True), tokens_B.tolist(), stops)
            )
            return torch.cat([context, response_BT], dim=1)
