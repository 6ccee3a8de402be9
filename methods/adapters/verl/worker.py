"""Our code in verl's workers: the output head, the loss of a micro-batch, and the sampling of one response.

Every process of a run imports this module before verl builds anything (`actor_rollout_ref.model.external_lib`; on a
CPU through `config.CPU_PLUGIN`). The import registers the agent loop and installs the shim for TRL and the output head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import torch
import verl.models.transformers.monkey_patch
import verl.utils.experimental.torch_functional
import verl.utils.fsdp_utils
import verl.utils.model
from torch.nn.functional import pad
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopOutput, register
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout.base import _ROLLOUT_REGISTRY

from core.errors import ConfigError, CorruptInputError
from methods import catalog
from methods.adapters.verl.config import AGENT_LOOP, CHUNK
from methods.batch import Batch
from methods.parts.entropy import logp_and_entropy
from methods.training import movement
from methods.training.rollouts import derive, rows_selected, together

if TYPE_CHECKING:
    from tensordict import TensorDict
    from torch import Generator, Tensor

# --- The shim ---------------------------------------------------------------------------------------------------------


# verl would import a class, needed only by critics, that TRL 1.x no longer has. Both modules import the function.
verl.models.transformers.monkey_patch.is_trl_available = verl.utils.model.is_trl_available = lambda: False

# --- The output head --------------------------------------------------------------------------------------------------


class ChunkedHead:
    """Output head of verl's models (`model.use_fused_kernels`, backend torch).

    verl's class computes entropies in the precision of the pass: bfloat16 is far coarser than dH.
    """

    def __init__(self, **_: Any):
        """Ignore verl's arguments."""

    def forward(
        self, hidden_states: Tensor, vocab_weights: Tensor, input_ids: Tensor, temperature: float = 1.0
    ) -> tuple[Tensor, Tensor]:
        """Return log-probs and entropies (1, N), float32, of packed sequences; the N tokens may have another shape."""
        token = input_ids.view(hidden_states.shape[:-1])
        return logp_and_entropy(hidden_states, vocab_weights, token, temperature=temperature, chunk=CHUNK)


# verl's model code looks the class up by this name each time.
verl.utils.experimental.torch_functional.FusedLinearForPPO = ChunkedHead

_wrap_targets = verl.utils.fsdp_utils._select_fsdp2_wrap_targets


def wrap_targets(model: torch.nn.Module, layers: list[str]) -> list[torch.nn.Module]:
    """Return the modules that FSDP2 gathers one by one, without an untied output head.

    A head in this list is gathered only during its call, but `ChunkedHead` reads its weight without a call. Gathered
    with the model's root it is available during the whole pass, as the memory estimate assumes.
    """
    head = model.get_output_embeddings()  # type: ignore[operator]
    return [module for module in _wrap_targets(model, layers) if module is not head]


verl.utils.fsdp_utils._select_fsdp2_wrap_targets = wrap_targets

# --- verl's names for what a loss reads -------------------------------------------------------------------------------
# They occur only in this section (tests/adapters/test_canaries.py pins them). verl pads a minibatch to a divisible size
# with rows whose response mask is empty ("filling rows"). They become `dropped` rows of the `Batch`.

LOSS_FIELDS = ("response_mask", "old_log_probs", "entropy", "advantages")
REFERENCE = "ref_log_prob"
SAMPLED = "rollout_log_probs"  # the inference engine's
RESPONSE_FIELDS = ("responses", "rm_scores", "extra_fields")
TOTALS_FIELD = "minibatch_figures"  # ours, (B, 5) long: see `MinibatchTotals`


class MinibatchTotals(NamedTuple):
    """Totals of a row's minibatch, one row of `TOTALS_FIELD`: a worker gets only a part of the minibatch.

    Sent with the rows, because verl's totals count filling rows as sequences and ignore prompt groups.
    """

    group: int  # number of the row's prompt group in the rollout; -1 for a filling row
    group_tokens: int  # tokens of that group in the minibatch
    groups: int  # in the minibatch
    sequences: int  # in the minibatch, without filling rows
    place: int  # position in the minibatch as drawn, on any rank: 0 to sequences - 1; -1 for a filling row


