"""Where libraries keep what they compile for a GPU: on the node's own disk, not in the home folder.

Left alone they write to the home folder, which a cluster often shares over the network and keeps small: forty jobs of
eight engines would compile into one folder at once.
"""

import os
from pathlib import Path

# A folder to keep them in from one run to the next; without it they go with the run, and each compiles again.
VARIABLE = "TEPO_ENGINE_CACHE"

# Variable -> folder below ours. A variable that is set already stays as it is.
FOLDERS = {
    "VLLM_CACHE_ROOT": "vllm",  # torch.compile's graphs among others
    "VLLM_CONFIG_ROOT": "vllm-config",
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "torch-extensions",
    "FLASHINFER_WORKSPACE_BASE": "flashinfer",
    "DG_JIT_CACHE_DIR": "deep-gemm",
    "CUDA_CACHE_PATH": "cuda",  # the driver's own
}


def engine_caches(default: Path) -> dict[str, str]:
    """The variables to set before such a library is imported. default: the folder if `TEPO_ENGINE_CACHE` names none."""
    root = Path(os.environ.get(VARIABLE) or default).absolute()
    return {name: os.environ.get(name) or str(root / folder) for name, folder in FOLDERS.items()}
