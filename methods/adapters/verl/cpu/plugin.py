"""`external_lib` on a CPU: the product's plugin, the engine for this device, the inference server."""

from __future__ import annotations

from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

import methods.adapters.verl.cpu.rollout
import methods.adapters.verl.plugin  # noqa: F401

EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
