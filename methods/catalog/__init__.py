"""All methods by name. Every file in this folder is registered; `@method` in a file defines an entry.

A file contains a family of methods and imports no other file of this folder, so that an edit reruns only that family.
"""

import importlib
import pkgutil
from functools import cache

from core.errors import ConfigError, unknown
from methods.method import Method
from methods.options import CatalogEntry


@cache
def entries() -> dict[str, CatalogEntry]:
    """Return key -> entry, ordered by file name and by position in the file. Imports every file.

    A file may be a user's: any error in it is one line.
    """
    by_key: dict[str, CatalogEntry] = {}
    for module in sorted(f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)):
        where = f"{module.replace('.', '/')}.py"
        try:
            values = vars(importlib.import_module(module)).values()
        except Exception as error:
            raise ConfigError(f"{where}: cannot be imported: {type(error).__name__}: {error}") from error
        # an entry imported from another file, to change one of its slots, belongs to that file
        own = [value for value in values if isinstance(value, CatalogEntry) and value.parts.__module__ == module]
        if not own:
            raise ConfigError(
                f"{where}: defines no method; put @method(key=..., title=..., ...) on a function of the options"
            )
        for entry in own:
            if entry.key in by_key:
                raise ConfigError(f"{where}: key: {entry.key!r} is defined twice")
            by_key[entry.key] = entry
    return by_key


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
    key, fixed = aliases().get(name, (name, {}))
    if key not in entries():
        raise unknown("methods/catalog", "method", name, [*entries(), *aliases()])
    if twice := fixed.keys() & settings.keys():
        raise ConfigError(f"method {name!r}: {', '.join(sorted(twice))}: set twice, by this other name too")
    return entries()[key].method({**fixed, **settings})
