"""The configuration: merged by Snakemake, checked here before any job starts.

Every error is one line that names the file, the key, the value, what is allowed and the nearest match.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from records.errors import ConfigError, unknown
from records.yaml_files import read_yaml

SCHEMA = Path(__file__).parent / "schemas" / "config.schema.yaml"
COMMAND_LINE = "command line (--config)"


def merge(over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under` as Snakemake does it: dictionaries merge, everything else replaces."""
    merged = copy.deepcopy(dict(under))
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(value, merged[key]) if both else copy.deepcopy(value)
    return merged


def load(paths: Sequence[Path | str]) -> dict[str, Any]:
    """The files merged in order, later ones on top, and checked."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged = merge(read_yaml(path, "configuration"), merged)
    check(merged, paths)
    return merged


def check(config: Mapping[str, Any], paths: Iterable[Path | str] = ()) -> None:
    """Raise `ConfigError` for the first thing wrong with the merged configuration.

    `paths` are the files it was merged from: they are read again to say which of them holds the bad key, and to see
    keys given twice, which merging hides.
    """
    from jsonschema import Draft202012Validator

    sources = [(str(path), read_yaml(path, "configuration")) for path in paths]
    schema = read_yaml(SCHEMA, "schema")
    errors = sorted(
        Draft202012Validator(schema).iter_errors(config), key=lambda e: ([str(p) for p in e.path], e.message)
    )
    if errors:
        raise _explain(errors[0], sources)
    _check_steps(config, sources)


def _check_steps(config: Mapping[str, Any], sources: list[tuple[str, dict[str, Any]]]) -> None:
    """Every step lies within its run, and the steps that tables show are kept by some block."""
    for number, block in enumerate(config["matrix"]):
        variant = config["variants"].get(block.get("variant"), {})
        rollouts = variant.get("training", {}).get("rollouts", config["training"]["rollouts"])
        late = [step for step in block["steps"] if rollouts is not None and step > rollouts]
        if late:
            where = _holder(("matrix",), sources)
            raise ConfigError(f"{where}: matrix.{number}.steps: {late[0]} lies beyond training.rollouts = {rollouts}")
    for key in ("table_step", "long_step"):
        step = config["evaluation"][key]
        if step is not None and not any(step in block["steps"] for block in config["matrix"]):
            steps = sorted({str(step) for block in config["matrix"] for step in block["steps"]})
            raise unknown(_holder(("evaluation", key), sources), f"evaluation.{key}", step, steps)


def _explain(error: Any, sources: list[tuple[str, dict[str, Any]]]) -> ConfigError:
    path = tuple(error.absolute_path)
    dotted = ".".join(str(part) for part in path)
    if error.validator == "additionalProperties":
        key = sorted(set(map(str, error.instance)) - set(error.schema["properties"]))[0]
        where = _holder((*path, key), sources)
        return unknown(where, f"{dotted}: key" if dotted else "key", key, error.schema["properties"])
    if error.validator == "required":
        return ConfigError(f"{_holder(path, sources)}: {dotted or 'top level'}: {error.message}")
    # what was merged equals no file's part of it
    held = [(n, c) for n, c in sources if _at(path, c) == error.instance or isinstance(_at(path, c), Mapping)]
    where = _holder(path, held)
    if error.validator == "enum":
        return unknown(where, dotted, error.instance, error.validator_value)
    return ConfigError(f"{where}: {dotted}: {error.message} (got {error.instance!r})")


_ABSENT = object()


def _at(path: tuple[Any, ...], content: Any) -> Any:
    """The value at `path`, or `_ABSENT`."""
    for part in path:
        inside = isinstance(content, Mapping) and part in content
        inside |= isinstance(content, list) and isinstance(part, int) and part < len(content)
        if not inside:
            return _ABSENT
        content = content[part]
    return content


def _holder(path: tuple[Any, ...], sources: list[tuple[str, dict[str, Any]]]) -> str:
    """The last file that holds the longest leading part of `path`; the command line when none holds its first key."""
    for length in range(len(path), 0, -1):
        for name, content in reversed(sources):
            if _at(path[:length], content) is not _ABSENT:
                return name
    return COMMAND_LINE if path or not sources else sources[-1][0]
