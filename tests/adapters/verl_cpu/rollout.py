"""An inference server for tiny models: one Ray actor with a transformers model, whole rollouts in one batch.

`external_lib` of a run on a CPU. By importing `worker` it registers what every run needs; its agent loop replaces that
of `worker`, so it must be registered afterwards.

A row's tokens must not depend on the other rows of its batch, but rounding in a batched product does. A batch is
therefore always the same: all responses of one dispatch, in the order of their keys.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import register
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from methods.adapters.verl.config import AGENT_LOOP, CPU_ROLLOUT
from methods.adapters.verl.worker import SIZE_FIELD, PromptLoop
from tests.adapters.verl_cpu import engine  # noqa: F401

SERVER = f"{CPU_ROLLOUT}_server"


@register(AGENT_LOOP)
class CohortLoop(PromptLoop):
    """Loop that sends the server the number of responses to wait for, and the position of this one."""

    def extra(self, row: dict[str, Any]) -> dict[str, Any]:
        return {
            "cohort": int(row[SIZE_FIELD]) * int(self.rollout_config.n),
            "place": (row["uid"], int(row["session_id"])),
        }


class Server:
    """Inference engine with verl's interface. Methods that manage an accelerator's memory do nothing."""

    def __init__(self, base: str, limit: int):
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()
        self.tokenizer = AutoTokenizer.from_pretrained(base, padding_side="left")
        self.limit, self.steps = limit, 0
        self.waiting: list[tuple[list[int], dict[str, Any], asyncio.Future[TokenOutput]]] = []

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any) -> TokenOutput:
        answer: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        self.waiting.append((prompt_ids, sampling_params, answer))
        if len(self.waiting) == sampling_params["cohort"]:
            cohort, self.waiting = sorted(self.waiting, key=lambda request: request[1]["place"]), []
            prompts, params, futures = zip(*cohort, strict=True)
            try:
                outputs = self._sample(prompts, params)
            except Exception as error:
                for future in futures:
                    future.set_exception(error)
            else:
                for future, (tokens, logps) in zip(futures, outputs, strict=True):
                    extra = {"global_steps": self.steps}
                    future.set_result(TokenOutput(token_ids=tokens, log_probs=logps, extra_fields=extra))
        return await answer

    def _sample(
        self, prompts: tuple[list[int], ...], params: tuple[dict[str, Any], ...]
    ) -> list[tuple[list[int], list[float]]]:
        """Return responses with their end token, at most `limit` tokens each, and each token's log-prob.

        Each row draws its random numbers from a separate seed before generation begins.
        """
        seeds = (torch.Generator().manual_seed(each["seed"]) for each in params)
        noise_BT = torch.stack([torch.rand(self.limit, generator=seed, dtype=torch.float64) for seed in seeds])
        steps: list[torch.Tensor] = []  # log-probs (B,) of each step's tokens

        def draw(input_ids: torch.Tensor, scores_BV: torch.Tensor) -> torch.Tensor:
            """Invert the distribution function at each row's random number; greedy search selects that token."""
            # float64: in float32 a sum over the vocabulary would move the boundaries between tokens
            probability_BV = (scores_BV.double() / params[0]["temperature"]).softmax(1)
            below_BV = probability_BV.cumsum(1)
            # Scaled by the last sum, which is not exactly 1 because of rounding; clamped for the same reason.
            u_B = noise_BT[:, len(steps)] * below_BV[:, -1]
            token_B = torch.searchsorted(below_BV, u_B.unsqueeze(1), right=True).clamp(max=below_BV.shape[1] - 1)
            steps.append(probability_BV.gather(1, token_B).log().squeeze(1))
            return torch.full_like(scores_BV, float("-inf")).scatter(1, token_B, 0.0)

        padded = self.tokenizer.pad({"input_ids": list(prompts)}, return_tensors="pt")
        with torch.no_grad():  # not a decorator of `generate`: it would hide the coroutine from Ray
            ids = self.model.generate(
                **padded, do_sample=False, max_new_tokens=self.limit, pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[draw],
            )  # fmt: skip
        eos = self.model.generation_config.eos_token_id
        found = []
        for row, logps in zip(ids[:, padded["input_ids"].shape[1] :].tolist(), torch.stack(steps, 1), strict=True):
            ends = (i + 1 for i, token in enumerate(row) if token in (eos if isinstance(eos, list) else [eos]))
            length = next(ends, len(row))
            found.append((row[:length], logps[:length].tolist()))
        return found

    async def update(self, weights: dict[str, torch.Tensor], steps: int) -> None:
        self.model.load_state_dict(weights)
        self.steps = steps

    async def wake_up(self, **_: Any) -> None: ...

    sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = abort_all_requests = resume_generation = wake_up
    start_profile = stop_profile = wake_up


class Replica(RolloutReplica):
    async def launch_servers(self) -> None:
        # max_concurrency: all requests of a rollout wait inside `generate` until the last one has arrived
        server = ray.remote(Server).options(name=SERVER, num_cpus=1, max_concurrency=10_000)
        self.servers = [server.remote(self.model_config.path, self.config.response_length)]
        self._server_handle, self._server_address = self.servers[0], SERVER
        await self.servers[0].wake_up.remote()  # a failed start raises here


class Adapter(BaseRollout):
    """Part of the training worker that sends the weights after each rollout."""

    async def resume(self, tags: list[str]) -> None: ...

    async def release(self) -> None: ...

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int = 0, **_: Any
    ) -> None:
        state = {name: tensor.detach().float().cpu().clone() for name, tensor in weights}
        await ray.get_actor(SERVER).update.remote(state, global_steps)


RolloutReplicaRegistry.register(CPU_ROLLOUT, lambda: Replica)
_ROLLOUT_REGISTRY[CPU_ROLLOUT, "async"] = f"{__name__}.{Adapter.__qualname__}"
