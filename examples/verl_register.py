"""Register the catalog's losses and advantages in verl, for verl's `main_ppo` (written for verl 0.9.1).

    PYTHONPATH=examples python -m verl.trainer.main_ppo \\
        actor_rollout_ref.model.external_lib=verl_register \\
        actor_rollout_ref.actor.policy_loss.loss_mode=tepo_bench/gspo algorithm.adv_estimator=tepo_bench/gspo ...

verl imports `external_lib` in its driver and in every worker, and this import registers the catalog's keys. For a
method with options, pass your own module instead: `import verl_register`, `verl_register.register("gspo+high=0.3")`.

verl passes log-probs, advantages and the response mask to a policy loss: enough for GRPO/DAPO, GSPO, CISPO, GPG,
Clip-Cov, KL-Cov, prefix IS, TEPO without KL, and most of the others. It does not pass entropies: TEPO as published is
refused, while `tepo+dh-def=cov_sign` and `tepo+dh-def=theorem` infer the sign of the entropy's change without measuring
it. Nor does it pass the reference model's log-probs, whole distributions or prompt groups. Methods that need those are
refused in one line, at the first rollout.

Not read: `clip_ratio*` and `policy_loss.*` (a key's options take their place). verl's terms still add to the loss:
leave `entropy_coeff` and `use_kl_loss` off. Dr. GRPO divides by `actor.loss_scale_factor`: set it to the response
length.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import ADV_ESTIMATOR_REGISTRY, register_adv_est, register_policy_loss

import tepo_bench


def check(method: tepo_bench.Method) -> None:
    """Raise `ConfigError` for a method that needs more than verl passes."""
    missing = sorted(method.needs - {"max_tokens"})
    if method.parts.reduce.name == "token_mean_group":
        missing.append("whole prompt groups")
    if missing:
        raise tepo_bench.ConfigError(
            f"verl: {method.key}: needs {', '.join(missing)}, which verl hands to no policy loss"
        )


def register(key: str) -> str:
    """Register a method's loss and advantage; return the name, `tepo_bench/<key>`, for both in verl."""
    method = tepo_bench.parse(key)
    name = f"tepo_bench/{method.key}"
    if name in ADV_ESTIMATOR_REGISTRY:  # verl refuses a second function under one name
        return name
    draws = torch.Generator().manual_seed(0)  # Clip-Cov selects tokens at random

    @register_adv_est(name)
    def advantage(token_level_rewards: Tensor, response_mask: Tensor, index: Any, **_: Any) -> tuple[Tensor, Tensor]:
        """Return advantages and returns, (B, T) each; `index` (B,): ids of the prompts. Padding rows get 0."""
        check(method)
        real_B = response_mask.bool().any(1)
        group_B = torch.from_numpy(np.unique(np.asarray(index, dtype=str), return_inverse=True)[1])
        advantage_B = token_level_rewards.new_zeros(len(real_B))
        advantage_B[real_B] = method.advantage(
            token_level_rewards.sum(1)[real_B], group_B[real_B], response_mask.sum(1)[real_B]
        )
        advantage_BT = advantage_B.unsqueeze(1) * response_mask
        return advantage_BT, advantage_BT

    @register_policy_loss(name)
    def policy_loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, float]]:
        """Return loss and metrics of one micro-batch, inputs (B, T). Micro-batch losses are summed, ranks averaged."""
        check(method)
        if loss_agg_mode != "token-mean":  # verl's default
            raise tepo_bench.ConfigError(f"verl: loss_agg_mode: {loss_agg_mode!r} is not read; allowed: token-mean")
        if rollout_is_weights is not None:
            raise tepo_bench.ConfigError("verl: rollout_correction.rollout_is: its weights are not read; allowed: null")
        mask = response_mask.bool()
        batch = tepo_bench.Batch(
            logp=log_prob,
            old_logp=old_log_prob,
            advantage=advantages,  # (B, T): any of verl's estimators, also one that differs between tokens
            mask=mask,
            group=torch.arange(len(mask), device=mask.device),  # verl passes no groups; no accepted method reads them
            dropped=~mask.any(1),
            max_tokens=config.loss_scale_factor,
            label=name,
        )
        whole = config.global_batch_info  # of the minibatch, over all ranks; empty until verl has filled it
        ranks = whole.get("dp_size", 1)
        counts = {"tokens": whole.get("batch_num_tokens"), "sequences": whole.get("global_batch_size")}
        # None: the counts of this micro-batch, as in verl
        shares = {name: None if count is None else count / ranks for name, count in counts.items()}
        loss = method.loss(batch, **shares, generator=draws)
        metrics = {f"tepo_bench/{metric}": value for metric, value in method.diagnostics(batch).items()}
        return loss, {metric: value for metric, value in metrics.items() if value is not None}

    return name


for _key in tepo_bench.catalog.entries():
    register(_key)
