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
from methods.parts import Part, Scope, Terms, advantages, masks, penalties, ratios, reducers, surrogates

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


# ---- ratios ----


def other_ratio(name: str) -> Mutation:
    factory = {"token": ratios.token, "sequence": ratios.sequence, "prefix": ratios.prefix}[name]
    return lambda m: None if m.parts.ratio.name in (name, "none") else with_parts(m, ratio=factory())


MUTATIONS["use the token ratio"] = other_ratio("token")
MUTATIONS["use the sequence ratio"] = other_ratio("sequence")
MUTATIONS["use the prefix ratio"] = other_ratio("prefix")


@mutation("stop the ratio's gradient")
def stop_ratio(method: Method) -> Method | None:
    if method.parts.ratio.name == "none" or method.parts.surrogate.name in WEIGHTED:
        return None  # no ratio, or a ratio that is stopped already
    return with_parts(method, ratio=wrap(method.parts.ratio, lambda f: lambda *a, **k: f(*a, **k).detach()))


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


# ---- clips ----


def clip_changed(method: Method, **settings: Any) -> Method | None:
    surrogate = method.parts.surrogate
    if surrogate.name not in ("clipped", "weighted") or not settings.keys() <= surrogate.settings.keys():
        return None
    if surrogate.settings.get("form") == "eq4" and settings.keys() <= {"low", "dual"}:
        return None  # Eq. 4 as printed has neither
    if all(surrogate.settings[name] == value for name, value in settings.items()):
        return None
    return with_parts(method, surrogate=replace(surrogate, settings={**surrogate.settings, **settings}))


@mutation("swap the clip bounds")
def swap_bounds(method: Method) -> Method | None:
    settings = method.parts.surrogate.settings
    if "low" not in settings:
        return None
    return clip_changed(method, low=settings["high"], high=settings["low"])


@mutation("drop the lower clip bound")
def drop_low(method: Method) -> Method | None:
    if (method.parts.surrogate.settings.get("low") or 1) >= 1:
        return None  # none, or at a weight of 0 that is never reached
    return clip_changed(method, low=None)


@mutation("drop the upper clip bound")
def drop_high(method: Method) -> Method | None:
    return clip_changed(method, high=None)


@mutation("take the minimum before A (Eq. 4 as printed)")
def eq4(method: Method) -> Method | None:
    return clip_changed(method, form="eq4")


@mutation("clip A < 0 again at 3")
def dual(method: Method) -> Method | None:
    return clip_changed(method, dual=3.0)


@mutation("multiply by the weight without a clip")
def unclipped(method: Method) -> Method | None:
    if method.parts.surrogate.name in ("plain", "log_likelihood"):
        return None
    return with_parts(method, surrogate=surrogates.plain())


# ---- divergence and masks ----


def kl_changed(method: Method, **settings: Any) -> Method | None:
    penalty = only_penalty(method)
    if penalty is None or not is_kl(penalty) or all(penalty.settings[n] == v for n, v in settings.items()):
        return None
    wanted = {**penalty.settings, **settings}
    if wanted["estimator"] != "k3":
        wanted["clamp"] = None  # bounds k3 alone
    if wanted["estimator"] == "full" and wanted["anchor"] == "ref":
        return None  # refused by the method itself
    return with_parts(method, penalties=(penalties.kl(**wanted),))


for _estimator in ("k1", "k2", "k3", "abs"):
    MUTATIONS[f"estimate the KL by {_estimator}"] = functools.partial(kl_changed, estimator=_estimator)
for _anchor in ("old", "ref"):
    MUTATIONS[f"anchor the KL at {_anchor}"] = functools.partial(kl_changed, anchor=_anchor)
MUTATIONS["divide the KL by the masked tokens"] = lambda m: (
    None
    if (p := only_penalty(m)) is None
    or not is_kl(p)
    or p.settings["mask"].name == "everywhere"
    or p.settings["norm"] != "tokens"  # it does already
    else kl_changed(m, norm="masked")
)


def mask_changed(method: Method, mask: Part) -> Method | None:
    penalty = only_penalty(method)
    if penalty is None or penalty.settings["mask"].name == mask.name or "misaligned(dh=theorem)" in str(penalty):
        return None  # either sign of A, by the theorem's word, is every token
    changed = replace(penalty, settings={**penalty.settings, "mask": mask})
    return with_parts(method, penalties=(changed,))


