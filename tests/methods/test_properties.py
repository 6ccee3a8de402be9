"""Property x method: what holds for every loss, on random ragged batches, whatever the method's formula is.

Every catalog method and every single change of its structure is a subject. A property that a method cannot have follows
from what it declares: its `scope` says which splits it survives, and the split it does not survive must show.
A slow test repeats the table on many random batches.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from core.errors import BenchError
from methods import catalog
from methods.batch import FLOATS, INTEGERS, NUMBERS
from methods.method import Method
from tests.methods import subjects
from tests.methods.batches import Fields, append_empty_rows, random_fields, refill, rows, widen
from tests.methods.subjects import LEAVES, Outcome, assert_same, batch_of, check_each, distance, evaluate

SHAPES = subjects.shapes()


def draws(method: Method, fields: Fields) -> bool:
    """Whether the loss took a random number: then rows may not change places."""
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    method.loss(batch_of(method, fields), generator=generator)
    return not torch.equal(before, generator.get_state())


def totals(fields: Fields) -> dict[str, int]:
    return {"tokens": int(fields["mask"].sum()), "sequences": int(fields["mask"].any(1).sum())}


def group_totals(fields: Fields) -> dict[str, Any]:
    """What `agg-scope=group` must know of the whole minibatch: tokens of each row's group, number of groups."""
    same = fields["group"][:, None] == fields["group"][None, :]
    return {"group_tokens": (same * fields["mask"].sum(1)[None, :]).sum(1), "groups": len(fields["group"].unique())}


def summed_over(method: Method, whole: Fields, parts: list[tuple[torch.Tensor, Fields]]) -> Outcome:
    """The losses of the parts (row indices, fields) with the whole's totals, summed; gradients put back in place."""
    loss, gradient = 0.0, {name: torch.zeros_like(whole[name]) for name in evaluate(method, whole)[1]}
    whole_groups = group_totals(whole)
    for index, part in parts:
        given = part | {"dropped": ~part["mask"].any(1)}
        extra = {"group_tokens": whole_groups["group_tokens"][index], "groups": whole_groups["groups"]}
        value, by_leaf = evaluate(method, given, extra=extra, **totals(whole))
        loss += value
        for name, g in by_leaf.items():
            gradient[name][index] += g
    return loss, gradient


# ---- the properties: each raises AssertionError on a method and a batch that lack it ----


def padding_width_is_irrelevant(method: Method, fields: Fields) -> None:
    loss, gradient = evaluate(method, fields)
    wide_loss, wide = evaluate(method, widen(fields, left=2, right=3))
    assert_same((wide_loss, {n: g[:, 2:-3] for n, g in wide.items()}), (loss, gradient), torch.float64)


def padding_content_is_irrelevant(method: Method, fields: Fields) -> None:
    """To the bit, so that the same seed gives the same numbers too."""
    wanted, figures = evaluate(method, fields), method.diagnostics(batch_of(method, fields))
    for value in (float("nan"), float("inf"), -float("inf"), 1e300):
        got = evaluate(method, refill(fields, value))
        assert got[0] == wanted[0], f"padding {value}: loss {got[0]} != {wanted[0]}"
        assert all(torch.equal(got[1][n], wanted[1][n]) for n in wanted[1]), f"padding {value}: another gradient"
        assert method.diagnostics(batch_of(method, refill(fields, value))) == figures, f"padding {value}"


def padding_gets_no_gradient(method: Method, fields: Fields) -> None:
    for name, gradient in evaluate(method, fields)[1].items():
        assert not gradient[~fields["mask"]].any(), name


def gradients_are_finite(method: Method, fields: Fields) -> None:
    loss, gradient = evaluate(method, fields)
    assert loss == loss
    assert all(bool(g.isfinite().all()) for g in gradient.values())


def row_order_is_irrelevant(method: Method, fields: Fields) -> None:
    order = torch.randperm(len(fields["mask"]), generator=torch.Generator().manual_seed(1))
    if draws(method, fields):  # other tokens are drawn then, but as many
        shares = [method.diagnostics(batch_of(method, f))["mask_fraction"] for f in (fields, rows(fields, order))]
        assert shares[0] is not None
        assert shares[0] == shares[1]
        return
    got, wanted = evaluate(method, rows(fields, order)), evaluate(method, fields)
    assert_same(got, (wanted[0], {n: g[order] for n, g in wanted[1].items()}), torch.float64)


def dropped_rows_are_irrelevant(method: Method, fields: Fields) -> None:
    loss, gradient = evaluate(method, fields)
    got_loss, got = evaluate(method, append_empty_rows(fields, 2))
    assert_same((got_loss, {n: g[:-2] for n, g in got.items()}), (loss, gradient), torch.float64)
    assert not any(g[-2:].any() for g in got.values())


def a_micro_batch_without_a_token_adds_nothing(method: Method, fields: Fields) -> None:
    nothing = torch.zeros_like(fields["mask"])
    empty = fields | {"mask": nothing, "dropped": ~nothing.any(1)}
    loss, gradient = evaluate(method, empty, extra=group_totals(fields), **totals(fields))
    assert loss == 0
    assert not any(g.any() for g in gradient.values())
    assert set(method.diagnostics(batch_of(method, empty)).values()) == {None}


