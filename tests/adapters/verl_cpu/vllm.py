"""verl's part of vLLM's own process on a CPU, for tests/test_vllm.py. Imported before the model is built."""

from typing import Any

from vllm import _custom_ops

from methods.adapters.verl.vllm import Extension

# oneDNN would drop the weights for packed copies, and nothing could be loaded into them any more.
_custom_ops._supports_onednn = False


class Own(Extension):
    def _get_zmq_handle(self) -> str:
        handle = super()._get_zmq_handle()
        assert "/tepo-" in handle, "a socket that another run would share"
        return handle


class Forgetful(Own):
    """As if the weights of the third transfer were lost."""

    transfers = 0

    def update_weights_from_ipc(self, *arguments: Any, **options: Any) -> None:
        self.transfers += 1
        if self.transfers == 3:
            self._update_weights = lambda *_, **__: None
        super().update_weights_from_ipc(*arguments, **options)
