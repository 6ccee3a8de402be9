"""TRL's `GRPOTrainer._compute_loss`, with `GRPOConfig`'s defaults."""

from __future__ import annotations

import dataclasses
import inspect
from collections import defaultdict
from types import SimpleNamespace

import torch
from common import Answers, plain
from trl import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer

READ = ("epsilon", "epsilon_high", "beta", "loss_type", "importance_sampling_level", "delta", "scale_rewards",
        "use_bias_correction_kl", "top_entropy_quantile", "mask_truncated_completions",
        "vllm_importance_sampling_correction", "sapo_temperature_pos", "sapo_temperature_neg",
        "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg")  # fmt: skip
DEFAULTS = {
    field.name: None if field.default is dataclasses.MISSING else field.default
    for field in dataclasses.fields(GRPOConfig)
}
SOURCE = inspect.getsource(GRPOTrainer._compute_loss)
# Later versions return a third value, and `sampling` fields exist only in some: asked of the source, not of a version.
THREE = "entropies, aux_loss" in SOURCE or ", _ = self._get_per_token_logps" in SOURCE


class Trainer(SimpleNamespace):
    """Only what the loss reads; what this version has and the loss does not need here is None."""

    def __getattr__(self, name: str) -> None:
        return None


def trainer(width: int, logp, entropy, **changes):
    settings = {**DEFAULTS, **changes}
    answer = (logp, entropy, None) if THREE else (logp, entropy)
    settings["epsilon_low"] = settings["epsilon"]
    if settings["epsilon_high"] is None:
        settings["epsilon_high"] = settings["epsilon"]
    return Trainer(
        **{name: settings.get(name) for name in (*READ, "epsilon_low")},
        args=SimpleNamespace(**{**settings, "steps_per_generation": 1}),
        _get_per_token_logps_and_entropies=lambda *_, **__: answer,
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list), "eval": defaultdict(list)},
        accelerator=SimpleNamespace(
            num_processes=1, sync_gradients=True, gather=lambda x: x, gather_for_metrics=lambda x: x,
            reduce=lambda x, reduction=None: x, device=torch.device("cpu"),
        ),
        aux_loss_enabled=False,
        current_gradient_accumulation_steps=1,
        entropy_coef=0.0,
        max_completion_length=width,
        model=SimpleNamespace(training=True),
        router_aux_loss_coef=0.0,
        use_adaptive_entropy=False,
        use_vllm=False,
        use_liger_loss=False,
        get_off_policy_mask=getattr(GRPOTrainer, "get_off_policy_mask", None),
        get_sapo_token_loss=getattr(GRPOTrainer, "get_sapo_token_loss", None),
        get_gamma_weights=getattr(GRPOTrainer, "get_gamma_weights", None),
    )  # fmt: skip


def loss(**changes):
    def call(fields, leaf):
        mask = fields["mask"].to(leaf.dtype)
        ids = torch.zeros(mask.shape, dtype=torch.long)
        inputs = {
            "prompt_ids": ids[:, :1],
            "prompt_mask": ids[:, :1] + 1,
            "completion_ids": ids,
            "completion_mask": mask,
            "advantages": fields["advantage"],
            "old_per_token_logps": fields["old_logp"],
            "ref_per_token_logps": fields["ref_logp"],
            "num_items_in_batch": mask.sum(),
        }
        return GRPOTrainer._compute_loss(trainer(mask.shape[1], leaf, fields["entropy"], **changes), None, inputs)

    return call


answers = Answers()
where = "GRPOTrainer._compute_loss"
# Names as TRL's documentation uses them: the loss type, and GSPO as the sequence level with GRPO's reducer.
NAMES = {
    "default": {},
    "GRPO": {"loss_type": "grpo"},
    "GRPO, KL 0.04": {"loss_type": "grpo", "beta": 0.04},
    "DAPO": {"loss_type": "dapo"},
    "BNPO": {"loss_type": "bnpo"},
    "Dr. GRPO": {"loss_type": "dr_grpo"},
    "GSPO": {"loss_type": "grpo", "importance_sampling_level": "sequence"},
    "CISPO": {"loss_type": "cispo"},
    "SAPO": {"loss_type": "sapo"},
    "LUSPO": {"loss_type": "luspo", "importance_sampling_level": "sequence"},
    "VESPO": {"loss_type": "vespo"},
}
for name, changes in NAMES.items():
    kind = changes.get("loss_type")
    if kind is None or f'"{kind}"' in SOURCE or f"'{kind}'" in SOURCE:
        shown = {key: plain({**DEFAULTS, **changes}.get(key)) for key in READ if key in DEFAULTS}
        answers.add(name, where, shown, loss(**changes))
answers.write()
