"""Cache folders for GPU code that libraries compile: on the node's local disk, not in the home folder.

By default libraries write to the home folder, which on a cluster is often a small network share: forty jobs with
eight engines each would compile into one folder at once.
"""

import os
from pathlib import Path

# Folder that keeps the caches between runs; if unset, they are deleted with the run, and each run recompiles.
VARIABLE = "TEPO_ENGINE_CACHE"

# Variable -> folder below ours. A variable that is already set is left unchanged.
FOLDERS = {
    "VLLM_CACHE_ROOT": "vllm",  # torch.compile's graphs among others
    "VLLM_CONFIG_ROOT": "vllm-config",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "CUDA_CACHE_PATH": "cuda",  # of the CUDA driver
}


def engine_caches(default: Path) -> dict[str, str]:
    """Return the variables to set before importing such a library. default: folder if `TEPO_ENGINE_CACHE` is unset."""
    root = Path(os.environ.get(VARIABLE) or default).absolute()
    return {name: os.environ.get(name) or str(root / folder) for name, folder in FOLDERS.items()}
