"""Merge, type and validate the configuration before any job starts; config/README.md explains it."""

from __future__ import annotations

import copy
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from core.declared import Declared, Item, Where, validated
from core.errors import ConfigError, unknown
from core.files import read_yaml
from core.provenance import sha256_file
from evals import placebo
from evals.benchmark import GENERATED, Template
from methods.training import spec
from methods.training.spec import Trainer
from models import registry

COMMAND_LINE = "command line (--config)"
CACHE = "cache"  # folder of results/: names of base models and prompts derive from recipes, so all scales share them
TAKEN = (CACHE, "eval", "reference")  # folders of results/ with other content

At: TypeAlias = tuple[str, ...]  # a dotted key

OPTIONAL: Any = None  # the key may be omitted; null is not a valid value

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]


def _each_once(values: list[Any]) -> list[Any]:
    if twice := [value for value in values if values.count(value) > 1]:
        raise ValueError(f"{twice[0]} is given twice")
    return values


Once = Annotated[list[Item], Field(min_length=1), AfterValidator(_each_once)]
# No leading hyphen: commands would parse such a name as an option.
FolderName = Annotated[str, StringConstraints(pattern="^[a-z0-9_][a-z0-9_-]*$")]


def _plain(path: str) -> str:
    # It is in every path and command: a shell or Snakemake's patterns would change other characters.
    if not re.fullmatch(r"[\w./~][\w./~@%+=:,-]*", path):
        raise ValueError(f"{path!r} has a space or another special character; set it to a path without, or to a link")
    return path


Folder = Annotated[str, AfterValidator(_plain)]
VariantName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_][A-Za-z0-9_-]*$")]


class Block(Declared):
    """Part of the matrix: every method with every model and seed."""

    models: Once[str]
    methods: Once[str]
    seeds: Once[Seed]
    steps: Once[Count]  # rollouts of the evaluated checkpoints
    evaluate: bool = OPTIONAL  # false: the checkpoints are kept but not evaluated; only the curves are needed
    variant: str = OPTIONAL  # a key of `variants`


# Set for each model size by `cluster`.
BY_CLUSTER = frozenset(
    {"nodes", "gpus_per_node", "tensor_parallel", "rollout_memory", "max_tokens_per_gpu", "offload", "attention"}
)


def _training() -> type[Declared]:
    """Return the `training` keys of a run (`methods.training.spec`) as a configuration model, all optional."""
    fields: dict[str, Any] = {}
    for key, field in spec.Training.model_fields.items():
        if key not in BY_CLUSTER:
            kind: Any = Annotated[(field.annotation, *field.metadata, None)]
            # null: up to the run's last checkpoint
            fields[key] = (kind | None if key == "rollouts" else kind, OPTIONAL)
    return create_model("Training", __base__=Declared, **fields)


class Training(_training()):  # type: ignore[misc]
    """The `training` keys of a scale or variant; one that no file sets has the default of `spec.Training`."""


class Variant(Declared):
    title: str
    note: str = ""
    trainer: Trainer = OPTIONAL
    training: Training = OPTIONAL
    reward: placebo.Name = OPTIONAL  # given to the method in place of the true reward
    stream: Count = OPTIONAL  # other samples for the same seed, base and prompts; 0 is the default for every other run


class Base(Declared):
    ladder: Literal["quick", "wide"]  # problems that the bases learn (evals/arithmetic.py)
    threads: Count


class Prompts(Declared):
    source: Literal["arithmetic", "questions", "dapo_math_17k", "math_train", "file"]
    file: str = OPTIONAL  # a user's problems, instead of `source`: JSON lines with `problem` and `answer`
    template: Template = OPTIONAL  # of a user's problems (`evals.generation.prompts`)
    # Only for generated problems; null: the ladder of the bases.
    ladder: Literal["quick", "wide", "taught", "mixed"] | None
    count: Count | None = OPTIONAL  # null: all, of a user's problems
    seed: Seed = OPTIONAL
    revision: registry.Name | None = None
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _of_a_data_set(self) -> Prompts:
        # All four are required, even if null: a missing commit or hash should be a visible choice in the configuration.
        keys = {"count", "seed", "revision", "sha256"}
        given = self.model_fields_set & keys
        if self.source in GENERATED and given:
            raise ValueError(f"{min(given)}: has no meaning with source: {self.source}, which generates its prompts")
        if self.source not in GENERATED and given != keys:
            raise ValueError(f"{min(keys - given)}: is missing")
        return self


