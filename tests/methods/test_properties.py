"""Property x method: what holds for every loss, on random ragged batches, whatever the method's formula is.

Every catalog method and every single change of its structure is a subject. A property that a method cannot have follows
from what it declares: its `scope` says which splits it survives, and the split it does not survive must show.
What `test_reference.py` compares to the last digit is not asked here again: padding, dropped rows, the order of rows.
"""

import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.errors import BenchError
from methods import catalog
from methods.batch import NUMBERS
from methods.diagnostics import NAMES
from methods.method import Method
from methods.parts import Terms
from tests.methods import batches
from tests.methods.batches import Fields, Outcome, assert_same, batch_of, check_each, distance, evaluate, random_fields

SHAPES = batches.shapes()


def totals(fields: Fields) -> dict[str, Any]:
    """The whole minibatch's counts: arguments of `evaluate`, for any `agg-scope`."""
    tokens_B, group = fields["mask"].sum(1), fields["group"]
    of_group = {"group_tokens": (group[:, None] == group[None, :]).long() @ tokens_B, "groups": len(group.unique())}
    return {"tokens": int(tokens_B.sum()), "sequences": int(tokens_B.count_nonzero()), "extra": of_group}


def summed_over(method: Method, whole: Fields, parts: list[tuple[torch.Tensor, Fields]]) -> Outcome:
    """The losses of the parts (row indices, fields) with the whole's totals, summed; gradients put back in place."""
    loss, gradient = 0.0, {name: torch.zeros_like(whole[name]) for name in evaluate(method, whole)[1]}
    counts = totals(whole)
    for index, part in parts:
        given = part | {"dropped": ~part["mask"].any(1)}
        extra = counts["extra"] | {"group_tokens": counts["extra"]["group_tokens"][index]}
        value, by_leaf = evaluate(method, given, **counts | {"extra": extra})
        loss += value
        for name, g in by_leaf.items():
            gradient[name][index] += g
    return loss, gradient


# ---- the properties: each raises AssertionError on a method and a batch that lack it ----


def padding_content_is_irrelevant(method: Method, fields: Fields) -> None:
    """To the bit, so that the same seed gives the same numbers too; and every figure is a finite number or unknown."""
    wanted, figures = evaluate(method, fields), method.diagnostics(batch_of(method, fields))
    assert tuple(figures) == NAMES
    assert all(x is None or (isinstance(x, float) and math.isfinite(x)) for x in figures.values()), figures
    for value in (float("nan"), float("inf"), -float("inf"), 1e300):
        got = evaluate(method, batches.refill(fields, value))
        assert got[0] == wanted[0], f"padding {value}: loss {got[0]} != {wanted[0]}"
        assert all(torch.equal(got[1][n], wanted[1][n]) for n in wanted[1]), f"padding {value}: another gradient"
        assert method.diagnostics(batch_of(method, batches.refill(fields, value))) == figures, f"padding {value}"


def a_micro_batch_without_a_token_adds_nothing(method: Method, fields: Fields) -> None:
    nothing = torch.zeros_like(fields["mask"])
    empty = fields | {"mask": nothing, "dropped": ~nothing.any(1)}
    loss, gradient = evaluate(method, empty, **totals(fields))
    assert loss == 0
    assert not any(g.any() for g in gradient.values())
    assert set(method.diagnostics(batch_of(method, empty)).values()) == {None}


def no_state_is_kept(method: Method, fields: Fields) -> None:
    """Neither torch's generator nor memory between two calls: a resumed run would go on to other numbers."""
    before = torch.get_rng_state()
    method.check_repeatable(batch_of(method, fields))
    method.diagnostics(batch_of(method, fields))
    assert torch.equal(before, torch.get_rng_state())


def every_property(text: str) -> None:
    method = catalog.parse(text)
    for fields in (random_fields(31), random_fields(32, drift=1.5, holes=True)):
        padding_content_is_irrelevant(method, fields)
        a_micro_batch_without_a_token_adds_nothing(method, fields)
        no_state_is_kept(method, fields)


# ---- splits: `scope` says what a micro-batch may cut ----


def by_rows(fields: Fields) -> list[tuple[torch.Tensor, Fields]]:
    """Micro-batches of two rows, neighbours or not: groups are cut."""
    order = torch.randperm(len(fields["mask"]), generator=torch.Generator().manual_seed(2))
    return [(index, batches.rows(fields, index)) for index in order.split(2)]


def by_tokens(fields: Fields) -> list[tuple[torch.Tensor, Fields]]:
    """Every response cut into two micro-batches at random tokens."""
    heads = torch.rand(fields["mask"].shape, generator=torch.Generator().manual_seed(3)) < 0.5
    every = torch.arange(len(heads))
    return [(every, fields | {"mask": fields["mask"] & half}) for half in (heads, ~heads)]


def a_split_within_scope_changes_nothing(text: str) -> None:
    """Micro-batches with the minibatch's totals sum to the minibatch, for every cut that `scope` allows."""
    method = catalog.parse(text)
    for seed in range(41, 46):  # a rejection of whole sequences may find none to reject in one of these batches
        fields = random_fields(seed, drift=0.8)
        for cut in {"token": [by_rows, by_tokens], "sequence": [by_rows], "batch": []}[method.scope]:
            assert_same(summed_over(method, fields, cut(fields)), evaluate(method, fields), torch.float64)


