"""Which models there are: one file in `config/models/` each, registered by being there.

A model is either made here (`made_here`: architecture, seed and the name of a recipe in `models.recipe`) or
fetched from the hub (`hub`: repository id; `revision`: commit, null where this project never downloaded it
and cannot vouch for one; `size`: what `cluster` and config/throughput.yaml call it). Light: Snakemake parses
this in every job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from records.errors import ConfigError, unknown
from records.provenance import ROOT
from records.yaml_files import read_yaml

FOLDER = ROOT / "config" / "models"
_KEYS = ("title", "stands_for", "notes", "made_here", "hub", "revision", "size")
_MADE_HERE = ("recipe", "seed", "architecture")
_ARCHITECTURES = ("qwen2", "qwen3", "llama", "mistral")
_SIZES = (
    "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
)  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """Sizes of a transformers model class; all explicit, because class defaults are for billions of parameters."""

    model_type: str
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int


@dataclass(frozen=True)
class MadeHere:
    """A base the repository trains: `recipe` names a row of `models.recipe`."""

    recipe: str
    seed: int
    architecture: Architecture


@dataclass(frozen=True)
class Model:
    """stands_for: the paper's model, for its own five the model itself; exactly one of `made_here` and `hub` is set."""

    key: str
    title: str
    stands_for: str
    made_here: MadeHere | None = None
    hub: str | None = None
    revision: str | None = None
    size: str | None = None
    notes: str | None = None


def keys(folder: Path = FOLDER) -> tuple[str, ...]:
    """Keys of all models, sorted."""
    return tuple(sorted(path.stem for path in folder.glob("*.yaml")))


@cache
def model(key: str, folder: Path = FOLDER) -> Model:
    """The model `key`; ConfigError names the nearest key, or the file and its key that is wrong."""
    if key not in keys(folder):
        raise unknown(str(_shown(folder)), "model", key, keys(folder))
    path = folder / f"{key}.yaml"
    where = str(_shown(path))
    entry = read_yaml(path, "model")
    _check_keys(where, entry, allowed=_KEYS, needed=("title", "stands_for"))
    if ("made_here" in entry) == ("hub" in entry):
        raise ConfigError(f"{where}: exactly one of made_here and hub must be given")
    if "hub" in entry and "revision" not in entry:
        raise ConfigError(f"{where}: revision: missing; write null where no commit is known")
    if ("hub" in entry) != ("size" in entry):
        raise ConfigError(f"{where}: size: goes with hub and only with it")
    made_here = _made_here(where, entry["made_here"]) if "made_here" in entry else None
    return Model(
        key=key,
        title=entry["title"],
        stands_for=entry["stands_for"],
        made_here=made_here,
        hub=entry.get("hub"),
        revision=entry.get("revision"),
        size=entry.get("size"),
        notes=entry.get("notes"),
    )


def _made_here(where: str, entry: Any) -> MadeHere:
    _check_keys(f"{where}: made_here", entry, allowed=_MADE_HERE, needed=_MADE_HERE)
    sizes = entry["architecture"]
    inside = f"{where}: architecture"
    _check_keys(inside, sizes, allowed=("model_type", *_SIZES), needed=("model_type", *_SIZES))
    if sizes["model_type"] not in _ARCHITECTURES:
        raise unknown(inside, "model_type", sizes["model_type"], _ARCHITECTURES)
    for owner, name, value in [(where, "seed", entry["seed"]), *((inside, name, sizes[name]) for name in _SIZES)]:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ConfigError(f"{owner}: {name}: {value!r} is not a whole number of at least 1")
    if sizes["num_attention_heads"] % sizes["num_key_value_heads"]:
        raise ConfigError(f"{inside}: num_key_value_heads: {sizes['num_key_value_heads']} does not divide the heads")
    return MadeHere(entry["recipe"], entry["seed"], Architecture(**sizes))


def _check_keys(where: str, entry: Any, *, allowed: tuple[str, ...], needed: tuple[str, ...]) -> None:
    if not isinstance(entry, Mapping):
        raise ConfigError(f"{where}: must be a mapping with {', '.join(needed)}; got {type(entry).__name__}")
    for name in entry:
        if name not in allowed:
            raise unknown(where, "key", name, allowed)
    for name in needed:
        if entry.get(name) is None:
            raise ConfigError(f"{where}: {name}: missing")


def _shown(path: Path) -> Path:
    return path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
