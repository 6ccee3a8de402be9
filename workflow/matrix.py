"""Derive runs and checkpoints from the configuration: what is trained and evaluated, with which resolved settings.

A run is keyed by content: two rows of two tables that resolve to one method, model and seed are one run.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from core.declared import Where
from core.errors import ConfigError, unknown
from core.layout import BASE, Checkpoint, Run, split
from evals import benchmark as benchmarks
from evals import placebo
from methods import catalog
from methods.training.spec import Training
from models import prompts as training_prompts
from models import recipe
from models import registry as models
from models.registry import UNPINNED

REWARD = "evals.reward:boxed"
SCHEMA = 1


@dataclass(frozen=True)
class Planned:
    """A run of the matrix."""

    run: Run
    row: str  # the configured method name with the block's variant; `run.method` is its canonical key
    steps: tuple[int, ...]
    unevaluated: frozenset[int] = frozenset()  # the subset of `steps` that only blocks with `evaluate: false` keep

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The evaluated checkpoints."""
        return tuple(Checkpoint(self.run, step) for step in self.steps if step not in self.unevaluated)


def canonical(config: Mapping[str, Any], text: str, where: str, key: str = "methods") -> str:
    """Return the canonical key of `text` (a catalog key with options), with the scale's `settings` for that method.

    An option in `text` takes precedence over `settings`. `where` and `key` are for errors.
    """
    name, *options = text.split("+")
    if "@" in text:
        raise ConfigError(f"{where}: {key}: {text!r}: names a variant; set variant of a block of the matrix to it")
    written = {option.split("=", 1)[0] for option in options}
    try:
        extra = [f"{key}={value}" for key, value in config["settings"].get(name, {}).items() if key not in written]
        return catalog.parse("+".join([name, *options, *extra])).key
    except ConfigError as error:
        raise ConfigError(f"{where}: {key}: {error}") from error


def _anywhere(path: list[Any]) -> str:
    return "config"


def blocks(config: Mapping[str, Any], where: Where = _anywhere) -> list[dict[str, Any]]:
    """Return the matrix, with `models`, `methods` and `seeds` of the configuration applied.

    Each block keeps the requested models and methods; with `methods`, control blocks are dropped. A model or method in
    no block is added to the first block (of each model, for a method). A method requested by its plain name means
    the matrix's form of it, where a model has only `tepo+beta=1`: that is the paper's row of this model.
    """
    wanted, methods, seeds = config["models"], config["methods"], config["seeds"]
    for number, block in enumerate(config["matrix"]):
        if block.get("variant") not in (None, *config["variants"]):
            raise unknown(where(["matrix", number, "variant"]), "matrix.variant", block["variant"], config["variants"])
        _check_known(where(["matrix", number, "models"]), "matrix.models", block["models"], models.keys())
    _check_known(where(["models"]), "models", wanted or [], models.keys())
    for text in methods or []:
        canonical(config, text, where(["methods"]))
    for name in config["settings"]:
        canonical(config, name, where(["settings", name]), "settings")

    # One block a model, so that a method may be another's row with another model.
    single = [block | {"models": [model]} for block in config["matrix"] for model in block["models"]]
    listed = {block["models"][0] for block in single}
    first = next((block for block in config["matrix"] if block.get("variant") is None), config["matrix"][0])
    single += [first | {"models": [model]} for model in dict.fromkeys(wanted or []) if model not in listed]
    kept = [block for block in single if wanted is None or block["models"][0] in wanted]
    if methods is not None:
        # A control changes the reward or the stream of samples: it tests the whole experiment, not a method.
        kept = [
            block
            for block in kept
            if not {"reward", "stream"} & config["variants"].get(block.get("variant"), {}).keys()
        ]
        by_model: dict[str, list[str]] = {}
        for block in kept:
            by_model.setdefault(block["models"][0], []).extend(block["methods"])
        found = {model: {text: _forms(config, text, rows) for text in methods} for model, rows in by_model.items()}
        chosen, first_of = [], set()
        for block in kept:
            model = block["models"][0]
            here: dict[str, None] = {}
            for text, forms in found[model].items():
                joins = [] if forms or model in first_of else [text]
                here.update(dict.fromkeys([form for form in forms if form in block["methods"]] + joins))
            first_of.add(model)
            chosen.append(block | {"methods": list(here)})
        kept = [block for block in chosen if block["methods"]]
    return kept if seeds is None else [block | {"seeds": seeds} for block in kept]


