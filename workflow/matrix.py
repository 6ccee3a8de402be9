"""From the configuration to runs and checkpoints: what trains, what is evaluated, with which resolved settings.

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
    row: str  # the method as the configuration names it, with the block's variant; `run.method` is its canonical key
    steps: tuple[int, ...]
    unevaluated: frozenset[int] = frozenset()  # of `steps`, those that only blocks with `evaluate: false` keep

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """Those that are evaluated."""
        return tuple(Checkpoint(self.run, step) for step in self.steps if step not in self.unevaluated)


def canonical(config: Mapping[str, Any], text: str, where: str, key: str = "methods") -> str:
    """The canonical key of `text` (a catalog key with options), with the scale's `settings` for that method applied.

    An option written in `text` itself wins over `settings`. `where` and `key` are for errors.
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
    """The matrix, with `models`, `methods` and `seeds` of the configuration applied.

    Of each block the models and methods asked for are kept; with `methods`, no block of a control. One that no block
    has joins the first block (of each model, for a method). A method asked for by its name alone is the matrix's own
    form of it, where a model has only `tepo+beta=1`: that is the paper's row of this model.
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

    # One block a model, so that a method may be another one's row with another model.
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
    """The rows of a model that are the method `text`: equal to it or, if it has no option, forms of it."""
    asked = canonical(config, text, "")
    equal = [row for row in rows if row == text or canonical(config, row, "") == asked]
    return equal or [row for row in rows if "+" not in text and row.split("+")[0] == text]


def plan(config: Mapping[str, Any], where: Where = _anywhere) -> list[Planned]:
    """All runs of the configuration, each once, in a stable order; unknown names raise, naming the nearest."""
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
        at = "" if variant is None else f"@{variant}"  # ends the method's name: `tepo@hot`
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
    """The canonical key of the method that others are compared with."""
    return canonical(config, config["baseline"], where(["baseline"]), "baseline")


def trainer(config: Mapping[str, Any], planned: Planned) -> str:
    """The trainer of a run: its variant's, or the scale's."""
    return str(_settings(config, planned.run).get("trainer", config["trainer"]))


def rewards(config: Mapping[str, Any], planned: Planned) -> dict[str, str]:
    """Dotted names of a run's reward and, where its variant names one, of the placebo that it trains on."""
    name = _settings(config, planned.run).get("reward")
    return {"reward": REWARD} | ({} if name is None else {"placebo": placebo.dotted(name)})


def training(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """The `training` settings of a run: the scale's, the cluster's for its model, its variant's laid over them; no
    rollouts means up to its last checkpoint."""
    own = _settings(config, planned.run).get("training", {})
    merged = {**config["training"], **hardware(config, planned), **own}
    return {**merged, "rollouts": merged["rollouts"] or max(planned.steps)}


def hardware(config: Mapping[str, Any], planned: Planned) -> dict[str, Any]:
    """What `cluster` gives a run of this model's size; nothing for a model made here."""
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


def check_benchmarks(config: Mapping[str, Any], where: Where = _anywhere) -> None:
    """Raise for a benchmark that the registry does not know."""
    keys = config["evaluation"]["benchmarks"]
    _check_known(where(["evaluation", "benchmarks"]), "evaluation.benchmarks", keys, benchmarks.keys())


def models_of(config: Mapping[str, Any]) -> list[str]:
    return list(dict.fromkeys(planned.run.model for planned in plan(config)))


def base_of(run: Run) -> Checkpoint:
    """The base that a run starts from: its seed's own of a model made here, the same for all seeds of a hub model."""
    made_here = models.model(run.model).made_here is not None
    return Checkpoint.base(run.model, run.seed) if made_here else Checkpoint.base(run.model)


def bases(config: Mapping[str, Any]) -> list[Checkpoint]:
    """The base of every planned run, each once, model by model and by seed."""
    found = {base_of(planned.run) for planned in plan(config)}
    order = models_of(config)
    return sorted(found, key=lambda base: (order.index(base.run.model), base.run.seed))


def checkpoints(config: Mapping[str, Any]) -> list[Checkpoint]:
    """Everything that is evaluated: the bases first, then every planned checkpoint."""
    return bases(config) + [checkpoint for planned in plan(config) for checkpoint in planned.checkpoints]


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
        **rewards(config, planned),
        "training": training(config, planned),
        "checkpoints": list(planned.steps),
        **({} if run.variant is None else {"variant": run.variant}),
        **{key: value for key, value in _settings(config, run).items() if key == "stream"},
    }


