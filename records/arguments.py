"""The command line of every `python -m ...`: mistakes are one line, numbers have bounds.

`type=whole(1)` and `type=real(above=0, most=60)` stand in place of `int` and `float`: `float` takes nan and infinity,
and both take numbers that mean nothing for the option. Such a number would end far from where it was typed, or change
a result in silence.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Never

from records.errors import ConfigError

DECIDES_NO_NUMBER = "refuses options that mean nothing, and changes no value"


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose error is one line, like every other error, and not the usage and a line."""

    def error(self, message: str) -> Never:
        raise ConfigError(f"command line: {message}; --help lists the options")


def whole(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """A whole number from `least` to `most`.

    >>> whole(1)("3")
    3
    """

    def parse(text: str) -> int:
        try:
            value = int(text) if len(text) <= 20 else None  # Python refuses some thousand digits in words of its own
        except ValueError:
            value = None
        if value is None or not least <= value <= most:
            raise argparse.ArgumentTypeError(f"must be a whole number from {least} to {most}, got {text[:40]!r}")
        return value

    return parse


def real(*, above: float | None = None, least: float | None = None, most: float) -> Callable[[str], float]:
    """A finite number above `above`, or from `least`, to `most`.

    >>> real(above=0, most=60)("0.5")
    0.5
    """

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        # A comparison with nan is False.
        if not ((above is None or value > above) and (least is None or value >= least) and value <= most):
            lower = f"above {above:g}" if above is not None else f"from {least:g}"
            raise argparse.ArgumentTypeError(f"must be a number {lower} to {most:g}, got {text[:40]!r}")
        return value

    return parse