class MicroBatch(NamedTuple):
    """One micro-batch as a loss reads it, and its position in the run."""

    batch: Batch
    place: Tensor  # (B,) position of each row in the minibatch, -1 for filling rows
    rollout: int  # 1-based, verl's `global_steps`
    tokens: int  # of the minibatch, over all ranks
    sequences: int  # of the minibatch, over all ranks
    rows: int  # of the minibatch, over all ranks, including filling rows
    ranks: int  # data-parallel; FSDP averages gradients over them


def micro_batch(model_output: Mapping[str, Any], data: TensorDict, label: str, max_tokens: int) -> MicroBatch:
    """Convert verl's micro-batch: nested (B, j) tensors in `data`, values with gradient in `model_output`."""
    from verl.workers.utils.padding import no_padding_2_padding

    logp_BT = no_padding_2_padding(model_output["log_probs"], data)
    entropy_BT = no_padding_2_padding(model_output["entropy"], data)
    # Most fields of `data` are not tensors: ours are selected by name.
    fields = [*LOSS_FIELDS, *(name for name in (REFERENCE, SAMPLED) if name in data)]
    padded = {name: _padded(data[name], logp_BT.shape[1]) for name in fields}
    mask_BT = padded["response_mask"].bool()
    group_B, group_tokens_B, groups_B, sequences_B, place_B = _padded(data[TOTALS_FIELD], 5).unbind(1)
    # verl spreads a sequence's advantage over its tokens; it is read from the first valid token.
    advantage_B = padded["advantages"].gather(1, mask_BT.long().argmax(1, keepdim=True)).squeeze(1)
    # verl calls a loss inside the autocast of its forward pass
    device = logp_BT.device.type
    half = torch.is_autocast_enabled(device)
    sampled_BT = padded.get(SAMPLED)
    if sampled_BT is not None:  # a token without a value from the engine counts as agreeing, as in TRL
        sampled_BT = sampled_BT.where(sampled_BT.isfinite(), padded["old_log_probs"]).to(logp_BT.dtype)
    batch = Batch(
        logp=logp_BT,
        old_logp=padded["old_log_probs"],
        advantage=advantage_B,
        mask=mask_BT,
        group=group_B,
        entropy=entropy_BT,
        old_entropy=padded["entropy"],
        ref_logp=padded.get(REFERENCE),
        sampling_logp=sampled_BT,
        dropped=~mask_BT.any(1),
        group_tokens=group_tokens_B,
        groups=int(groups_B.max()),
        max_tokens=max_tokens,
        precision=str(torch.get_autocast_dtype(device)).removeprefix("torch.") if half else None,
        label=label,
    )
    rollout: Any = data["global_steps"]
    if isinstance(rollout, Sequence) or hasattr(rollout, "shape"):  # verl passes it bare or once per row
        rollout = rollout[0]
    totals = data["batch_num_tokens"], sequences_B.max(), data["global_batch_size"], data["dp_size"]
    return MicroBatch(batch, place_B, int(rollout), *map(int, totals))


def _padded(x: Tensor, width: int) -> Tensor:
    """Return a nested or dense tensor as (B, width), with zeros on the right."""
    if x.is_nested:
        x = torch.nested.to_padded_tensor(x, 0)
    return pad(x, (0, width - x.shape[1]))


class Response(NamedTuple):
    """One sampled response, read by the driver from verl's queue."""

    key: str  # <uid>_<sample>_0
    uid: str  # of its prompt group
    reward: float | None  # None: late, or the response was not graded
    tokens: int
    truncated: bool


def responses(keys: Sequence[str], data: Mapping[str, Any], limit: int, end_tokens: Sequence[int]) -> list[Response]:
    """Return the responses of these rows; raise `CorruptInputError` for the first reward that failed.

    A response is truncated if it has `limit` tokens without an end token.
    """
    rows = []
    for key, tokens, scores, extra in zip(*(keys, *(data[name] for name in RESPONSE_FIELDS)), strict=True):
        uid, info = key.rsplit("_", 2)[0], getattr(extra, "data", extra).get("reward_extra_info", {})
        if info.get("error") is not None:
            raise CorruptInputError(f"rollout {int(uid.partition('-')[0])}: {info['error']}")
        reward = None if info.get("timeout") else float(scores.sum())
        truncated = len(tokens) >= limit and int(tokens[-1]) not in end_tokens
        rows.append(Response(key, uid, reward, len(tokens), truncated))
    return rows


# --- The loss ---------------------------------------------------------------------------------------------------------

