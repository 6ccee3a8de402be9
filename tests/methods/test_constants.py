"""Constants that no formula's test reaches, each held by the reason that it stands on."""

from __future__ import annotations

import inspect
import math
from fractions import Fraction

import pytest
import torch
import yaml

from core.provenance import ROOT
from methods import catalog
from methods.batch import Batch
from methods.parts import Terms, masks
from methods.parts.entropy import logp_and_entropy
from methods.training import rollouts
from methods.training.spec import check
from tests.adapters import worlds

PAPERS_RATE = 5e-7  # section 4.1; a rollout has 512 responses


def test_a_tolerance_lets_one_update_at_the_papers_rate_be_seen() -> None:
    """`masks.TOLERANCE`, of every precision: at Qwen2.5-7B's width one AdamW step moves entropies by 1e-6 to 1e-5 nats.

    At 1e-3 none would count as moved, and TEPO's KL would act on no token without anybody being told. What it leaves
    out is rounding: `test_identities.py`, P15.
    """
    torch.manual_seed(0)
    width = 3584
    body = torch.nn.Sequential(torch.nn.Embedding(50, 64), torch.nn.Linear(64, width), torch.nn.GELU())
    head = torch.nn.Linear(width, 50, bias=False)
    ids = torch.randint(50, (16, 9))

    def scored() -> tuple[torch.Tensor, torch.Tensor]:
        return logp_and_entropy(body(ids[:, :-1]), head.weight, ids[:, 1:])

    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=PAPERS_RATE, weight_decay=0.0)
    old_logp, old_entropy = (x.detach() for x in scored())
    advantage = torch.tensor([1.0, -1.0] * 8)
    (-(advantage[:, None] * scored()[0]).mean()).backward()
    optimizer.step()
    logp, entropy = (x.detach() for x in scored())
    for precision in (None, "bfloat16"):
        batch = Batch(
            logp=logp, old_logp=old_logp, advantage=advantage, mask=torch.ones_like(logp, dtype=torch.bool),
            group=torch.arange(16) // 2, entropy=entropy, old_entropy=old_entropy, precision=precision,
        )  # fmt: skip
        moved = masks.entropy_diff(tol=None)(Terms(batch, catalog.parse("tepo").parts)) != 0
        assert 0.5 < float(moved.double().mean()) < 1, precision


@pytest.mark.parametrize(
    ("right", "of", "stops"),
    [
        (2, 512, True),  # at the paper's size: two groups of 64 teach, at most
        (3, 512, False),
        (1, 256, True),  # at the embedded scale's
        (2, 256, False),
        (0, 512, True),
        (12, 512, False),  # 2.3 %: a small base model at its start, which learns from there
    ],
)
def test_a_run_ends_where_at_most_two_of_512_answers_are_right(right: int, of: int, stops: bool) -> None:
    """`COLLAPSE_REWARD`: a rollout with more right answers still has groups that differ, and may recover."""
    rewards = dict.fromkeys(range(1, 6), right / of)
    assert rollouts.collapsed(rewards, 5) == stops
    assert not rollouts.collapsed(rewards | {3: 0.5}, 5)
    assert not rollouts.collapsed(rewards, 4), "five in a row"


def test_both_trainers_have_the_moments_that_torch_has_unless_told() -> None:
    """`adam_beta2`: the lineage's scripts name no betas (R27), which leaves verl's, and verl's are torch's."""
    from methods.adapters import trl, verl
    from methods.adapters.trl.trainer import arguments

    betas = inspect.signature(torch.optim.AdamW).parameters["betas"].default
    method = catalog.parse("grpo")
    spec = check(worlds.spec(ROOT, method="grpo"))
    given = arguments(spec, trl.plan(spec.training, method), method, ROOT)
    assert (given["adam_beta1"], given["adam_beta2"]) == betas
    keys = yaml.safe_load((ROOT / verl.__file__).with_name("config.yaml").read_text(encoding="utf-8"))
    assert tuple(keys["actor_rollout_ref"]["actor"]["optim"]["betas"]) == betas


def test_the_share_of_top_entropy_tokens_is_exact_arithmetic() -> None:
    """The rounding in `masks.top_entropy`: (1 - 0.2) * 10 may come out above 8, and a token more would be lost."""
    parts = catalog.parse("top_entropy").parts
    for tokens in (*range(1, 61), 199):
        entropy = torch.randperm(tokens, generator=torch.Generator().manual_seed(tokens)).double()[None]
        x = -torch.ones_like(entropy)
        batch = Batch(logp=x, old_logp=x, advantage=x[:, 0], mask=x < 0, group=torch.zeros(1).long(), entropy=entropy)
        for share in (Fraction(n, 20) for n in range(1, 21)):
            wanted = tokens - math.ceil((1 - share) * (tokens - 1))
            chosen = masks.top_entropy(share=float(share))(Terms(batch, parts))
            assert int(chosen.sum()) == wanted, (tokens, share)
            assert bool((entropy[chosen] >= tokens - wanted).all())
