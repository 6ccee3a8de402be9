"""A catalog entry: what is printed about a method, its options, and the parts they make. Keys are parsed here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from methods.method import Method
from methods.options import Option, Value
from methods.parts import Part, Parts, advantages, masks, penalties, ratios, reducers, surrogates
from methods.readings import NAMED, READINGS, Reading
from methods.readings import option as reading_option
from records.errors import ConfigError, unknown

Settings = Mapping[str, Any]  # option name -> value, every option of the recipe


@dataclass(frozen=True)
class Recipe:
    """Everything a catalog file says. `parts` makes the slots from the options' values."""

    key: str
    title: str
    source: str  # the paper that proposed it
    rows: tuple[str, ...]  # rows of the TEPO paper's tables
    differs: str  # from GRPO/DAPO, in a sentence
    quote: str  # what the TEPO paper says
    where: str  # where it says so
    equation: str  # the objective J, maximised
    options: tuple[Option, ...]
    parts: Callable[[Settings], Parts]
    also: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)  # other name -> settings it stands for

    def option(self, name: str) -> Option:
        for option in self.options:
            if option.name == name:
                return option
        raise unknown("method", self.key, name, [o.name for o in self.options])

    def method(self, settings: Mapping[str, object]) -> Method:
        """The method with these options set and all others at their defaults."""
        given = self._given(settings)
        values = {o.name: o.parse(given.get(o.name, o.default), f"method {self.key}") for o in self.options}
        changed = sorted(f"{o.name}={o.spell(values[o.name])}" for o in self.options if values[o.name] != o.default)
        return Method(
            key="+".join([self.key, *changed]),
            title=", ".join([self.title, *(c.replace("=", " ") for c in changed)]),
            source=self.source,
            parts=self.parts(values),
            params={o.name: values[o.name] for o in self.options if not (o.choices and o.name == o.reading)},
            readings={r.name: self._reading(r, values) for r in self.readings()},
        )

    def readings(self) -> list[Reading]:
        """The paper's ambiguities that bear on this method."""
        return [r for r in READINGS if any(o.reading == r.name for o in self.options)]

    def labels(self, reading: Reading) -> tuple[str, ...]:
        """The reading's values that this method can take."""
        named = [o for o in self.options if o.name == reading.name and o.choices]
        return named[0].choices if named else tuple(reading.values)

    def _given(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Options that the settings set, labels of readings spelt out; `ConfigError` if two set the same."""
        given: dict[str, object] = {}
        by: dict[str, str] = {}
        for key, setting in settings.items():
            for name, value in self._meant(key, setting).items():
                if name in given:
                    raise ConfigError(f"method {self.key}: {name}: set twice, by {by[name]} and by {key}")
                given[name], by[name] = value, key
        return given

    def _meant(self, name: str, value: object) -> dict[str, object]:
        """An option, or a reading set by label (`seq-eps=gspo` stands for its `low` and `high`)."""
        reading = NAMED.get(name)
        if (
            reading is None
            or reading.settings is None
            or reading not in self.readings()
            or name in [o.name for o in self.options]
        ):
            self.option(name)
            return {name: value}
        if str(value) not in reading.values:
            raise unknown(f"method {self.key}", name, value, reading.values)
        mine = {o.name for o in self.options}
        return {k: v for k, v in reading.settings.get(str(value), {}).items() if k in mine}

    def _reading(self, reading: Reading, values: Mapping[str, Value]) -> str:
        """The label in force, or the settings spelt out when no label has them."""
        options = [o for o in self.options if o.reading == reading.name]
        if reading.settings is None:
            return options[0].spell(values[options[0].name])
        if all(values[o.name] == o.default for o in options):
            return reading.default
        for label, settings in reading.settings.items():
            if all(settings.get(o.name, o.default) == values[o.name] for o in options):
                return label
        return " ".join(f"{o.name}={o.spell(values[o.name])}" for o in options)


def read_key(text: str) -> tuple[str, dict[str, str]]:
    """`tepo+beta=1+kl-estimator=k1` -> ("tepo", {"beta": "1", "kl-estimator": "k1"})."""
    name, *settings = text.strip().split("+")
    pairs: dict[str, str] = {}
    for setting in settings:
        option, equals, value = setting.partition("=")
        if not (option and equals and value):
            raise ConfigError(f"method {text!r}: {setting!r} is not of the form name=value")
        if option in pairs:
            raise ConfigError(f"method {text!r}: {option} is set twice")
        pairs[option] = value
    return name, pairs


# Options that several methods share, each default with its source, and the parts they make.


LOW = Option("low", 0.2, "printed", printed="0.2, section 4.1", original="0.2, DAPO", blank="none")
HIGH = Option("high", 0.28, "printed", printed="0.28, section 4.1", original="0.28, DAPO", blank="none")
SEQ_LOW = LOW.but(
    printed="epsilon, eq. 4", original="3e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
SEQ_HIGH = HIGH.but(
    printed="epsilon, eq. 4", original="4e-4, GSPO", why="Clip-Higher for all, section 4.1", reading="seq-eps"
)
COV_LOW = LOW.but(printed="-", original="1 Clip-Cov, none KL-Cov", why="the official scripts", reading="cov-clip")
COV_HIGH = COV_LOW.but(name="high")
DUAL_CLIP = reading_option(
    "dual-clip", default=None, choices=(), blank="off", least=1.0, original="3, verl; 10, DAPO's script"
)
ADV_STD = reading_option("adv-std", printed="std, eq. 9, no eps")
AGG_SCOPE = reading_option(
    "agg-scope", printed="group, eq. 4", original="minibatch, verl and TRL; micro-batch, lineage"
)
CLIP_FORM = reading_option("clip-form", printed="eq4, eq. 4; none, Algorithm 1", original="ppo, GSPO")
GRADIENT = reading_option("gradient", printed="alg1_line21, Algorithm 1; autograd, eq. 4", original="autograd, GSPO")
KL_ANCHOR = reading_option("kl-anchor", printed="old, eq. 4", original="ref, GRPO")
KL_ESTIMATOR = reading_option("kl-estimator", original="k3, GRPO")
DH_DEF = reading_option("dh-def")
DH_TOL = reading_option("dh-tol", default=None, choices=(), blank="auto")
MASK_NORM = reading_option("mask-norm", printed="tokens, eq. 4")
TOKEN_RATIO = Option(
    "ratio", "token", "the row is Table 1's, digit for digit", choices=("token", "sequence"), reading="panel-b-base"
)
SEQUENCE_RATIO = TOKEN_RATIO.but(default="sequence", why="Panel B is said to be on TEPO without KL")

TOKEN_CLIP = (LOW, HIGH, DUAL_CLIP)
SEQUENCE_CLIP = (SEQ_LOW, SEQ_HIGH, DUAL_CLIP, CLIP_FORM)
KL = (KL_ANCHOR, KL_ESTIMATOR)
ENTROPY_CHANGE = (DH_DEF, DH_TOL)


def z_score(s: Settings) -> Part:
    """The group-normalised advantage by `adv-std`."""
    return advantages.group_zscore(std=s["adv-std"])


def clip(s: Settings) -> Part:
    """The clipped objective by the options `low`, `high`, `dual-clip` and, where there is one, `clip-form`."""
    form = s.get("clip-form", "ppo")
    if form != "ppo" and s["dual-clip"] is not None:
        raise ConfigError(f"dual-clip: has no meaning with clip-form={form}")
    if form == "none" and (s["low"], s["high"]) != (LOW.default, HIGH.default):
        raise ConfigError("low, high: have no meaning with clip-form=none")
    if form == "none" or s["low"] is s["high"] is s["dual-clip"] is None:
        return surrogates.plain()
    return surrogates.clipped(low=s["low"], high=s["high"], form=form, dual=s["dual-clip"])


def token_mean(s: Settings) -> Part:
    """The token mean by `agg-scope`."""
    return reducers.token_mean(scope=s["agg-scope"])


def ratio(s: Settings) -> Part:
    """The level named by the option `ratio`."""
    return {"token": ratios.token, "sequence": ratios.sequence}[s["ratio"]]()


def kl(s: Settings, *, where: Part) -> Part:
    """beta KL on the tokens of `where` by `beta`, `kl-estimator`, `kl-anchor` and, where there is one, `mask-norm`."""
    norm = s.get("mask-norm", "tokens")
    return penalties.kl(beta=s["beta"], estimator=s["kl-estimator"], anchor=s["kl-anchor"], where=where, norm=norm)


def delta_entropy(s: Settings) -> Part:
    """Delta H by the options `dh-def` and `dh-tol`."""
    if s["dh-def"] != "entropy_diff" and s["dh-tol"] is not None:
        raise ConfigError(f"dh-tol: has no meaning with dh-def={s['dh-def']}, which measures no entropy difference")
    return masks.delta_entropy(s["dh-def"], s["dh-tol"])
