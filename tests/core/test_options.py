"""Numbers of a command line, and mistakes on it, for every command that the project has."""

from __future__ import annotations

import argparse
import importlib
import math

import pytest

from core.errors import ConfigError, Parser, real, whole
from tests import house

NO_NUMBERS = ("nan", "NaN", "inf", "-inf", "Infinity", "1e999", "-1", "x", "", "1e400", "9" * 5000, "0x1", "1_0_", "½")


def test_what_is_no_number_is_refused():
    for kind in (whole(0), whole(1, 60), real(least=0, most=1e9), real(above=0, most=60)):
        for text in NO_NUMBERS:
            with pytest.raises(argparse.ArgumentTypeError, match="must be a"):
                kind(text)


def test_bounds_belong_to_the_allowed_or_not_as_they_say():
    assert whole(1, 60)("1") == 1
    assert whole(1, 60)("60") == 60
    assert real(least=0, most=60)("0") == 0
    assert math.isclose(real(above=0, most=60)("1e-9"), 1e-9)
    for kind, text in ((whole(1, 60), "61"), (whole(1), "1.0"), (real(above=0, most=60), "0")):
        with pytest.raises(argparse.ArgumentTypeError):
            kind(text)


def test_a_mistake_on_the_command_line_is_one_line():
    parser = Parser()
    parser.add_argument("--cpu-seconds", type=real(above=0, most=60))
    for arguments in (["--cpu-seconds", "nan"], ["--cpu"], ["--what", "1"]):
        with pytest.raises(ConfigError) as refused:
            parser.parse_args(arguments)
        assert "\n" not in str(refused.value)
        assert "--help" in str(refused.value)


COMMANDS = sorted(
    ".".join(path.relative_to(house.ROOT).with_suffix("").parts)
    for room in ("methods", "evals", "models", "paper", "report", "workflow")
    for path in (house.ROOT / room).rglob("*.py")
    if ".run(main)" in path.read_text(encoding="utf-8")
)


def test_every_command_refuses_an_unknown_option_in_one_line(monkeypatch):
    for module in COMMANDS:
        command = importlib.import_module(module)
        monkeypatch.setattr("sys.argv", [module, "--no-such-option"])
        with pytest.raises(ConfigError, match="command line: "):
            command.main()
