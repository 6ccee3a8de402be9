"""docs/names.md, run: every fenced block is a test, named after its heading; settings in its text are tested below."""

from __future__ import annotations

import linecache
import re
from typing import Any

import pytest
import torch
from torch import Tensor

from core.provenance import ROOT
from methods import catalog
from methods.batch import Batch
from tests.methods import oracles
from tests.methods.batches import Fields, random_fields, rows
from tests.methods.subjects import batch_of

SAME = 64 * torch.finfo(torch.float64).eps
BATCHES = {
    "ragged": random_fields(11, longest=12),
    "first": random_fields(12, longest=12, on_policy=True),
    "far": random_fields(13, longest=12, drift=1.5),
}
BATCHES["sampled"] = BATCHES["ragged"] | {"old_logp": BATCHES["ragged"]["sampling_logp"]}
TOTALS = {"batch_num_tokens": int(BATCHES["ragged"]["mask"].sum()), "global_batch_size": len(BATCHES["ragged"]["mask"])}
Numbers = list[float]


def batch_for(key: str, fields: Fields) -> Batch:
    return batch_of(catalog.parse(key), fields)


def ours(key: str, *, batch: str = "ragged", leaf: str = "logp", halves: bool = False) -> Tensor:
    """Our gradient; `halves`: of two micro-batches, short rows and long ones, each given the minibatch's totals."""
    fields, method = BATCHES[batch], catalog.parse(key)
    order = fields["mask"].sum(1).argsort()
    parts = list(order.split(len(order) // 2)) if halves else [torch.arange(len(order))]
    totals = {"tokens": int(fields["mask"].sum()), "sequences": len(order)} if halves else {}
    out = torch.zeros_like(fields[leaf])
    for part in parts:
        given = batch_of(method, rows(fields, part))
        generator = torch.Generator().manual_seed(0)
        (gradient,) = torch.autograd.grad(method.loss(given, generator=generator, **totals), getattr(given, leaf))
        out[part] = gradient
    return out


def verl(name: str, *, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.verl(name, BATCHES[batch], **settings)[1]


def trl(*, batch: str = "ragged", **settings: Any) -> Tensor:
    return oracles.trl(BATCHES[batch], **settings)[1]


def apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / torch.maximum(a.abs(), b.abs()).max())


def near(a: float, b: float) -> bool:
    return bool(abs(a - b) <= 1e-6 * max(abs(a), abs(b)))  # verl's metrics and scales are float32


def trl_rloo(*, batch: str = "ragged") -> Tensor:
    return oracles.trl_rloo(BATCHES[batch])[1]


def advantage(key: str, rewards: Numbers, groups: list[int], lengths: list[int] | None = None) -> Numbers:
    reward, group = torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups)
    return catalog.parse(key).advantage(reward, group, None if lengths is None else torch.tensor(lengths)).tolist()


def verl_advantage(
    name: str, rewards: Numbers, groups: list[int], lengths: list[int] | None = None, **settings: Any
) -> Numbers:
    given = torch.tensor(rewards, dtype=torch.float64), torch.tensor(groups)
    tokens = None if lengths is None else torch.tensor(lengths)
    return oracles.verl_advantage(name, *given, tokens, **settings).tolist()


def verl_metrics(name: str, *, low: float = 0.2, high: float = 0.28) -> dict[str, float]:
    """What verl logs beside the loss."""
    from verl.trainer.ppo.core_algos import get_policy_loss_fn
    from verl.workers.config import ActorConfig
    from verl.workers.config.actor import PolicyLossConfig

    fields, policy = BATCHES["ragged"], PolicyLossConfig(loss_mode=name)
    config = ActorConfig(
        strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1, clip_ratio=low, clip_ratio_low=low,
        clip_ratio_high=high, clip_ratio_c=1e9, policy_loss=policy,
    )  # fmt: skip
    mask = fields["mask"].to(fields["logp"].dtype)
    _, metrics = get_policy_loss_fn(name)(
        old_log_prob=fields["old_logp"], log_prob=fields["logp"], advantages=fields["advantage"][:, None] * mask,
        response_mask=mask, loss_agg_mode="token-mean", config=config,
    )  # fmt: skip
    return metrics


def verl_default(name: str) -> Any:
    from verl.workers.config import ActorConfig

    return getattr(ActorConfig(strategy="fsdp", rollout_n=8, ppo_micro_batch_size_per_gpu=1), name)


def trl_default(name: str) -> Any:
    from trl import GRPOConfig

    return GRPOConfig.__dataclass_fields__[name].default


def diagnostics(key: str) -> dict[str, float | None]:
    return catalog.parse(key).diagnostics(batch_for(key, BATCHES["ragged"]))


GIVEN: dict[str, Any] = {
    f.__name__: f
    for f in (ours, verl, trl, trl_rloo, apart, near, advantage, verl_advantage, verl_default, trl_default)
}
GIVEN |= {"SAME": SAME, "MAX_TOKENS": oracles.MAX_TOKENS, "WIDTH": BATCHES["ragged"]["mask"].shape[1]}


def blocks() -> list[tuple[str, str]]:
    """(heading, code) of every fenced Python block of the page."""
    text = (ROOT / "docs" / "names.md").read_text(encoding="utf-8")
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        heading = section.splitlines()[0]
        found += [(heading, code) for code in re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)]
    return found