def _check_known(where: str, key: str, given: Iterable[str], known: Collection[str]) -> None:
    for name in given:
        if name not in known:
            raise unknown(where, key, name, known)


def _forms(config: Mapping[str, Any], text: str, rows: list[str]) -> list[str]:
    """Return the rows of a model that are the method `text`: equal to it or, if it has no option, forms of it."""
    asked = canonical(config, text, "")
    equal = [row for row in rows if row == text or canonical(config, row, "") == asked]
    return equal or [row for row in rows if "+" not in text and row.split("+")[0] == text]


def plan(config: Mapping[str, Any], where: Where = _anywhere) -> list[Planned]:
    """Return all runs of the configuration, each once, in a stable order; raise for unknown names, with the nearest."""
    steps: dict[Run, set[int]] = {}
    evaluated: dict[Run, set[int]] = {}
    rows: dict[Run, str] = {}
    for block in blocks(config, where):
        variant = block.get("variant")
        body = config["variants"].get(variant, {})
        if "reward" in body and body.get("trainer", config["trainer"]) == "verl":
            raise ConfigError(
                f"{where(['variants', variant, 'reward'])}: variants.{variant}.reward: {body['reward']}: has no "
                "meaning with trainer: verl, which trains on true rewards only; allowed: trainer: trl"
            )
        at = "" if variant is None else f"@{variant}"  # suffix of the method's name: `tepo@hot`
        for model in block["models"]:
            for text in block["methods"]:
                method = canonical(config, text, where(["matrix"]), "matrix.methods")
                for seed in block["seeds"]:
                    run = Run(model, method + at, seed)
                    # Two rows may resolve to one run: it trains once, with the checkpoints of both and the first name.
                    steps.setdefault(run, set()).update(block["steps"])
                    evaluated.setdefault(run, set()).update(block["steps"] if block.get("evaluate", True) else ())
                    rows.setdefault(run, text + at)
    return [
        Planned(run, rows[run], tuple(sorted(kept)), frozenset(kept - evaluated[run])) for run, kept in steps.items()
    ]


def baseline(config: Mapping[str, Any], where: Where = _anywhere) -> str:
    """Return the canonical key of the method that others are compared with."""
    return canonical(config, config["baseline"], where(["baseline"]), "baseline")


def trainer(config: Mapping[str, Any], planned: Planned) -> str:
    """Return the trainer of a run: its variant's, or the scale's."""
    return str(_settings(config, planned.run).get("trainer", config["trainer"]))


def rewards(config: Mapping[str, Any], planned: Planned) -> dict[str, str]:
    """Return the dotted names of a run's reward and, where its variant has one, of the placebo it trains on."""
    name = _settings(config, planned.run).get("reward")
    return {"reward": REWARD} | ({} if name is None else {"placebo": placebo.dotted(name)})


