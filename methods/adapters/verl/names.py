"""Names under which the adapter's own parts are registered with verl."""

from __future__ import annotations

TRAINER = "tepo_bench"
ADVANTAGE = "tepo_bench"
AGENT_LOOP = "tepo_bench"
CPU_ROLLOUT = "in_process"
EXTERNAL_LIB = "methods.adapters.verl.plugin"  # imported by the driver and by every worker
REWARD_FUNCTION = "compute_score"
REWARD_METRIC = "acc"  # what groups are filtered by: a key that the reward function returns
