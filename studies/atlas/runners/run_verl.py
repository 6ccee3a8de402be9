"""verl's policy losses and advantage estimators, with the defaults of its actor configuration."""

from __future__ import annotations

import inspect
from pathlib import Path

import torch
import verl
from common import Answers, estimate, expanded, plain
from omegaconf import OmegaConf
from verl.trainer.ppo import core_algos

NAMES = {
    "vanilla": "GRPO", "gspo": "GSPO", "cispo": "CISPO", "sapo": "SAPO", "geo_mean": "GMPO", "gpg": "GPG",
    "clip_cov": "Clip-Cov", "kl_cov": "KL-Cov", "dppo_tv": "DPPO-TV", "dppo_kl": "DPPO-KL", "dro": "DRO",
}  # fmt: skip
ESTIMATORS = {
    "grpo": "advantage: GRPO", "rloo": "advantage: RLOO", "opo": "advantage: OPO", "gpg": "advantage: GPG",
    "reinforce_plus_plus": "advantage: REINFORCE++", "reinforce_plus_plus_baseline": "advantage: REINFORCE++ baseline",
}  # fmt: skip


def actor():
    """The actor's settings as a user gets them: the class where there is one, the shipped YAML before that."""
    try:
        from verl.workers.config import ActorConfig

        return ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1)
    except ImportError:
        return OmegaConf.load(Path(verl.__file__).parent / "trainer/config/actor/actor.yaml")


def registered(name):
    def call(fields, leaf):
        config = actor()
        advantage, mask = expanded(fields, leaf.dtype)
        function = core_algos.get_policy_loss_fn(name)
        words = {"old_log_prob": fields["old_logp"], "log_prob": leaf, "advantages": advantage, "response_mask": mask}
        words |= {"config": config, "loss_agg_mode": config.loss_agg_mode}
        # the mode as a user sets it; older versions hold a plain YAML node
        (setattr if OmegaConf.is_config(config) else object.__setattr__)(config.policy_loss, "loss_mode", name)
        torch.manual_seed(0)  # Clip-Cov draws tokens
        return function(**{k: v for k, v in words.items() if k in inspect.signature(function).parameters})[0]

    return call


def unregistered_ppo(fields, leaf):
    """Before the registry held it: the function that the actor called for PPO and GRPO."""
    config = actor()
    advantage, mask = expanded(fields, leaf.dtype)
    return core_algos.compute_policy_loss(
        old_log_prob=fields["old_logp"], log_prob=leaf, advantages=advantage, response_mask=mask,
        cliprange=config.clip_ratio, cliprange_low=config.clip_ratio_low, cliprange_high=config.clip_ratio_high,
        clip_ratio_c=config.clip_ratio_c, loss_agg_mode=config.loss_agg_mode,
    )[0]  # fmt: skip


def estimator(name):
    def call(fields, leaf):
        config = OmegaConf.create({"gamma": 1.0, "lam": 1.0})
        return estimate(core_algos.get_adv_estimator_fn(name), fields, leaf, config=config)

    return call


answers = Answers()
registry = getattr(core_algos, "POLICY_LOSS_REGISTRY", {})
settings = actor()
READ = ("clip_ratio", "clip_ratio_low", "clip_ratio_high", "clip_ratio_c", "loss_agg_mode")
shown = {key: plain(getattr(settings, key)) for key in READ}
if "vanilla" not in registry:
    answers.add("GRPO", "core_algos.compute_policy_loss", shown, unregistered_ppo)
for key, name in NAMES.items():
    if key in registry:
        policy = getattr(settings, "policy_loss", {})
        policy = dict(policy) if OmegaConf.is_config(policy) else getattr(policy, "__dict__", {})
        own = {k: plain(v) for k, v in policy.items() if k.startswith((key, *key.split("_"), "tau"))}
        answers.add(name, core_algos.get_policy_loss_fn(key).__name__, shown | own, registered(key))
for key, name in ESTIMATORS.items():
    if key in map(str, getattr(core_algos, "ADV_ESTIMATOR_REGISTRY", {})):
        answers.add(name, core_algos.get_adv_estimator_fn(key).__name__, {}, estimator(key))
answers.write()
