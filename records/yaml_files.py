"""YAML as this project reads it: a mapping, in which a key written twice is an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from records.errors import ConfigError, MissingInputError, unknown


class _UniqueKeys(yaml.CSafeLoader):
    """The last of two equal keys silently winning has cost people days. libyaml's parser: eight times as fast."""


def _mapping(loader: _UniqueKeys, node: yaml.MappingNode) -> dict[Any, Any]:
    pairs = loader.construct_pairs(node, deep=True)
    keys = [key for key, _ in pairs]
    for key in keys:
        if keys.count(key) > 1:
            values = ", ".join(repr(value) for name, value in pairs if name == key)
            raise ConfigError(f"{node.start_mark.name}: {key}: given twice ({values})")
    return dict(pairs)


_UniqueKeys.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def read_yaml(path: Path | str, what: str = "file") -> dict[str, Any]:
    """The mapping in `path`; a missing file, bad YAML or a key given twice is an error that names the file."""
    path = Path(path)
    if not path.is_file():
        raise MissingInputError(f"{path}: {what} is missing")
    try:
        with open(path, encoding="utf-8") as stream:
            value = yaml.load(stream, Loader=_UniqueKeys)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML ({' '.join(str(error).split())})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path}: must hold keys and values, got {type(value).__name__}")
    return value


# Keys of a declaration file: a missing or strange one is an error naming its place.


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
