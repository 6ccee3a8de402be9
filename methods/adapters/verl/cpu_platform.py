"""Makes verl treat the CPU as an accelerator, for tests and tiny models. No run on a GPU imports it.

Every process of a run on a CPU imports this at the end of `import verl` (`VERL_USE_EXTERNAL_MODULES`), before anything
asks for the platform (`VERL_PLATFORM=cpu`). What can only be imported later, `cpu_rollout` registers.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import torch
import verl.utils.distributed
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry


def _nothing(*_: Any, **__: Any) -> None:
    """In place of a call that concerns the memory of an accelerator."""


def _zero(*_: Any, **__: Any) -> int:
    return 0


_MEMORY: dict[str, Any] = {
    "empty_cache": _nothing,
    "max_memory_allocated": _zero,
    "max_memory_reserved": _zero,
    "memory_allocated": _zero,
    "memory_reserved": _zero,
    "reset_peak_memory_stats": _nothing,
    "mem_get_info": lambda *_: (0, 0),
    "get_device_name": lambda *_: "cpu",
    "set_device": _nothing,
    "synchronize": _nothing,
    "manual_seed": torch.manual_seed,
    "manual_seed_all": torch.manual_seed,
    "get_rng_state": torch.get_rng_state,
    "set_rng_state": torch.set_rng_state,
}


@PlatformRegistry.register(platform="cpu")
class CPU(PlatformBase):
    device_name = "cpu"
    vendor_name = "cpu"
    device_module: ModuleType = cast(Any, SimpleNamespace(**{**vars(torch.cpu), **_MEMORY}))

    def is_available(self) -> bool:
        return True

    def current_device(self) -> Any:
        return torch.device("cpu")

    def device_count(self) -> int:
        return 1

    set_device = synchronize = set_allocator_settings = empty_cache = profiler_start = profiler_stop = _nothing

    def manual_seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    manual_seed_all = manual_seed

    def get_device_capability(self, device_index: int = 0) -> tuple[None, None]:
        return None, None

    def communication_backend_name(self) -> str:
        return "gloo"

    def visible_devices_envvar(self) -> str:
        return "CUDA_VISIBLE_DEVICES"

    @contextmanager
    def nvtx_range(self, msg: str) -> Iterator[None]:
        yield

    def ray_resource_name(self) -> str:
        return "GPU"  # the one that config.py pretends to have: verl's placement knows no other word

    def ray_noset_envvars(self) -> list[str]:
        return []

    def is_ipc_supported(self) -> bool:
        return False

    def cudart(self) -> None:
        return None


_initialize = verl.utils.distributed.initialize_global_process_group_ray


def _with_gloo(timeout_second: int | None = None, backend: str | None = None) -> None:
    """verl asks for `cpu:gloo,cpu:gloo`, which torch refuses: the device is named twice."""
    _initialize(timeout_second, backend or "gloo")


# Replaced here, before `engine_workers` is imported and takes its own reference to the function.
if os.environ.get("VERL_PLATFORM") == "cpu":
    verl.utils.distributed.initialize_global_process_group_ray = _with_gloo