def test_every_section_of_the_page_is_executable() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "docs" / "names.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings
    assert {heading for heading, _ in blocks()} == set(headings)


@pytest.mark.parametrize(("heading", "code"), blocks())
def test_what_the_page_says_is_so(heading: str, code: str) -> None:
    assert "assert" in code
    name = f"docs/names.md: {heading}"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)  # so that a failure shows its line
    exec(compile(code, name, "exec"), dict(GIVEN))


# Settings in the text of the page, that have no block of their own.


def test_clip_fractions() -> None:
    name = "actor/pg_clipfrac"
    assert near(verl_metrics("vanilla")[name], diagnostics("grpo")["clip_fraction_tokens"])
    assert verl_metrics("cispo")[name] > 0
    assert diagnostics("cispo")["clip_fraction_tokens"] == 0
    assert near(verl_metrics("clip_cov", low=1.0, high=1.0)[name], diagnostics("clip_cov")["mask_fraction"])
    assert name not in verl_metrics("gpg")
    assert name not in verl_metrics("kl_cov")


def test_bounds_are_those_of_verls_presets() -> None:
    from verl.trainer.config.algorithm import RolloutCorrectionConfig as Preset

    assert Preset.decoupled_token_is().rollout_is_threshold == 2.0  # tis
    assert Preset.decoupled_seq_is().rollout_is_threshold == 2.0  # seq-tis
    assert Preset.decoupled_token_icepop().rollout_is_threshold == "0.5_5.0"  # icepop
    assert Preset.decoupled_seq_is_rs().rollout_rs_threshold == "0.5_2.0"  # seq-rs
    assert Preset.decoupled_geo_rs().rollout_rs_threshold == "0.999_1.001"  # geo-rs
    preset = Preset.decoupled_geo_rs_token_tis()
    given = {name: getattr(preset, name) for name in ("rollout_is", "rollout_is_threshold", "rollout_rs")}
    # of 1/rho; with verl's own bounds no response of this batch is left
    given["rollout_rs_threshold"] = f"{1 / 1.2}_{1 / 0.85}"
    ours_ = "grpo+correction=tis+rejection=geo-rs+rejection-cap=1.2+rejection-floor=0.85"
    assert apart(verl("vanilla", correction=given, totals=TOTALS), ours(ours_)) < SAME
    assert apart(ours("grpo+correction=tis"), ours(ours_)) > 0.1


def test_where_corrections_differ() -> None:
    tis, given = "correction=tis+correction-cap=1.5", {"rollout_is": "token", "rollout_is_threshold": 1.5}
    theirs = trl(loss_type="dapo", level="sequence", mode="token_truncate", clip_max=1.5)
    assert apart(theirs, ours(f"tepo_nokl+{tis}")) < SAME
    assert apart(verl("gspo", correction=given), ours(f"tepo_nokl+{tis}")) > 0.1
    assert apart(verl("geo_mean", low=0.4, high=0.4, correction=given), ours(f"gmpo+{tis}")) > 1e-3
    assert apart(trl(loss_type="vespo", mode="token_truncate", clip_max=1.5), ours(f"vespo+{tis}")) > 1e-3
    kl_cov: dict[str, Any] = {"kl_cov_ratio": 2e-3, "ppo_kl_coef": 1.0, "correction": given}
    assert apart(verl("kl_cov", **kl_cov), ours(f"kl_cov+{tis}+correction-on=objective")) < SAME
    rejected = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2"}
    assert apart(verl("vanilla", correction=rejected), ours("grpo+correction=token-rs+correction-floor=0.5")) > 0.01


def test_steer_as_its_authors_run_it() -> None:
    for change in ("omega=ratio", "map=min-max"):
        assert apart(ours(f"tepo_steer+{change}"), ours("tepo_steer")) > 0.01
    assert apart(ours("tepo_steer+omega=ratio", batch="first"), ours("tepo_steer", batch="first")) == 0
    assert apart(ours("tepo_steer+map=min-max", batch="first"), ours("tepo_steer", batch="first")) > 0.01


def test_openrlhf() -> None:
    rewards, groups, lengths = [1, 0, 0, 0], [0, 0, 1, 1], [1, 1, 1, 9]
    keys = ("reinforce_pp+whiten-std=biased", "reinforce_pp+whiten-std=unbiased")
    whole, less = (advantage(key, rewards, groups, lengths)[0] for key in keys)
    assert near(whole / less, (12 / 11) ** 0.5)
    with pytest.raises(ValueError, match="rejects nothing"):
        ours("grpo+correction=tis+correction-cap=none+rejection=geo-rs+rejection-cap=5+rejection-floor=0.5")
