"""Every method by name. A file in this folder is registered by being here; each defines `METHODS`, a list of entries.

A file spells its losses out and imports no other file of this folder, so that editing one method reruns that method.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from methods.entry import CatalogEntry
from methods.method import Method
from records.errors import ConfigError, unknown


@cache
def entries() -> dict[str, CatalogEntry]:
    """Key -> entry, in the order of the file names and, within a file, of its list."""
    by_key: dict[str, CatalogEntry] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        for entry in importlib.import_module(f"{__name__}.{module}").METHODS:
            if entry.key in by_key:
                raise ConfigError(f"methods/catalog/{module}.py: key: {entry.key!r} is defined twice")
            by_key[entry.key] = entry
    return by_key


@cache
def aliases() -> dict[str, tuple[str, dict[str, object]]]:
    """Other names for an entry with some options set: name -> (key, settings)."""
    return {name: (e.key, dict(settings)) for e in entries().values() for name, settings in e.aliases.items()}


def keys() -> tuple[str, ...]:
    """Catalog keys: every method at its defaults."""
    return tuple(entries())


def method(
    key: str, params: Mapping[str, object] | None = None, readings: Mapping[str, object] | None = None
) -> Method:
    """The method `key` (or one of its other names) with these params and readings set."""
    key, fixed = aliases().get(key, (key, {}))
    sources = (fixed, params or {}, readings or {})
    settings = {name: value for source in sources for name, value in source.items()}
    if len(settings) < sum(map(len, sources)):
        twice = [name for name in settings if sum(name in source for source in sources) > 1]
        raise ConfigError(f"method {key!r}: {', '.join(twice)}: set twice (other name, params, readings)")
    if key not in entries():
        raise unknown("methods/catalog", "method", key, [*entries(), *aliases()])
    return entries()[key].method(settings)


def parse(text: str) -> Method:
    """The method that a key such as `tepo+beta=1+kl-estimator=k1` means; its `.key` is the canonical text.

    Defaults are dropped, options sorted, numbers normalised. `ConfigError` with the nearest match for an unknown name.
    """
    if not isinstance(text, str):  # before the cache, which takes nothing that has no hash
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
    return method(name, settings)
