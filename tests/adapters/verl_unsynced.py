"""`external_lib` of a run on a CPU whose sampler never gets the trainer's weights: it keeps those of the base."""

from typing import Any

from methods.adapters.verl import cpu_rollout


async def skipped(self: cpu_rollout.Adapter, weights: Any, global_steps: int = 0, **_: Any) -> None:
    for _name, _tensor in weights:  # the trainer's ranks gather them together
        pass


cpu_rollout.Adapter.update_weights = skipped  # type: ignore[method-assign]
