"""Every method by name. A file in this folder is registered by being here; each defines `METHODS`, a list."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from functools import cache

from methods.method import Method
from methods.recipe import Recipe, read_key
from records.errors import ConfigError, unknown


@cache
def recipes() -> dict[str, Recipe]:
    """Key -> recipe, in the order of the file names and, within a file, of its list."""
    found: dict[str, Recipe] = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        for recipe in importlib.import_module(f"{__name__}.{module}").METHODS:
            if recipe.key in found:
                raise ConfigError(f"methods/catalog/{module}.py: key: {recipe.key!r} is defined twice")
            found[recipe.key] = recipe
    return found


@cache
def aliases() -> dict[str, tuple[str, dict[str, object]]]:
    """Other names for a recipe with some options set: name -> (key, settings)."""
    return {name: (r.key, dict(settings)) for r in recipes().values() for name, settings in r.also.items()}


def keys() -> tuple[str, ...]:
    """Catalog keys: every method at its defaults."""
    return tuple(recipes())


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
    if key not in recipes():
        raise unknown("methods/catalog", "method", key, [*recipes(), *aliases()])
    return recipes()[key].method(settings)


@cache
def parse(text: str) -> Method:
    """The method a key such as `tepo+beta=1+kl-estimator=k1` means; its `.key` is the canonical text.

    Defaults are dropped, options sorted, numbers normalised. `ConfigError` with the nearest match for an unknown name.
    """
    key, settings = read_key(text)
    return method(key, settings)