def a_split_beyond_scope_changes_the_loss(text: str) -> None:
    """A scope wider than needed would forbid micro-batches for nothing; so what it forbids must differ."""
    method = catalog.parse(text)
    if method.scope == "token":
        return
    cut = {"sequence": by_tokens, "batch": by_rows}[method.scope]
    for seed in range(51, 56):
        fields = random_fields(seed, drift=0.8, longest=8)
        whole, parts = evaluate(method, fields), summed_over(method, fields, cut(fields))
        if any(distance(parts[1][n], whole[1][n]) > 1e-6 for n in batches.LEAVES if n in whole[1]):
            return
    raise AssertionError(f"scope is {method.scope}, but {cut.__name__} micro-batches give the same gradient")


# ---- dtypes: what a user can pass gives what float64 gives, rounded ----


def the_loss_is_a_scalar_of_the_log_probabilities_dtype(text: str) -> None:
    method, fields = catalog.parse(text), random_fields(61, dtype=torch.float32)
    loss = method.loss(batch_of(method, fields), generator=torch.Generator().manual_seed(0))
    assert (loss.shape, loss.dtype) == ((), torch.float32)
    assert_same(evaluate(method, fields), evaluate(method, random_fields(61)), torch.float32)


def test_rewards_of_every_dtype_give_the_advantage_of_float64() -> None:
    right = torch.tensor([1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1])  # exact in every dtype; one group is settled
    group, lengths = torch.arange(12) // 4, torch.arange(1, 13)
    for text in {str(catalog.parse(text).parts.advantage): text for text in batches.variants()}.values():
        method = catalog.parse(text)
        wanted = method.advantage(right.double(), group, lengths)
        for dtype in NUMBERS:
            got = method.advantage(right.to(getattr(torch, dtype)), group, lengths)
            assert torch.equal(got, wanted if dtype == "float64" else wanted.float()), (text, dtype)


def an_overflowing_ratio_is_refused_or_harmless(text: str) -> None:
    """exp(1000) is infinite: a clip that hides it in the loss must not leave NaN in the gradient."""
    method, fields = catalog.parse(text), random_fields(62, groups=2)
    for row in (int(fields["advantage"].argmax()), int(fields["advantage"].argmin())):
        far = fields["old_logp"].clone()
        far[row] -= 1000.0
        try:
            _, gradient = evaluate(method, fields | {"old_logp": far})
        except BenchError:
            continue
        for name, g in gradient.items():
            assert bool(g.isfinite().all()), name
            assert not g[~fields["mask"]].any(), name


def a_need_that_is_not_supplied_is_named(text: str) -> None:
    method, fields = catalog.parse(text), random_fields(66)
    for name in sorted(method.needs - {"max_tokens"}):
        lacking = replace(batch_of(method, fields), **{name: None})
        for call in (method.loss, method.check):
            with pytest.raises(BenchError, match=rf"{re.escape(method.key)}: {name}: "):
                call(lacking)


LONG = random_fields(105, groups=10, per_group=10, longest=210, vocabulary=3)


def the_fraction_selects_as_many(text: str) -> None:
    if not text.startswith(("kl_cov", "clip_cov")):
        return
    method = catalog.parse(text)
    share = method.diagnostics(batch_of(method, LONG))["mask_fraction"]
    assert share is not None
    tokens, fraction = int(LONG["mask"].sum()), 2e-3 if text.startswith("kl_cov") else 2e-4
    assert round(share * tokens) == int(fraction * tokens) > 1


# ---- the tests: every shape of one method in each ----


@pytest.mark.parametrize("key", catalog.keys())
def test_every_shape_has_every_property(key: str) -> None:
    check_each(
        batches.of_method(key, SHAPES),
        every_property,
        a_split_within_scope_changes_nothing,
        a_split_beyond_scope_changes_the_loss,
        the_loss_is_a_scalar_of_the_log_probabilities_dtype,
        an_overflowing_ratio_is_refused_or_harmless,
        a_need_that_is_not_supplied_is_named,
        the_fraction_selects_as_many,
    )


# ---- the masked penalty ----


@pytest.mark.parametrize("far", ["logp", "old_logp ref_logp"])  # in float32 exp is infinite from 88.7 on
@pytest.mark.parametrize(
    "key",
    [
        *("tepo", "tepo+kl-estimator=k3_is", "tepo_kl_neg+kl-estimator=k3_is"),
        *("tepo+kl-anchor=ref+kl-estimator=k3_is", "tepo_kl_all+kl-anchor=ref+kl-clamp=10"),
    ],
)
def test_a_token_outside_the_mask_or_beyond_the_clamp_is_finite_however_far_it_is(key: str, far: str) -> None:
    method = catalog.parse(f"{key}+beta=0.5")
    fields = random_fields(106, dtype=torch.float32)
    mask = method.parts.penalties[0].settings["mask"](Terms(batch_of(method, fields), method.parts))
    outside = (fields["mask"] & (~mask | ("clamp" in key))).nonzero()[0]
    for name in ("logp", "old_logp", "ref_logp"):
        fields[name] = fields[name].index_put(tuple(outside), torch.tensor(-201.0 if name in far.split() else -1.0))
    wide = {n: x.double() if x.is_floating_point() else x for n, x in fields.items()}
    assert_same(evaluate(method, fields), evaluate(method, wide), torch.float32)


# ---- diagnostics ----
