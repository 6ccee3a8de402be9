"""From the configuration to runs and checkpoints: what trains, what is evaluated, with which resolved settings.

A run is keyed by content: two rows of two tables that resolve to one method, model and seed are one run.
Light: Snakemake imports this in every job, on machines without torch too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from methods.training.spec import Training
from records import digests, errors
from records.errors import ConfigError, Parser, unknown
from records.files import write_json
from records.layout import BASE, Checkpoint, Run, split
from workflow import config as configuration

UNPINNED = "unpinned"  # in folder names: no commit is configured; the head was taken and its commit recorded
REWARD = "evals.reward:boxed"
SCHEMA = 1


@dataclass(frozen=True)
class Planned:
    """A run of the matrix: `row` is the method as the configuration names it, `run.method` its canonical key; both
    carry the block's variant, if it has one."""

    run: Run
    row: str
    steps: tuple[int, ...]

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        return tuple(Checkpoint(self.run, step) for step in self.steps)


def canonical(config: Mapping[str, Any], text: str, where: str) -> str:
    """The canonical key of `text` (a catalog key with options), with the scale's `settings` for that method applied.

    An option written in `text` itself wins over `settings`.
    """
    from methods import catalog

    name, *options = text.split("+")
    written = {option.split("=", 1)[0] for option in options}
    try:
        extra = [f"{key}={value}" for key, value in config["settings"].get(name, {}).items() if key not in written]
        return catalog.parse("+".join([name, *options, *extra])).key
    except ConfigError as error:
        raise ConfigError(f"{where}: methods: {error}") from error


def plan(config: Mapping[str, Any], where: str = "config") -> list[Planned]:
    """All runs of the configuration, each once, in a stable order; unknown names raise, naming the nearest."""
    from models import registry as models

    override = config["methods"]
    if isinstance(override, str):
        override = [name.strip() for name in override.split(",") if name.strip()]
    known = models.keys()
    steps: dict[Run, set[int]] = {}
    rows: dict[Run, str] = {}
    for block in config["matrix"]:
        variant = block.get("variant")
        if variant not in (None, *config["variants"]):
            raise unknown(where, "matrix.variant", variant, config["variants"])
        at = "" if variant is None else f"@{variant}"  # ends the method's name: `tepo@hot`
        for model in block["models"]:
            if model not in known:
                raise unknown(where, "matrix.models", model, known)
            for text in override or block["methods"]:
                method = canonical(config, text, where)
                for seed in block["seeds"]:
                    run = Run(model, method + at, seed)
                    # Two rows may resolve to one run: it trains once, with the checkpoints of both and the first name.
                    steps.setdefault(run, set()).update(block["steps"])
                    rows.setdefault(run, text + at)
    return [Planned(run, rows[run], tuple(sorted(kept))) for run, kept in steps.items()]


def trainer(config: Mapping[str, Any], planned: Planned) -> str:
    """The trainer of a run: its variant's, or the scale's."""
    return str(_settings(config, planned.run).get("trainer", config["trainer"]))


