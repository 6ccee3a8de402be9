"""Every method and reading against the slow reference: its loss, and autograd against its finite differences."""

import copy
from collections.abc import Sequence
from typing import Any

import pytest
import torch

from methods import catalog
from tests.methods import batches, reference
from tests.methods.batches import Fields, assert_same, check_each, evaluate, random_fields
from tests.methods.reference import Case, Scalars, scalars

VARIANTS = (*batches.variants(), *batches.corrected())
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
SMALL = {"groups": 2, "per_group": 2, "longest": 4, "vocabulary": 3}


def permutation(n: int) -> Sequence[int]:
    """The order a generator seeded with 0 draws, as `batches.evaluate` hands it to the method."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()


def reference_loss(text: str, now: Scalars, held: Scalars, **totals: int) -> float:
    key = text.split("+")[0]
    return reference.LOSSES[key].loss(Case(now, held, reference.settings_of(text), permute=permutation, **totals))


def finite_differences(text: str, fields: Fields, leaf: str, step: float = 1e-4) -> torch.Tensor:
    """d reference / d leaf by the fourth-order central rule, stop-gradients held; padding stays 0."""
    held = scalars(fields)
    now = copy.deepcopy(held)
    values = getattr(now, {"full_logp": "full"}.get(leaf, leaf))
    gradient = torch.zeros_like(fields[leaf])
    full = [row for row in range(len(fields["mask"])) if fields["mask"][row].any()]
    for i, row in enumerate(full):
        for t, column in enumerate(fields["mask"][row].nonzero().flatten().tolist()):
            cell, slots = (values[i][t], range(len(values[i][t]))) if leaf == "full_logp" else (values[i], [t])
            for slot in slots:
                start, found = cell[slot], 0.0
                for shift, weight in ((1, 8), (-1, -8), (2, -1), (-2, 1)):
                    cell[slot] = start + shift * step
                    found += weight * reference_loss(text, now, held)
                cell[slot] = start
                where = (row, column, slot) if leaf == "full_logp" else (row, column)
                gradient[where] = found / (12 * step)
    return gradient


# ---- the checks: each raises AssertionError on a variant that is not what the reference says ----


def compare(text: str, fields: Fields, **totals: int) -> None:
    held = scalars(fields)
    as_tensors: dict[str, Any] = {name: torch.tensor(count) for name, count in totals.items()}
    loss, gradient = evaluate(catalog.parse(text), fields, **as_tensors)
    assert_same((loss, gradient), (reference_loss(text, held, held, **totals), gradient), torch.float64)


def loss_equals(text: str) -> None:
    for seed, shape in BATCHES:
        try:
            compare(text, random_fields(seed, **shape))
        except AssertionError as error:
            raise AssertionError(f"{error}, on the batch of seed {seed}, {shape}") from error


def loss_of_a_micro_batch_equals(text: str) -> None:
    if "agg-scope=group" not in text:  # that needs its groups' totals
        compare(text, random_fields(6), tokens=101, sequences=23)


def gradient_equals_finite_differences(text: str) -> None:
    for shape in ({"drift": 0.6}, {"on_policy": True}):
        fields = batches.append_empty_rows(random_fields(11, **SMALL, **shape))  # type: ignore[arg-type]
        _, gradient = evaluate(catalog.parse(text), fields)
        for leaf, got in gradient.items():
            wanted = finite_differences(text, fields, leaf)
            # The rule's own error: step^4 * f^(5) / 30 and eps * |f| / step, each about 1e-12.
            off = float((got - wanted).abs().max())
            assert off <= 2e-11, f"{leaf}: {off:.1e}"


def advantage_equals(text: str) -> None:
    reward = [0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.7, 1.0, 0.25, -2.0, 0.5, 0.1, 0.1, 0.1]
    # rows of a prompt need not be neighbours; one prompt is settled
    group = [7, 7, 7, 2, 2, 2, 2, 5, 5, 5, 5, 7, 0, 0, 0]
    lengths = [3, 1, 8, 2, 2, 9, 4, 1, 7, 5, 3, 6, 1, 2, 4]
    row = reference.LOSSES[text.split("+")[0]]
    wanted = torch.tensor(row.advantage(reward, group, lengths, reference.settings_of(text)), dtype=torch.float64)
    given = torch.tensor(reward, dtype=torch.float64), torch.tensor(group), torch.tensor(lengths)
    assert torch.allclose(catalog.parse(text).advantage(*given), wanted, rtol=4e-15, atol=4e-16)


def the_option_changes_something(text: str) -> None:
    """An option that nothing reads would pass every comparison above."""
    key, *changes = text.split("+")
    if not changes:
        return
    change, settings, row = "+".join(changes), reference.settings_of(text), reference.LOSSES[key]
    reward, group = [0.0, 1.0, 1.0, 0.5, 1.0, 1.0], [0, 0, 1, 1, 2, 2]
    if row.advantage(reward, group, [1] * 6, settings) != row.advantage(reward, group, [1] * 6, row.settings):
        return
    for seed in range(8):  # a method that trains on few tokens rarely meets such a ratio
        fields = random_fields(seed, drift=1.2, groups=4)
        fields["old_logp"] = fields["old_logp"] - 3.0 * (torch.arange(12) % 3 == 0)[:, None]  # ratios beyond 10
        fields["logp"] = fields["logp"] - 3.0 * (torch.arange(12) % 3 == 1)[:, None]  # and a k3 beyond 10
        totals = {} if change == "agg-scope=group" else {"tokens": 100, "sequences": 30}
        a, b = (evaluate(catalog.parse(t), fields, **totals) for t in (key, text))
        if a[0] != b[0] or not torch.equal(a[1]["logp"], b[1]["logp"]):
            return
    raise AssertionError(f"{change} changes neither loss nor gradient nor advantage of {key}")


# ---- the tests: every variant of one method in each ----


def test_every_method_has_a_reference_row() -> None:
    """Without one the other tests of this file leave the method out, so that a new method fails one test."""
    missing = sorted(set(catalog.keys()) - set(reference.LOSSES))
    assert not missing, (
        f"tests/methods/reference.py: no row for {', '.join(missing)}: write the loss again in plain Python floats and "
        f'add it as LOSSES["{missing[0]}"] (docs/extend.md, a method)'
    )
    assert sorted(set(reference.LOSSES) - set(catalog.keys())) == [], "rows without a method"


@pytest.mark.parametrize("key", KEYS)
def test_every_variant_equals_the_reference(key: str) -> None:
    check_each(
        batches.of_method(key, VARIANTS),
        loss_equals,
        loss_of_a_micro_batch_equals,
        gradient_equals_finite_differences,
        advantage_equals,
        the_option_changes_something,
    )
