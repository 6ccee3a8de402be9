"""Both ends of verl's transfer of weights to vLLM, on a socket in the run's own folder.

verl's sockets are in /tmp, named by Ray's job, which is the first one of every private Ray: of two runs on a machine
one would get the other's weights. Imports vLLM: only in the training workers (`Adapter`) and in vLLM's (`Extension`).
"""

from __future__ import annotations

import os
from typing import Any

from verl.workers.rollout.vllm_rollout import ServerAdapter
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension


def in_own_folder(handle: str) -> str:
    """Return a socket's address with the run's folder instead of /tmp; unchanged on a launcher's cluster."""
    return handle.replace("/tmp", os.environ.get("VLLM_RPC_BASE_PATH", "/tmp"), 1)


class Adapter(ServerAdapter):
    """The end that sends: `worker` registers it in place of verl's."""

    zmq_handle: str

    def __init__(self, *arguments: Any, **options: Any):
        super().__init__(*arguments, **options)
        self.zmq_handle = in_own_folder(self.zmq_handle)


class Extension(vLLMColocateWorkerExtension):
    """The end that receives: config.yaml names it."""

    def _get_zmq_handle(self) -> str:
        return in_own_folder(super()._get_zmq_handle())
