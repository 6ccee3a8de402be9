"""Catalog entries and their options: what a key such as `tepo+beta=1+kl-estimator=k1` may set, and its spelling.

A catalog file puts `@method(key=..., title=..., ...)` on a function that composes parts. Options shared by several
entries are defined here; an option of a single entry is defined in that entry's file. docs/methods.md has the equations
and the sources of the defaults.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeAlias

from core.errors import ConfigError, unknown
from methods.method import Method
from methods.parts import Part, Parts, advantages, objective, penalties
from methods.parts.objective import CLIP_HIGHER

Value: TypeAlias = float | str | None  # value of an option
Settings: TypeAlias = Mapping[str, Any]  # option name -> value, for every option of an entry


@dataclass(frozen=True)
class Option:
    """One choice: a word among `choices`, a number from `least` to `most`, or the word `blank`, which means None."""

    name: str  # in keys and in the settings that a catalog function reads
    default: Value
    _: KW_ONLY
    choices: tuple[str, ...] = ()  # allowed words; empty for a number
    reading: bool = False  # whether the paper leaves it open: a run records it apart (docs/notebook/readings.md)
    least: float = 0.0
    most: float = math.inf
    blank: str | None = None  # the word for None, such as `off`; without it None is not allowed

    def parse(self, value: object, where: str) -> Value:
        """Return the value of a number, its spelling or a word; raise `ConfigError` with the allowed values."""
        text = self.blank if value is None else str(value)
        if text in self.choices:
            return text
        if self.choices:
            raise unknown(where, self.name, value, self.choices)
        if text is not None and text == self.blank:
            return None
        try:
            number = float(str(text))
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self.least <= number <= self.most:
            most = f" and at most {self.spell(self.most)}" if math.isfinite(self.most) else ""
            allowed = f"a number of at least {self.spell(self.least)}{most}{f', or {self.blank}' if self.blank else ''}"
            raise ConfigError(f"{where}: {self.name}: got {value!r}, allowed: {allowed}")
        return number

    def spell(self, value: Value) -> str:
        """Return the only spelling of a value, because keys name folders: 1, 1.0 and 1e0 are all `1`."""
        if value is None or isinstance(value, str):
            return str(self.blank) if value is None else value
        # from 1e15 upwards, int() would print digits beyond the number's precision
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))

    def with_(self, **changes: Any) -> Option:
        """Return this option with some fields changed, such as the default."""
        return replace(self, **changes)


def of_reading(name: str, *choices: str, **more: Any) -> Option:
    """Return the option that decides the reading `name`: a word of `choices` (default: the first), else a number."""
    return Option(name, choices[0] if choices else None, choices=choices, reading=True, **more)


LOW = Option("low", CLIP_HIGHER[0], blank="none")
HIGH = Option("high", CLIP_HIGHER[1], blank="none")
# least=1: the weight of an on-policy token is 1, and a smaller bound would clip it.
DUAL_CLIP = of_reading("dual-clip", blank="off", least=1.0)
CLIP_FORM = of_reading("clip-form", "ppo", "eq4", "none")
TOKEN_CLIP = (LOW, HIGH, DUAL_CLIP)
# The sequence-level methods share TEPO's bounds: GSPO's row also appears as Panel D's ablation of the reducer.
SEQUENCE_CLIP = (*TOKEN_CLIP, CLIP_FORM)

ADV_STD = of_reading("adv-std", "unbiased", "biased", "unbiased-1e-4")
AGG_SCOPE = of_reading("agg-scope", "minibatch", "group", "microbatch")
GRADIENT = of_reading("gradient", "autograd", "alg1_line21")
TOKEN_RATIO = Option("ratio", "token", choices=("token", "sequence"))
SEQUENCE_RATIO = TOKEN_RATIO.with_(default="sequence")

BETA = Option("beta", 0.001, reading=True)
KL_ANCHOR = of_reading("kl-anchor", "old", "ref")
KL_ESTIMATOR = of_reading("kl-estimator", "k3", "abs", "k1", "k2", "k3_is")
# most: below k3 at d = -20, where d is bounded as well, so that the bound on k3 takes effect first.
KL_CLAMP = of_reading("kl-clamp", blank="none", most=1e8)
DH_DEF = of_reading("dh-def", "entropy_diff", "cov_sign", "first_order", "theorem", "surprise_diff", "positions")
DH_TOL = of_reading("dh-tol", blank="auto")  # nats; auto: by the dtype of the entropies
MASK_NORM = of_reading("mask-norm", "tokens", "masked")
MASKED_KL = (BETA, KL_ANCHOR, KL_ESTIMATOR, KL_CLAMP, DH_DEF, DH_TOL, MASK_NORM)

# least, most: rho is 1 if the sampler equals the old policy, and a bound beyond 1 would reject that.
CAP = Option("correction-cap", 2.0, blank="none", least=1.0)
FLOOR = CAP.with_(name="correction-floor", default=None, least=0.0, most=1.0)
# Options of every method, besides those of the entry. They are part of a key and of a run's record only when a
# correction is on. Bounds of a kind that differ from the defaults here are always in the key, hence in folder names.
CORRECTION = (Option("correction", "none", choices=("none", *objective.KINDS)), CAP, FLOOR)


def clipped_loss(
    s: Settings, *, level: str = "token", advantage: Part | None = None, reduce: Part | None = None
) -> Parts:
    """Return the clipped loss from which most entries start: GRPO/DAPO's with `level` token, TEPO's with sequence.

    Options that an entry lacks have the values of that loss. Without `advantage` and `reduce`: the z-score within the
    group, and the token mean.
    """
    form, dual = s.get("clip-form", "ppo"), s["dual-clip"]
    return Parts(
        advantage=advantage or advantages.group_zscore(std=s["adv-std"]),
        ratio=objective.at_level(s.get("ratio", level), gradient=s.get("gradient", "autograd")),
        surrogate=objective.clipped(low=s["low"], high=s["high"], form=form, dual=dual),
        reduce=reduce or objective.token_mean(scope=s.get("agg-scope", "minibatch")),
    )


def with_kl(loss: Parts, s: Settings, mask: Part) -> Parts:
    """Return a loss with the KL of the options' values on the tokens in `mask`, in place of its penalties."""
    norm, clamp = s.get("mask-norm", "tokens"), s.get("kl-clamp")
    kl = penalties.kl(
        beta=s["beta"], estimator=s["kl-estimator"], anchor=s["kl-anchor"], mask=mask, norm=norm, clamp=clamp
    )
    return replace(loss, penalties=(kl,))


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One method of the catalog. Calling it with the options' values returns the method's parts."""

    key: str  # name in keys and result folders
    parts: Callable[[Settings], Parts]  # the loss: from the options' values to the slots
    options: tuple[Option, ...]  # in listing order
    aliases: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)  # other name -> settings that it implies
    title: str  # name in tables
    source: str  # the paper that proposed it

    def __call__(self, settings: Settings) -> Parts:
        """Return the parts, so that another entry can replace a slot: `replace(grpo(s), ratio=...)`."""
        return self.parts(settings)

    def method(self, settings: Mapping[str, object]) -> Method:
        """Return the method with these options set and all others at their defaults."""
        options = (*self.options, *CORRECTION)
        if unfit := [name for name in settings if name not in {o.name for o in options}]:
            raise unknown("method", self.key, unfit[0], [o.name for o in options])
        bounds: dict[str, Value] = {}  # defaults of this kind of correction
        if (kind := objective.KINDS.get(str(settings.get("correction")))) is not None:
            bounds = {"correction-cap": kind[2], "correction-floor": kind[3]}
        values: dict[str, Any] = {
            o.name: o.parse(settings.get(o.name, bounds.get(o.name, o.default)), f"method {self.key}") for o in options
        }
        if values["correction"] == "none":
            if idle := [o.name for o in CORRECTION if o.name in settings and values[o.name] != o.default]:
                raise ConfigError(f"method {self.key}: {idle[0]}: has no meaning with correction=none")
            options = self.options
        # only values that differ from the default are in the key: two spellings of a method share one results folder
        named = [o for o in options if not values[o.name] == bounds.get(o.name, o.default) == o.default]
        changed = sorted(f"{o.name}={o.spell(values[o.name])}" for o in named)
        cap, floor = values["correction-cap"], values["correction-floor"]
        correction = objective.correction(kind=values["correction"], cap=cap, floor=floor)
        own = [o for o in options if o.reading]  # a reading decided by several options is in `params`
        return Method(
            key="+".join([self.key, *changed]),
            title=", ".join([self.title, *(c.replace("=", " ") for c in changed)]),
            source=self.source,
            parts=replace(self.parts(values), correction=correction),
            # a reading's choice of words is recorded once, among the readings
            params={o.name: values[o.name] for o in options if not (o.choices and o in own)},
            readings={o.name: o.spell(values[o.name]) for o in own},
        )


def method(**described: Any) -> Callable[[Callable[[Settings], Parts]], CatalogEntry]:
    """Turn a function from options to parts into a catalog entry; `described`: the other fields of the entry."""
    return lambda parts: CatalogEntry(parts=parts, **described)
