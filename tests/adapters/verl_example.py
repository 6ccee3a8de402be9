"""`external_lib` of a run of examples/verl_register.py on a CPU: what verl lacks for it, and a key with options.

On a GPU `external_lib` is `verl_register` itself. The import of `cpu_rollout` stands for vLLM and FSDP's CUDA.
"""

import verl_register

import methods.adapters.verl.cpu_rollout  # noqa: F401  registers the engine and the server

NAME = verl_register.register("tepo+dh-def=theorem+beta=0.5")
