"""Whether the environment can run verl at all: asked before Ray starts, answered with one line. Imports none of it."""

from __future__ import annotations

from records.errors import ConfigError, MissingInputError
from records.provenance import version

VERL_VERSION = "0.9.1"  # the methods overridden in `trainer` and `buffer` are this version's; tests/adapters pin them
TRL_VERSION = (
    "1.16.0"  # of a TRL that is installed beside verl: verl imports it, and the shim in `plugin` is for this one
)

# verl needs them to run, but installs four of them only with extras that bring what does not fit together.
NEEDED = (
    "ray", "tensordict", "torchdata", "hydra-core", "transformers", "pyarrow", "TransferQueue", "cachetools", "uvicorn",
    "fastapi",
)  # fmt: skip


def check(device: str) -> None:
    """`ConfigError` for a version we are not written for, `MissingInputError` for a package that is not there."""
    found = version("verl")
    if found is None:
        raise MissingInputError("environment: verl: the package is not installed; see docs/environments.md")
    if found != VERL_VERSION:
        raise ConfigError(f"environment: verl: version {found!r} is installed; allowed: {VERL_VERSION}")
    trl = version("trl")
    if trl not in (None, TRL_VERSION):
        raise ConfigError(
            f"environment: trl: version {trl!r} is installed beside verl; allowed: {TRL_VERSION}, or none"
        )
    for name in (*NEEDED, *(("vllm",) if device == "cuda" else ())):
        if version(name) is None:
            raise MissingInputError(f"environment: {name}: the package is not installed, and verl {found} needs it")
