"""How one response is sampled: the prompt's own text, without a chat template, and a seed of its own.

verl's single-turn loop would put the prompt into the model's chat template; our prompts are what a model reads.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register

from methods.adapters.verl.names import AGENT_LOOP
from methods.training.rollouts import derive

SEED_FIELD = "run_seed"  # of a prompt's row: put there by the trainer
SIZE_FIELD = "dispatch_prompts"  # likewise: prompts sent out together with it; read by `cpu.rollout`
VLLM_SEEDS = 2**31  # vLLM takes 32-bit seeds


@register(AGENT_LOOP)
class PromptLoop(AgentLoopBase):
    """One prompt, one response. Its seed depends on run, prompt and sample number, not on the order of arrival."""

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any):
        # Not the base's: it builds a chat-template renderer and refuses tokenizers that have no template.
        self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
        self.server_manager, self.tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        # The prompt's text is whole, begin token included where the model has one, as evaluation reads it.
        prompt_ids: list[int] = self.tokenizer(row["raw_prompt"][0]["content"], add_special_tokens=False)["input_ids"]
        seed = derive(int(row[SEED_FIELD]), "response", row["uid"], int(row["session_id"])) % VLLM_SEEDS
        output = await self.server_manager.generate(
            request_id=uuid4().hex,
            prompt_ids=prompt_ids,
            sampling_params={**sampling_params, "seed": seed, **self.extra(row)},
        )
        response = output.token_ids[: self.rollout_config.response_length]
        return AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response,
            response_mask=[1] * len(response),
            response_logprobs=output.log_probs[: len(response)] if output.log_probs else None,
            num_turns=2,
            metrics={},
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": []},
        )

    def extra(self, row: dict[str, Any]) -> dict[str, Any]:
        """Sampling parameters that only some inference engine understands; see `cpu.rollout`."""
        return {}