class Nodes(Declared):
    nodes: Count
    tensor_parallel: Count
    offload: bool = False  # weights, gradients and optimiser are in host memory


class Cluster(Declared):
    gpu: str  # a key of `workflow.cost.CARDS`
    gpus: Count  # the most that runs may use at once
    gpus_per_node: Count
    rollout_memory: Annotated[float, Field(gt=0, lt=1)]  # share of a GPU's memory for the inference engine
    max_tokens_per_gpu: Count  # of one forward and backward pass
    attention: Literal["sdpa", "flash_attention_2"]
    sizes: Annotated[dict[str, Nodes], Field(min_length=1)]  # by the `size` of config/models


class Evaluation(Declared):
    # Not openai: a server needs an address, which no rule passes on, and serves one model, while checkpoints differ.
    backend: Literal["hf", "vllm"]
    seed: Seed  # of sampling
    data: str | None  # folder of the benchmarks' problems; None: in `results`
    benchmarks: Once[str]
    table_step: Count  # rollouts of the checkpoint that tables show
    long_step: Count | None  # rollouts of their second look
    batch_size: Count | None  # responses at once; None: the backend chooses
    # further marks around a model's thoughts (`evals.grade --thoughts`)
    thoughts: (
        Annotated[list[Annotated[str, StringConstraints(pattern=r"\S")]], Field(min_length=2, max_length=2)] | None
    ) = OPTIONAL
    # For every benchmark, in place of its own: the options of `evals.generate`.
    samples: Annotated[int, Field(ge=1, le=4096)] = OPTIONAL
    temperature: Annotated[float, Field(ge=0, le=100)] = OPTIONAL
    max_tokens: Count = OPTIONAL
    prompt: Template = OPTIONAL


class Config(Declared):
    """The whole configuration, after embedded.yaml and the chosen files are merged."""

    results: Folder  # folder of all trees and caches
    scale: FolderName  # results/<scale>
    name: FolderName | None  # name of a separate tree: replaces `scale`
    title: str
    note: str
    trainer: Trainer
    models: Once[str] | None  # restricts the matrix to these: keys, or folders of a user's (with a slash)
    model: str = OPTIONAL  # short for `models` with one entry
    methods: Once[str] | None
    seeds: Once[Seed] | None  # instead of each block's
    benchmarks: Once[str] = OPTIONAL  # short for `evaluation.benchmarks`: keys, or files of a user's problems
    baseline: str  # the method that others are compared with
    sweep: dict[str, Once[Any]]  # dotted training key, or option of a method -> values
    matrix: Annotated[list[Block], Field(min_length=1)]
    variants: dict[VariantName, Variant]
    settings: dict[str, dict[str, Any]]  # method -> its options at this scale
    base: Base
    prompts: Prompts
    cluster: Cluster | None
    training: Training
    evaluation: Evaluation
    reward: Once[str] = OPTIONAL  # `package.module:function`; several are added, weighted by `reward_weights`
    reward_weights: list[float] = OPTIONAL
    reward_timeout: Annotated[float, Field(gt=0)] = OPTIONAL
    accept_code: bool = OPTIONAL  # true: keep results of other code, and mark the tree
    log: list[Literal["tensorboard", "wandb", "trackio"]] | None = OPTIONAL  # keys of `methods.adapters.LOGGERS`


