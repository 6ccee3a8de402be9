"""Configurations as `snakemake` resolves them, for tests that do not start it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workflow.config import resolved


def load(paths: Sequence[Path | str], command_line: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The files merged in order, later ones on top, with what `--config` sets, and checked."""
    return resolved(paths, command_line)[0]
