"""The hf backend: lm-eval's HFLM, observed while it generates.

It gives the same responses as stock HFLM and differs in three ways. Token counts and stop reasons are recorded. The
model's own sampling defaults (generation_config.json: top_k, repetition_penalty, ...) do not apply, because decoding is
defined only by the task file. Where `methods.sampling` can reproduce the tokens of `generate`, it draws them.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from evals.generation.engine import Drawn, Local, construct
from methods import sampling

if TYPE_CHECKING:
    from lm_eval.api.model import LM

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

    def load(self, max_length: int | None) -> LM:
        return construct(
            _observed_hflm(),
            self,
            pretrained=str(self.folder),
            batch_size=self.batch_size,
            max_length=max_length,
            dtype=self.settings.dtype,
            add_bos_token=False,  # the prompts already hold it
            device=self.device,
        )


@cache
def _observed_hflm() -> type[LM]:
    """Return the subclass, defined on first use, because importing lm-eval's models takes seconds."""
    import torch
    from lm_eval.models.huggingface import HFLM
    from transformers import GenerationConfig

    class ObservedHFLM(HFLM):
        def __init__(self, owner: Local, **arguments: Any):
            super().__init__(**arguments)
            self.owner = owner
            self.encoded: dict[str, list[int]] = {}  # prompt -> token ids
            self.refusal: str | None = None  # the last reason for `generate` that was printed
            own = self.model.generation_config.eos_token_id
            ends = {*(own if isinstance(own, list) else [own]), self.tokenizer.eos_token_id} - {None}
            self.ends = sorted(ends)
            # A new config drops the model's own sampling defaults; only the special tokens are carried over.
            self.model.generation_config = GenerationConfig(
                eos_token_id=self.ends,
                pad_token_id=self.tokenizer.pad_token_id,
                bos_token_id=self.tokenizer.bos_token_id,
            )

        def tok_encode(self, string: Any, *arguments: Any, **named: Any) -> list[int]:
            """Encode once per prompt: HFLM sorts requests by length, and every sample is a request."""
            if arguments or named or not isinstance(string, str):
                return super().tok_encode(string, *arguments, **named)
            if string not in self.encoded:
                self.encoded[string] = super().tok_encode(string)
            return list(self.encoded[string])

        @torch.inference_mode()
        def _model_generate(self, context: Any, max_length: int, stop: list[str], **arguments: Any) -> Any:
            out = self._drawn(context, max_length, stop, **arguments)
            if out is None:
                out = super()._model_generate(context, max_length, stop, **arguments)
            response_BT = out[:, context.shape[1] :]
            ended_BT = torch.isin(response_BT, torch.tensor(self.ends, device=response_BT.device))
            ended_B = ended_BT.any(dim=1)
            # argmax finds the first end token; the rest of the row is batch padding
            tokens_B = torch.where(ended_B, ended_BT.int().argmax(dim=1), response_BT.shape[1])
            texts = self.tokenizer.batch_decode(response_BT, skip_special_tokens=True)
            stops = ["stop" if ended else "length" for ended in ended_B.tolist()]
            self.owner.observe(map(Drawn, texts, tokens_B.tolist(), stops))
            return out

        def _drawn(
            self, context: Any, max_length: int, stop: list[str], attention_mask: Any, **asked: Any
        ) -> torch.Tensor | None:
            """Return the output of `generate`, computed faster; None for options unsupported by `methods.sampling`."""
            end = self.tok_decode(self.eot_token_id, skip_special_tokens=False)
            refusal = sampling.unsupported(self.model, asked)
            # The end token's text is the only stop that lm-eval adds, and `ends` holds the token.
            if stop != [end] or self.mixed_precision_dtype:
                refusal = f"until {stop}" if stop != [end] else f"mixed precision {self.mixed_precision_dtype}"
            if refusal:
                if refusal != self.refusal:
                    print(f"sampling by transformers' generate: {refusal}", flush=True)
                    self.refusal = refusal
                return None
            drawn = sampling.sample(
                self.model,
                context,
                attention_mask,
                max_new_tokens=max_length - context.shape[1],
                ends=self.ends,
                pad=self.tokenizer.pad_token_id,
                greedy=not asked.get("do_sample"),
                temperature=asked.get("temperature") or 1.0,
                top_p=asked.get("top_p") or 1.0,
            )
            return torch.cat([context, drawn.tokens], dim=1)

    return ObservedHFLM
