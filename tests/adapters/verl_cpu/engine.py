"""verl's training engine for device cpu, and what every run needs: `external_lib` where verl's own vLLM samples."""

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

import methods.adapters.verl.worker  # noqa: F401  registers our agent loop

EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
