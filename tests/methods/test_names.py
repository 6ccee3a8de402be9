"""docs/notebook/names.md, run: every fenced block is a test, named after its heading."""

import linecache
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from core.provenance import ROOT
from methods import catalog
from methods.parts import corrections
from tests.methods import oracles
from tests.methods.batches import evaluate, random_fields

SAME = 64 * torch.finfo(torch.float64).eps
BATCHES = {
    "ragged": random_fields(11, longest=12),
    "first": random_fields(12, longest=12, on_policy=True),
    "far": random_fields(13, longest=12, drift=1.5),
}
BATCHES["sampled"] = BATCHES["ragged"] | {"old_logp": BATCHES["ragged"]["sampling_logp"]}
Numbers = list[float]


def ours(key: str, *, batch: str = "ragged") -> Tensor:
    return evaluate(catalog.parse(key), BATCHES[batch])[1]["logp"]


def verl(name: str, *, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.verl(name, BATCHES[batch], **settings)[1]


def trl(*, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.trl(BATCHES[batch], **settings)[1]


def trl_rloo(*, batch: str = "ragged") -> Tensor:
    return oracles.trl_rloo(BATCHES[batch])[1]


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


# Settings in the text of the page, that have no block of their own.


def test_bounds_are_those_of_verls_presets() -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig as Preset

    assert Preset.decoupled_token_is().rollout_is_threshold == 2.0  # tis
    assert Preset.decoupled_seq_is().rollout_is_threshold == 2.0  # seq-tis
    assert Preset.decoupled_token_icepop().rollout_is_threshold == "0.5_5.0"  # icepop
    assert Preset.decoupled_seq_is_rs().rollout_rs_threshold == "0.5_2.0"  # seq-rs
    assert Preset.decoupled_geo_rs().rollout_rs_threshold == "0.999_1.001"  # geo-rs
    for kind, (_, _, cap, floor) in corrections.KINDS.items():  # a folder's name cannot mean two bounds
        method = catalog.parse(f"grpo+correction={kind}")
        assert (method.params["correction-cap"], method.params["correction-floor"]) == (cap, floor), kind
        other = catalog.parse(f"grpo+correction={kind}+correction-cap=1.2+correction-floor=none")
        assert (other.params["correction-floor"], other.key == method.key) == (None, False)
    preset = Preset.decoupled_geo_rs_token_tis()
    given = {name: getattr(preset, name) for name in ("rollout_is", "rollout_is_threshold", "rollout_rs")}
    # of 1/rho; with verl's own bounds no response of this batch is left
    given["rollout_rs_threshold"] = f"{1 / 1.2}_{1 / 0.85}"
    ours_ = "grpo+correction=tis+rejection=geo-rs+rejection-cap=1.2+rejection-floor=0.85"
    totals = {"batch_num_tokens": int(BATCHES["ragged"]["mask"].sum())}
    assert apart(verl("vanilla", correction=given, totals=totals), ours(ours_)) < SAME
    assert apart(ours("grpo+correction=tis"), ours(ours_)) > 0.1
