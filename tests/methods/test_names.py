"""Methods that verl 0.9.1 or TRL 1.16.0 also has, against them; verl and TRL take seconds to import.

docs/notebook/names.md is run: every fenced block is a test, named after its heading. Below are comparisons without a
block; settings that only change a number are left to `test_reference.py`.
"""

import linecache
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from core.provenance import ROOT
from methods import catalog
from tests.methods import oracles
from tests.methods.batches import Fields, assert_same, evaluate, random_fields
from tests.methods.oracles import Answer

SAME = 64 * torch.finfo(torch.float64).eps
BATCHES = {
    "ragged": random_fields(11, longest=12),
    "first": random_fields(12, longest=12, on_policy=True),
    "far": random_fields(13, longest=12, drift=1.5),
}
for fields in BATCHES.values():  # TRL rounds its quantile of entropies to float32, and would leave out that token
    fields["entropy"] = fields["entropy"].float().double()
BATCHES["sampled"] = BATCHES["ragged"] | {"old_logp": BATCHES["ragged"]["sampling_logp"]}
Numbers = list[float]


def ours(key: str, *, batch: str = "ragged") -> Tensor:
    return evaluate(catalog.parse(key), BATCHES[batch])[1]["logp"]


def verl(name: str, *, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.verl(name, BATCHES[batch], **settings)[1]


def trl(*, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.trl(BATCHES[batch], **settings)[1]


def trl_rloo(**settings: Any) -> Tensor:
    return trl(loss_type="", high=0.2, trainer_class="RLOOTrainer", **settings)


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / torch.maximum(a.abs(), b.abs()).max())


def near(a: float, b: float) -> bool:
    return bool(abs(a - b) <= 1e-6 * max(abs(a), abs(b)))  # verl's metrics and scales are float32


def advantage(key: str, *given: Numbers) -> Numbers:
    """given: rewards, groups, perhaps lengths."""
    return catalog.parse(key).advantage(*tensors(*given)).tolist()


def verl_advantage(name: str, *given: Numbers, **settings: Any) -> Numbers:
    return oracles.verl_advantage(name, *tensors(*given), **settings).tolist()


def tensors(rewards: Numbers, *others: Numbers) -> list[Tensor]:
    return [torch.tensor(rewards, dtype=torch.float64), *map(torch.tensor, others)]


def verl_default(name: str) -> Any:
    from verl.workers.config import ActorConfig

    return getattr(ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1), name)


def trl_default(name: str) -> Any:
    from trl import GRPOConfig

    return GRPOConfig.__dataclass_fields__[name].default


GIVEN: dict[str, Any] = {
    f.__name__: f
    for f in (ours, verl, trl, trl_rloo, apart, near, advantage, verl_advantage, verl_default, trl_default)
}
GIVEN |= {"SAME": SAME, "MAX_TOKENS": oracles.MAX_TOKENS, "WIDTH": BATCHES["ragged"]["mask"].shape[1]}


SECTIONS = re.split(r"^## ", (ROOT / "docs/notebook/names.md").read_text("utf-8"), flags=re.MULTILINE)[1:]
BLOCKS = [
    (section.splitlines()[0], code)
    for section in SECTIONS
    for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
]


def test_every_section_of_the_page_is_executable() -> None:
    assert SECTIONS
    assert {heading for heading, _ in BLOCKS} == {section.splitlines()[0] for section in SECTIONS}


@pytest.mark.parametrize(("heading", "code"), BLOCKS)
def test_what_the_page_says_is_so(heading: str, code: str) -> None:
    assert "assert" in code
    name = f"docs/notebook/names.md: {heading}"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # so that a failure shows its line
    exec(compile(code, name, "exec"), dict(GIVEN))


# ---- what has no block ----


def _clip_cov(fields: Fields) -> Answer:
    """verl draws from the global generator: the same seed there as `evaluate` gives ours."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return oracles.verl("clip_cov", fields, low=1.0, high=1.0)


ICEPOP = {"rollout_is": "token", "rollout_is_threshold": "0.5_1.5"}
PAIRS: dict[str, Callable[[Fields], Answer]] = {
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.5": partial(
        oracles.verl, "vanilla", correction=ICEPOP
    ),
    "gpg": partial(oracles.verl, "gpg"),
    "clip_cov": _clip_cov,
    "tepo_kl_all+beta=0.3+kl-estimator=k1": partial(oracles.verl, "gspo", kl="k1", beta=0.3),
    "tepo_kl_all+beta=0.1+kl-anchor=ref": partial(oracles.trl, loss_type="dapo", level="sequence", beta=0.1),
    "tepo_maxent": partial(oracles.trl, loss_type="dapo", level="sequence", entropy_coefficient=1e-3),
    "sapo+tau-neg=3+tau-pos=2": partial(
        oracles.trl, loss_type="sapo", sapo_temperature_pos=2.0, sapo_temperature_neg=3.0
    ),
    "vespo": partial(oracles.trl, loss_type="vespo"),
    "top_entropy": partial(oracles.trl, loss_type="dapo", top_entropy=0.2),
}


@pytest.mark.parametrize("text", PAIRS)
def test_loss_and_gradient_equal_the_oracle(text: str) -> None:
    for name in ("ragged", "first", "far"):
        loss, gradient = PAIRS[text](BATCHES[name])
        assert_same(evaluate(catalog.parse(text), BATCHES[name]), (float(loss), {"logp": gradient}), torch.float64)