MINIBATCH_ROWS = "minibatch_rows"  # rows of a minibatch over all ranks: the trainer sends it with the rows

# Name of our one metric. verl reduces a metric whose name contains "max" or "min"; this one must come back as a list.
RESULT = "micro_batch"
OPTIONAL = {"entropy", "old_entropy", "ref_logp", "sampling_logp"}  # fields that only some methods read


class MicroBatchResult(NamedTuple):
    """Result that a worker sends to the driver for the curve."""

    update: int  # 0-based over the run
    loss: float  # the micro-batch's share of the minibatch's loss
    batch: Batch  # without gradient, on the CPU: diagnostics are computed over the whole minibatch
    moved: movement.Update | None = None  # change of the parameters in the update


class MethodLoss:
    """Loss sent to every worker by `set_loss_fn`. It counts minibatches, because verl does not number them.

    whole_minibatch: statistics are those of the whole minibatch (R15). They are taken in a pass without gradient before
    the update's (`look`), an additional forward pass that only methods with such a statistic need.
    """

    def __init__(self, method: str, run_seed: int, updates_per_rollout: int, max_tokens: int, *, whole_minibatch: bool):
        self.method = catalog.parse(method)
        self.max_tokens = max_tokens  # of a response
        self.run_seed, self.updates_per_rollout = run_seed, updates_per_rollout
        self.whole_minibatch = whole_minibatch
        self.gathers = whole_minibatch and bool(self.method.parts.statistics)
        self.selected: dict[str, Tensor] | None = None  # for the current minibatch, place by place
        self.rollout = self.rows = 0

    def look(self, run: Callable[[Callable[..., Any]], Any], gather: Callable[[list[Any]], list[list[Any]]]) -> None:
        """Take statistics over the minibatch, the same on every rank.

        run: calls a loss on each of this rank's micro-batches, without gradient; gather: collects all ranks' lists.
        """
        if not self.gathers:
            return
        seen: list[tuple[int, Tensor, Batch]] = []

        def collect(model_output: Mapping[str, Any], data: TensorDict, dp_group: object = None) -> Any:
            part = micro_batch(model_output, data, self.method.key, self.max_tokens)
            # only fields that statistics may read are sent between ranks
            unread: dict[str, Any] = dict.fromkeys(OPTIONAL - self.method.needs)
            seen.append((self._update(part), part.place.cpu(), replace(part.batch, **unread).detached()))
            return torch.zeros(()), {}

        run(collect)
        updates, places, batches = zip(*(part for parts in gather(seen) for part in parts), strict=True)
        place_B = torch.cat(places)
        # In the order drawn: the minibatch, and so a random selection, does not depend on the split.
        order = place_B.argsort()[int((place_B < 0).sum()) :]
        self.selected = self.method.select(together(batches).rows(order), self._generator(updates[0]))

    def __call__(
        self, model_output: Mapping[str, Any], data: TensorDict, dp_group: object = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Return the micro-batch's share of the minibatch's loss, times the ranks over which FSDP averages."""
        part = micro_batch(model_output, data, self.method.key, self.max_tokens)
        batch, update = part.batch, self._update(part)
        self.rows += len(batch.mask)
        split = len(batch.mask) < part.rows
        if split and self.whole_minibatch and not self.method.splittable:
            raise ConfigError(
                f"verl: a worker got {len(batch.mask)} of a minibatch's {part.rows} sequences, but {self.method.key} "
                "divides by the tokens of a micro-batch; allowed: one GPU, micro_batches 1, or cov_scope: microbatch"
            )
        selected = None
        if self.selected is not None:  # filling rows get arbitrary values, because they have no tokens
            selected = rows_selected(self.selected, part.place.clamp(min=0).cpu(), batch.logp)
        # An unsplit minibatch computes its counts of tokens, sequences and groups, as in the TRL adapter: the two
        # trainers then agree bit for bit.
        loss = self.method.loss(
            batch if split else replace(batch, group_tokens=None, groups=None),
            tokens=part.tokens if split else None,
            sequences=part.sequences if split else None,
            generator=self._generator(update),
            selected=selected,
        )
        result = MicroBatchResult(update, float(loss.detach()), batch.detached())
        return loss * part.ranks, {RESULT: result}

    def _update(self, part: MicroBatch) -> int:
        """Return the update's number, 0-based over the run; in this rollout only trained minibatches count."""
        if part.rollout != self.rollout:
            self.rollout, self.rows = part.rollout, 0
        return (part.rollout - 1) * self.updates_per_rollout + self.rows * part.ranks // part.rows

    def _generator(self, update: int) -> Generator:
        """Return a generator for selections that depends only on run and update, not on the worker or earlier draws."""
        return torch.Generator().manual_seed(derive(self.run_seed, "selection", update))


_forward_backward, _optimizer_step, _train_batch, _infer_batch = (
    getattr(FSDPEngineWithLMHead, name)
    for name in ("forward_backward_batch", "optimizer_step", "train_batch", "infer_batch")
)


def forward_backward_batch(
    self: Any, data: TensorDict, loss_function: Callable[..., Any], forward_only: bool = False
) -> Any:
    """Run verl's pass over a minibatch in micro-batches, after `look` over all of it if our loss needs it."""
    if isinstance(loss_function, MethodLoss) and not forward_only:

        def run(collect: Callable[..., Any]) -> None:
            with torch.no_grad():
                _forward_backward(self, data, collect, forward_only=True)

        def gather(seen: list[Any]) -> list[list[Any]]:
            group = self.get_data_parallel_group()
            of_ranks: list[list[Any]] = [[]] * torch.distributed.get_world_size(group)
            torch.distributed.all_gather_object(of_ranks, seen, group=group)
            return of_ranks

        loss_function.look(run, gather)
    return _forward_backward(self, data, loss_function, forward_only)


def optimizer_step(self: Any) -> float:
    """Run verl's step; keep how far it moved the parameters for `train_batch`."""
    before = movement.copies(self.module.parameters())
    norm: float = _optimizer_step(self)
    self.moved = movement.update(before, self.module.parameters())
    return norm


def train_batch(self: Any, data: TensorDict, loss_function: Callable[..., Any]) -> Any:
    """Run verl's update; add to its results how far it moved the parameters."""
    outputs = _train_batch(self, data, loss_function)
    if RESULT in (metrics := outputs["metrics"]):
        metrics[RESULT] = [result._replace(moved=self.moved) for result in metrics[RESULT]]
    return outputs


def infer_batch(self: Any, data: TensorDict, loss_function: Any = None) -> Any:
    """Run verl's pass, minibatch by minibatch if the trainer passes the rows of one.

    A micro-batch then has the same rows as in the update. In half precision a token's entropy depends on the other rows
    of its micro-batch (`masks.TOLERANCE`): in another one dH would be noise (reading R6).
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


# verl has no hooks between a minibatch and its micro-batches.
for replacement in (forward_backward_batch, optimizer_step, train_batch, infer_batch):
    setattr(FSDPEngineWithLMHead, replacement.__name__, replacement)

# --- Sampling ---------------------------------------------------------------------------------------------------------

_ROLLOUT_REGISTRY["vllm", "async"] = "methods.adapters.verl.vllm.Adapter"

SEED_FIELD = "run_seed"  # field of a prompt's row, set by the trainer
SIZE_FIELD = "dispatch_prompts"  # of the same: number of prompts dispatched together, for `config.CPU_PLUGIN`
VLLM_SEEDS = 2**31  # vLLM takes 32-bit seeds


@register(AGENT_LOOP)
class PromptLoop(AgentLoopBase):
    """Loop of one prompt and one response, without verl's chat template: our prompts are complete.

    The response's seed depends on run, prompt and sample number, not on the order of arrival.
    """

    def __init__(self, trainer_config: Any, server_manager: Any, tokenizer: Any, **_: Any):
        # The base's __init__ is not called: it needs a tokenizer with a chat template, for which it builds a renderer.
        self.rollout_config = trainer_config.config.actor_rollout_ref.rollout
        self.server_manager, self.tokenizer = server_manager, tokenizer

    async def run(self, sampling_params: dict[str, Any], **row: Any) -> AgentLoopOutput:
        # The prompt is complete, including the model's begin token, if any, as in evaluation.
        prompt_ids: list[int] = self.tokenizer(row["raw_prompt"][0]["content"], add_special_tokens=False)["input_ids"]
        # The sample number is part of the seed: with one seed per group all its responses would be the same.
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
        """Return sampling parameters specific to an inference engine; see `config.CPU_PLUGIN`."""
        return {}
