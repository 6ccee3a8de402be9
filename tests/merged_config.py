"""Configurations as Snakemake merges them, for tests that do not start Snakemake."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from records.files import read_yaml
from workflow.config import resolved


def merge(over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under` as Snakemake does it: dictionaries merge, everything else replaces."""
    merged = copy.deepcopy(dict(under))
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = merge(value, merged[key]) if both else copy.deepcopy(value)
    return merged


def load(paths: Sequence[Path | str], command_line: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The files merged in order, later ones on top, with what `--config` sets, and checked."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged = merge(read_yaml(path, "configuration"), merged)
    return resolved(merge(command_line or {}, merged), paths, command_line)[0]