MUTATIONS["penalise every token"] = lambda m: mask_changed(m, masks.everywhere())


@mutation("flip the sign of dH")
def flip_dh(method: Method) -> Method | None:
    penalty = only_penalty(method)
    mask = penalty and penalty.settings["mask"]
    if penalty is None or mask is None or "dh" not in mask.settings:
        return None
    flipped = replace(mask, settings={**mask.settings, "dh": negated(mask.settings["dh"])})
    return with_parts(method, penalties=(replace(penalty, settings={**penalty.settings, "mask": flipped}),))


@mutation("flip the sign of A in the mask")
def flip_mask(method: Method) -> Method | None:
    def change(t: Terms) -> dict[str, Any]:
        return {"advantage": -t.advantage}

    penalty, mask = only_penalty(method), method.parts.mask
    # These two read no A.
    if penalty is not None and penalty.settings["mask"].name not in ("everywhere", "short_of_entropy"):
        dh = penalty.settings["mask"].settings.get("dh")
        if penalty.settings["mask"].name == "misaligned" and dh is not None and dh.name != "entropy_diff":
            return None  # A dH < 0, and that dH is a multiple of A
        changed = seen_through(penalty.settings["mask"], change)
        return with_parts(method, penalties=(replace(penalty, settings={**penalty.settings, "mask": changed}),))
    if mask is not None and mask.name not in ("steer", "top_entropy"):  # |Omega| has no sign; the other reads no A
        return with_parts(method, mask=seen_through(mask, change))
    return None


@mutation("drop the mask")
def drop_mask(method: Method) -> Method | None:
    return with_parts(method, mask=None) if method.parts.mask is not None else None


@mutation("shape nothing")
def drop_shape(method: Method) -> Method | None:
    return with_parts(method, shape=None) if method.parts.shape is not None else None


# ---- numbers ----