def group_names_are_irrelevant(method: Method, fields: Fields) -> None:
    renamed = fields | {"group": 1000 - 7 * fields["group"]}
    assert_same(evaluate(method, renamed), evaluate(method, fields), torch.float64)


def global_random_state_is_left_alone(method: Method, fields: Fields) -> None:
    before = torch.get_rng_state()
    evaluate(method, fields)
    method.diagnostics(batch_of(method, fields))
    assert torch.equal(before, torch.get_rng_state())


def own_totals_are_the_default(method: Method, fields: Fields) -> None:
    extra = group_totals(fields)
    assert_same(evaluate(method, fields, extra=extra, **totals(fields)), evaluate(method, fields), torch.float64)


def totals_may_be_tensors(method: Method, fields: Fields) -> None:
    extra, known = group_totals(fields), {name: 7 * n for name, n in totals(fields).items()}
    as_tensors: dict[str, Any] = {name: torch.tensor(n) for name, n in known.items()}
    wanted = evaluate(method, fields, extra=extra, **known)
    assert_same(evaluate(method, fields, extra=extra, **as_tensors), wanted, torch.float64)


def diagnostics_keep_no_graph_and_are_numbers(method: Method, fields: Fields) -> None:
    for name, value in method.diagnostics(batch_of(method, fields)).items():
        assert value is None or (isinstance(value, float) and value == value), f"{name}: {value!r}"


def a_pickled_method_is_the_same(method: Method, fields: Fields) -> None:
    copy = pickle.loads(pickle.dumps(method))
    assert copy == method
    got, wanted = evaluate(copy, fields), evaluate(method, fields)
    assert got[0] == wanted[0]
    assert all(torch.equal(got[1][name], wanted[1][name]) for name in wanted[1])


PROPERTIES: tuple[Callable[[Method, Fields], None], ...] = (
    padding_width_is_irrelevant,
    padding_content_is_irrelevant,
    padding_gets_no_gradient,
    gradients_are_finite,
    row_order_is_irrelevant,
    dropped_rows_are_irrelevant,
    a_micro_batch_without_a_token_adds_nothing,
    group_names_are_irrelevant,
    global_random_state_is_left_alone,
    own_totals_are_the_default,
    totals_may_be_tensors,
    diagnostics_keep_no_graph_and_are_numbers,
    a_pickled_method_is_the_same,
)


def every_property(text: str) -> None:
    method = catalog.parse(text)
    for seed, shape in ((31, {}), (32, {"drift": 1.5, "holes": True})):
        fields = random_fields(seed, **shape)  # type: ignore[arg-type]
        for holds in PROPERTIES:  # one that fails is in the traceback, by name
            holds(method, fields)


# ---- splits: `scope` says what a micro-batch may cut ----


def by_rows(fields: Fields) -> list[tuple[torch.Tensor, Fields]]:
    """Micro-batches of two rows, neighbours or not: groups are cut."""
    order = torch.randperm(len(fields["mask"]), generator=torch.Generator().manual_seed(2))
    return [(index, rows(fields, index)) for index in order.split(2)]


def by_tokens(fields: Fields) -> list[tuple[torch.Tensor, Fields]]:
    """Every response cut into two micro-batches at random tokens."""
    heads = torch.rand(fields["mask"].shape, generator=torch.Generator().manual_seed(3)) < 0.5
    every = torch.arange(len(heads))
    return [(every, fields | {"mask": fields["mask"] & half}) for half in (heads, ~heads)]


def split_invariant(method: Method, fields: Fields) -> None:
    """Micro-batches with the minibatch's totals sum to the minibatch, for every cut that `scope` allows."""
    for cut in {"token": [by_rows, by_tokens], "sequence": [by_rows], "batch": []}[method.scope]:
        assert_same(summed_over(method, fields, cut(fields)), evaluate(method, fields), torch.float64)


def a_split_within_scope_changes_nothing(text: str) -> None:
    for seed in (41, 42):
        split_invariant(catalog.parse(text), random_fields(seed, drift=0.8))


def a_split_beyond_scope_changes_the_loss(text: str) -> None:
    """A scope wider than needed would forbid micro-batches for nothing; so what it forbids must differ."""
    method = catalog.parse(text)
    if method.scope == "token":
        return
    cut = {"sequence": by_tokens, "batch": by_rows}[method.scope]
    for seed in range(51, 56):
        fields = random_fields(seed, drift=0.8, longest=8)
        whole, parts = evaluate(method, fields), summed_over(method, fields, cut(fields))
        if any(distance(parts[1][n], whole[1][n]) > 1e-6 for n in LEAVES if n in whole[1]):
            return
    raise AssertionError(f"scope is {method.scope}, but {cut.__name__} micro-batches give the same gradient")


# ---- dtypes: what a user can pass gives what float64 gives, rounded ----


