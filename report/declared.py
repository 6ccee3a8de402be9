"""Keys of a declaration file: a missing or strange one is an error naming its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from records.errors import ConfigError, unknown


def need(body: Mapping[str, Any], key: str, where: str, at: str = "") -> Any:
    if key not in body:
        raise ConfigError(f"{where}: {at + ': ' if at else ''}{key} is missing")
    return body[key]


def only(body: Any, where: str, at: str, allowed: Iterable[str]) -> None:
    if not isinstance(body, dict):
        raise ConfigError(f"{where}: {at or 'top level'}: must hold keys and values, got {body!r}")
    strange = next((str(key) for key in body if key not in allowed), None)
    if strange is not None:
        raise unknown(where, f"{at}: key" if at else "key", strange, allowed)
