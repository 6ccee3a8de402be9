"""All methods by name. Every file in this folder is registered; `@method` in a file defines an entry.

A file contains a family of methods and imports no other file of this folder, so that an edit reruns only that family.
"""

import importlib
import pkgutil
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from core.errors import ConfigError, unknown
from methods.method import Method
from methods.options import CatalogEntry


@cache
def entries() -> dict[str, CatalogEntry]:
    """Return key -> entry, ordered by file name and by position in the file. Imports every file."""
    by_key: dict[str, CatalogEntry] = {}
    for module in _modules():
        for entry in _methods(module):
            if entry.key in by_key:
                raise ConfigError(f"{module.replace('.', '/')}.py: key: {entry.key!r} is defined twice")
            by_key[entry.key] = entry
    return by_key


@cache
def _methods(module: str) -> list[CatalogEntry]:
    """Return the entries of a file, which may be a user's: any error in it is reported in one line."""
    where = f"{module.replace('.', '/')}.py"
    try:
        values = vars(importlib.import_module(module)).values()
    except Exception as error:
        raise ConfigError(f"{where}: cannot be imported: {type(error).__name__}: {error}") from error
    entries = [value for value in values if isinstance(value, CatalogEntry)]
    # an entry imported from another file, to change one of its slots, belongs to that file
    if not (own := [entry for entry in entries if entry.parts.__module__ == module]):
        raise ConfigError(
            f"{where}: defines no method; put @method(key=..., title=..., ...) on a function of the options"
        )
    return own


def modules_of(name: str) -> tuple[str, ...]:
    """Return the files to import to find a method by key or other name: those that contain it as a string, or all.

    A lookup imports only these, so that no other file of the catalog can change the method.
    """
    quoted = re.compile(rf"""["']{re.escape(name)}["']""")
    texts = {
        each: Path(__path__[0], f"{each.rpartition('.')[2]}.py").read_text(encoding="utf-8") for each in _modules()
    }
    return tuple(module for module, text in texts.items() if quoted.search(text)) or _modules()


def _modules() -> tuple[str, ...]:
    return tuple(sorted(f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)))


@cache
def _entry(name: str) -> tuple[CatalogEntry, Mapping[str, object]]:
    """Return the entry with this key or other name, and the settings that the other name implies."""
    found = [entry for module in modules_of(name) for entry in _methods(module)]
    for entry in found:
        if name == entry.key:
            return entry, {}
    for entry in found:
        if name in entry.aliases:
            return entry, entry.aliases[name]
    raise unknown("methods/catalog", "method", name, [*entries(), *aliases()])


@cache
def aliases() -> dict[str, tuple[str, dict[str, object]]]:
    """Return other names for entries with some options set: name -> (key, settings)."""
    return {name: (e.key, dict(settings)) for e in entries().values() for name, settings in e.aliases.items()}


def keys() -> tuple[str, ...]:
    """Return all catalog keys: every method at its defaults."""
    return tuple(entries())


def parse(text: str) -> Method:
    """Return the method for a key such as `tepo+beta=1+kl-estimator=k1`; its `.key` is the canonical text.

    Defaults are dropped, options sorted, numbers normalised. An unknown name is a `ConfigError` with the nearest match.
    """
    if not isinstance(text, str):  # before the cache, which requires hashable arguments
        raise ConfigError(f"method: got {type(text).__name__}, expected a text such as tepo+beta=1")
    return _parse(text)


@cache
def _parse(text: str) -> Method:
    name, *changes = text.strip().split("+")
    settings: dict[str, str] = {}
    for change in changes:
        option, equals, value = change.partition("=")
        if not (option and equals and value):
            raise ConfigError(f"method {text!r}: {change!r} is not of the form name=value")
        if option in settings:
            raise ConfigError(f"method {text!r}: {option} is set twice")
        settings[option] = value
    entry, fixed = _entry(name)
    if twice := fixed.keys() & settings.keys():
        raise ConfigError(f"method {name!r}: {', '.join(sorted(twice))}: set twice, by this other name too")
    return entry.method({**fixed, **settings})
