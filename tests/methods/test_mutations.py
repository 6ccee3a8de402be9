"""The suite notices every small wrong done to any method: each mutation of each method fails one of its checks.

A mutation gives a method that is not the printed one, or None where it would still be. It works on the parts of one
method and leaves every other method alone: each method is tested for itself.
"""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch

from methods import catalog
from methods.method import Method
from methods.parts import Part, Scope, Terms, advantages, masks, objective, penalties
from tests.methods import test_properties, test_reference
from tests.methods.batches import random_fields, shapes

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


def stopped(part: Part) -> Part:
    return wrap(part, lambda f: lambda *a, **k: f(*a, **k).detach())


def seen_through(part: Part, change: Callable[[Terms], dict[str, Any]]) -> Part:
    """The part, reading a `Terms` of which some values are replaced."""

    def around(f: Callable[..., Any]) -> Callable[..., Any]:
        def changed(t: Terms, **settings: Any) -> Any:
            seen = Terms(t.batch, t.parts, t.generator)
            seen.__dict__.update(change(t))
            return f(seen, **settings)

        return changed

    return wrap(part, around)


def on_penalty(change: Callable[[Part], Part | None]) -> Mutation:
    """The penalty changed; no method has two."""

    def mutate(method: Method) -> Method | None:
        changed = change(method.parts.penalties[0]) if method.parts.penalties else None
        return None if changed is None else with_parts(method, penalties=(changed,))

    return mutate


# ---- signs ----


MUTATIONS["flip the sign of the objective"] = lambda m: with_parts(m, surrogate=negated(m.parts.surrogate))
MUTATIONS["flip the sign of the penalty"] = on_penalty(negated)
MUTATIONS["drop the penalty"] = lambda m: with_parts(m, penalties=()) if m.parts.penalties else None
MUTATIONS["swap current and old in the ratio"] = lambda m: (
    None if m.parts.ratio.name == "none" else with_parts(m, ratio=negated(m.parts.ratio))
)


# ---- reducers and denominators ----


def other(slot: str, part: Part) -> Mutation:
    """Another part in a slot, but of the same name or where no ratio is."""
    return lambda m: None if getattr(m.parts, slot).name in (part.name, "none") else with_parts(m, **{slot: part})


MUTATIONS["reduce by token-mean"] = other("reduce", objective.token_mean(scope="minibatch"))
MUTATIONS["reduce by sequence-mean-token-mean"] = other("reduce", objective.seq_mean_token_mean())
MUTATIONS["reduce by sequence-mean-token-sum"] = other("reduce", objective.seq_mean_token_sum())
MUTATIONS["use the token ratio"] = other("ratio", objective.token())
MUTATIONS["use the sequence ratio"] = other("ratio", objective.sequence())
MUTATIONS["use the prefix ratio"] = other("ratio", objective.prefix())
MUTATIONS["divide by B x T, padding included"] = lambda m: with_parts(
    m, reduce=wrap(m.parts.reduce, lambda f: lambda x, b, t, s: f(x, b, t, s) * b.tokens / b.mask.numel())
)


@mutation("ignore the minibatch's totals")
def ignore_totals(method: Method) -> Method | None:
    if method.parts.reduce.name == "token_mean_group":
        return None  # it has totals of its own, in the batch
    return with_parts(method, reduce=wrap(method.parts.reduce, lambda f: lambda x, b, t, s: f(x, b, None, None)))


# ---- gradients ----


@mutation("stop the ratio's gradient")
def stop_ratio(method: Method) -> Method | None:
    if method.parts.ratio.name == "none" or method.parts.surrogate.name in WEIGHTED:
        return None  # no ratio, or a ratio that is stopped already
    return with_parts(method, ratio=stopped(method.parts.ratio))


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


MUTATIONS["stop the penalty's gradient"] = on_penalty(stopped)


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


MUTATIONS["drop the upper clip bound"] = functools.partial(clip_changed, high=None)
MUTATIONS["take the minimum before A (Eq. 4 as printed)"] = functools.partial(clip_changed, form="eq4")
MUTATIONS["clip A < 0 again at 3"] = functools.partial(clip_changed, dual=3.0)
MUTATIONS["multiply by the weight without a clip"] = lambda m: (
    None if m.parts.surrogate.name in ("plain", "log_likelihood") else with_parts(m, surrogate=objective.plain())
)


# ---- divergence and masks ----


def kl_changed(penalty: Part, **settings: Any) -> Part | None:
    if "estimator" not in penalty.settings or all(penalty.settings[n] == v for n, v in settings.items()):
        return None
    wanted = {**penalty.settings, **settings}
    if wanted["estimator"] != "k3":
        wanted["clamp"] = None  # bounds k3 alone
    if wanted["estimator"] == "full" and wanted["anchor"] == "ref":
        return None  # refused by the method itself
    return penalties.kl(**wanted)