def the_loss_is_a_scalar_of_the_log_probabilities_dtype(text: str) -> None:
    method = catalog.parse(text)
    for dtype in (torch.float64, torch.float32):
        fields = random_fields(61, dtype=dtype)
        loss = method.loss(batch_of(method, fields), generator=torch.Generator().manual_seed(0))
        assert (loss.shape, loss.dtype) == ((), dtype)
        assert_same(evaluate(method, fields), evaluate(method, random_fields(61)), dtype)


def an_advantage_of_every_dtype_gives_the_same_loss(text: str) -> None:
    method, fields = catalog.parse(text), random_fields(63)
    exact = fields | {"advantage": torch.tensor([1, -0.5, -0.5] * 3, dtype=torch.float64)}
    wanted = evaluate(method, exact)
    for dtype in FLOATS:
        got = evaluate(method, exact | {"advantage": exact["advantage"].to(getattr(torch, dtype))})
        assert got[0] == wanted[0], dtype
        assert all(torch.equal(got[1][name], wanted[1][name]) for name in wanted[1]), dtype


# 0 and 1 are exact in every dtype; one group is settled. Every formula of an advantage once, and every method.
RIGHT = torch.tensor([1, 0, 0, 0, 1, 1, 0, 1, 1, 1, 1, 1])
GROUP, LENGTHS = torch.arange(12) // 4, torch.arange(1, 13)
ADVANTAGES = {str(catalog.parse(text).parts.advantage): text for text in subjects.variants()}


def rewards_of_every_dtype_give_the_advantage_of_float64(text: str) -> None:
    method = catalog.parse(text)
    wanted = method.advantage(RIGHT.double(), GROUP, LENGTHS)
    assert wanted.dtype == torch.float64
    assert len(set(wanted.tolist())) > 1
    for dtype in NUMBERS:
        got = method.advantage(RIGHT.to(getattr(torch, dtype)), GROUP, LENGTHS)
        assert got.dtype == (torch.float64 if dtype == "float64" else torch.float32), dtype
        assert torch.equal(got, wanted.to(got.dtype)), dtype
    for dtype in INTEGERS:
        named = [x.to(getattr(torch, dtype)) for x in (GROUP, LENGTHS)]
        assert torch.equal(method.advantage(RIGHT, *named), wanted.float()), dtype


# ---- an advantage for each token ----


def an_advantage_for_each_token(text: str) -> None:
    """The same number on every token is the row's; and a token of its own is what its row would make of it."""
    method, fields = catalog.parse(text), random_fields(64, drift=0.8, holes=True)
    spread = fields["advantage"][:, None].where(fields["mask"], float("nan"))  # padding may hold anything
    assert_same(evaluate(method, fields | {"advantage": spread}), evaluate(method, fields), torch.float64)
    if method.scope != "token":
        return
    draw = torch.Generator().manual_seed(65)
    advantage_BT = torch.randn(fields["mask"].shape, generator=draw, dtype=torch.float64)
    got = evaluate(method, fields | {"advantage": advantage_BT})[1]["logp"]
    columns = [evaluate(method, fields | {"advantage": column})[1]["logp"] for column in advantage_BT.unbind(1)]
    wanted = torch.stack([columns[t][:, t] for t in range(len(columns))], 1)
    assert distance(got, wanted) <= 32 * torch.finfo(torch.float64).eps


def an_overflowing_ratio_is_refused_or_harmless(text: str) -> None:
    """exp(1000) is infinite: a clip that hides it in the loss must not leave NaN in the gradient."""
    method, fields = catalog.parse(text), random_fields(62, groups=2)
    for row in (int(fields["advantage"].argmax()), int(fields["advantage"].argmin())):
        far = fields["old_logp"].clone()
        far[row] -= 1000.0
        try:
            gradients_are_finite(method, fields | {"old_logp": far})
        except BenchError:
            continue


def a_need_that_is_not_supplied_is_named(text: str) -> None:
    method, fields = catalog.parse(text), random_fields(66)
    for name in sorted(method.needs - {"max_tokens"}):
        lacking = replace(batch_of(method, fields), **{name: None})
        for call in (method.loss, method.check):
            with pytest.raises(BenchError, match=rf"{re.escape(method.key)}: {name}: "):
                call(lacking)


# ---- the tests: every shape of one method in each ----


@pytest.mark.parametrize("key", catalog.keys())
def test_every_shape_has_every_property(key: str) -> None:
    check_each(
        subjects.of(key, SHAPES),
        every_property,
        a_split_within_scope_changes_nothing,
        a_split_beyond_scope_changes_the_loss,
        the_loss_is_a_scalar_of_the_log_probabilities_dtype,
        an_advantage_of_every_dtype_gives_the_same_loss,
        an_advantage_for_each_token,
        an_overflowing_ratio_is_refused_or_harmless,
        a_need_that_is_not_supplied_is_named,
    )
    check_each(
        sorted({key, *subjects.of(key, ADVANTAGES.values())}), rewards_of_every_dtype_give_the_advantage_of_float64
    )