def training(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """The `training` settings of a run: the scale's, the cluster's for its model, its variant's laid over them; no
    rollouts means up to its last checkpoint."""
    own = _settings(config, planned.run).get("training", {})
    merged = {**config["training"], **hardware(config, planned), **own}
    return {**merged, "rollouts": merged["rollouts"] or max(planned.steps)}


def hardware(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """What `cluster` gives a run of this model's size; nothing for a model made here. An unnamed size raises."""
    from models import registry as models

    cluster, size = config["cluster"], models.model(planned.run.model).size
    if size is None or cluster is None:
        return {}
    if size not in cluster["sizes"]:
        raise unknown("config", f"cluster.sizes (for {planned.run.model})", size, cluster["sizes"])
    # `gpu` and `gpus` are only for the plan: in a specification they would make every run be trained again.
    shared = ("gpus_per_node", "rollout_memory", "max_tokens_per_gpu", "attention")
    return {**{key: cluster[key] for key in shared}, **cluster["sizes"][size]}


def _settings(config: Mapping[str, Any], run: Run) -> Mapping[str, Any]:
    return {} if run.variant is None else config["variants"][run.variant]


def check_benchmarks(config: Mapping[str, Any], where: str = "config") -> None:
    """Raise for a benchmark that the registry does not know, or one given twice."""
    from evals import benchmark

    keys, known = config["evaluation"]["benchmarks"], benchmark.keys()
    for key in keys:
        if key not in known:
            raise unknown(where, "evaluation.benchmarks", key, known)
        if keys.count(key) > 1:
            raise ConfigError(f"{where}: evaluation.benchmarks: {key} is given twice")


def models_of(config: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(planned.run.model for planned in plan(config)))


def checkpoints(config: Mapping[str, Any]) -> list[Checkpoint]:
    """Everything that is evaluated: each model's base first, then every planned checkpoint."""
    bases = [Checkpoint.base(model) for model in models_of(config)]
    return bases + [checkpoint for planned in plan(config) for checkpoint in planned.checkpoints]


def specification(config: Mapping[str, Any], planned: Planned, base: str, prompts: str) -> dict[str, Any]:
    """What `python -m methods.train` gets: see docs/architecture.md, "A run specification"."""
    run = planned.run
    return {
        "scale": config["scale"],
        "model": run.model,
        "method": run.key,
        "seed": run.seed,
        "trainer": trainer(config, planned),
        "base": base,
        "prompts": prompts,
        "reward": REWARD,
        "training": training(config, planned),
        "checkpoints": list(planned.steps),
        **({} if run.variant is None else {"variant": run.variant}),
    }


def prompts_needed(config: Mapping[str, Any]) -> int:
    """Prompts of the run that needs most, oversampling included. An adapter that draws more goes round again."""
    settings = [training(config, planned) for planned in plan(config)]
    return max(s["rollouts"] * math.ceil(s["prompts_per_rollout"] * s["oversample"]) for s in settings)


def base_name(config: Mapping[str, Any], model: str) -> str:
    """Folder of a base model in the cache: `<key>-<hash of its recipe>`, or `<key>-<commit of the hub>`."""
    from models import registry as models
    from models.recipe import recipe_hash

    known = models.model(model)
    if known.hub is None:
        return f"{model}-{recipe_hash(model, config['base']['ladder'])}"
    return f"{model}-{known.revision or UNPINNED}"


def prompts_name(config: Mapping[str, Any], model: str) -> str:
    """File of a model's training prompts in the cache. Generated arithmetic is one file for all models; a data set's
    problems are in the model's own chat template."""
    from workflow import code_hashes

    given = config["prompts"]
    digest = code_hashes.prompts(given["source"])
    if given["source"] == "arithmetic":
        return f"{config['base']['ladder']}-{prompts_needed(config)}-{digest}.jsonl"
    limit = config["training"].get("max_prompt_tokens", Training.model_fields["max_prompt_tokens"].default)
    return f"{data_name(config)}-{given['count']}-{given['seed']}-{limit}-{digest}/{base_name(config, model)}.jsonl"


def data_name(config: Mapping[str, Any]) -> str:
    """`<source>-<commit>` of the data set that the prompts are chosen from."""
    return f"{config['prompts']['source']}-{config['prompts']['revision'] or UNPINNED}"


def matrix(config: Mapping[str, Any]) -> dict[str, Any]:
    """The content of `matrix.json`: what should be in the results, for the report to compare with what is."""
    from evals import benchmark as benchmarks
    from models import registry as models

    planned = plan(config)
    methods = {p.run.method: p.row for p in planned}
    planned_models = [(key, models.model(key)) for key in models_of(config)]
    chosen = [benchmarks.benchmark(key) for key in config["evaluation"]["benchmarks"]]
    return {
        "schema": SCHEMA,
        "scale": config["scale"],
        "title": config["title"],
        "note": config["note"],
        "table_step": config["evaluation"]["table_step"],
        "long_step": config["evaluation"]["long_step"],
        "models": [{"key": key, "title": model.title, "stands_for": model.stands_for} for key, model in planned_models],
        "methods": [
            {"key": key, "row": row, "title": _title(config, key), "variant": split(key)[1]}
            for key, row in methods.items()
        ],
        "variants": {
            name: {"title": body["title"], "note": body.get("note", ""), "changes": _changes(body)}
            for name, body in config["variants"].items()
            if any(p.run.variant == name for p in planned)
        },
        "seeds": sorted({p.run.seed for p in planned}),
        "benchmarks": [
            {
                "key": benchmark.key,
                "title": benchmark.title,
                "stands_for": benchmark.stands_for,
                "items": benchmark.n,
                "samples": benchmark.decoding.samples,
            }
            for benchmark in chosen
        ],
        "training": dict(config["training"]),
        "runs": [
            {"model": p.run.model, "method": p.run.method, "row": p.row, "seed": p.run.seed, "steps": list(p.steps)}
            for p in planned
        ],
        "checkpoints": [
            {"model": c.run.model, "method": c.run.method, "seed": c.run.seed, "step": c.step}
            for c in checkpoints(config)
        ],
        "base": BASE,
    }


def _title(config: Mapping[str, Any], method: str) -> str:
    from methods import catalog

    key, variant = split(method)
    title = catalog.parse(key).title
    return title if variant is None else f"{title}, {config['variants'][variant]['title']}"


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a variant sets, by dotted key."""
    changes = {"trainer": body["trainer"]} if "trainer" in body else {}
    return changes | {f"training.{key}": value for key, value in body.get("training", {}).items()}


def main() -> None:
    parser = Parser(description="Write matrix.json: every run and checkpoint of a configuration.")
    parser.add_argument("--config", required=True, help="the merged configuration as JSON, or - for standard input")
    parser.add_argument("--out", required=True, type=Path)
    args = parser.parse_args()
    write_json(args.out, digests.with_own(matrix(configuration.of_argument(args.config))))


if __name__ == "__main__":
    errors.run(main)
