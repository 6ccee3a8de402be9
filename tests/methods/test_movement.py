"""How far an update moves the policy."""

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
from methods.training import movement
from methods.training.movement import KL, NOTHING_TRAINED, Update, divergences
from methods.training.spec import check
from tests.adapters import worlds


def two_tokens(p: float) -> torch.Tensor:
    return torch.tensor([p, 1 - p], dtype=torch.float64).log()


def kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def test_two_tokens_have_the_divergence_of_the_closed_form() -> None:
    contexts = [(0.5, 0.7, 0.2), (0.9, 0.6, 0.5), (0.3, 0.3, 0.4)]  # before, after, base
    before, after, base = (torch.stack([two_tokens(p) for p in column]) for column in zip(*contexts, strict=True))
    found = divergences(before, after, base, torch.tensor([4, 7, 7]))
    for name, at in (("kl_step", 0), ("kl_base", 2)):
        exact = [kl(row[1], row[at]) for row in contexts]
        mean = sum(exact) / 3
        assert found[name] == pytest.approx(mean, rel=1e-12)
        sums = exact[0] - mean, exact[1] + exact[2] - 2 * mean  # of the two groups
        assert found[f"{name}_se"] == pytest.approx(math.sqrt(2 * sum(s * s for s in sums)) / 3, rel=1e-12)
    one = divergences(before, after, None, torch.zeros(3, dtype=torch.long))
    assert one == {"kl_step": found["kl_step"], "kl_step_se": None, "kl_base": None, "kl_base_se": None}


def test_the_estimators_expectation_over_the_sampling_policy_is_the_exact_sum() -> None:
    """Every word of the vocabulary in turn is the sampled one, weighted by its probability."""
    torch.manual_seed(0)
    before, after, base = ((torch.randn(15, 11, dtype=torch.float64) * scale).log_softmax(1) for scale in (2, 2, 3))
    group = torch.zeros(1, dtype=torch.long)
    for context in range(15):
        exact = divergences(*(x[context : context + 1] for x in (before, after, base)), group)
        words = [divergences(*(x[context, v].view(1) for x in (before, after, base)), group) for v in range(11)]
        for name in ("kl_step", "kl_base"):
            values = [found[name] or 0.0 for found in words]
            assert min(values) >= 0
            mean = sum(float(p) * x for p, x in zip(before[context].exp(), values, strict=True))
            assert mean == pytest.approx(exact[name], rel=1e-9)


def test_no_change_is_zero_no_token_unknown_and_no_number_none() -> None:
    logp, group = torch.randn(6, 4).log_softmax(1), torch.arange(6)
    assert divergences(logp, logp, logp, group) == dict.fromkeys(KL, 0.0)
    assert divergences(logp[:0], logp[:0], logp[:0], group[:0]) == NOTHING_TRAINED
    assert divergences(logp, logp * math.nan, logp, group) == dict.fromkeys(KL)


def test_an_update_is_measured_over_all_parameters() -> None:
    """AdamW's first step is the learning rate in every parameter, whatever the gradient: effective step 1."""
    parameters = [torch.randn(3, 2), torch.randn(3)]
    assert movement.update(movement.copies(parameters), parameters) == Update(0.0, 9)
    moved = movement.update(movement.copies(parameters), [p - 1e-3 for p in parameters])
    assert (moved.norm, moved.parameters) == (pytest.approx(1e-3 * 3, rel=1e-3), 9)
    assert moved.effective(1e-3) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize(
    ("power", "scale", "least"), [(1.0, 40.0, 0.0), (2.0, 0.3, 0.0), (3.0, 1e-6, 0.0), (2.0, 1e-9, 1e-6)]
)
@pytest.mark.parametrize("rounded", [0.0, -1e-9])
def test_the_multiple_reaches_the_target(power: float, scale: float, least: float, rounded: float) -> None:
    """A step whose divergence is lost in rounding is lengthened, one that breaks the policy is shortened."""

    parameter, start = torch.ones(2), torch.zeros(2)

    def moved() -> float:
        kl = scale * float(parameter[0]) ** power
        if kl >= 100:
            return math.inf
        return kl if kl > least else rounded

    movement.move([parameter], [start], moved, 0.02)
    assert moved() == pytest.approx(0.02, rel=movement.TOLERANCE)


def test_both_trainers_have_the_moments_that_torch_has() -> None:
    """The lineage's scripts name no betas (R27), which leaves verl's, and verl's are torch's."""
    from trl import GRPOConfig
    from verl.workers.config import FSDPOptimizerConfig

    from methods.adapters import verl
    from methods.adapters.trl import arguments

    betas = inspect.signature(torch.optim.AdamW).parameters["betas"].default
    method = catalog.parse("grpo")
    spec = check(worlds.spec(ROOT, method="grpo"))
    given = arguments(spec, method, ROOT)
    fields = GRPOConfig.__dataclass_fields__
    assert tuple(given.get(name, fields[name].default) for name in ("adam_beta1", "adam_beta2")) == betas
    keys = yaml.safe_load((ROOT / verl.__file__).with_name("config.yaml").read_text(encoding="utf-8"))
    ours = keys["actor_rollout_ref"]["actor"]["optim"].get("betas", FSDPOptimizerConfig(lr=1e-6).betas)
    assert tuple(ours) == betas


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
