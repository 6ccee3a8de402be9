"""OpenRLHF's `PolicyLoss`. Only its loss module is loaded: the package's start imports engines that a CPU lacks."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import types
from pathlib import Path

from common import Answers, expanded, plain

folder = Path(importlib.util.find_spec("openrlhf").origin).parent
for name in ("deepspeed", "flash_attn", "flash_attn.bert_padding"):
    sys.modules.setdefault(name, types.ModuleType(name))
package = types.ModuleType("openrlhf.models")
package.__path__ = [str(folder / "models")]  # so that `from .utils import` finds the file, without __init__.py
sys.modules["openrlhf.models"] = package
loss_module = importlib.import_module("openrlhf.models.loss")
PolicyLoss = loss_module.PolicyLoss
DEFAULTS = {k: plain(p.default) for k, p in inspect.signature(PolicyLoss).parameters.items()}


def loss(**changes):
    def call(fields, leaf):
        advantage, mask = expanded(fields, leaf.dtype)
        return PolicyLoss(**changes)(leaf, fields["old_logp"], advantage, action_mask=mask)[0]

    return call


answers = Answers()
answers.add("GRPO", "openrlhf.models.loss.PolicyLoss", DEFAULTS, loss())
answers.add(
    "GSPO", "openrlhf.models.loss.PolicyLoss", DEFAULTS | {"policy_loss_type": "gspo"}, loss(policy_loss_type="gspo")
)
answers.write()
