"""SkyRL's registered policy losses and advantage estimators, with the defaults of its `AlgorithmConfig`."""

from __future__ import annotations

import typing

import torch
import typing_extensions
from common import Answers, estimate, expanded, plain

typing.TypedDict = typing_extensions.TypedDict  # its Tinker types want Python 3.12's
from skyrl.backends.skyrl_train.utils import ppo_utils  # noqa: E402
from skyrl.train.config.config import AlgorithmConfig  # noqa: E402

NAMES = {"regular": "GRPO", "gspo": "GSPO", "cispo": "CISPO", "sapo": "SAPO", "dppo": "DPPO-TV"}
NAMES |= {"clip_cov": "Clip-Cov", "kl_cov": "KL-Cov"}
ESTIMATORS = {"grpo": "advantage: GRPO", "rloo": "advantage: RLOO", "maxrl": "advantage: MaxRL"}
ESTIMATORS |= {"reinforce++": "advantage: REINFORCE++"}
READ = ("eps_clip_low", "eps_clip_high", "clip_ratio_c", "loss_reduction", "policy_loss_type", "cispo", "sapo", "dppo")
READ += ("clip_cov", "kl_cov")


def loss(kind):
    def call(fields, leaf):
        config = AlgorithmConfig(policy_loss_type=kind)
        advantage, mask = expanded(fields, leaf.dtype)
        # as its trainer does: the reduction is in the advantages, the loss is a sum
        advantage = ppo_utils.apply_loss_reduction_to_advantages_minibatch(
            advantage, mask, config.loss_reduction, len(mask), mask.shape[1]
        )
        torch.manual_seed(0)
        function = ppo_utils.PolicyLossRegistry.get(kind)
        return function(leaf, fields["old_logp"], advantage, config=config, loss_mask=mask)[0]

    return call


def estimator(kind):
    def call(fields, leaf):
        function = ppo_utils.AdvantageEstimatorRegistry.get(kind)
        words = {"values": None, "config": AlgorithmConfig(), "grpo_norm_by_std": True, "lambd": 1.0, "gamma": 1.0}
        return estimate(function, fields, leaf, **words)

    return call


answers = Answers()
settings = AlgorithmConfig()
for key, name in NAMES.items():
    if key in ppo_utils.PolicyLossRegistry.list_available():
        shown = {k: plain(getattr(settings, k)) for k in READ[:4]}
        own = vars(getattr(settings, key, object))
        shown |= {f"{key}.{n}": plain(v) for n, v in own.items() if n[0] != "_"}
        answers.add(name, ppo_utils.PolicyLossRegistry.get(key).__name__, shown, loss(key))
for key, name in ESTIMATORS.items():
    if key in ppo_utils.AdvantageEstimatorRegistry.list_available():
        answers.add(name, ppo_utils.AdvantageEstimatorRegistry.get(key).__name__, {}, estimator(key))
answers.write()