def resolved(
    paths: Sequence[Path | str], command_line: Mapping[str, Any] | None = None
) -> tuple[dict[str, Any], Where]:
    """Return the configuration with every value of its declared type, and a lookup of a key's source (for errors).

    paths: files to merge, later ones on top. command_line: values of `--config`, each of which may be text.
    """
    typed = _typed(Config, _flat(dict(command_line or {})))
    read = [*((str(path), _flat(read_yaml(path, "configuration"))) for path in paths), (COMMAND_LINE, typed)]
    sources = [(name, _long(content, name)) for name, content in read]
    merged: dict[str, Any] = {}
    setter: dict[At, int] = {}  # key -> the last source that sets it, or a key in it
    for number, (_, content) in enumerate(sources):
        merged = _laid_over(merged, content)
        setter |= {path[:length]: number for path, _ in _leaves(content) for length in range(len(path) + 1)}

    def set_by(*keys: str) -> int:
        return max(setter.get(tuple(key.split(".")), -1) for key in keys)

    def where(path: Sequence[Any]) -> str:
        known = (tuple(map(str, path[:length])) for length in range(len(path), -1, -1))
        return sources[next(setter[key] for key in known if key in setter)][0]

    prompts = merged.get("prompts")
    if isinstance(prompts, Mapping) and prompts.get("file") is not None:
        later = {key: value for key, value in prompts.items() if set_by(f"prompts.{key}") >= set_by("prompts.file")}
        merged["prompts"] = _own_problems(later, where(["prompts", "file"]))
    validated(Config, merged, where)
    root = Path(merged["results"]).expanduser()
    data = merged["evaluation"]["data"]
    data = root / CACHE / "benchmarks" if data is None else Path(data).expanduser()
    merged["results"], merged["evaluation"]["data"] = root.as_posix(), data.as_posix()
    _check_sweep(merged["sweep"], where)
    if typed.get("training", {}).get("rollouts") is not None:
        _end_at(merged, merged["training"]["rollouts"])
    _check_steps(merged, lambda *keys: sources[set_by(*keys)][0])
    named = "scale" if merged["name"] is None else "name"
    note = "" if named == "scale" else f"Settings of the scale {merged['scale']}. {merged['note']}"
    merged["scale"] = merged[named]
    if named == "name" or set_by("scale") > 0:  # a title or note set before the name describes another tree
        instead = {"title": merged[named], "note": note}
        merged |= {key: text for key, text in instead.items() if set_by(key) < set_by(named)}
    if merged["scale"] in TAKEN:
        raise ConfigError(
            f"{where([named])}: {named}: {root / merged['scale']} holds something else; choose another name"
        )
    return merged, where


def _typed(kind: Any, value: Any) -> Any:
    """Return command-line text such as 4 or a,b as the declared `kind`. Values that do not fit stay unchanged, for
    later validation."""
    kinds = _kinds(kind)
    arguments = {typing.get_origin(each): typing.get_args(each) for each in kinds if typing.get_args(each)}
    inner = {kind: own[0] if kind is tuple else own[-1] for kind, own in arguments.items()}
    if isinstance(value, Mapping):
        models = [each for each in kinds if isinstance(each, type) and issubclass(each, Declared)]
        # Pydantic has removed the outer `Annotated` from these.
        fields = {name: field.annotation for model in models[:1] for name, field in model.model_fields.items()}
        return {key: _typed(fields.get(key, inner.get(dict, object)), entry) for key, entry in value.items()}
    if (item := inner.get(list, inner.get(tuple))) is not None:
        one_number = float in kinds and "," not in str(value)  # `kl_target` is one number or several
        if isinstance(value, str) and value != "null" and not one_number:
            value = [one for part in value.split(",") if part.strip() for one in _range(part.strip(), item)]
        if isinstance(value, list):
            return [_typed(item, entry) for entry in value]
    if isinstance(value, str):
        if types.NoneType in kinds and value == "null":
            return None
        if bool in kinds and value.lower() in ("true", "false"):  # pydantic accepts 1 and yes too
            return value.lower() == "true"
        for one in (int, float):
            if {one, Any} & set(kinds):
                with suppress(ValidationError):
                    return TypeAdapter(one).validate_python(value)
    return value


def _range(text: str, kind: Any) -> list[str]:
    """Return `1-4` as the whole numbers 1, 2, 3, 4."""
    ends = re.fullmatch(r"(\d{1,6})-(\d{1,6})", text)
    if int in _kinds(kind) and (ends is None or int(ends[1]) > int(ends[2])) and re.match(r"\d+(-|:|\.\.)", text):
        raise ConfigError(f"{COMMAND_LINE}: {text!r}: must be whole numbers; set them as 1,2,3 or 1-3")
    if ends is None or int not in _kinds(kind) or not 0 <= int(ends[2]) - int(ends[1]) < 1000:
        return [text]
    return [str(number) for number in range(int(ends[1]), int(ends[2]) + 1)]


