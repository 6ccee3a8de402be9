"""Configurations as Snakemake merges them, for tests that do not start Snakemake."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from snakemake.utils import update_config

from records.files import read_yaml
from workflow.config import resolved


def merge(over: Mapping[str, Any], under: Mapping[str, Any]) -> dict[str, Any]:
    """`over` laid on `under` by Snakemake's own function."""
    merged = copy.deepcopy(dict(under))
    update_config(merged, copy.deepcopy(dict(over)))
    return merged


def load(paths: Sequence[Path | str], command_line: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The files merged in order, later ones on top, with what `--config` sets, and checked."""
    merged: dict[str, Any] = {}
    for path in paths:
        merged = merge(read_yaml(path, "configuration"), merged)
    return resolved(merge(command_line or {}, merged), paths, command_line)[0]
