"""Derive runs and checkpoints from the configuration: what is trained and evaluated, with which resolved settings.

A run is keyed by content: two rows of two tables that resolve to one method, model and seed are one run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from core.declared import Where
from core.errors import ConfigError, check_known
from core.layout import BASE, Checkpoint, Run, split
from evals import benchmark as benchmarks
from evals import placebo
from methods import catalog
from methods.training.spec import Training
from models import prompts as training_prompts
from models import recipe, registry
from models.registry import UNPINNED

REWARD = "evals.reward:boxed"
SCHEMA = 1
DRAWN = ("samples", "temperature", "max_tokens", "prompt")  # options of `evals.generate`
PARTS = ("models", "methods", "runs", "checkpoints")  # of matrix.json; their entries stay when others are planned


@dataclass(frozen=True)
class Planned:
    """A run of the matrix."""

    run: Run
    row: str  # the configured method name with the block's variant; `run.method` is its canonical key
    steps: tuple[int, ...]
    unevaluated: frozenset[int] = frozenset()  # the subset of `steps` that only blocks with `evaluate: false` keep


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
    no block is added to the first block (of each model, for a method). A plain method name selects the matrix's
    form of it, if a model has only `tepo+beta=1`: that is the paper's row for this model.
    """
    wanted, methods, seeds, variants = (config[key] for key in ("models", "methods", "seeds", "variants"))
    for number, block in enumerate(config["matrix"]):
        if (variant := block.get("variant")) is not None:
            check_known(where(["matrix", number, "variant"]), "matrix.variant", [variant], variants)
        check_known(where(["matrix", number, "models"]), "matrix.models", block["models"], registry.keys())
    check_known(where(["models"]), "models", wanted or [], registry.keys())
    for text in methods or []:
        canonical(config, text, where(["methods"]))
    for name in config["settings"]:
        canonical(config, name, where(["settings", name]), "settings")

    # One block per model: the form of a method may differ between models.
    single = [block | {"models": [model]} for block in config["matrix"] for model in block["models"]]
    listed = {block["models"][0] for block in single}
    first = next((block for block in config["matrix"] if block.get("variant") is None), config["matrix"][0])
    single += [first | {"models": [model]} for model in dict.fromkeys(wanted or []) if model not in listed]
    kept = [block for block in single if wanted is None or block["models"][0] in wanted]
    if methods is not None:
        # A control changes the reward, the stream of samples or the movement: it tests the experiment, not a method.
        keys = {name: body.keys() | body.get("training", {}).keys() for name, body in variants.items()}
        controls = {name for name, own in keys.items() if {"reward", "stream", "kl_target"} & own}
        kept = [block for block in kept if block.get("variant") not in controls]
        forms: dict[str, list[str]] = {}
        for number, block in enumerate(kept):
            model, there = block["models"][0], block["methods"]
            if model not in forms:  # its first block also gets the methods of no block
                rows = [row for other in kept if other["models"] == [model] for row in other["methods"]]
                forms[model] = list(dict.fromkeys(form for text in methods for form in _forms(config, text, rows)))
                there = there + [form for form in forms[model] if form not in rows]
            kept[number] = block | {"methods": [form for form in forms[model] if form in there]}
        kept = [block for block in kept if block["methods"]]
    return kept if seeds is None else [block | {"seeds": seeds} for block in kept]


def _forms(config: Mapping[str, Any], text: str, rows: list[str]) -> list[str]:
    """Return the rows of a model that match the method `text`: equal to it or, if it has no option, forms of it.

    Without any, return `text` itself.
    """
    asked = canonical(config, text, "")
    equal = [row for row in rows if row == text or canonical(config, row, "") == asked]
    return equal or [row for row in rows if "+" not in text and row.split("+")[0] == text] or [text]


