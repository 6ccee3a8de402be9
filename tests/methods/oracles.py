"""Two foreign implementations of the same losses: verl 0.9.1 and TRL 1.16.0, each called as its own trainer calls it.

Neither is trusted blindly; what each does by default and we do not want is switched off here, in the open:
verl's `vanilla` clips A < 0 a second time at ratio 3 (`dual_clip`), its cov losses take their fractions from
`PolicyLossConfig` whose defaults are not the papers', `gspo` honours the reducer only since 0.9.1; TRL's cispo bound is
absolute, its KL goes to the initial model and is multiplied by the ratio unless `use_bias_correction_kl` is off, its
token normaliser spans the generation batch. Its loss is a private call: `test_names.py` pins it.
"""

import inspect
import math
import os
import textwrap
from collections import defaultdict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from tests.methods.batches import MAX_TOKENS, Fields

Answer = tuple[Tensor, Tensor]  # loss, its gradient by logp (B, T)
OFF = 1e9


def _answer(loss: Tensor, leaf: Tensor) -> Answer:
    (gradient,) = torch.autograd.grad(loss, leaf)
    return loss.detach(), gradient


def verl(
    name: str,
    fields: Fields,
    *,
    reduce: str = "token-mean",
    low: float = 0.2,
    high: float = 0.28,
    dual_clip: float = OFF,
    kl: str | None = None,
    anchor: str = "old_logp",
    beta: float = 0.0,
    totals: dict[str, int] | None = None,
    correction: Mapping[str, Any] | None = None,
    **policy: Any,
) -> Answer:
    """verl's policy loss `name`, plus beta * its KL loss of kind `kl` to `anchor`, as its actor adds them.

    totals: `batch_num_tokens` / `global_batch_size` when `fields` is one micro-batch of a larger minibatch.
    correction: `rollout_is` and its threshold, as in `algorithm.rollout_correction`.
    """
    from verl.trainer.ppo import rollout_corr_helper as helper
    from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    actor = {name: policy.pop(name) for name in ("tau_pos", "tau_neg") if name in policy}
    config = ActorConfig(
        **actor,
        strategy="fsdp",
        rollout_n=8,
        ppo_micro_batch_size_per_gpu=1,
        clip_ratio=low,
        clip_ratio_low=low,
        clip_ratio_high=high,
        clip_ratio_c=dual_clip,
        policy_loss=PolicyLossConfig(loss_mode=name, **policy),
    )
    # read by seq-mean-token-sum-norm alone, which would otherwise divide by the width of the micro-batch at hand
    config.global_batch_info.update({"loss_scale_factor": MAX_TOKENS} | (totals or {}))
    mask = fields["mask"].to(fields["logp"].dtype)
    advantage = fields["advantage"][:, None] * mask
    log_ratio, weights, given = fields["old_logp"] - fields["sampling_logp"], None, correction or {}
    if (kind := given.get("rollout_is")) is not None:
        bounds = given.get("rollout_is_threshold", 2.0)
        weights, _ = helper.compute_rollout_correction_weights(log_ratio, mask, kind, bounds)
    leaf = fields["logp"].detach().clone().requires_grad_()
    loss, _ = get_policy_loss_fn(name)(
        old_log_prob=fields["old_logp"],
        log_prob=leaf,
        advantages=advantage,
        response_mask=mask,
        loss_agg_mode=reduce,
        config=config,
        rollout_is_weights=weights,
    )
    if kl is not None:
        terms = kl_penalty(leaf, fields[anchor], kl)
        loss = loss + beta * agg_loss(terms, mask, reduce, **config.global_batch_info)
    return _answer(loss, leaf)


def trl_correction(fields: Fields, mask: Tensor, mode: str, clip_max: float | None, clip_min: float | None) -> Tensor:
    """TRL's importance sampling ratio, (B, T) or (B, 1): the lines of its sampling that compute it, run as they are.

    They stand in the middle of a function that samples. `test_names.py` pins the names that they read.
    """
    from trl.trainer.grpo_trainer import GRPOTrainer

    lines = inspect.getsource(GRPOTrainer._generate_and_score_completions).splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("per_token_logps_diff = ("))
    last = next(
        i for i in range(first, len(lines)) if "Compute the per-token log probabilities for the ref" in lines[i]
    )
    names: dict[str, Any] = {
        "self": SimpleNamespace(
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_max=clip_max,
            vllm_importance_sampling_clip_min=clip_min,
        ),
        "old_per_token_logps": fields["old_logp"],
        "sampling_per_token_logps": fields["sampling_logp"],
        "mask": mask,
        "torch": torch,
        "math": math,
    }
    exec(textwrap.dedent("\n".join(lines[first:last])), names)
    ratio: Tensor = names["vllm_importance_sampling_ratio"]
    return ratio