def training(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """Return the `training` settings of a run: the scale's, the cluster's for its model, then its variant's; no
    rollouts means up to its last checkpoint."""
    own = _settings(config, planned.run).get("training", {})
    merged = {**config["training"], **hardware(config, planned), **own}
    return {**merged, "rollouts": merged["rollouts"] or max(planned.steps)}


def hardware(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """Return the `cluster` settings for a run's model size; empty for a model built here."""
    cluster, size = config["cluster"], models.model(planned.run.model).size
    if size is None or cluster is None:
        return {}
    if size not in cluster["sizes"]:
        raise unknown("config", f"cluster.sizes (for {planned.run.model})", size, cluster["sizes"])
    # `gpu` and `gpus` are only for the plan: in a specification they would cause every run to be retrained.
    shared = ("gpus_per_node", "rollout_memory", "max_tokens_per_gpu", "attention")
    return {**{key: cluster[key] for key in shared}, **cluster["sizes"][size]}


def _settings(config: Mapping[str, Any], run: Run) -> Mapping[str, Any]:
    return {} if run.variant is None else config["variants"][run.variant]


def check_benchmarks(config: Mapping[str, Any], where: Where = _anywhere) -> None:
    """Raise for a benchmark that is not in the registry."""
    keys = config["evaluation"]["benchmarks"]
    _check_known(where(["evaluation", "benchmarks"]), "evaluation.benchmarks", keys, benchmarks.keys())


def models_of(config: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(planned.run.model for planned in plan(config)))


def base_of(run: Run) -> Checkpoint:
    """Return the base that a run starts from: one per seed for a model built here, one for all seeds of a hub model."""
    made_here = models.model(run.model).made_here is not None
    return Checkpoint.base(run.model, run.seed) if made_here else Checkpoint.base(run.model)


def bases(config: Mapping[str, Any]) -> list[Checkpoint]:
    """Return the base of every planned run, each once, ordered by model and seed."""
    found = {base_of(planned.run) for planned in plan(config)}
    order = models_of(config)
    return sorted(found, key=lambda base: (order.index(base.run.model), base.run.seed))


def checkpoints(config: Mapping[str, Any]) -> list[Checkpoint]:
    """Return everything that is evaluated: the bases first, then every planned checkpoint."""
    return bases(config) + [checkpoint for planned in plan(config) for checkpoint in planned.checkpoints]


def specification(config: Mapping[str, Any], planned: Planned, base: str, prompts: str) -> dict[str, Any]:
    """Return the input of `python -m methods.train`: see docs/architecture.md, "A run specification"."""
    run = planned.run
    return {
        "scale": config["scale"],
        "model": run.model,
        "method": run.key,
        "seed": run.seed,
        "trainer": trainer(config, planned),
        "base": base,
        "prompts": prompts,
        **rewards(config, planned),
        "training": training(config, planned),
        "checkpoints": list(planned.steps),
        **({} if run.variant is None else {"variant": run.variant}),
        **{key: value for key, value in _settings(config, run).items() if key == "stream"},
    }


@dataclass(frozen=True)
class Build:
    """How the base of one seed is built here."""

    model: str
    seed: int
    clean: str  # folder of the clean model that it continues: of its own model or another
    number: int  # of that clean model: as a seed, it gives the same one whatever else is planned


def builds(config: Mapping[str, Any]) -> dict[str, Build]:
    """Return the builds of all bases built here, by folder of the base."""
    ladder, found = config["base"]["ladder"], {}
    for run in (base.run for base in bases(config)):
        if models.model(run.model).made_here is not None:
            start = recipe.recipe(run.model, ladder, run.seed).start
            build = Build(run.model, run.seed, recipe.name_of_clean(start), start.number)
            found[recipe.base_name(run.model, ladder, run.seed)] = build
    return found


def base_name(config: Mapping[str, Any], model: str, seed: int) -> str:
    """Return the cache folder of a seed's base: `<key>-<hash of its recipe>`; if fetched, `<key>-<version>`."""
    known = models.model(model)
    if known.made_here is not None:
        return recipe.base_name(model, config["base"]["ladder"], seed)
    return f"{model}-{known.version}"


def prompt_limit(config: Mapping[str, Any], run: Run) -> int:
    """Return the tokens of a run's longest prompt, the cut-off for a data set's problems; variants may override it."""
    own = {**config["training"], **_settings(config, run).get("training", {})}
    return int(own.get("max_prompt_tokens", Training.model_fields["max_prompt_tokens"].default))


def prompts_name(config: Mapping[str, Any], model: str, seed: int, limit: int) -> str:
    """Return the cache file of a run's training prompts. Generated problems are one file for all models and seeds; a
    data set's problems are in the chat template of the base, and cut to `limit` tokens."""
    given = config["prompts"]
    digest = training_prompts.code(given["source"]).hash
    if given["source"] in benchmarks.GENERATED:
        # As many as the largest run needs, including oversampling. An adapter that draws more starts over.
        settings = [training(config, planned) for planned in plan(config)]
        needed = max(s["rollouts"] * math.ceil(s["prompts_per_rollout"] * s["oversample"]) for s in settings)
        return f"{given['ladder'] or config['base']['ladder']}-{needed}-{digest}.jsonl"
    chosen = f"{data_name(config)}-{given['count']}-{given['seed']}-{limit}-{digest}"
    return f"{chosen}/{base_name(config, model, seed)}.jsonl"


def data_name(config: Mapping[str, Any]) -> str:
    """Return `<source>-<commit>` of the data set that the prompts are chosen from."""
    return f"{config['prompts']['source']}-{config['prompts']['revision'] or UNPINNED}"


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return, by dotted key, what all runs and scores of one tree share: with other values they would not be
    comparable."""
    used = {planned.run.variant for planned in plan(config)}
    evaluation = config["evaluation"]
    parts: dict[str, Mapping[str, Any]] = {
        "prompts": config["prompts"],
        "training": config["training"],
        "evaluation": {key: evaluation[key] for key in ("backend", "seed", "benchmarks", "table_step")},
        **{f"variants.{name}": _changes(config["variants"][name]) for name in config["variants"].keys() & used},
    }
    shared = {f"{part}.{key}": value for part, content in parts.items() for key, value in content.items()}
    return {"trainer": config["trainer"], "base.ladder": config["base"]["ladder"], **shared}


def matrix(config: Mapping[str, Any], kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the content of `matrix.json`: the expected results, for the report to compare with the actual ones.

    kept: other content of an earlier matrix.json that stays in the tree (`workflow.tree`).
    """
    planned = plan(config)
    methods = {p.run.method: p.row for p in planned}
    planned_models = [(key, models.model(key)) for key in models_of(config)]
    chosen = [benchmarks.benchmark(key) for key in config["evaluation"]["benchmarks"]]
    content = {
        "schema": SCHEMA,
        **{key: config[key] for key in ("scale", "title", "note")},
        **{key: config["evaluation"][key] for key in ("table_step", "long_step")},
        "models": [
            {
                "key": key,
                "title": model.title,
                "stands_for": model.stands_for,
                "starts": recipe.starts(key, config["base"]["ladder"]),
                "bases": recipe.family(key),
            }
            for key, model in planned_models
        ],
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
        "baseline": baseline(config),
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
        "sweep": config.get("swept"),
        "settings": settings(config),
    }
    if kept:
        for part in ("models", "methods", "runs", "checkpoints"):
            content[part] += [entry for entry in kept[part] if not any(_same(entry, known) for known in content[part])]
        content["variants"] = {**kept["variants"], **content["variants"]}
        content["seeds"] = sorted({entry["seed"] for entry in content["runs"]})
    return content


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two entries refer to the same model, method, run or checkpoint."""
    return all(one.get(key) == other.get(key) for key in ("key", "model", "method", "seed", "step"))


def _title(config: Mapping[str, Any], method: str) -> str:
    key, variant = split(method)
    title = catalog.parse(key).title
    return title if variant is None else f"{title}, {config['variants'][variant]['title']}"


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variant's settings by dotted key."""
    changes = {key: body[key] for key in ("trainer", "reward", "stream") if key in body}
    return changes | {f"training.{key}": value for key, value in body.get("training", {}).items()}
