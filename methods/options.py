"""Named choices of a method: what a key like `tepo+beta=1+kl-estimator=k1` may set, and how its values are spelt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from records.errors import ConfigError, unknown

Value: TypeAlias = float | str | None


@dataclass(frozen=True)
class Option:
    """One choice: a word among `choices`, or a number from `least` to `most`, or the word `blank`, which means None."""

    name: str
    default: Value
    why: str  # why this default
    printed: str = "-"  # in the TEPO paper
    original: str = "-"  # in the method's own paper or code
    choices: tuple[str, ...] = ()
    reading: str | None = None  # the ambiguity it settles, if it settles one
    least: float = 0.0
    most: float = math.inf
    blank: str | None = None

    def parse(self, value: object, where: str) -> Value:
        """The value meant by a number, its spelling or a word; `ConfigError` naming what is allowed."""
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
            allowed = f"a number of at least {self.spell(self.least)}{most}" + (
                f", or {self.blank}" if self.blank else ""
            )
            raise ConfigError(f"{where}: {self.name}: got {value!r}, allowed: {allowed}")
        return number

    def spell(self, value: Value) -> str:
        """One spelling per value: 1, 1.0 and 1e0 are all `1`."""
        if value is None:
            return str(self.blank)
        if isinstance(value, str):
            return value
        return str(int(value)) if float(value).is_integer() and abs(value) < 1e15 else repr(float(value))

    def but(self, **changes: Any) -> Option:
        """This option with, say, another default and the reason for it."""
        return replace(self, **changes)
