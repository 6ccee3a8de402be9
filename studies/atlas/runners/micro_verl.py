"""verl's own update of the actor: `DataParallelPPOActor.update_policy` where there is one, else the FSDP engine's
`train_batch` with `ppo_loss`.

Ours: the rows, a policy that is a table of logits by the word before, DistributedDataParallel in place of FSDP (both
average gradients over ranks), and reading the gradient in place of the optimizer's step. Sizes are given as verl's
worker gives them: a rank's minibatch is the whole one over the ranks.
"""

from __future__ import annotations

import os
from functools import partial
from types import SimpleNamespace

import torch
from common import COPIES, LONGEST, PROMPTS, VOCABULARY, response, reward_of, run
from tensordict import TensorDict
from torch.nn.utils.rnn import pad_sequence
from verl.workers.config import ActorConfig

try:
    from verl.workers.actor import dp_actor
except ImportError:  # from 0.8.0 on the engine is the only one
    dp_actor = None

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
ROWS = PROMPTS * COPIES
torch.distributed.init_process_group("gloo")


class Policy(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(VOCABULARY, VOCABULARY, generator=torch.Generator().manual_seed(0),
                                                    dtype=torch.float64))  # fmt: skip

    def forward(self, before, words):
        return self.table.log_softmax(-1)[before, words]


def rows(everywhere=False):
    """Prompt word, response and advantage of this rank's rows, or of all; groups are whole."""
    found = []
    for prompt in range(PROMPTS):
        rewards = torch.tensor([reward_of(response(prompt, copy)) for copy in range(COPIES)], dtype=torch.float64)
        advantages = (rewards - rewards.mean()) / (rewards.std() + 1e-6)
        found += [(prompt, response(prompt, copy), float(advantages[copy])) for copy in range(COPIES)]
    return found if everywhere else found[RANK * ROWS // RANKS : (RANK + 1) * ROWS // RANKS]


def columns(found):
    words = [torch.tensor(words) for _, words, _ in found]
    before = [torch.tensor([prompt, *words[:-1]]) for prompt, words, _ in found]
    masks = [torch.ones(len(words)) for _, words, _ in found]
    advantages = [torch.full((len(words),), advantage, dtype=torch.float64) for _, words, advantage in found]
    old = [Policy()(a, b).detach() for a, b in zip(before, words, strict=True)]
    fields = {"before": before, "responses": words, "response_mask": masks}
    return {**fields, "advantages": advantages, "old_log_probs": old}


def configuration(micro, loss_mode="vanilla", **changes):
    """The actor's settings, as a user gets them."""
    sizes = {"ppo_mini_batch_size": ROWS // RANKS, "ppo_micro_batch_size_per_gpu": micro, "use_dynamic_bsz": False}
    config = ActorConfig(strategy="fsdp", rollout_n=COPIES, **sizes, **changes)
    object.__setattr__(config.policy_loss, "loss_mode", loss_mode)
    return config


def by_actor(module, config, read, found):
    from verl import DataProto

    dp_actor.get_device_id = lambda: "cpu"

    class Actor(dp_actor.DataParallelPPOActor):
        def __init__(self):
            self.config, self.actor_module, self.scaler = config, module, None
            self.ulysses_sequence_parallel_size, self.use_prefix_grouper = 1, False
            self.actor_optimizer = SimpleNamespace(zero_grad=module.zero_grad)

        def _forward_micro_batch(self, micro_batch, temperature, calculate_entropy=False, **_):
            return {"log_probs": self.actor_module(micro_batch["input_ids"], micro_batch["responses"])}

        def _optimizer_step(self):
            read()
            return torch.zeros(())

    # the trainer pads the rows of all ranks to one width
    padded = {key: pad_sequence([*value, value[0].new_zeros(LONGEST)], batch_first=True)[:-1]
              for key, value in columns(found).items()}  # fmt: skip
    padded["input_ids"] = padded.pop("before")
    padded["attention_mask"] = padded["position_ids"] = padded["response_mask"]
    Actor().update_policy(DataProto.from_dict(padded, meta_info={"temperature": 1.0}))


def by_engine(module, micro, read, found, loss, **extra):
    """extra: fields of the batch beyond verl's own."""
    from verl.utils.tensordict_utils import assign_non_tensor
    from verl.workers.engine.fsdp import transformer_impl

    transformer_impl.get_device_id = lambda: "cpu"

    class Engine(transformer_impl.FSDPEngineWithLMHead):
        def __init__(self):
            self.module, self.ulysses_sequence_parallel_size = module, 1
            self.engine_config = SimpleNamespace(use_no_sync_for_gradient_accumulation=False)

        get_data_parallel_group = lambda self: torch.distributed.group.WORLD  # noqa: E731
        get_data_parallel_size = lambda self: RANKS  # noqa: E731
        is_mp_src_rank_with_outputs = lambda self: False  # noqa: E731
        optimizer_zero_grad = lambda self: module.zero_grad()  # noqa: E731
        optimizer_step = lambda self: read()  # noqa: E731

        def forward_step(self, micro_batch, loss_function, forward_only):
            words = micro_batch["responses"]
            logp = self.module(micro_batch["before"].values(), words.values()).split(words.offsets().diff().tolist())
            # the place of a word's log-probability is that of the word before; the last place is not read
            nested = nested_of([torch.cat([row, row.new_zeros(1)]) for row in logp])
            output = {"log_probs": nested, "entropy": -nested.detach()}
            value, _ = loss_function(model_output=output, data=micro_batch, dp_group=self.get_data_parallel_group())
            return value, {"model_output": {}, "loss": value.item(), "metrics": {}}

    cells = columns(found)
    cells |= {"prompts": [row[:1] for row in cells["before"]], "loss_mask": cells["response_mask"]}
    cells |= {"entropy": [-row for row in cells["old_log_probs"]], **extra}
    data = TensorDict({key: nested_of(value) for key, value in cells.items()}, batch_size=len(found))
    sizes = {"global_batch_size": ROWS, "use_dynamic_bsz": False, "micro_batch_size_per_gpu": micro, "global_steps": 1}
    assign_non_tensor(data, **sizes)
    Engine().train_batch(data, loss)


def by_verls_engine(module, config, read, found):
    from verl.workers.utils.losses import ppo_loss

    by_engine(module, config.ppo_micro_batch_size_per_gpu, read, found, partial(ppo_loss, config=config))


def nested_of(values):
    return torch.nested.as_nested_tensor(values, layout=torch.jagged)


def reduced(update):
    """The gradient that the update reads at the optimizer's step."""
    policy, seen = Policy(), []
    update(torch.nn.parallel.DistributedDataParallel(policy), lambda: seen.append(policy.table.grad.flatten().clone()))
    (value,) = seen
    return value


def gradient(accumulation, **changes):
    config = configuration(ROWS // RANKS // accumulation, **changes)
    update = by_actor if dp_actor else by_verls_engine
    return reduced(lambda module, read: update(module, config, read, rows()))


MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm")
NAMES = {"GSPO": "gspo", "CISPO": "cispo", "SAPO": "sapo", "GMPO": "geo_mean", "GPG": "gpg"}
if __name__ == "__main__":
    losses = {f"GRPO, {mode}": {"loss_agg_mode": mode} for mode in MODES}
    run(losses | {name: {"loss_mode": mode} for name, mode in NAMES.items()}, gradient)
