"""Names under which the adapter's own parts are registered with verl. No verl here."""

TRAINER = "methods"
ADVANTAGE = "methods"
AGENT_LOOP = "methods_prompt"
CPU_ROLLOUT = "transformers"
EXTERNAL_LIB = {"cuda": "methods.adapters.verl.plugin", "cpu": "methods.adapters.verl.cpu.plugin"}
REWARD_FUNCTION = "compute_score"
REWARD_METRIC = "acc"  # a key that the reward function returns
