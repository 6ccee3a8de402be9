"""Wrong declared data is one line: file, key, what is allowed, value got, nearest match."""

from __future__ import annotations

import argparse
import importlib
import math
from typing import Any, Literal

import pytest
from pydantic import Field, model_validator

from core.declared import Declared, KeyProblemError, Tuple, validated
from core.errors import ConfigError, Parser, real, whole
from tests import house


class Inner(Declared):
    kind: Literal["a", "bcd"]
    n: int
    rate: float = 1.0

    @model_validator(mode="after")
    def _check(self) -> Inner:
        if self.rate > 10 * self.n:
            raise KeyProblemError("rate", f"{self.rate} is more than ten times n")
        return self


class Outer(Declared):
    name: str
    inner: Inner
    many: Tuple[Inner] = ()
    names: Tuple[str] = ()
    by_name: dict[str, Inner] = Field(default_factory=dict)
    maybe: Inner | None = None


GOOD: dict[str, Any] = {"name": "x", "inner": {"kind": "a", "n": 1, "rate": 3}}
BAD: list[tuple[object, str]] = [
    (GOOD | {"nam": 1}, "nam: unknown key; allowed: by_name, inner, many, maybe, name, names; nearest: name"),
    (GOOD | {"inner": {"kind": "bcdd", "n": 1}}, "inner.kind: unknown value 'bcdd'; allowed: a, bcd; nearest: bcd"),
    (GOOD | {"inner": {"kind": "a"}}, "inner.n: is missing"),
    (GOOD | {"inner": {"kind": "a", "n": "1"}}, "inner.n: must be a whole number, got '1'"),
    (GOOD | {"inner": {"kind": "a", "n": True}}, "inner.n: must be a whole number, got True"),
    (GOOD | {"inner": {"kind": "a", "n": 1, "rate": "1e-3"}}, "inner.rate: must be a number, got '1e-3'"),
    (GOOD | {"inner": {"kind": "a", "n": 1, "rate": math.nan}}, "inner.rate: must be a finite number, got nan"),
    (GOOD | {"inner": {"kind": "a", "n": 1, "rate": math.inf}}, "inner.rate: must be a finite number, got inf"),
    (GOOD | {"inner": {"kind": "a", "n": 1, "rate": 11}}, "inner.rate: 11.0 is more than ten times n"),
    (GOOD | {"many": [{"kind": "a", "n": 1.5}]}, "many.0.n: must be a whole number, got 1.5"),
    (GOOD | {"names": ["a", 1]}, "names.1: must be text, got 1"),
    (GOOD | {"names": "a"}, "names: must be a list, got 'a'"),
    (GOOD | {"by_name": {"q": {"kind": "a", "n": 1, "m": 1}}}, "by_name.q.m: unknown key; allowed: kind, n, rate"),
    (GOOD | {"maybe": {"kind": "x", "n": 1}}, "maybe.kind: unknown value 'x'; allowed: a, bcd"),
    (GOOD | {"maybe": 3}, "maybe: must be keys and values, got 3"),
    ([1], "top level: must be keys and values, got list"),
]


def test_what_is_right_is_taken_as_it_is() -> None:
    assert validated(Outer, GOOD, "f.yaml").inner.rate == 3


def test_what_is_wrong_is_one_line() -> None:
    for value, said in BAD:
        with pytest.raises(ConfigError) as error:
            validated(Outer, value, "f.yaml")
        assert str(error.value) == f"f.yaml: {said}"


def test_an_unknown_key_may_look_like_anything() -> None:
    """pydantic writes the names of a union's members into the path of a key, in the same form."""

    class Empty(Declared):
        pass

    for key in ("[x", "list[int]", "int", "str", ""):
        with pytest.raises(ConfigError, match=r"^a\.yaml: .*unknown key"):
            validated(Empty, {key: 1}, "a.yaml")


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
