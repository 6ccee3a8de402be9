"""YAML as this project reads it: a mapping, in which a key written twice is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from records.errors import ConfigError, MissingInputError


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