for _estimator in ("k1", "k2", "k3", "abs"):
    MUTATIONS[f"estimate the KL by {_estimator}"] = on_penalty(functools.partial(kl_changed, estimator=_estimator))
for _anchor in ("old", "ref"):
    MUTATIONS[f"anchor the KL at {_anchor}"] = on_penalty(functools.partial(kl_changed, anchor=_anchor))


def masked_norm(penalty: Part) -> Part | None:
    if penalty.settings.get("norm") != "tokens" or penalty.settings["mask"].name == "everywhere":
        return None
    return kl_changed(penalty, norm="masked")


def with_mask(penalty: Part, mask: Part) -> Part:
    return replace(penalty, settings={**penalty.settings, "mask": mask})


def everywhere(penalty: Part) -> Part | None:
    if penalty.settings["mask"].name == "everywhere" or "misaligned(dh=theorem)" in str(penalty):
        return None  # either sign of A, by the theorem's word, is every token
    return with_mask(penalty, masks.everywhere())


def flip_dh(penalty: Part) -> Part | None:
    mask = penalty.settings["mask"]
    if "dh" not in mask.settings:
        return None
    return with_mask(penalty, replace(mask, settings={**mask.settings, "dh": negated(mask.settings["dh"])}))


def against_advantage(mask: Part) -> Part:
    return seen_through(mask, lambda t: {"advantage": -t.advantage})


def flip_penalty_mask(penalty: Part) -> Part | None:
    mask = penalty.settings["mask"]
    if mask.name in ("everywhere", "short_of_entropy"):
        return None  # these two read no A
    if mask.name == "misaligned" and mask.settings["dh"].name != "entropy_diff":
        return None  # A dH < 0, and that dH is a multiple of A
    return with_mask(penalty, against_advantage(mask))


@mutation("flip the sign of A in the mask of the surrogate")
def flip_mask(method: Method) -> Method | None:
    mask = method.parts.mask
    if mask is None or mask.name in ("steer", "top_entropy"):
        return None  # |Omega| has no sign; the other reads no A
    return with_parts(method, mask=against_advantage(mask))


MUTATIONS["divide the KL by the masked tokens"] = on_penalty(masked_norm)
MUTATIONS["penalise every token"] = on_penalty(everywhere)
MUTATIONS["flip the sign of dH"] = on_penalty(flip_dh)
MUTATIONS["flip the sign of A in the mask of the penalty"] = on_penalty(flip_penalty_mask)
MUTATIONS["drop the mask"] = lambda m: with_parts(m, mask=None) if m.parts.mask else None
MUTATIONS["shape nothing"] = lambda m: with_parts(m, shape=None) if m.parts.shape else None


# ---- numbers ----


def scaled(part: Part, name: str) -> Part:
    """The part with its number of this name half as large again, and so in its inner parts."""
    settings = dict(part.settings)
    for key, value in settings.items():
        if isinstance(value, Part):
            settings[key] = scaled(value, name)
        elif key == name and isinstance(value, float):
            settings[key] = 1.5 * value
    return replace(part, settings=settings)


def half_as_much_again(method: Method, name: str) -> Method | None:
    """A constant that is wrong by half, wherever the method has it."""
    clip = method.parts.surrogate.settings
    if name == "low" and ((clip.get("low") or 0) >= 1 or clip.get("form") == "eq4"):
        return None  # below a weight of 0; not in Eq. 4 as printed
    slots: dict[str, Any] = {slot: scaled(part, name) for slot, part in method.parts.filled().items()}
    penalties = tuple(slots.pop(slot) for slot in list(slots) if slot.startswith("penalty"))
    changed = with_parts(method, **slots, penalties=penalties)
    return None if changed == method else changed


NUMBERS = (
    "low", "high", "beta", "coefficient", "fraction", "lower", "upper", "least", "alpha", "kappa", "share",
    "tau_positive", "tau_negative", "k_pos", "lambda_pos", "k_neg", "lambda_neg",
)  # fmt: skip
for _name in NUMBERS:
    MUTATIONS[f"half as much again: {_name}"] = functools.partial(half_as_much_again, name=_name)


def trusting(method: Method, bound: str) -> Method | None:
    """DPPO's trust region without this bound; the bound of its weight has the same name."""
    mask = method.parts.mask
    if mask is None or mask.name not in ("within_tv", "within_kl"):
        return None
    return with_parts(method, mask=replace(mask, settings={**mask.settings, bound: 1e9}))


