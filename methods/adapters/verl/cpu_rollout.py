"""An inference server for tiny models: one Ray actor with a transformers model, whole rollouts in one batch.

`external_lib` of a run on a CPU: importing it registers the engine for this device, the server, and, by importing
`worker`, what every run needs. Its agent loop replaces `worker`'s, so it must be registered afterwards.

A row's tokens must not depend on the other rows of its batch, but rounding in a batched product does. A batch is
therefore always the same: all responses of one dispatch, in the order of their keys. Each row draws its random
numbers from a separate seed before generation begins.
"""

import asyncio
from collections.abc import Generator
from typing import Any

import ray
import torch
from verl.experimental.agent_loop.agent_loop import register
from verl.workers.engine.base import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead
from verl.workers.rollout.base import _ROLLOUT_REGISTRY, BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

from methods.adapters.verl.config import AGENT_LOOP, CPU_ROLLOUT
from methods.adapters.verl.worker import SIZE_FIELD, PromptLoop
from methods.sampling import check_finite

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
        self.waiting: list[tuple[tuple[str, int], list[int], dict[str, Any], asyncio.Future[TokenOutput]]] = []

    async def generate(
        self, request_id: str, prompt_ids: list[int], sampling_params: dict[str, Any], **_: Any
    ) -> TokenOutput:
        answer: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        self.waiting.append((sampling_params["place"], prompt_ids, sampling_params, answer))
        if len(self.waiting) == sampling_params["cohort"]:
            cohort, self.waiting = sorted(self.waiting, key=lambda request: request[0]), []
            try:
                outputs = self._sample([ids for _, ids, _, _ in cohort], [params for _, _, params, _ in cohort])
            except Exception as error:
                for *_rest, future in cohort:
                    future.set_exception(error)
            else:
                for (*_rest, future), (tokens, logps) in zip(cohort, outputs, strict=True):
                    extra = {"global_steps": self.steps}
                    future.set_result(TokenOutput(token_ids=tokens, log_probs=logps, extra_fields=extra))
        return await answer

    def _sample(self, prompts: list[list[int]], params: list[dict[str, Any]]) -> list[tuple[list[int], list[float]]]:
        """Return responses with their end token, at most `limit` tokens each, and each token's log-prob."""
        padded = self.tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
        noise_BT = torch.stack([_noise(p["seed"], self.limit) for p in params])
        with torch.no_grad():  # not a decorator of `generate`: it would hide the coroutine from Ray
            ids = self.model.generate(
                **padded,
                do_sample=False,
                max_new_tokens=self.limit,
                pad_token_id=self.tokenizer.pad_token_id,
                logits_processor=[draw := _Draw(noise_BT, params[0]["temperature"])],
            )
        eos = self.model.generation_config.eos_token_id
        end_tokens = set(eos if isinstance(eos, list) else [eos])
        responses = [_until(row, end_tokens) for row in ids[:, padded["input_ids"].shape[1] :].tolist()]
        logps = torch.stack(draw.logps, dim=1).tolist()
        return [(tokens, row[: len(tokens)]) for tokens, row in zip(responses, logps, strict=True)]

    async def update(self, weights: dict[str, torch.Tensor], steps: int) -> None:
        self.model.load_state_dict(weights)
        self.steps = steps

    async def wake_up(self, **_: Any) -> None: ...

    sleep = clear_kv_cache = release_kv_cache = resume_kv_cache = abort_all_requests = resume_generation = wake_up
    start_profile = stop_profile = wake_up


class _Draw:
    """Logits processor that inverts the distribution function at the row's random number; greedy search selects it."""

    def __init__(self, noise_BT: torch.Tensor, temperature: float):
        self.noise_BT, self.temperature, self.step = noise_BT, temperature, 0
        self.logps: list[torch.Tensor] = []  # (B,) of each step's tokens

    def __call__(self, input_ids: torch.Tensor, scores_BV: torch.Tensor) -> torch.Tensor:
        # float64: in float32 a sum over the vocabulary would move the boundaries between tokens
        probability_BV = (scores_BV.double() / self.temperature).softmax(1)
        below_BV = probability_BV.cumsum(1)
        # Scaled by the last sum, which is not exactly 1 because of rounding; clamped for the same reason.
        u_B = self.noise_BT[:, self.step] * below_BV[:, -1]
        token_B = torch.searchsorted(below_BV, u_B.unsqueeze(1), right=True).clamp(max=below_BV.shape[1] - 1)
        logp_B1 = probability_BV.gather(1, token_B).log()
        check_finite("verl: sampling", logp_B1, self.step)
        self.step += 1
        self.logps.append(logp_B1.squeeze(1))
        return torch.full_like(scores_BV, float("-inf")).scatter(1, token_B, 0.0)


def _noise(seed: int, length: int) -> torch.Tensor:
    """Return this row's noise, (T,) uniform in [0, 1)."""
    return torch.rand(length, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def _until(tokens: list[int], end_tokens: set[int]) -> list[int]:
    """Return the tokens up to and including the first end token."""
    first = next((i for i, token in enumerate(tokens) if token in end_tokens), len(tokens) - 1)
    return tokens[: first + 1]


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
        self, weights: Generator[tuple[str, torch.Tensor], None, None], global_steps: int = 0, **_: Any
    ) -> None:
        state = {name: tensor.detach().clone() for name, tensor in weights}
        await ray.get_actor(SERVER).update.remote(state, global_steps)


EngineRegistry.register(model_type="language_model", backend=["fsdp2"], device="cpu")(FSDPEngineWithLMHead)
RolloutReplicaRegistry.register(CPU_ROLLOUT, lambda: Replica)
_ROLLOUT_REGISTRY[CPU_ROLLOUT, "async"] = f"{__name__}.{Adapter.__qualname__}"