def _kinds(kind: Any) -> list[Any]:
    """Return the members of a union, without what `Annotated` adds."""
    if typing.get_origin(kind) is Annotated:
        return _kinds(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return [inner for member in typing.get_args(kind) for inner in _kinds(member)]
    return [kind]


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    """Return the configuration with dotted, typed `sweep` keys: `sweep.training.passes=1,2` arrives nested."""
    if not isinstance(config.get("sweep"), Mapping):
        return config
    kinds = {f"training.{key}": field.annotation for key, field in Training.model_fields.items()}
    swept = {".".join(path): value for path, value in _leaves(config["sweep"])}
    typed = {key: _typed(list[kinds.get(key, Any)], value) for key, value in swept.items()}  # type: ignore[misc]
    return config | {"sweep": typed}


def _long(content: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a source with `model` and `benchmarks` as the keys that they are short for."""
    content = dict(content)
    if "model" in content:
        if content.get("models") is not None:
            raise ConfigError(f"{name}: model: set model or models")
        content["models"] = [content.pop("model")]
    evaluation = content.get("evaluation") or {}
    if "benchmarks" in content and isinstance(evaluation, Mapping):
        content["evaluation"] = {**evaluation, "benchmarks": content.pop("benchmarks")}
    return content


def _own_problems(prompts: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the keys of `prompts` for a user's file: a data set whose commit is the hash of its content."""
    path = Path(str(prompts["file"]))
    if not path.is_file():
        raise ConfigError(f"{where}: prompts.file: {path}: no such file; set it to JSON lines with problem and answer")
    digest = sha256_file(path)
    given = {"count": None, "seed": 0, **prompts}
    made = {"source": "file", "ladder": None, "revision": digest[:40], "sha256": digest}
    if wrong := [key for key, value in made.items() if given.get(key, value) != value]:
        raise ConfigError(
            f"{where}: prompts.{wrong[0]}: {given[wrong[0]]}: does not go with prompts.file; leave it out"
        )
    return given | made


def _check_sweep(sweep: Mapping[str, Any], where: Where) -> None:
    allowed = [f"training.{key}" for key in Training.model_fields]
    for key, values in sweep.items():
        at = where(["sweep", key])
        if "." in key and key not in allowed:
            raise unknown(at, "sweep", key, allowed)
        if len(values) == 1 and key not in ("select_seeds", "test_seeds", "by", "fresh"):
            raise ConfigError(f"{at}: sweep.{key}: one value leaves nothing to choose; set two or more, as a,b")
        if len({str(value) for value in values}) < len(values):
            raise ConfigError(f"{at}: sweep.{key}: a value is given twice")
        for value in values if key in allowed else []:
            validated(Training, {key.removeprefix("training."): value}, at, at="sweep.training")


def _end_at(config: dict[str, Any], rollouts: int) -> None:
    """Cap steps at the end of a training that the command line shortened."""
    config["matrix"] = [
        block | {"steps": sorted({min(step, rollouts) for step in block["steps"]})} for block in config["matrix"]
    ]
    evaluation = config["evaluation"]
    evaluation["table_step"] = min(evaluation["table_step"], rollouts)
    if evaluation["long_step"] is not None and evaluation["long_step"] > rollouts:
        evaluation["long_step"] = None  # the second look would use the checkpoint of the first


def _check_steps(config: Mapping[str, Any], last_of: Callable[..., str]) -> None:
    """Raise for checkpoints after a run's end, and for steps of the tables that no block keeps.

    last_of: the source that set one of these keys last, and so caused the conflict.
    """
    for number, block in enumerate(config["matrix"]):
        variant = config["variants"].get(block.get("variant"), {})
        rollouts = variant.get("training", {}).get("rollouts", config["training"]["rollouts"])
        if rollouts is not None and (late := [step for step in block["steps"] if step > rollouts]):
            at = last_of("matrix", "training.rollouts")
            raise ConfigError(f"{at}: matrix.{number}.steps: {late[0]} lies beyond training.rollouts = {rollouts}")
    steps = {step for block in config["matrix"] for step in block["steps"]}
    for key in ("table_step", "long_step"):
        if (step := config["evaluation"][key]) is not None and step not in steps:
            raise unknown(last_of("matrix", f"evaluation.{key}"), f"evaluation.{key}", step, map(str, steps))


def _leaves(content: Mapping[str, Any], path: At = ()) -> Iterator[tuple[At, Any]]:
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, str(key)))
        else:
            yield (*path, str(key)), value


def _laid_over(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge one configuration over another: mappings merge, other values are replaced."""
    merged = dict(under)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(under.get(key), Mapping)
        merged[key] = _laid_over(under[key], value) if both else copy.deepcopy(value)
    return merged
