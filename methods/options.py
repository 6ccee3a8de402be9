"""Catalog entries and their options: what a key such as `tepo+beta=1+kl-estimator=k1` may set, and how it is spelt.

A file of the catalog puts `@method(key=..., title=..., ...)` on a function that composes parts. Options that several
entries share are defined here, an option of one entry in that entry's file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any, TypeAlias

from core.errors import ConfigError, unknown
from methods.method import Method
from methods.parts import Part, Parts, corrections
from methods.parts.surrogates import CLIP_HIGHER

Value: TypeAlias = float | str | None  # of an option
Settings: TypeAlias = Mapping[str, Any]  # option name -> value, for every option of an entry


@dataclass(frozen=True)
class Reading:
    """An ambiguity of the paper that a method settles. `methods/readings.yaml` holds what is printed of it."""

    name: str  # as it is set in a key
    labels: tuple[str, ...]  # the default first; examples where the option of this name is a number
    # Label -> the options that it stands for (`seq-eps=gspo`: low, high). None: it is the value of the option `name`.
    settings: Mapping[str, Mapping[str, Value]] | None = None


READINGS = {
    reading.name: reading
    for reading in (
        Reading("clip-form", ("ppo", "eq4", "none")),
        Reading("gradient", ("autograd", "alg1_line21")),
        Reading("kl-anchor", ("old", "ref")),
        Reading("kl-estimator", ("k3", "abs", "k1", "k2", "k3_is", "full")),
        Reading("dh-def", ("entropy_diff", "cov_sign", "first_order", "theorem", "surprise_diff", "positions")),
        Reading("dh-tol", ("auto",)),
        Reading("mask-norm", ("tokens", "masked")),
        Reading("prefix-grad", ("through", "own_token", "stop")),
        Reading(
            "seq-eps",
            ("clip-higher", "symmetric", "gspo"),
            {"symmetric": {"high": 0.2}, "gspo": {"low": 0.0003, "high": 0.0004}},
        ),
        Reading("beta", ("0.001", "1")),
        Reading("adv-std", ("unbiased", "biased", "unbiased-1e-4")),
        Reading("entropy-alpha", ("original", "printed"), {"printed": {"alpha": 0.0004}}),
        Reading("gpg-scale", ("one", "std", "informative", "inverse-accuracy")),
        Reading("cov-clip", ("official", "clip-higher"), {"clip-higher": {"low": 0.2, "high": 0.28}}),
        Reading(
            "cispo",
            ("upper", "verl", "two-sided", "cap", "one-update"),
            {"verl": {"low": 10.0, "high": 0.2}, "two-sided": {"low": 0.2}, "cap": {"high": 3.0}},
        ),
        Reading(
            "ent-coef", ("1e-3", "1e-4", "5e-3"), {"1e-4": {"coefficient": 0.0001}, "5e-3": {"coefficient": 0.005}}
        ),
        Reading("panel-b-base", ("mixed", "grpo", "tepo"), {"grpo": {"ratio": "token"}, "tepo": {"ratio": "sequence"}}),
        Reading(
            "steer",
            ("sequence", "token", "linear", "min-max", "ratio", "0.7"),
            {
                "token": {"ratio": "token"},
                "linear": {"map": "linear"},
                "min-max": {"map": "min-max"},
                "ratio": {"omega": "ratio"},
                "0.7": {"lambda-min": 0.7},
            },
        ),
        Reading("agg-scope", ("minibatch", "group", "microbatch")),
        Reading("dual-clip", ("off", "3", "10")),
        Reading("reward", ("binary", "signed")),
        Reading("gmpo-eps", ("original", "verl"), {"verl": {"low": 0.2, "high": 0.2}}),
        Reading("dppo-cap", ("20", "3", "off"), {"3": {"cap": 3.0}, "off": {"cap": None}}),
        Reading("kl-clamp", ("none", "10")),
        Reading("entropy-of", ("current", "old")),
        Reading("dppo-anchor", ("old", "sampler")),
        Reading("whiten-std", ("unbiased", "biased")),
    )
}


@dataclass(frozen=True)
class Option:
    """One choice: a word among `choices`, or a number from `least` to `most`, or the word `blank`, which means None."""

    name: str  # in keys and in the settings that a catalog function reads
    default: Value
    _: KW_ONLY
    why: str = ""  # why this default; empty: as its reading has it
    printed: str = "-"  # what the TEPO paper prints, and where
    original: str = "-"  # what the method's own paper or code has
    choices: tuple[str, ...] = ()  # the words allowed; empty for a number
    reading: str | None = None  # the ambiguity of the paper that this option settles, by the name of its `Reading`
    least: float = 0.0
    most: float = math.inf
    blank: str | None = None  # the word for None, such as `off`; without it None is not allowed

    def parse(self, value: object, where: str) -> Value:
        """The value that a number, its spelling or a word means; `ConfigError` naming what is allowed."""
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
            allowed = f"a number of at least {self.spell(self.least)}"
            if math.isfinite(self.most):
                allowed += f" and at most {self.spell(self.most)}"
            if self.blank:
                allowed += f", or {self.blank}"
            raise ConfigError(f"{where}: {self.name}: got {value!r}, allowed: {allowed}")
        return number

    def spell(self, value: Value) -> str:
        """One spelling per value, because keys name folders: 1, 1.0 and 1e0 are all `1`."""
        if value is None:
            return str(self.blank)
        if isinstance(value, str):
            return value
        # from 1e15 on int() would print digits that the number does not have
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))

    def with_(self, **changes: Any) -> Option:
        """This option with, say, another default and the reason for it."""
        return replace(self, **changes)


def of_reading(name: str, **changes: Any) -> Option:
    """The option that settles the reading `name`: a word among its labels, the first by default."""
    labels = READINGS[name].labels
    return replace(Option(name, labels[0], choices=labels, reading=name), **changes)


LOW = Option("low", CLIP_HIGHER[0], why="printed", printed="0.2, section 4.1", original="0.2, DAPO", blank="none")
HIGH = Option("high", CLIP_HIGHER[1], why="printed", printed="0.28, section 4.1", original="0.28, DAPO", blank="none")
# The sequence-level methods share TEPO's bounds: GSPO's row is printed again as Panel D's ablation of the reducer.
SEQ_LOW = LOW.with_(
    printed="epsilon, eq. 4", original="3e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
SEQ_HIGH = HIGH.with_(
    printed="epsilon, eq. 4", original="4e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
COV_LOW = LOW.with_(printed="-", original="1 Clip-Cov, none KL-Cov", why="the official scripts", reading="cov-clip")
COV_HIGH = COV_LOW.with_(name="high")
# choices=(): any number is allowed, the reading's labels are examples. least=1: the weight of an on-policy token is 1,
# and a smaller bound would clip it.
DUAL_CLIP = of_reading(
    "dual-clip", default=None, choices=(), blank="off", least=1.0, original="3, verl; 10, DAPO's script"
)
CLIP_FORM = of_reading("clip-form", printed="eq4, eq. 4; none, Algorithm 1", original="ppo, GSPO")
TOKEN_CLIP = (LOW, HIGH, DUAL_CLIP)
SEQUENCE_CLIP = (SEQ_LOW, SEQ_HIGH, DUAL_CLIP, CLIP_FORM)

ADV_STD = of_reading("adv-std", printed="std, eq. 9, no eps")
AGG_SCOPE = of_reading("agg-scope", printed="group, eq. 4", original="minibatch, verl and TRL; micro-batch, lineage")
GRADIENT = of_reading("gradient", printed="alg1_line21, Algorithm 1; autograd, eq. 4", original="autograd, GSPO")
TOKEN_RATIO = Option(
    "ratio", "token", why="the row is Table 1's, digit for digit", choices=("token", "sequence"), reading="panel-b-base"
)
SEQUENCE_RATIO = TOKEN_RATIO.with_(default="sequence", why="Panel B is said to be on TEPO without KL")

BETA = Option(
    "beta", 0.001, reading="beta",
    why="Qwen2.5-7B's; Table 2 states none", printed="0.001 for Qwen2.5-7B, 1 for Qwen3-14B, section 4.1",
)  # fmt: skip
KL_ANCHOR = of_reading("kl-anchor", printed="old, eq. 4", original="ref, GRPO")
KL_ESTIMATOR = of_reading("kl-estimator", original="k3, GRPO")
# most: below k3 at d = -20, where d is bounded as well, so that the bound on k3 is the one that acts.
KL_CLAMP = of_reading("kl-clamp", default=None, choices=(), blank="none", most=1e8, original="10, verl")
DH_DEF = of_reading("dh-def")
# choices=(): any number of nats is allowed, or `auto` for the tolerance of the entropies' dtype.
DH_TOL = of_reading("dh-tol", default=None, choices=(), blank="auto")
MASK_NORM = of_reading("mask-norm", printed="tokens, eq. 4")
MASKED_KL = (BETA, KL_ANCHOR, KL_ESTIMATOR, KL_CLAMP, DH_DEF, DH_TOL, MASK_NORM)

# least, most: the rho of a sampler that is the old policy is 1, and a bound beyond 1 would reject it.
CAP = Option("correction-cap", 2.0, why="by kind, above", original="by kind, above", blank="none", least=1.0)
FLOOR = CAP.with_(name="correction-floor", default=None, least=0.0, most=1.0)
# Of every method, beside the entry's own. They enter a key, and what a run records, only when a correction is on. A
# kind's own bounds are always in the key where they are not the defaults here: a folder's name then tells them.
CORRECTION = (
    Option("correction", "none", why="the paper has none", original="seq-mis, TRL; none, verl",
           choices=("none", *corrections.KINDS)),
    CAP,
    FLOOR,
    Option("correction-on", "surrogate", why="TRL's, and verl's for a KL loss of its own",
           original="objective, verl, where a penalty is part of the policy loss", choices=("surrogate", "objective")),
)  # fmt: skip
# A second correction, whose weight is 1 or 0: verl's rollout_is with a rollout_rs, OpenRLHF's seq-mask-tis.
REJECTION = (
    Option("rejection", "none", why="the paper has none", original="none, TRL and verl",
           choices=("none", *corrections.REJECTIONS)),
    CAP.with_(name="rejection-cap"),
    FLOOR.with_(name="rejection-floor"),
)  # fmt: skip


def kind_bounds(settings: Mapping[str, object]) -> dict[str, Value]:
    """Option -> the bound that goes with the kind of correction and of rejection set here."""
    bounds: dict[str, Value] = {}
    for name in ("correction", "rejection"):
        if (found := corrections.BOUNDS.get(str(settings.get(name)))) is not None:
            bounds |= {f"{name}-cap": found[0], f"{name}-floor": found[1]}
    return bounds


def correction_part(values: Mapping[str, Any]) -> Part | None:
    """The part that the values of `CORRECTION` and `REJECTION` mean."""
    rejection = corrections.correction(
        kind=values["rejection"], cap=values["rejection-cap"], floor=values["rejection-floor"], option="rejection"
    )
    return corrections.correction(
        kind=values["correction"],
        cap=values["correction-cap"],
        floor=values["correction-floor"],
        on=values["correction-on"],
        rejection=rejection,
    )


@dataclass(frozen=True, kw_only=True)
class CatalogEntry:
    """One method of the catalog. Called with the options' values it gives the method's parts."""

    key: str  # its name in keys and result folders
    parts: Callable[[Settings], Parts]  # the loss: from the options' values to the slots
    options: tuple[Option, ...]  # in the order in which they are listed
    aliases: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)  # other name -> settings it stands for
    title: str  # its name in tables
    source: str  # the paper that proposed it
    equation: str  # the objective J, maximised
    differs_from_grpo: str  # from GRPO/DAPO, in a sentence
    quote: str = ""  # what the TEPO paper says of it; [...] marks what is left out or restated
    quoted_from: str = ""  # where it says so
    paper_rows: tuple[str, ...] = ()  # rows of the TEPO paper's tables that it trains

    def __call__(self, settings: Settings) -> Parts:
        """The loss, for another entry to change a slot of: `replace(grpo(s), ratio=...)`."""
        return self.parts(settings)

    def method(self, settings: Mapping[str, object]) -> Method:
        """The method with these options set and all others at their defaults."""
        changes = self._resolve(settings)
        bounds = kind_bounds(changes)
        options = (*self.options, *CORRECTION, *REJECTION)
        values = {
            o.name: o.parse(changes.get(o.name, bounds.get(o.name, o.default)), f"method {self.key}") for o in options
        }
        for switch, group in (("rejection", REJECTION), ("correction", (*CORRECTION, *REJECTION))):
            if values[switch] == "none":
                if idle := [o.name for o in group if o.name in changes and values[o.name] != o.default]:
                    raise ConfigError(f"method {self.key}: {idle[0]}: has no meaning with {switch}=none")
                options = tuple(o for o in options if o not in group)
        # only what differs from its default is in the key: two spellings of one method share one results folder
        named = [o for o in options if not values[o.name] == bounds.get(o.name, o.default) == o.default]
        changed = sorted(f"{o.name}={o.spell(values[o.name])}" for o in named)
        parts = self.parts(values)
        if values["correction-on"] == "objective" and not parts.penalties:
            raise ConfigError(f"method {self.key}: correction-on: has no meaning in a loss without a penalty")
        return Method(
            key="+".join([self.key, *changed]),
            title=", ".join([self.title, *(c.replace("=", " ") for c in changed)]),
            source=self.source,
            parts=replace(parts, correction=correction_part(values)),
            # an option that is a reading's choice of words is recorded once, among the readings
            params={o.name: values[o.name] for o in options if not (o.choices and o.name == o.reading)},
            readings={r.name: self._label(r, values) for r in self.readings()},
        )

    def readings(self) -> list[Reading]:
        """The paper's ambiguities that bear on this method."""
        return [r for r in READINGS.values() if any(o.reading == r.name for o in self.options)]

    def labels(self, reading: Reading) -> tuple[str, ...]:
        """The reading's values that this method can take."""
        for option in self.options:
            if option.name == reading.name and option.choices:
                return option.choices
        return reading.labels

    def _resolve(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Option -> value for what the settings change; `ConfigError` if two settings change the same option.

        A reading's label becomes the options that it stands for (`seq-eps=gspo`: `low` and `high`).
        """
        names = [o.name for o in (*self.options, *CORRECTION, *REJECTION)]
        values: dict[str, object] = {}
        set_by: dict[str, str] = {}
        for key, setting in settings.items():
            changes: Mapping[str, object] = {key: setting}
            if key not in names:
                reading = READINGS.get(key)
                if reading is None or reading.settings is None or reading not in self.readings():
                    raise unknown("method", self.key, key, names)
                if str(setting) not in reading.labels:
                    raise unknown(f"method {self.key}", key, setting, reading.labels)
                changes = reading.settings.get(str(setting), {})
            for name, value in changes.items():
                if name not in names:  # a label may stand for options that this method does not have
                    continue
                if name in values:
                    raise ConfigError(f"method {self.key}: {name}: set twice, by {set_by[name]} and by {key}")
                values[name], set_by[name] = value, key
        return values

    def _label(self, reading: Reading, values: Mapping[str, Value]) -> str:
        """The reading's label in force, or the options' values when no label stands for them."""
        options = [o for o in self.options if o.reading == reading.name]
        if reading.settings is None:
            return options[0].spell(values[options[0].name])
        # before the labels: a label that stands for no option of this method has the defaults' values too
        if all(values[o.name] == o.default for o in options):
            return reading.labels[0]
        for label, settings in reading.settings.items():
            if all(settings.get(o.name, o.default) == values[o.name] for o in options):
                return label
        return " ".join(f"{o.name}={o.spell(values[o.name])}" for o in options)


def method(**described: Any) -> Callable[[Callable[[Settings], Parts]], CatalogEntry]:
    """Make a function from options to parts an entry of the catalog; `described`: the other fields of the entry."""
    return lambda parts: CatalogEntry(parts=parts, **described)