def numbers(part: Part, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Paths to every number among a part's settings and its inner parts'."""
    found = []
    for name, value in part.settings.items():
        if isinstance(value, Part):
            found += numbers(value, (*path, name))
        elif isinstance(value, float):
            found.append((*path, name))
    return found


def scaled(part: Part, path: tuple[str, ...], factor: float) -> Part:
    name, *rest = path
    value = part.settings[name]
    return replace(
        part, settings={**part.settings, name: scaled(value, tuple(rest), factor) if rest else factor * value}
    )


def half_as_much_again(name: str) -> Mutation:
    """A constant that is wrong by half, wherever the method has it."""

    def mutate(method: Method) -> Method | None:
        for slot, part in method.parts.filled().items():
            path = next((p for p in numbers(part) if p[-1] == name), None)
            if path is None or (name == "low" and (part.settings["low"] >= 1 or part.settings.get("form") == "eq4")):
                continue  # below a weight of 0; not in Eq. 4 as printed
            changed = scaled(part, path, 1.5)
            return with_parts(method, **({"penalties": (changed,)} if slot.startswith("penalty") else {slot: changed}))
        return None

    return mutate


for _name in ("low", "high", "beta", "coefficient", "fraction", "lower", "upper", "least", "alpha", "kappa", "share"):
    MUTATIONS[f"half as much again: {_name}"] = half_as_much_again(_name)


for _name in ("tau_positive", "tau_negative", "k_pos", "lambda_pos", "k_neg", "lambda_neg"):
    MUTATIONS[f"half as much again: {_name}"] = half_as_much_again(_name)


def near_changed(method: Method, **settings: float) -> Method | None:
    """Another trust region of the surrogate's mask (DPPO)."""
    mask = method.parts.mask
    if mask is None or not settings.keys() <= mask.settings.keys():
        return None
    return with_parts(method, mask=replace(mask, settings={**mask.settings, **settings}))


MUTATIONS["trust every raised token"] = lambda m: near_changed(m, high=1e9)
MUTATIONS["trust every lowered token"] = lambda m: near_changed(m, low=1e9)
MUTATIONS["clip no raised token's logarithm"] = lambda m: logarithm_changed(m, high=1e9)
MUTATIONS["clip no lowered token's logarithm"] = lambda m: logarithm_changed(m, low=1e9)


def logarithm_changed(method: Method, **settings: float) -> Method | None:
    """Other bounds of GMPO's log ratios."""
    surrogate = method.parts.surrogate
    if surrogate.name != "geometric_clipped":
        return None
    return with_parts(method, surrogate=replace(surrogate, settings={**surrogate.settings, **settings}))


# ---- rollout correction ----


def correction_changed(method: Method, **settings: Any) -> Method | None:
    part = method.parts.correction
    if part is None or all(part.settings[name] == value for name, value in settings.items()):
        return None
    bounds = {"cap", "floor"} - settings.keys()
    if "rejection" not in settings and "rejection" in part.settings:
        return None  # what a rejection leaves out, another first weight may leave out too
    if {part.settings["action"], settings.get("action")} == {"truncate", "mask"} and not any(
        part.settings[bound] is not None for bound in bounds
    ):
        return None  # without a bound the two are one
    scope: Scope = "token" if {**part.settings, **settings}["level"] == "token" else "sequence"
    return with_parts(method, correction=replace(part, settings={**part.settings, **settings}, own_scope=scope))


def _without_bound(method: Method, bound: str) -> Method | None:
    return correction_changed(method, **{bound: None})


MUTATIONS["forget the rejection"] = lambda m: (
    None
    if m.parts.correction is None or "rejection" not in m.parts.correction.settings
    else correction_changed(m, rejection=None)
)
MUTATIONS["correct nothing"] = lambda m: None if m.parts.correction is None else with_parts(m, correction=None)
for _level in ("token", "sequence", "mean"):
    MUTATIONS[f"correct by the ratio of: {_level}"] = functools.partial(correction_changed, level=_level)
for _action in ("truncate", "mask", "reject"):
    MUTATIONS[f"{_action} beyond the correction's bounds"] = functools.partial(correction_changed, action=_action)
for _bound in ("cap", "floor"):
    MUTATIONS[f"drop the correction's {_bound}"] = functools.partial(_without_bound, bound=_bound)


@mutation("correct the penalty or the surrogate alone")
def correct_other(method: Method) -> Method | None:
    part = method.parts.correction
    if part is None or not method.parts.penalties:
        return None
    return correction_changed(method, on="surrogate" if part.settings["on"] == "objective" else "objective")


def correction_seen(method: Method, change: Any) -> Method | None:
    part = method.parts.correction
    return None if part is None else with_parts(method, correction=seen_through(part, change))


def swapped_sampler(t: Terms) -> dict[str, Any]:
    assert t.batch.sampling_logp is not None
    return {"batch": replace(t.batch, old_logp=t.batch.sampling_logp, sampling_logp=t.batch.old_logp)}


MUTATIONS["swap trainer and sampler in the correction"] = lambda m: correction_seen(m, swapped_sampler)
MUTATIONS["correct the current policy, not the old"] = lambda m: correction_seen(
    m, lambda t: {"batch": replace(t.batch, old_logp=t.batch.logp.detach())}
)


# ---- advantages ----


def advantage_changed(name: str, part: Part) -> Mutation:
    return lambda m: None if str(m.parts.advantage) == str(part) else with_parts(m, advantage=part)


MUTATIONS["do not divide by the deviation"] = advantage_changed(
    "", advantages.group_centred(scale="one", reward="binary")
)
MUTATIONS["divide by the biased deviation"] = advantage_changed("", advantages.group_zscore(std="biased"))
MUTATIONS["divide by the deviation"] = advantage_changed("", advantages.group_zscore(std="unbiased"))


@mutation("centre over the whole batch")
def one_group(method: Method) -> Method | None:
    part = method.parts.advantage
    if part.settings.get("baseline") == "none":
        return None  # it reads no groups
    return with_parts(
        method, advantage=wrap(part, lambda f: lambda reward, group, lengths, **k: f(reward, group * 0, lengths, **k))
    )


@mutation("declare nothing about splits")
def no_scope(method: Method) -> Method | None:
    """`scope = token` where a row or the batch must stay whole."""
    if method.scope == "token":
        return None

    def loosened(part: Part) -> Part:
        inner = {n: loosened(v) if isinstance(v, Part) else v for n, v in part.settings.items()}
        return replace(part, own_scope="token", settings=inner)

    slots: dict[str, Any] = {n: loosened(p) for n, p in method.parts.filled().items() if "penalty" not in n}
    return with_parts(method, **slots, penalties=tuple(loosened(p) for p in method.parts.penalties))
