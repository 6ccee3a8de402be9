"""Errors with one base class; each also derives from the built-in error that a caller would expect.

Rules for raising: one line; name the file, the key, the value got, the values allowed and the nearest match.
"""

import argparse
import difflib
import errno
import io
import math
import os
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Never, TypeVar

N = TypeVar("N", int, float)


class BenchError(Exception):
    """Base class of errors that a user can cause and fix."""


class ConfigError(BenchError, ValueError):
    """An unknown key or value, or two that contradict each other."""


class MissingInputError(BenchError, FileNotFoundError):
    """A missing file, row or package that a step needs."""

    def __str__(self) -> str:  # FileNotFoundError formats errno; ours is one plain line
        return str(self.args[0]) if self.args else ""


class CorruptInputError(BenchError, ValueError):
    """A file with invalid content: rows, columns, hashes, numbers that are not finite."""


class NoSpaceError(BenchError, OSError):
    """The disk is full; the file being written is discarded, earlier files remain."""


class BusyError(BenchError, RuntimeError):
    """Another process holds this run directory."""


def nearest(value: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed value most similar to `value`, or None when none is similar."""
    names = [str(a) for a in allowed]
    before, _, last = str(value).rpartition(".")
    for name in names:  # an abbreviation, such as training.lr: the first letters of its words
        inside, _, words = name.rpartition(".")
        if inside == before and "".join(word[:1] for word in words.split("_")) == last and "_" in words:
            return name
    by_letters = {name.casefold(): name for name in reversed(names)}
    hits = difflib.get_close_matches(str(value).casefold(), by_letters, n=1, cutoff=0.5)
    return by_letters[hits[0]] if hits else None


def hint(value: str, allowed: Iterable[str]) -> str:
    """Return the end of an error message, with the nearest allowed value; empty when none is similar."""
    hit = nearest(value, allowed)
    return f"; nearest: {hit}" if hit else ""


def unknown(where: str, key: str, value: object, allowed: Iterable[str]) -> ConfigError:
    """Return the error for a value outside a closed set."""
    names = sorted(str(a) for a in allowed)
    return ConfigError(f"{where}: {key}: unknown value {value!r}; allowed: {', '.join(names)}{hint(str(value), names)}")


def check_known(where: str, key: str, given: Iterable[str], known: Collection[str]) -> None:
    """Raise `unknown` for the first given value outside a closed set."""
    for value in given:
        if value not in known:
            raise unknown(where, key, value, known)


@contextmanager
def written_by(command: str) -> Iterator[None]:
    """Append the command that writes a file to an error that reports it missing or broken."""
    try:
        yield
    except BenchError as error:
        raise type(error)(f"{error}; run: {command}") from error


class Parser(argparse.ArgumentParser):
    """ArgumentParser with one-line errors; its help begins with the docstring of the command's module."""

    def __init__(self, **options: Any):
        main = sys.modules["__main__"]
        name = getattr(getattr(main, "__spec__", None), "name", "")
        own = {"prog": f"python -m {name.removesuffix('.__main__')}", "description": main.__doc__}
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **(own | options))

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        words = sys.argv[1:] if args is None else list(args)
        known = [option[2:] for option in self._option_string_actions if option.startswith("--")]
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            # Before argparse, which would report the missing required option and not its misspelling.
            if not any(name.startswith(option[2:]) for name in known):
                hit = nearest(option[2:], known)
                advice = f"nearest: --{hit}" if hit else f"allowed: {', '.join(f'--{name}' for name in known)}"
                raise ConfigError(f"command line: {option}: unknown option; {advice}")
        return super().parse_args(args, namespace)

    def error(self, message: str) -> Never:
        raise ConfigError(f"command line: {message}; --help lists the options")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown("command line", "/".join(action.option_strings) or action.dest, value, action.choices)


# In place of `int` and `float`: `float` accepts nan and infinity, and both accept numbers that make no sense
# for the option. Such a number would fail far from where it was typed, or silently change a result.


def whole(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return the type of an option that is a whole number from `least` to `most`."""
    return _bounded(int, f"a whole number from {least} to {most}", lambda value: least <= value <= most)


def real(*, above: float | None = None, least: float = -math.inf, most: float) -> Callable[[str], float]:
    """Return the type of an option that is a finite number above `above`, or from `least`, to `most`."""
    lower = f"above {above:g}" if above is not None else f"from {least:g}"
    inside: Callable[[float], bool] = lambda value: least <= value <= most and (above is None or value > above)  # noqa: E731
    return _bounded(float, f"a number {lower} to {most:g}", inside)


def _bounded(kind: Callable[[str], N], what: str, inside: Callable[[N], bool]) -> Callable[[str], N]:
    def parse(text: str) -> N:
        with suppress(ValueError):
            if inside(value := kind(text)):  # no comparison with nan is true
                return value
        raise argparse.ArgumentTypeError(f"must be {what}, got {text[:40]!r}")

    return parse


_SPACE = "; free some space, then run the same command again"
ADVICE = {  # by the operating system's error number
    errno.ENOENT: "; choose a path in a folder that exists",
    errno.ENOTDIR: "; a file stands where a folder is needed: choose another path",
    errno.EISDIR: "; a folder stands there: choose the path of a file",
    errno.EACCES: "; choose a path that you may write, or change its permissions",
    errno.ENOSPC: f" (bytes, or files: df -i){_SPACE}",
    errno.EDQUOT: f" (bytes, or files: quota){_SPACE}",
}


def end_with(error: BenchError | OSError) -> Never:
    """End the process with one line on stderr and exit code 2.

    Raises an `OSError` again that a library raised and not the system: its meaning is unknown.
    """
    text = str(error)
    if isinstance(error, OSError) and not isinstance(error, BenchError):
        if error.strerror is None:
            raise error
        where = f"{error.filename}: " if error.filename is not None else ""
        text = f"{where}{error.strerror}{ADVICE.get(error.errno or 0, '')}"
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def run(main: Callable[[], int | None]) -> None:
    """Call `main`; turn a `BenchError` or a system error into one line on stderr and exit code 2.

    An interrupt ends with 130.
    """
    for stream in (sys.stdout, sys.stderr):
        # A terminal's encoding may lack some of our characters. Not replaced by "?": tables use that character.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        sys.exit(main() or 0)
    except BrokenPipeError:  # `... | head`: the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit would fail as well
        sys.exit(1)
    except (BenchError, OSError) as error:
        end_with(error)
    except KeyboardInterrupt:
        print("interrupted: run the same command again to go on", file=sys.stderr)
        sys.exit(130)