MUTATIONS["trust every raised token"] = functools.partial(trusting, bound="high")
MUTATIONS["trust every lowered token"] = functools.partial(trusting, bound="low")


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


MUTATIONS["forget the rejection"] = lambda m: (
    correction_changed(m, rejection=None) if m.parts.correction and "rejection" in m.parts.correction.settings else None
)
MUTATIONS["correct nothing"] = lambda m: None if m.parts.correction is None else with_parts(m, correction=None)
for _level in ("token", "sequence", "mean"):
    MUTATIONS[f"correct by the ratio of: {_level}"] = functools.partial(correction_changed, level=_level)
for _action in ("truncate", "mask", "reject"):
    MUTATIONS[f"{_action} beyond the correction's bounds"] = functools.partial(correction_changed, action=_action)
for _bound in ("cap", "floor"):
    MUTATIONS[f"drop the correction's {_bound}"] = functools.partial(correction_changed, **{_bound: None})


@mutation("correct the penalty or the surrogate alone")
def correct_other(method: Method) -> Method | None:
    part = method.parts.correction
    if part is None or not method.parts.penalties:
        return None
    return correction_changed(method, on="surrogate" if part.settings["on"] == "objective" else "objective")


def correction_seen(method: Method, **fields: str) -> Method | None:
    """The correction, reading other fields of the batch in the place of its own."""

    def change(t: Terms) -> dict[str, Any]:
        return {"batch": replace(t.batch, **{name: getattr(t.batch, other).detach() for name, other in fields.items()})}

    part = method.parts.correction
    return None if part is None else with_parts(method, correction=seen_through(part, change))


MUTATIONS["swap trainer and sampler in the correction"] = functools.partial(
    correction_seen, old_logp="sampling_logp", sampling_logp="old_logp"
)
MUTATIONS["correct the current policy, not the old"] = functools.partial(correction_seen, old_logp="logp")


# ---- advantages ----


def advantage_changed(method: Method, part: Part) -> Method | None:
    return None if str(method.parts.advantage) == str(part) else with_parts(method, advantage=part)


for _words, _part in (
    ("do not divide by the deviation", advantages.group_centred(scale="one", reward="binary")),
    ("divide by the biased deviation", advantages.group_zscore(std="biased")),
    ("divide by the deviation", advantages.group_zscore(std="unbiased")),
):
    MUTATIONS[_words] = functools.partial(advantage_changed, part=_part)


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


# ---- the suite ----


CORRECTED = (
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.6",
    "gspo+correction=seq-tis",
    "kl_cov+correction=tis+correction-on=objective",
    "grpo+correction=geo-rs+correction-cap=1.2+correction-floor=0.85",
    "grpo+correction=tis+rejection=geo-rs+rejection-cap=1.2+rejection-floor=0.85",
)


def split(key: str) -> None:
    method = catalog.parse(key)
    # several batches: a rejection of whole sequences may find none to reject in one of them
    for seed in range(41, 46):
        test_properties.split_invariant(method, random_fields(seed, drift=0.8))
    if method.scope != "token":
        test_properties.a_split_beyond_scope_changes_the_loss(key)


def fractions(key: str) -> None:
    if key.startswith(("kl_cov", "clip_cov")):
        test_properties.the_fraction_selects_as_many(key)


CHECKS: tuple[Callable[[str], None], ...] = (
    test_reference.loss_equals,
    test_reference.gradient_equals_finite_differences,
    test_reference.advantage_equals,
    test_reference.loss_of_a_micro_batch_equals,
    split,
    test_properties.every_property,
    fractions,
)


def caught(key: str, mutant: Method) -> bool:
    """Whether a check fails when `key` means `mutant`."""
    parse = catalog.parse
    with mock.patch.object(catalog, "parse", lambda text: mutant if text == key else parse(text)):
        for check in CHECKS:
            try:
                check(key)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:  # pytest's own failures are no Exceptions; any failure is a catch
                return True
    return False


@pytest.mark.slow
def test_every_mutation_of_every_method_and_reading_is_caught() -> None:
    keys = tuple(dict.fromkeys((*catalog.keys(), *shapes(), *CORRECTED)))
    for key in keys:  # passes on the method as it is; test_reference.py and test_properties.py run the other checks
        split(key)
    made = [(key, name, mutate(catalog.parse(key))) for name, mutate in MUTATIONS.items() for key in keys]
    mutants = [(key, name, mutant) for key, name, mutant in made if mutant is not None]
    assert len(mutants) >= 20 * len(keys)
    assert {name for _, name, _ in mutants} == set(MUTATIONS), "each acts on some method"
    assert [f"{key}: {name}" for key, name, mutant in mutants if not caught(key, mutant)] == []