def plan(config: Mapping[str, Any], where: Where = _anywhere) -> list[Planned]:
    """Return all runs of the configuration, each once, in a stable order; raise for unknown names, with the nearest."""
    rows: dict[Run, str] = {}
    steps: dict[Run, dict[int, bool]] = {}  # step -> whether its checkpoint is evaluated
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
                    rows.setdefault(run, text + at)
                    kept = steps.setdefault(run, {})
                    kept |= {step: kept.get(step, False) or block.get("evaluate", True) for step in block["steps"]}
    # A run that another follows is planned too, for at least as many rollouts; blocks decide whether it is evaluated.
    for run in list(rows):
        if (leader := followed(config, run, where)) is not None:
            rows.setdefault(leader, leader.method)
            kept = steps.setdefault(leader, {})
            kept |= {step: kept.get(step, False) for step in steps[run]}
    return [
        Planned(run, row, tuple(sorted(steps[run])), frozenset(step for step, seen in steps[run].items() if not seen))
        for run, row in rows.items()
    ]


def followed(config: Mapping[str, Any], run: Run, where: Where = _anywhere) -> Run | None:
    """Return the run whose movement a run follows by `training.kl_target.yoke`, or None."""

    def settings(variant: str | None) -> Mapping[str, Any]:
        return {**config["training"], **config["variants"].get(variant, {}).get("training", {})}

    def yoke(variant: str | None) -> str | None:
        target = settings(variant).get("kl_target")
        return str(target["yoke"]) if isinstance(target, Mapping) else None

    if (text := yoke(run.variant)) is None:
        return None
    path = ["training", "kl_target"] if run.variant is None else ["variants", run.variant, "training", "kl_target"]
    at, key = where(path), ".".join([*path, "yoke"])
    name, variant = split(text)
    if variant is not None:
        check_known(at, key, [variant], config["variants"])
    if yoke(variant) is not None:
        raise ConfigError(
            f"{at}: {key}: {text!r} follows another run itself; set kl_target of one variant only, or name a run "
            "with a movement of its own"
        )
    own, least = (settings(each).get("rollouts") for each in (variant, run.variant))
    if own is not None and own < (least or 0):
        raise ConfigError(f"{at}: {key}: {text!r} has {own} rollouts, {run.method} {least}; set as many for both")
    return Run(run.model, canonical(config, name, at, key) + ("" if variant is None else f"@{variant}"), run.seed)


def base_of(run: Run) -> Checkpoint:
    """Return the base that a run starts from: one per seed for a model built here, one for all seeds of a hub model."""
    made_here = registry.model(run.model).made_here is not None
    return Checkpoint.base(run.model, run.seed) if made_here else Checkpoint.base(run.model)