def verl_advantage(name: str, reward: Tensor, group: Tensor, lengths: Tensor | None = None, **settings: Any) -> Tensor:
    """(B,) advantage of verl's estimator `name` for outcome rewards (B,), which stand at the last token."""
    from verl.trainer.config import AlgoConfig
    from verl.trainer.ppo.core_algos import get_adv_estimator_fn

    lengths = torch.ones_like(group) if lengths is None else lengths
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    last = torch.arange(int(lengths.max())) == lengths[:, None] - 1
    if name == "reinforce_plus_plus":  # the one that needs a configuration; the others do not read theirs
        settings["config"] = AlgoConfig(gamma=1.0)
    out, _ = get_adv_estimator_fn(name)(
        token_level_rewards=last * reward[:, None], response_mask=mask.to(reward.dtype), index=group.numpy(), **settings
    )
    assert bool((out == torch.where(mask, out[:, :1], 0)).all()), "one number per response"
    return out[:, 0]


def trl(
    fields: Fields,
    *,
    loss_type: str,
    level: str = "token",
    low: float = 0.2,
    high: float = 0.28,
    beta: float = 0.0,
    bias_corrected_kl: bool = False,
    entropy_coefficient: float = 0.0,
    top_entropy: float = 1.0,
    trainer_class: str = "GRPOTrainer",
    mode: str | None = None,
    clip_max: float | None = 3.0,
    clip_min: float | None = None,
    **arguments: Any,
) -> Answer:
    """The `_compute_loss` of a trainer of TRL, unbound.

    mode: `vllm_importance_sampling_mode` with its bounds, None: no correction. RLOOTrainer: at its default clip, 0.2.
    arguments: of `GRPOConfig`, for what the losses of few types read; TRL's defaults otherwise.
    """
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")  # read when its experimental part is imported
    from trl import GRPOConfig
    from trl.experimental.gmpo import GMPOTrainer
    from trl.trainer.grpo_trainer import GRPOTrainer
    from trl.trainer.rloo_trainer import RLOOTrainer

    defaults = {f.name: f.default for f in GRPOConfig.__dataclass_fields__.values()}
    few = {name: defaults[name] for name in defaults if name.startswith(("sapo_", "vespo_"))}

    logp = fields["logp"].detach().clone().requires_grad_()
    trainer = SimpleNamespace(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logp, fields["entropy"], None),
        _entropy_bonus_enabled=entropy_coefficient != 0,
        _metrics={"train": defaultdict(list)},
        accelerator=SimpleNamespace(
            num_processes=1,
            sync_gradients=True,
            gather=lambda x: x,
            gather_for_metrics=lambda x: x,
            reduce=lambda x, reduction: x,
            pad_across_processes=lambda x, **_: x,
        ),
        args=SimpleNamespace(
            use_bias_correction_kl=bias_corrected_kl, delta=None, steps_per_generation=1, **few | arguments
        ),
        get_gamma_weights=GRPOTrainer.get_gamma_weights,
        aux_loss_enabled=False,
        beta=beta,
        current_gradient_accumulation_steps=1,
        entropy_coef=entropy_coefficient,
        epsilon_high=high,
        epsilon_low=low,
        importance_sampling_level=level,
        loss_type=loss_type,
        max_completion_length=MAX_TOKENS,
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        router_aux_loss_coef=0.0,
        top_entropy_quantile=top_entropy,
        use_adaptive_entropy=False,
        use_vllm=mode is not None,
        vllm_importance_sampling_correction=mode is not None,
    )
    trainer.get_high_entropy_mask = lambda *given: GRPOTrainer.get_high_entropy_mask(trainer, *given)
    mask = fields["mask"].to(fields["logp"].dtype)
    ids = torch.zeros(mask.shape, dtype=torch.long)
    inputs = {
        "prompt_ids": ids[:, :1],
        "prompt_mask": ids[:, :1] + 1,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": fields["advantage"],
        "old_per_token_logps": fields["old_logp"],
        "old_logps": (fields["old_logp"] * mask).sum(1),  # RLOO's
        "ref_per_token_logps": fields["ref_logp"],
        "num_items_in_batch": mask.sum(),
    }
    if mode is not None:
        inputs["importance_sampling_ratio"] = trl_correction(fields, mask, mode, clip_max, clip_min)
    trainers: dict[str, Any] = {"GRPOTrainer": GRPOTrainer, "GMPOTrainer": GMPOTrainer, "RLOOTrainer": RLOOTrainer}
    return _answer(trainers[trainer_class]._compute_loss(trainer, None, inputs), logp)