@dataclass(frozen=True)
class Build:
    """What makes the base of one seed here."""

    model: str
    seed: int
    clean: str  # folder of the clean model that it continues: its own model's or another's
    number: int  # of that clean model: as a seed, it names the same one whatever else is planned


def builds(config: Mapping[str, Any]) -> dict[str, Build]:
    """By folder of the base, for every base that is made here."""
    ladder, found = config["base"]["ladder"], {}
    for run in (base.run for base in bases(config)):
        if models.model(run.model).made_here is not None:
            start = recipe.recipe(run.model, ladder, run.seed).start
            build = Build(run.model, run.seed, recipe.name_of_clean(start), start.number)
            found[recipe.base_name(run.model, ladder, run.seed)] = build
    return found


def base_name(config: Mapping[str, Any], model: str, seed: int) -> str:
    """Folder of a seed's base in the cache: `<key>-<hash of its recipe>`; of a fetched model `<key>-<version>`."""
    known = models.model(model)
    if known.made_here is not None:
        return recipe.base_name(model, config["base"]["ladder"], seed)
    return f"{model}-{known.version}"


def prompt_limit(config: Mapping[str, Any], run: Run) -> int:
    """Tokens of a run's longest prompt, to which a data set's problems are cut: its variant may have its own."""
    own = {**config["training"], **_settings(config, run).get("training", {})}
    return int(own.get("max_prompt_tokens", Training.model_fields["max_prompt_tokens"].default))


def prompts_name(config: Mapping[str, Any], model: str, seed: int, limit: int) -> str:
    """File of a run's training prompts in the cache. Generated problems are one file for all models and seeds; a data
    set's problems are in the chat template of the base, and cut to `limit` tokens."""
    given = config["prompts"]
    digest = training_prompts.code(given["source"]).hash
    if given["source"] in benchmarks.GENERATED:
        # As many as the run that needs most, oversampling included. An adapter that draws more goes round again.
        settings = [training(config, planned) for planned in plan(config)]
        needed = max(s["rollouts"] * math.ceil(s["prompts_per_rollout"] * s["oversample"]) for s in settings)
        return f"{given['ladder'] or config['base']['ladder']}-{needed}-{digest}.jsonl"
    chosen = f"{data_name(config)}-{given['count']}-{given['seed']}-{limit}-{digest}"
    return f"{chosen}/{base_name(config, model, seed)}.jsonl"


def data_name(config: Mapping[str, Any]) -> str:
    """`<source>-<commit>` of the data set that the prompts are chosen from."""
    return f"{config['prompts']['source']}-{config['prompts']['revision'] or UNPINNED}"


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """By dotted key, what all runs and scores of one tree share: with other values they would not stand beside each
    other."""
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
    """The content of `matrix.json`: what should be in the results, for the report to compare with what is.

    kept: what else of an earlier matrix.json is in the tree (`workflow.tree`).
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
    """Whether two entries are about one model, method, run or checkpoint."""
    return all(one.get(key) == other.get(key) for key in ("key", "model", "method", "seed", "step"))


def _title(config: Mapping[str, Any], method: str) -> str:
    key, variant = split(method)
    title = catalog.parse(key).title
    return title if variant is None else f"{title}, {config['variants'][variant]['title']}"


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a variant sets, by dotted key."""
    changes = {key: body[key] for key in ("trainer", "reward", "stream") if key in body}
    return changes | {f"training.{key}": value for key, value in body.get("training", {}).items()}