@dataclass(frozen=True)
class Matrix:
    """Runs, bases and checkpoints that a checked configuration plans."""

    config: Mapping[str, Any]

    @cached_property
    def planned(self) -> list[Planned]:
        return plan(self.config)

    @cached_property
    def models(self) -> list[str]:
        return list(dict.fromkeys(planned.run.model for planned in self.planned))

    @cached_property
    def bases(self) -> list[Checkpoint]:
        """The base of every planned run, each once, ordered by model and seed."""
        found = {base_of(planned.run) for planned in self.planned}
        return sorted(found, key=lambda base: (self.models.index(base.run.model), base.run.seed))

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        """All evaluated checkpoints, the bases first."""
        trained = ((p.run, step) for p in self.planned for step in p.steps if step not in p.unevaluated)
        return [*self.bases, *(Checkpoint(run, step) for run, step in trained)]

    def variant(self, run: Run) -> Mapping[str, Any]:
        """Return the settings of a run's variant; empty without one."""
        return {} if run.variant is None else self.config["variants"][run.variant]

    def trainer(self, planned: Planned) -> str:
        """Return the trainer of a run: its variant's, or the scale's."""
        return str(self.variant(planned.run).get("trainer", self.config["trainer"]))

    def rewards(self, planned: Planned) -> dict[str, Any]:
        """Return the keys of a run's specification for its reward and, where its variant has one, for the placebo that
        it trains on."""
        names = self.config.get("reward") or [REWARD]
        found = {key: self.config[key] for key in ("reward_weights",) if key in self.config}
        found["reward"] = names[0] if len(names) == 1 else names
        name = self.variant(planned.run).get("reward")
        return found if name is None else found | {"placebo": placebo.dotted(name)}

    def training(self, planned: Planned) -> dict[str, Any]:
        """Return the `training` settings of a run: the scale's, the cluster's for its model, then its variant's;
        without `rollouts`, it ends at its last checkpoint."""
        cluster, size = self.config["cluster"], registry.model(planned.run.model).size
        hardware: dict[str, Any] = {}
        if size is not None and cluster is not None:
            if size not in cluster["sizes"] and registry.model(planned.run.model).folder:
                key = f"cluster.sizes.{size}"
                raise ConfigError(f"config: {key}: is missing; set {key}.nodes=1 and {key}.tensor_parallel=1, or more")
            check_known("config", f"cluster.sizes (for {planned.run.model})", [size], cluster["sizes"])
            # `gpu` and `gpus` are only for the plan: in a specification they would cause every run to be retrained.
            shared = ("gpus_per_node", "rollout_memory", "max_tokens_per_gpu", "attention")
            hardware = {**{key: cluster[key] for key in shared}, **cluster["sizes"][size]}
        merged = {**self.config["training"], **hardware, **self.variant(planned.run).get("training", {})}
        return {**merged, "rollouts": merged["rollouts"] or max(planned.steps)}

    def specification(self, planned: Planned, base: str, prompts: str, runs: str = "runs") -> dict[str, Any]:
        """Return the input of `python -m methods.train`: see docs/architecture.md, "A run specification".

        runs: folder of the tree's runs, for a run that follows another.
        """
        run, leader = planned.run, followed(self.config, planned.run)
        return {
            "scale": self.config["scale"],
            "model": run.model,
            "method": run.key,
            "seed": run.seed,
            "trainer": self.trainer(planned),
            "base": base,
            "prompts": prompts,
            **self.rewards(planned),
            "training": self.training(planned),
            "checkpoints": list(planned.steps),
            **({} if run.variant is None else {"variant": run.variant}),
            **{key: value for key, value in self.variant(run).items() if key == "stream"},
            **({} if leader is None else {"yoke": f"{runs}/{leader.path.as_posix()}/curve.csv"}),
        }

    def base_name(self, model: str, seed: int) -> str:
        """Return the cache folder of a seed's base: `<key>-<hash of its recipe>`; if fetched, `<key>-<version>`."""
        known = registry.model(model)
        if known.made_here is not None:
            return recipe.base_name(model, self.config["base"]["ladder"], seed)
        return f"{model}-{known.version}"

    def prompts_name(self, run: Run) -> str:
        """Return the cache file of a run's training prompts.

        All runs share one file of generated problems. A data set's are formatted with the base's chat template, and cut
        to the run's maximum prompt length. The name of a user's ends with their template.
        """
        given, config = self.config["prompts"], self.config
        if given["source"] in benchmarks.GENERATED:
            return f"{given['ladder'] or config['base']['ladder']}-{self._most_prompts}-{self._prompt_code}.jsonl"
        settings = {**config["training"], **self.variant(run).get("training", {})}
        limit = settings.get("max_prompt_tokens", Training.model_fields["max_prompt_tokens"].default)
        base = base_of(run).run
        chosen = f"{self.data_name}-{given['count'] or 'all'}-{given['seed']}-{limit}-{self._prompt_code}"
        if given["source"] == "file":  # models made here read only the bare text of their arithmetic
            made_here = registry.model(base.model).made_here is not None
            chosen += f"-{given.get('template') or ('arithmetic' if made_here else training_prompts.READING)}"
        return f"{chosen}/{self.base_name(base.model, base.seed)}.jsonl"

    @cached_property
    def _most_prompts(self) -> int:
        """Prompts of the largest run, including oversampling. An adapter that draws more starts again."""
        each = map(self.training, self.planned)
        return max(int(s["rollouts"]) * math.ceil(s["prompts_per_rollout"] * s["oversample"]) for s in each)

    @cached_property
    def _prompt_code(self) -> str:
        return training_prompts.code(self.config["prompts"]["source"]).hash

    @property
    def data_name(self) -> str:
        """`<source>-<commit>` of the data set that the prompts are chosen from."""
        return f"{self.config['prompts']['source']}-{self.config['prompts']['revision'] or UNPINNED}"

    def drawn(self) -> dict[str, Any]:
        """Return the options of `evals.generate` that replace each benchmark's own."""
        evaluation = self.config["evaluation"]
        return {key: evaluation[key] for key in DRAWN if key in evaluation}

    def settings(self) -> dict[str, Any]:
        """Return, by dotted key, what all runs and scores of one tree share: with other values they would not be
        comparable."""
        evaluation = self.config["evaluation"]
        parts: dict[str, Mapping[str, Any]] = {
            "prompts": {key: value for key, value in self.config["prompts"].items() if key != "file"},
            "training": self.config["training"],
            "evaluation": {key: evaluation[key] for key in ("backend", "seed", "benchmarks", "table_step")}
            | self.drawn(),
            **{f"variants.{name}": _changes(body) for name, body in self._variants.items()},
        }
        shared = {f"{part}.{key}": value for part, content in parts.items() for key, value in content.items()}
        shared |= {key: self.config[key] for key in ("reward", "reward_weights") if key in self.config}
        shared |= {"evaluation.thoughts": evaluation["thoughts"]} if evaluation.get("thoughts") else {}
        own = (each for each in map(benchmarks.benchmark, evaluation["benchmarks"]) if each.file is not None)
        shared |= {f"evaluation.content.{each.key}": each.sha256 for each in own}
        return {"trainer": self.config["trainer"], "base.ladder": self.config["base"]["ladder"], **shared}

    @cached_property
    def _variants(self) -> Mapping[str, Any]:
        """The planned variants."""
        used = {planned.run.variant for planned in self.planned}
        return {name: body for name, body in self.config["variants"].items() if name in used}

    def content(self, kept: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the content of `matrix.json`: the expected results, for the report to compare with the actual ones.

        kept: other content of an earlier matrix.json that stays in the tree (`workflow.tree`).
        """
        config, planned = self.config, self.planned
        chosen = [benchmarks.benchmark(key) for key in config["evaluation"]["benchmarks"]]
        content = {
            "schema": SCHEMA,
            **{key: config[key] for key in ("scale", "title", "note")},
            **{key: config["evaluation"][key] for key in ("table_step", "long_step")},
            "models": [
                {"key": key, "starts": recipe.starts(key, config["base"]["ladder"]), "bases": recipe.family(key)}
                | _of(registry.model(key), "title", "stands_for")
                for key in self.models
            ],
            "methods": [
                {"key": key, "row": row, "title": self._title(key), "variant": split(key)[1]}
                for key, row in {p.run.method: p.row for p in planned}.items()
            ],
            "variants": {
                name: {"title": body["title"], "note": body.get("note", ""), "changes": _changes(body)}
                for name, body in self._variants.items()
            },
            "seeds": sorted({p.run.seed for p in planned}),
            "baseline": canonical(config, config["baseline"], "config", "baseline"),
            "benchmarks": [
                _of(each, "key", "title", "stands_for")
                | {"items": each.n, "samples": config["evaluation"].get("samples", each.decoding.samples)}
                for each in chosen
            ],
            "training": dict(config["training"]),
            "runs": [_of(p.run, "model", "method", "seed") | {"row": p.row, "steps": list(p.steps)} for p in planned],
            "checkpoints": [_of(c.run, "model", "method", "seed") | {"step": c.step} for c in self.checkpoints],
            "base": BASE,
            "sweep": config.get("swept"),
            "settings": self.settings(),
        }
        if kept:
            for part in PARTS:
                content[part] += [entry for entry in kept[part] if not any(_same(entry, old) for old in content[part])]
            content["variants"] = {**kept["variants"], **content["variants"]}
            content["seeds"] = sorted({entry["seed"] for entry in content["runs"]})
        return content

    def _title(self, method: str) -> str:
        key, variant = split(method)
        title = catalog.parse(key).title
        return title if variant is None else f"{title}, {self.config['variants'][variant]['title']}"


def _of(item: object, *fields: str) -> dict[str, Any]:
    return {field: getattr(item, field) for field in fields}


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two entries refer to the same model, method, run or checkpoint."""
    return all(one.get(key) == other.get(key) for key in ("key", "model", "method", "seed", "step"))


def _changes(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a variant's settings by dotted key."""
    changes = {key: body[key] for key in ("trainer", "reward", "stream") if key in body}
    return changes | {f"training.{key}": value for key, value in body.get("training", {}).items()}
