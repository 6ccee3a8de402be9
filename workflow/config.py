"""The configuration: merged by Snakemake, validated here before any job starts. config/README.md explains every key.

Every error is one line that names the file, the key, the value, what is allowed and the nearest match.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, model_validator

from methods.training.spec import Trainer
from records.declared import Declared, validated
from records.errors import ConfigError, unknown
from records.files import parse_json, read_yaml

COMMAND_LINE = "command line (--config)"

OPTIONAL: Any = None  # the key may be left out; null is no value of it

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Names = Annotated[list[str], Field(min_length=1)]
FolderName = Annotated[str, StringConstraints(pattern="^[a-z0-9_-]+$")]
VariantName = Annotated[str, StringConstraints(pattern="^[A-Za-z0-9_-]+$")]


class Block(Declared):
    """A part of the matrix: every method with every model and seed."""

    models: Names
    methods: Names
    seeds: Annotated[list[Seed], Field(min_length=1)]
    steps: Annotated[list[Count], Field(min_length=1)]  # rollouts of the checkpoints that are evaluated
    variant: str = OPTIONAL  # a key of `variants`


class Training(Declared):
    """The `training` keys of a variant: any of them. A key without a value in any file has the default of `Spec`."""

    rollouts: Count | None = OPTIONAL
    prompts_per_rollout: Count = OPTIONAL
    samples_per_prompt: Annotated[int, Field(ge=2)] = OPTIONAL  # one sample has no group to be compared with
    minibatches: Count = OPTIONAL
    passes: Count = OPTIONAL
    oversample: Annotated[float, Field(ge=1)] = OPTIONAL
    filter: Literal["oversample", "mask", "refill", "none"] = OPTIONAL
    learning_rate: Positive = OPTIONAL
    weight_decay: Annotated[float, Field(ge=0)] = OPTIONAL
    gradient_clip: Positive = OPTIONAL
    temperature: Positive = OPTIONAL
    max_prompt_tokens: Count = OPTIONAL
    max_completion_tokens: Count = OPTIONAL
    cov_scope: Literal["minibatch", "microbatch"] = OPTIONAL
    refill_rounds: Count = OPTIONAL
    micro_batches: Count = OPTIONAL
    save_every: Count = OPTIONAL
    device: Literal["cpu", "cuda"] = OPTIONAL
    precision: Literal["float32", "bfloat16"] = OPTIONAL


class ScaleTraining(Training):
    """The `training` keys of a scale, where these are required."""

    rollouts: Count | None  # null: up to the run's last checkpoint
    prompts_per_rollout: Count
    samples_per_prompt: Annotated[int, Field(ge=2)]
    minibatches: Count
    passes: Count
    oversample: Annotated[float, Field(ge=1)]
    learning_rate: Positive
    weight_decay: Annotated[float, Field(ge=0)]
    gradient_clip: Positive
    temperature: Positive
    max_completion_tokens: Count


class Variant(Declared):
    title: str
    note: str = ""
    trainer: Trainer = OPTIONAL
    training: Training = OPTIONAL


class Base(Declared):
    ladder: Literal["quick", "full"]  # how hard the arithmetic gets
    threads: Count


class Prompts(Declared):
    source: Literal["arithmetic", "dapo_math_17k"]
    count: Count = OPTIONAL
    seed: Seed = OPTIONAL
    revision: str | None = None
    sha256: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")] | None = None

    @model_validator(mode="after")
    def _of_a_data_set(self) -> Prompts:
        # All four, null included: a data set without a commit or hash is a choice that the configuration should show.
        keys = {"count", "seed", "revision", "sha256"}
        given = self.model_fields_set & keys
        if self.source == "arithmetic" and given:
            raise ValueError(f"{min(given)}: has no meaning with source: arithmetic, which generates its prompts")
        if self.source != "arithmetic" and given != keys:
            raise ValueError(f"{min(keys - given)}: is missing")
        return self


class Nodes(Declared):
    nodes: Count
    tensor_parallel: Count


class Cluster(Declared):
    gpu: str  # as config/throughput.yaml names it
    gpus: Count  # that runs may use at once
    gpus_per_node: Count
    rollout_memory: Annotated[float, Field(gt=0, lt=1)]  # share of a GPU's memory that the inference engine takes
    max_tokens_per_gpu: Count  # of one forward and backward pass
    attention: Literal["sdpa", "flash_attention_2"]
    sizes: Annotated[dict[str, Nodes], Field(min_length=1)]  # by the `size` of config/models


class Evaluation(Declared):
    backend: Literal["hf", "vllm", "openai"]
    seed: Seed  # of sampling
    data: str  # folder of the benchmarks' problems
    benchmarks: Names
    table_step: Count  # rollouts of the checkpoint that tables show
    long_step: Count | None  # of their second look


class Config(Declared):
    """The whole configuration, after embedded.yaml and the chosen files are merged."""

    scale: FolderName  # results/<scale>
    title: str
    note: str
    trainer: Trainer
    methods: (
        Names | Annotated[str, StringConstraints(min_length=1)] | None
    )  # instead of each block's; a,b: from --config
    matrix: Annotated[list[Block], Field(min_length=1)]
    variants: dict[VariantName, Variant]
    settings: dict[str, dict[str, Any]]  # method -> options that it has at this scale
    base: Base
    prompts: Prompts
    cluster: Cluster | None
    training: ScaleTraining
    evaluation: Evaluation


def check(config: Mapping[str, Any], paths: Iterable[Path | str] = ()) -> None:
    """Raise `ConfigError` for the first thing wrong with the merged configuration.

    `paths` are the files it was merged from: they are read again to say which of them holds the bad key, and to see
    keys given twice, which merging hides.
    """
    sources = [(str(path), read_yaml(path, "configuration")) for path in paths]
    validated(Config, dict(config), lambda path: _holder(path, config, sources))
    for number, block in enumerate(config["matrix"]):
        variant = config["variants"].get(block.get("variant"), {})
        rollouts = variant.get("training", {}).get("rollouts", config["training"]["rollouts"])
        late = [step for step in block["steps"] if rollouts is not None and step > rollouts]
        if late:
            where = _holder(["matrix"], config, sources)
            raise ConfigError(f"{where}: matrix.{number}.steps: {late[0]} lies beyond training.rollouts = {rollouts}")
    for key in ("table_step", "long_step"):
        step = config["evaluation"][key]
        if step is not None and not any(step in block["steps"] for block in config["matrix"]):
            steps = {str(step) for block in config["matrix"] for step in block["steps"]}
            raise unknown(_holder(["evaluation", key], config, sources), f"evaluation.{key}", step, steps)


def of_argument(text: str) -> dict[str, Any]:
    """The configuration that a command gets as `--config`: JSON, or `-` for JSON (UTF-8) on standard input."""
    where = "--config"
    if text == "-":
        data = sys.stdin.buffer.read()
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(f"{where}: not UTF-8 text ({error})") from error
    config = parse_json(text, where, ConfigError)
    validated(Config, config, where)
    return dict(config)


def _holder(path: list[Any], config: Mapping[str, Any], sources: list[tuple[str, dict[str, Any]]]) -> str:
    """The file to look into for `path`: the last one that holds its longest part that any file holds as it was merged.

    The command line when no file holds its first key with the value in force.
    """
    for length in range(len(path), 0, -1):
        merged = _at(path[:length], config)
        for name, content in reversed(sources):
            value = _at(path[:length], content)
            # A file's mapping is a part of what was merged; any other value of it is in force or was replaced.
            if value is not _ABSENT and (value == merged or isinstance(value, Mapping)):
                return name
    return COMMAND_LINE if path or not sources else sources[-1][0]


_ABSENT = object()


def _at(path: Sequence[Any], content: Any) -> Any:
    """The value at `path`, or `_ABSENT`."""
    for part in path:
        inside = isinstance(content, Mapping) and part in content
        inside |= isinstance(content, list) and isinstance(part, int) and part < len(content)
        if not inside:
            return _ABSENT
        content = content[part]
    return content
