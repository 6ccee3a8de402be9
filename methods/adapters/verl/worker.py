"""Our code in verl's workers: the output head, the loss of a micro-batch, and the sampling of one response.

Every process of a run imports this module before verl builds anything in it (`actor_rollout_ref.model.external_lib`;
on a CPU through `cpu_rollout`). The import itself registers the agent loop, and puts the shim for TRL and the output
head in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import verl.models.transformers.monkey_patch
import verl.utils.experimental.torch_functional
import verl.utils.model
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from methods import catalog
from methods.adapters.verl import tensors
from methods.adapters.verl.config import AGENT_LOOP, CHUNK
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from methods.training.rollouts import derive
from records.errors import ConfigError

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Tensor

# --- The shim ---------------------------------------------------------------------------------------------------------


def _no_trl() -> bool:
    """Whenever TRL is installed, verl imports a class that TRL 1.x no longer has. Only critics need it."""
    return False


# Each of the two modules holds its own reference to the function, so both are replaced.
verl.models.transformers.monkey_patch.is_trl_available = _no_trl
verl.utils.model.is_trl_available = _no_trl

# --- The output head --------------------------------------------------------------------------------------------------


class ChunkedHead:
    """What verl's models call instead of their own output head (`model.use_fused_kernels`, backend torch).

    verl's own class of this name has entropies in the precision of the pass: bfloat16 is far coarser than dH.
    """

    def __init__(self, **_: Any):
        """verl passes the backend's name."""

    def forward(
        self, hidden_states: Tensor, vocab_weights: Tensor, input_ids: Tensor, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """(1, N) log-probs and entropies in float32 of packed sequences, whose N tokens need not be a row already."""
        token = input_ids.view(hidden_states.shape[:-1])
        return logp_and_entropy(hidden_states, vocab_weights, token, temperature=temperature, chunk=CHUNK)


# verl's model code looks the class up by this name each time.
verl.utils.experimental.torch_functional.FusedLinearForPPO = ChunkedHead

# --- The loss ---------------------------------------------------------------------------------------------------------

MINIBATCH_ROWS = "minibatch_rows"  # of a minibatch over all ranks: the trainer puts it beside the rows

# Name of our one metric. verl reduces a metric whose name contains "max" or "min"; this one must come back as a list.
RESULT = "micro_batch"


class MicroBatchResult(NamedTuple):
    """What a worker sends back to the driver for the curve."""

    update: int  # 0-based over the run
    loss: float  # the micro-batch's share of the minibatch's loss
    batch: Batch  # without gradient, on the CPU: diagnostics are computed over the whole minibatch


class MethodLoss:
    """Sent to every worker by `set_loss_fn`. Counts the minibatches it sees, because verl does not number them."""

    def __init__(self, method: str, run_seed: int, updates_per_rollout: int, max_tokens: int, *, whole_minibatch: bool):
        self.method = catalog.parse(method)
        self.max_tokens = max_tokens  # of a response
        self.run_seed, self.updates_per_rollout = run_seed, updates_per_rollout
        self.whole_minibatch = whole_minibatch  # then a part of a minibatch is an error for a method of scope batch
        self.rollout = self.rows = 0

    def __call__(
        self, model_output: Mapping[str, Any], data: TensorDict, dp_group: object = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """The micro-batch's share of the minibatch's loss, times the ranks over which FSDP averages."""
        import torch

        micro_batch = tensors.micro_batch(model_output, data, self.method.key, self.max_tokens)
        update = self._update(micro_batch)
        split = len(micro_batch.batch.mask) < micro_batch.rows
        if split and self.whole_minibatch and self.method.scope == "batch":
            raise ConfigError(
                f"verl: a worker got {len(micro_batch.batch.mask)} of a minibatch's {micro_batch.rows} sequences, but "
                f"{self.method.key} takes statistics over all of it (scope batch); allowed: one GPU, micro_batches 1"
            )
        # An unsplit minibatch counts its own tokens, sequences and groups, exactly as the TRL adapter does: the two
        # trainers then agree bit for bit.
        loss = self.method.loss(
            micro_batch.batch if split else replace(micro_batch.batch, group_tokens=None, groups=None),
            tokens=micro_batch.tokens if split else None,
            sequences=micro_batch.sequences if split else None,
            # A selection's random numbers depend on run and update only, not on the worker or on what came before.
            generator=torch.Generator().manual_seed(derive(self.run_seed, "selection", update)),
        )
        result = MicroBatchResult(update, float(loss.detach()), detached(micro_batch.batch))
        return loss * micro_batch.ranks, {RESULT: result}

    def _update(self, micro_batch: tensors.MicroBatch) -> int:
        """0-based over the run, of the minibatches that were trained on, from the rows seen since the rollout began."""
        if micro_batch.rollout != self.rollout:
            self.rollout, self.rows = micro_batch.rollout, 0
        nth = self.rows * micro_batch.ranks // micro_batch.rows
        self.rows += len(micro_batch.batch.mask)
        return (micro_batch.rollout - 1) * self.updates_per_rollout + nth


def detached(batch: Batch) -> Batch:
    """On the CPU, without gradient: what diagnostics need."""
    import torch

    values = {f.name: getattr(batch, f.name) for f in fields(Batch)}
    moved: dict[str, Any] = {n: x.detach().cpu() for n, x in values.items() if isinstance(x, torch.Tensor)}
    return replace(batch, **moved)


# --- The pass without gradient ----------------------------------------------------------------------------------------

_infer_batch = FSDPEngineWithLMHead.infer_batch


def infer_batch(self: Any, data: TensorDict, loss_function: Any = None) -> Any:
    """verl's, minibatch by minibatch where the trainer says how many rows one has.

    A micro-batch has then the rows that it has in the update. In half precision a token's entropy depends on what else
    is in its micro-batch, by up to 0.1 nats: in another one dH would be noise (reading R6).
    """
    from verl.utils import tensordict_utils as tu

    rows = tu.get_non_tensor_data(data, MINIBATCH_ROWS, default=None)
    if rows is None:
        return _infer_batch(self, data, loss_function)
    minibatches = tu.chunk_tensordict(data, len(data) * self.get_data_parallel_size() // rows)
    outputs = [_infer_batch(self, minibatch, loss_function) for minibatch in minibatches]
    return {
        "model_output": {
            name: tu.concat_nested_tensors([output["model_output"][name] for output in outputs])
            for name in outputs[0]["model_output"]
        },
        "loss": [loss for output in outputs for loss in output["loss"]],
        "metrics": {},  # without a loss there are none
    }


FSDPEngineWithLMHead.infer_batch = infer_batch

# --- Sampling ---------------------------------------------------------------------------------------------------------

SEED_FIELD = "run_seed"  # of a prompt's row: put there by the trainer
SIZE_FIELD = "dispatch_prompts"  # likewise: prompts sent out together with it; read by `cpu_rollout`
VLLM_SEEDS = 2**31  # vLLM takes 32-bit seeds


@register(AGENT_LOOP)
class PromptLoop(AgentLoopBase):
    """One prompt, one response, without verl's chat template: our prompts are exactly the text that a model reads.

    The response's seed depends on run, prompt and sample number, not on the order of arrival.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any):
        # Not the base's: it builds a chat-template renderer and refuses tokenizers that have no template.
        self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
        self.server_manager, self.tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        # The prompt's text is whole, begin token included where the model has one, as evaluation reads it.
        prompt_ids: list[int] = self.tokenizer(row["raw_prompt"][0]["content"], add_special_tokens=False)["input_ids"]
        # The sample number is part of the seed: with one seed for a group all its responses would be the same.
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
            num_turns=2,  # the prompt and the response
            metrics={},
            extra_fields={**output.extra_fields, "turn_scores": [], "tool_rewards": []},
        )

    def extra(self, row: dict[str, Any]) -> dict[str, Any]:
        """Sampling parameters that only some inference engine understands; see `cpu_rollout`."""
        return {}
