"""Every method and reading against the reference: its loss, its gradient, its advantage."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from methods import catalog
from tests.methods import batches, reference
from tests.methods.batches import Fields, assert_same, check_each, evaluate, random_fields

VARIANTS = dict.fromkeys((*batches.variants(), *(f"{key}+correction=tis" for key in catalog.entries())))
KEYS = sorted(set(catalog.keys()) & set(reference.LOSSES))
BATCHES: list[tuple[int, dict[str, Any]]] = [
    (1, {}),
    (2, {"drift": 1.5, "groups": 4}),
    (36, {"drift": 1.5, "groups": 4, "sharpness": 4.0}),  # covariances on both sides of 5
    (17, {"drift": 1.5, "groups": 8}),  # a ratio beyond 3 in a row that no rejection leaves out
    (3, {"holes": True, "jump": 3.0}),  # sequence ratios beyond 3
    (19, {"jump": 3.0, "groups": 12}),  # likewise, of either sign, in rows that no rejection leaves out
    (4, {"on_policy": True}),
]


def permutation(n: int) -> Sequence[int]:
    """The order a generator seeded with 0 draws, as `batches.evaluate` hands it to the method."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()


# ---- the checks: each raises AssertionError on a variant that is not what the reference says ----


def compare(text: str, fields: Fields, **totals: int) -> None:
    as_tensors: dict[str, Any] = {name: torch.tensor(count) for name, count in totals.items()}
    loss, gradient = evaluate(catalog.parse(text), fields, **as_tensors)
    case, leaves = reference.case(fields, text, permute=permutation, **totals)
    wanted = reference.LOSSES[text.split("+")[0]].loss(case)
    gradients = torch.autograd.grad(wanted, list(leaves.values()), materialize_grads=True)
    by_leaf = dict(zip(leaves, gradients, strict=True))
    unread = {name: g for name, g in by_leaf.items() if name not in gradient and bool(g.any())}
    assert not unread, f"{', '.join(unread)}: the reference has a gradient, the method does not read it"
    assert_same((loss, gradient), (float(wanted.detach()), {name: by_leaf[name] for name in gradient}), torch.float64)


def loss_and_gradient_equal(text: str) -> None:
    for seed, shape in BATCHES:
        compare(text, batches.append_empty_rows(random_fields(seed, **shape)))


def loss_equals_with_an_advantage_for_each_token(text: str) -> None:
    fields = random_fields(64, drift=0.8, holes=True)
    advantage_BT = torch.randn(fields["mask"].shape, generator=torch.Generator().manual_seed(65), dtype=torch.float64)
    compare(text, fields | {"advantage": advantage_BT.where(fields["mask"], float("nan"))})


def loss_of_a_micro_batch_equals(text: str) -> None:
    if "agg-scope=group" not in text:  # that needs its groups' totals
        compare(text, random_fields(6), tokens=101, sequences=23)


def advantage_equals(text: str) -> None:
    reward = torch.tensor([0, 1, 1, 0, 0, 0, 1, 0.7, 1, 0.25, -2, 0.5, 0.1, 0.1, 0.1], dtype=torch.float64)
    # rows of a prompt need not be neighbours; one prompt is settled
    group = torch.tensor([7, 7, 7, 2, 2, 2, 2, 5, 5, 5, 5, 7, 0, 0, 0])
    lengths = torch.tensor([3, 1, 8, 2, 2, 9, 4, 1, 7, 5, 3, 6, 1, 2, 4])
    row = reference.LOSSES[text.split("+")[0]]
    wanted = row.advantage(reward, group, lengths, reference.settings_of(text))
    assert torch.allclose(catalog.parse(text).advantage(reward, group, lengths), wanted, rtol=4e-15, atol=4e-16)


# ---- the tests: every variant of one method in each ----


def test_every_method_has_a_reference_row() -> None:
    """Without one the other tests of this file leave the method out, so that a new method fails one test."""
    missing = sorted(set(catalog.keys()) - set(reference.LOSSES))
    assert not missing, (
        f"tests/methods/reference.py: no row for {', '.join(missing)}: write the loss again on a vector of tokens and "
        f'add it as LOSSES["{missing[0]}"] (docs/extend.md, a method)'
    )
    assert sorted(set(reference.LOSSES) - set(catalog.keys())) == [], "rows without a method"


@pytest.mark.parametrize("key", KEYS)
def test_every_variant_equals_the_reference(key: str) -> None:
    check_each(
        batches.of_method(key, VARIANTS),
        loss_and_gradient_equal,
        loss_equals_with_an_advantage_for_each_token,
        loss_of_a_micro_batch_equals,
        advantage_equals,
    )


@pytest.mark.parametrize("kind", reference.BOUNDS)
def test_default_bounds_of_a_correction_are_those_printed_and_others_are_in_the_key(kind: str) -> None:
    text = f"grpo+correction={kind}"
    method, other = catalog.parse(text), catalog.parse(f"{text}+correction-cap=1.2+correction-floor=none")
    assert (method.params["correction-cap"], method.params["correction-floor"]) == reference.BOUNDS[kind]
    assert (other.params["correction-floor"], other.key == method.key) == (None, False)
