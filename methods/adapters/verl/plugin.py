"""What every process of a run imports before verl builds anything (`actor_rollout_ref.model.external_lib`)."""

from __future__ import annotations

import verl.models.transformers.monkey_patch
import verl.utils.model

import methods.adapters.verl.agent  # noqa: F401  registers the agent loop


def _no_trl() -> bool:
    """verl imports a class from TRL that TRL 1.x no longer has, whenever TRL is installed; it needs it for critics."""
    return False


# Each of the two holds its own reference.
verl.models.transformers.monkey_patch.is_trl_available = _no_trl
verl.utils.model.is_trl_available = _no_trl
