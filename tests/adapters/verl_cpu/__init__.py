"""Plugins of verl for device cpu, in place of CUDA and vLLM: this platform, and the inference engine in `rollout`.

Every process of a run on a CPU imports this module at the end of `import verl` (`VERL_USE_EXTERNAL_MODULES`), before
the platform is looked up (`VERL_PLATFORM=cpu`). `engine` and `rollout` register what can only be imported later.
"""

import os
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import verl.utils.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _always(value: Any) -> Callable[..., Any]:
    """Return a method that returns `value` for any arguments; None for operations on accelerators only."""
    return lambda *_, **__: value


_MEMORY: dict[str, Any] = {
    **dict.fromkeys(("empty_cache", "reset_peak_memory_stats", "set_device", "synchronize"), _always(None)),
    **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "memory_allocated", "memory_reserved"), _always(0)),
    "mem_get_info": _always((0, 0)),
    "get_device_name": _always("cpu"),
    "manual_seed": torch.manual_seed,
    "get_rng_state": torch.get_rng_state,
    "set_rng_state": torch.set_rng_state,
}


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    device_name = vendor_name = "cpu"
    device_module: Any = SimpleNamespace(**{**vars(torch.cpu), **_MEMORY})
    is_available = _always(True)
    current_device = _always(torch.device("cpu"))
    device_count = _always(1)
    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = _always(None)
    manual_seed = manual_seed_all = staticmethod(torch.manual_seed)
    get_device_capability = _always((None, None))
    communication_backend_name = _always("gloo")
    visible_devices_envvar = _always("CUDA_VISIBLE_DEVICES")
    nvtx_range = _always(nullcontext())
    ray_resource_name = _always("GPU")  # the simulated one of config.py: verl places workers by this name
    ray_noset_envvars = _always([])
    is_ipc_supported = _always(False)
    cudart = _always(None)


_initialize = verl.utils.distributed.initialize_global_process_group_ray


def _with_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
    """Call verl's function with a backend that torch accepts: verl's `cpu:gloo,cpu:gloo` lists the device twice."""
    _initialize(timeout_second, backend or "gloo")


if os.environ.get("VERL_PLATFORM") == "cpu":  # not where verl trains on a GPU and only samples here
    # before `engine_workers` imports the function
    verl.utils.distributed.initialize_global_process_group_ray = _with_gloo
