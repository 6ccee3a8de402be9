"""Small wrongs done to a method: each gives a method that is not the printed one, or None where it would still be.

A mutation works on the parts of one method and leaves every other method alone: each method is tested for itself.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from methods.batch import Batch
from methods.method import Method
from methods.parts import Part, Terms, ratios, reducers

Mutation = Callable[[Method], Method | None]
MUTATIONS: dict[str, Mutation] = {}
WEIGHTED = ("weighted", "gamma_weighted")  # surrogates whose weight carries no gradient


def mutation(name: str) -> Callable[[Mutation], Mutation]:
    def register(function: Mutation) -> Mutation:
        MUTATIONS[name] = function
        return function

    return register


def with_parts(method: Method, **slots: Any) -> Method:
    return replace(method, parts=replace(method.parts, **slots))


def wrap(part: Part, around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Part:
    """The part with its formula replaced; needs, scope, settings and name stay."""
    return replace(part, function=functools.wraps(part.function)(around(part.function)))


def negated(part: Part) -> Part:
    return wrap(part, lambda f: lambda *a, **k: -f(*a, **k))


def seen_through(part: Part, change: Callable[[Terms], dict[str, Any]]) -> Part:
    """The part, reading a `Terms` of which some values are replaced."""

    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        def changed(t: Terms, **settings: Any) -> Any:
            seen = Terms(t.batch, t.parts, t.generator)
            seen.__dict__.update(change(t))
            return f(seen, **settings)

        return changed

    return wrap(part, around)


def only_penalty(method: Method) -> Part | None:
    return method.parts.penalties[0] if method.parts.penalties else None


def is_kl(part: Part | None) -> bool:
    return part is not None and "estimator" in part.settings


# ---- signs ----


@mutation("flip the sign of the objective")
def flip_surrogate(method: Method) -> Method:
    return with_parts(method, surrogate=negated(method.parts.surrogate))


@mutation("flip the sign of the penalty")
def flip_penalty(method: Method) -> Method | None:
    penalty = only_penalty(method)
    return None if penalty is None else with_parts(method, penalties=(negated(penalty),))


@mutation("drop the penalty")
def drop_penalty(method: Method) -> Method | None:
    return with_parts(method, penalties=()) if method.parts.penalties else None


@mutation("swap current and old in the ratio")
def swap_ratio(method: Method) -> Method | None:
    return None if method.parts.ratio.name == "none" else with_parts(method, ratio=negated(method.parts.ratio))


@mutation("swap current and anchor in the KL")
def swap_kl(method: Method) -> Method | None:
    penalty = only_penalty(method)
    if penalty is None or not is_kl(penalty) or penalty.settings["estimator"] in ("abs", "k2"):  # even in d
        return None

    def swapped(t: Terms) -> dict[str, Any]:
        if t.batch.full_logp is not None and t.batch.old_full_logp is not None:
            return {"batch": replace(t.batch, old_full_logp=2 * t.batch.full_logp.detach() - t.batch.old_full_logp)}
        if penalty.settings["anchor"] == "old":
            return {"log_ratio_BT": -t.log_ratio_BT}
        assert t.batch.ref_logp is not None
        down = 50.0  # both log-probs as far down: none is above 0, and their difference stays
        logp, ref_logp = t.batch.logp, t.batch.ref_logp
        return {"batch": replace(t.batch, logp=logp - down, ref_logp=2 * logp.detach() - ref_logp - down)}

    return with_parts(method, penalties=(seen_through(penalty, swapped),))


# ---- reducers and denominators ----

REDUCERS = {
    "token_mean_minibatch": reducers.token_mean(scope="minibatch"),
    "seq_mean_token_mean": reducers.seq_mean_token_mean(),
    "seq_mean_token_sum": reducers.seq_mean_token_sum(),
}


def other_reducer(name: str) -> Mutation:
    return lambda m: None if m.parts.reduce.name == name else with_parts(m, reduce=REDUCERS[name])


MUTATIONS["reduce by token-mean"] = other_reducer("token_mean_minibatch")
MUTATIONS["reduce by sequence-mean-token-mean"] = other_reducer("seq_mean_token_mean")
MUTATIONS["reduce by sequence-mean-token-sum"] = other_reducer("seq_mean_token_sum")


@mutation("divide by B x T, padding included")
def padded_denominator(method: Method) -> Method:
    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        def reduce(x: Tensor, batch: Batch, tokens: Any, sequences: Any) -> Tensor:
            return f(x, batch, tokens, sequences) * batch.tokens / batch.mask.numel()

        return reduce

    return with_parts(method, reduce=wrap(method.parts.reduce, around))


@mutation("ignore the minibatch's totals")
def ignore_totals(method: Method) -> Method | None:
    if method.parts.reduce.name == "token_mean_group":
        return None  # it has totals of its own, in the batch
    return with_parts(method, reduce=wrap(method.parts.reduce, lambda f: lambda x, b, t, s: f(x, b, None, None)))


def shifted(batch: Batch) -> Batch:
    return replace(batch, mask=batch.mask.roll(1, 1))


@mutation("shift the reducer's mask by one token")
def shift_mask(method: Method) -> Method:
    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        def reduce(x: Tensor, batch: Batch, tokens: Any, sequences: Any) -> Tensor:
            return f(x.expand_as(batch.mask), batch, tokens, sequences) + f(  # as if only the sum used the shifted mask
                x.expand_as(batch.mask) * shifted(batch).mask - x.expand_as(batch.mask), batch, tokens, sequences
            )

        return reduce

    return with_parts(method, reduce=wrap(method.parts.reduce, around))


@mutation("shift the old log-probabilities by one token")
def shift_logp(method: Method) -> Method:
    if method.parts.ratio.name == "none":
        late = seen_through(method.parts.surrogate, lambda t: {"logp_BT": t.logp_BT.roll(1, 1)})
        return with_parts(method, surrogate=late)

    def late_old(t: Terms) -> dict[str, Any]:
        return {"batch": replace(t.batch, old_logp=t.batch.valid(t.batch.old_logp).roll(1, 1))}

    return with_parts(method, ratio=seen_through(method.parts.ratio, late_old))


# ---- ratios ----


def other_ratio(name: str) -> Mutation:
    factory = {"token": ratios.token, "sequence": ratios.sequence, "prefix": ratios.prefix}[name]
    return lambda m: None if m.parts.ratio.name in (name, "none") else with_parts(m, ratio=factory())


MUTATIONS["use the token ratio"] = other_ratio("token")
MUTATIONS["use the sequence ratio"] = other_ratio("sequence")
MUTATIONS["use the prefix ratio"] = other_ratio("prefix")


@mutation("sum the log ratios instead of averaging")
def product_ratio(method: Method) -> Method | None:
    if method.parts.ratio.name not in ("sequence", "prefix"):
        return None

    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        return lambda t: f(t) * (t.lengths_B1 if f.__name__ == "_sequence" else t.batch.mask.cumsum(1))

    return with_parts(method, ratio=wrap(method.parts.ratio, around))


@mutation("stop the ratio's gradient")
def stop_ratio(method: Method) -> Method | None:
    if method.parts.ratio.name == "none" or method.parts.surrogate.name in WEIGHTED:
        return None  # no ratio, or a ratio that is stopped already
    return with_parts(method, ratio=wrap(method.parts.ratio, lambda f: lambda *a, **k: f(*a, **k).detach()))


@mutation("take the own token's gradient for the mean's")
def own_token(method: Method) -> Method | None:
    if method.parts.ratio.name != "prefix" or method.parts.surrogate.name in WEIGHTED:
        return None  # for a sequence weight the two are the same gradient (P3)
    return with_parts(method, ratio=ratios.own_token(of=method.parts.ratio))


@mutation("drop every stop-gradient")
def drop_detach(method: Method) -> Method | None:
    """In the surrogate, the shape and the weights; a boolean mask has no gradient to stop."""

    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        def live(*args: Any, **kwargs: Any) -> Any:
            with mock.patch.object(torch.Tensor, "detach", lambda self: self):
                return f(*args, **kwargs)

        return live

    slots: dict[str, Part] = {}
    if method.parts.surrogate.name in WEIGHTED:
        slots["surrogate"] = wrap(method.parts.surrogate, around)
    if method.parts.shape is not None and method.parts.shape.settings.get("of") != "old":  # the old have no gradient
        slots["shape"] = wrap(method.parts.shape, around)
    if method.parts.mask is not None and method.parts.mask.name == "steer":
        slots["mask"] = wrap(method.parts.mask, around)
    return with_parts(method, **slots) if slots else None


@mutation("stop the penalty's gradient")
def stop_penalty(method: Method) -> Method | None:
    penalty = only_penalty(method)
    if penalty is None:
        return None
    return with_parts(method, penalties=(wrap(penalty, lambda f: lambda *a, **k: f(*a, **k).detach()),))
