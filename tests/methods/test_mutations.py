"""The suite notices every small wrong done to any method: each mutation of each method fails one of its checks.

A mutation gives a method that is not the printed one, or None where it would still be. Some change the parts of a
method at its defaults and in each variant of its structure; the others are the method with another value of an option,
or another method of the catalog in its place.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import permutations
from typing import Any
from unittest import mock

import pytest
import torch

from methods import catalog
from methods.method import Method
from methods.parts import Part, Terms
from tests.methods import test_properties, test_reference
from tests.methods.batches import changes, shapes

Mutation = Callable[[Method], Method | None]
WEIGHTED = ("weighted", "gamma_weighted")  # surrogates whose weight carries no gradient


def with_parts(method: Method, **slots: Any) -> Method:
    return replace(method, parts=replace(method.parts, **slots))


def set_in(part: Part, **settings: Any) -> Part:
    return replace(part, settings={**part.settings, **settings})


def wrap(part: Part, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Part:
    """The part with its formula replaced; needs, scope, settings and name stay."""
    return replace(part, function=functools.wraps(part.function)(around(part.function)))


def negated(part: Part) -> Part:
    return wrap(part, lambda f: lambda *a, **k: -f(*a, **k))


def stopped(part: Part) -> Part:
    return wrap(part, lambda f: lambda *a, **k: f(*a, **k).detach())


def live(part: Part) -> Part:
    """The part without a stop-gradient."""
    return wrap(part, mock.patch.object(torch.Tensor, "detach", lambda self: self))


def seen_through(part: Part, change: Callable[[Terms], dict[str, Any]]) -> Part:
    """The part, reading a `Terms` of which some values are replaced."""

    def changed(t: Terms) -> Terms:
        seen = Terms(t.batch, t.parts, t.generator)
        seen.__dict__.update(change(t))
        return seen

    return wrap(part, lambda f: lambda t, **settings: f(changed(t), **settings))


def on(slot: str, change: Callable[[Part], Part | None], but: tuple[str, ...] = ()) -> Mutation:
    """The part in a slot changed, but where there is none, or one of these names."""

    def mutate(method: Method) -> Method | None:
        part = method.parts.filled().get(slot)
        changed = None if part is None or part.name in but else change(part)
        if changed is None:
            return None
        return with_parts(method, **({"penalties": (changed,)} if slot == "penalty 1" else {slot: changed}))

    return mutate


def without(method: Method, slot: str) -> Method | None:
    nothing = () if slot == "penalties" else None
    return with_parts(method, **{slot: nothing}) if getattr(method.parts, slot) else None


on_penalty = partial(on, "penalty 1")  # no method has two


def flip_dh(penalty: Part) -> Part | None:
    mask = penalty.settings["mask"]
    dh = mask.settings.get("dh")
    return None if dh is None else set_in(penalty, mask=set_in(mask, dh=negated(dh)))


def against_advantage(mask: Part) -> Part:
    return seen_through(mask, lambda t: {"advantage": -t.advantage})


def correct_current(part: Part) -> Part:
    return seen_through(part, lambda t: {"batch": replace(t.batch, old_logp=t.batch.logp.detach())})


def one_group(part: Part) -> Part | None:
    if part.settings.get("baseline") == "none":
        return None  # it reads no groups
    return wrap(part, lambda f: lambda reward, group, lengths, **k: f(reward, group * 0, lengths, **k))


def declared_splittable(method: Method) -> Method | None:
    """Every part with the scope of a token."""

    def loosened(part: Part) -> Part:
        inner = {n: loosened(v) for n, v in part.settings.items() if isinstance(v, Part)}
        return replace(set_in(part, **inner), own_scope="token")

    slots: dict[str, Any] = {slot: loosened(part) for slot, part in method.parts.filled().items()}
    penalties = tuple(slots.pop(slot) for slot in list(slots) if "penalty" in slot)
    return None if method.scope == "token" else with_parts(method, penalties=penalties, **slots)


MUTATIONS: dict[str, Mutation] = {
    "flip the sign of the objective": on("surrogate", negated),
    "flip the sign of the penalty": on_penalty(negated),
    "swap current and old in the ratio": on("ratio", negated, but=("none",)),
    "divide by B x T, padding included": on(
        "reduce", lambda p: wrap(p, lambda f: lambda x, b, t, s: f(x, b, t, s) * b.tokens / b.mask.numel())
    ),
    "ignore the minibatch's totals": on(
        "reduce", lambda p: wrap(p, lambda f: lambda x, b, t, s: f(x, b, None, None)), but=("token_mean_group",)
    ),  # which has totals of its own, in the batch
    "stop the ratio's gradient": lambda m: (
        None if m.parts.surrogate.name in WEIGHTED else on("ratio", stopped, but=("none",))(m)
    ),
    "drop the stop-gradient of the weight": on("surrogate", lambda p: live(p) if p.name in WEIGHTED else None),
    "drop the stop-gradient of the shape": on("shape", lambda p: None if p.settings.get("of") == "old" else live(p)),
    "drop the stop-gradient of the mask": on("mask", lambda p: live(p) if p.name == "steer" else None),
    "stop the penalty's gradient": on_penalty(stopped),
    "flip the sign of dH": on_penalty(flip_dh),
    # |Omega| has no sign; the other reads no A
    "flip the sign of A in the mask of the surrogate": on("mask", against_advantage, but=("steer", "top_entropy")),
    **{f"drop the {slot}": partial(without, slot=slot) for slot in ("mask", "shape", "correction", "penalties")},
    "correct the current policy, not the old": on("correction", correct_current),
    "centre over the whole batch": on("advantage", one_group),
    "declare nothing about splits": declared_splittable,
}  # fmt: skip


# ---- the suite ----


TIS = "grpo+correction=tis"
CORRECTED = (
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.6",
    "gspo+correction=seq-tis",
    "kl_cov+correction=tis",
)
CHECKS: tuple[Callable[[str], None], ...] = (
    test_reference.loss_and_gradient_equal,
    test_reference.advantage_equals,
    test_reference.loss_of_a_micro_batch_equals,
    test_properties.a_split_within_scope_changes_nothing,
    test_properties.a_split_beyond_scope_changes_the_loss,
    test_properties.every_property,
    test_properties.the_fraction_selects_as_many,
)


def caught(key: str, mutant: Method) -> bool:
    """Whether a check fails when `key` means `mutant`."""
    parse = catalog.parse
    with mock.patch.object(catalog, "parse", lambda text: mutant if text == key else parse(text)):
        for check in CHECKS:
            try:
                check(key)
            except (Exception, pytest.fail.Exception):  # any failure is a catch
                return True
    return False


def mutants(keys: tuple[str, ...]) -> Iterator[tuple[str, str, Method]]:
    for key in keys:
        for name, mutate in MUTATIONS.items():
            if (mutant := mutate(catalog.parse(key))) is not None:
                yield key, name, mutant
    pairs = [(key, text) for key in catalog.entries() for text in changes(key)]
    pairs += [*permutations(catalog.entries(), 2), *permutations((*CORRECTED, TIS), 2)]  # one in the place of another
    for key, text in pairs:
        # with this bound the token that is drawn from our batches is the same
        if catalog.parse(text).key != catalog.parse(key).key and text != "clip_cov+upper=2.5":
            yield key, text, catalog.parse(text)


@pytest.mark.slow
def test_every_mutation_of_every_method_and_reading_is_caught() -> None:
    made = list(mutants(tuple(dict.fromkeys((*catalog.keys(), *shapes(), *CORRECTED)))))
    assert {name for _, name, _ in made} >= set(MUTATIONS), "each acts on some method"
    assert [f"{key}: {name}" for key, name, mutant in made if not caught(key, mutant)] == []
