"""A catalog entry: what is printed about a method, its options, and the parts built from their values.

A file of the catalog puts `@method(key=..., title=..., ...)` on a function that composes parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from core.errors import ConfigError, unknown
from methods.method import Method
from methods.options import CORRECTION, READINGS, REJECTION, Option, Reading, Value, correction_part, kind_bounds
from methods.parts import Parts

Settings = Mapping[str, Any]  # option name -> value, for every option of the entry


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
        """Option -> value for what the settings change; `ConfigError` if two settings change the same option."""
        values: dict[str, object] = {}
        set_by: dict[str, str] = {}
        for key, setting in settings.items():
            for name, value in self._expand(key, setting).items():
                if name in values:
                    raise ConfigError(f"method {self.key}: {name}: set twice, by {set_by[name]} and by {key}")
                values[name], set_by[name] = value, key
        return values

    def _expand(self, name: str, value: object) -> dict[str, object]:
        """An option as it is; a reading's label as the options it stands for (`seq-eps=gspo`: `low` and `high`)."""
        names = [o.name for o in (*self.options, *CORRECTION, *REJECTION)]
        if name in names:
            return {name: value}
        reading = READINGS.get(name)
        if reading is None or reading.settings is None or reading not in self.readings():
            raise unknown("method", self.key, name, names)
        if str(value) not in reading.labels:
            raise unknown(f"method {self.key}", name, value, reading.labels)
        # a label may stand for options that this method does not have
        return {k: v for k, v in reading.settings.get(str(value), {}).items() if k in names}

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
