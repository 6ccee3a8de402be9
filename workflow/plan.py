"""Compute the plan of an experiment: what a configuration requires, given what its results tree already has.

`plan` computes it from the configuration files, the options of the command line and the tree's matrix.json and
sweep/choice.csv. It does not write files.
"""

import dataclasses
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

from core.code import Code
from core.declared import Where, validated
from core.errors import ConfigError, check_known
from core.files import json_text, parse_json, read_json
from core.layout import BASE, Checkpoint, Results, Run
from core.provenance import sha256_bytes
from evals import benchmark as benchmarks
from evals.tree import MANIFEST
from methods.adapters.reward import Reward
from methods.training.run_folder import code_of
from methods.training.spec import Training
from models import recipe, registry, training_data
from models.registry import Shape
from workflow import config as configuration
from workflow import matrix, sweep, tree
from workflow.matrix import Matrix, Planned
from workflow.tree import State

GIB = 2**30
LIBRARIES = 1.0  # GiB of torch, transformers and TRL: measured


@dataclass(frozen=True)
class Need:
    """Resources that one job requests; those specific to a site are in the profile."""

    gpus: int = 0  # on all nodes
    nodes: int = 1
    cores: int = 1  # of a node
    memory: int = 4_000  # of a node, MB
    minutes: int = 60  # of the first attempt; a rule gives later attempts more


def train_need(settings: Mapping[str, Any], shape: Shape | None = None) -> Need:
    """Return the resources of a run with these `training` settings (`Matrix.training`). GPU values are assumptions.

    shape: of a fetched model.
    """
    nodes, per_node = settings.get("nodes", 1), settings.get("gpus_per_node", 1)
    if settings.get("device", "cpu") == "cpu":
        if shape is None:
            return Need()
        return Need(memory=ceil(1074 * cpu_memory(shape, validated(Training, settings, "training"))), minutes=480)
    # Ten minutes per rollout allow for slower GPUs, larger models and saving: Figure 2 prints six for 7B.
    minutes = 60 + 10 * settings["rollouts"]
    return Need(nodes * per_node, nodes, cores=8 * per_node, memory=100_000 * per_node, minutes=minutes)


def generate_need(config: Mapping[str, Any]) -> Need:
    """Return the resources for generating one checkpoint's responses."""
    # transformers uses a GPU if one is available, so generation requests one wherever training does.
    gpus = config["cluster"] is not None or config["training"].get("device") == "cuda"
    if gpus or config["evaluation"]["backend"] == "vllm":
        return Need(1, cores=8, memory=100_000, minutes=480)
    return Need()


def cpu_memory(shape: Shape, training: Training) -> float:
    """Return GiB of a run that TRL trains in float32 on a CPU.

    The sum counts 16 bytes per parameter (weights, gradients, two moments), 8 for two copies of the weights to measure
    movement, the libraries, and every layer's activations of a micro-batch at its longest, which are all kept.
    """
    heads, groups = shape.num_attention_heads * shape.head_dim, shape.num_key_value_heads * shape.head_dim
    layer = 6 * shape.hidden_size + 4 * shape.intermediate_size + 3 * heads + 4 * groups  # numbers per token
    rows = training.rows_per_minibatch // training.micro_batches
    prompts = -(-rows // training.samples_per_prompt) if training.shared_prefix else rows
    tokens = prompts * training.max_prompt_tokens + rows * training.max_completion_tokens
    return LIBRARIES + (24 * shape.parameters + 4 * tokens * shape.num_hidden_layers * layer) / GIB


class Build(NamedTuple):
    """How the base of one seed is built here."""

    seed: int
    clean: str  # folder of the clean model that it continues, of this model or another
    number: int  # of that clean model; used as its seed, so that it is the same in every plan


@dataclass(frozen=True)
class Plan(Matrix):
    """Jobs that a checked configuration requests, and their paths: the files that one call of Snakemake makes."""

    # The content of matrix.json: with the blocks of a sweep, of added seeds and of kept checkpoints.
    matrix: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()  # lines for the user

    @cached_property
    def results(self) -> Results:
        return Results(Path(self.config["results"], self.config["scale"]))

    @cached_property
    def cache(self) -> Path:
        """Folder of base models and prompts, which the trees of all scales share."""
        return Path(self.config["results"], configuration.CACHE)

    @cached_property
    def accepted(self) -> Mapping[Run, Mapping[str, Any]]:
        """With `accept_code`, the specifications of finished runs: their bases and prompts may come from other code."""
        finished = filter(self.is_finished, self.planned if self.config.get("accept_code") else ())
        return {planned.run: read_json(self.record(planned), "run record")["spec"] for planned in finished}

    @cached_property
    def builds(self) -> Mapping[str, Build]:
        """How bases are built here, by folder; those of accepted runs too, taken from their records."""
        found = {}
        for run in (base.run for base in self.bases if registry.model(base.run.model).made_here is not None):
            start = recipe.recipe(run.model, self.config["base"]["ladder"], run.seed).start
            found[self.base_name(run.model, run.seed)] = Build(run.seed, recipe.name_of_clean(start), start.number)
        for run, spec in self.accepted.items():
            folder = Path(spec["base"])
            if folder.name not in found and registry.model(run.model).made_here is not None:
                record = read_json(folder / "base.json") if (folder / "base.json").is_file() else {}
                start = record.get("recipe", {}).get("start", {})
                clean = record.get("clean", f"{run.model}-clean-{'0' * 12}")  # removed: it is not needed again
                found[folder.name] = Build(run.seed, clean, start.get("number", 0))
        return found

    @property
    def fetched(self) -> dict[str, Path]:
        """The folder of each fetched model, one for all seeds."""
        return {model: self.base(model, 0) for model in self.models if registry.model(model).made_here is None}

    @property
    def data_file(self) -> Path | None:
        """The problems that training prompts are chosen from; None where prompts are generated."""
        generated = self.config["prompts"]["source"] in benchmarks.GENERATED
        return None if generated else self.cache / "data" / f"{self.data_name}.jsonl"

    @property
    def benchmark_data(self) -> Path:
        """The folder of the benchmarks' items: with a user's own ones the tree's, as others may have their names."""
        evaluation = self.config["evaluation"]
        own = any(benchmarks.benchmark(key).file for key in evaluation["benchmarks"])
        return self.results.data if own else Path(evaluation["data"])

    def record(self, planned: Planned) -> Path:
        """Return the file whose presence means that a run is finished."""
        return self.results.run(planned.run) / "run.json"

    @cached_property
    def states(self) -> Mapping[Path, tuple[str, State]]:
        """Stage and state of every existing record of a planned run and of its samples and grades."""
        benchmarks = self.config["evaluation"]["benchmarks"]
        return {
            path: (stage, tree.state(stage, path, code, benchmarks))
            for stage, path, code in (self._codes() if self.results.root.is_dir() else ())
            if path.is_file()
        }

    @cached_property
    def valid(self) -> set[Path]:
        """The records that stay: not those of other code, unless they are accepted, nor those that need a run that is
        made again."""
        stay = {State.VALID, State.OTHER} if self.config.get("accept_code") else {State.VALID}
        found = {path for path, (_, state) in self.states.items() if state in stay}
        unfinished = {planned.run for planned in self.planned if self.record(planned) not in found}
        for checkpoint in self.checkpoints:
            if checkpoint.run in unfinished or self.samples(checkpoint) not in found:
                found -= {self.samples(checkpoint), self.grades(checkpoint)}
        return found

    def is_whole(self, record: Path) -> bool:
        """Return whether a record and the files beside it can be read; they may be of other code."""
        return self.states.get(record, ("", State.DAMAGED))[1] != State.DAMAGED

    def is_finished(self, planned: Planned) -> bool:
        return self.record(planned) in self.valid

    def samples(self, checkpoint: Checkpoint) -> Path:
        return self.results.samples(checkpoint) / "samples.json"

    def grades(self, checkpoint: Checkpoint) -> Path:
        return self.results.grades(checkpoint) / "grades.json"

    def need(self, planned: Planned) -> Need:
        """Return the resources of a run, which depend on model size, cluster and variant."""
        return train_need(self.training(planned), registry.model(planned.run.model).shape)

    def base(self, model: str, seed: int) -> Path:
        """Return the folder of the model that a model's runs of one seed start from."""
        made = (spec["base"] for run, spec in self.accepted.items() if (run.model, run.seed) == (model, seed))
        return self.cache / _in_cache(next(made, f"/cache/models/{self.base_name(model, seed)}"))

    def prompts(self, run: Run) -> Path:
        """Return the file of a run's training prompts."""
        if run in self.accepted:
            return self.cache / _in_cache(self.accepted[run]["prompts"])
        return self.cache / "prompts" / self.prompts_name(run)

    def _codes(self) -> Iterator[tuple[str, Path, str]]:
        """Yield (stage, record, hash of its code) for everything that is trained, generated and graded."""
        hashed = cache(lambda code: code.hash)
        for planned in self.planned:
            rewards = self.rewards(planned)
            names = [*(self.config.get("reward") or [matrix.REWARD]), *filter(None, [rewards.get("placebo")])]
            codes = code_of(planned.run.key, self.trainer(planned), *names)
            yield "training", self.record(planned), "-".join(hashed(code) for code in codes.values())
        evaluation = self.config["evaluation"]
        drawn = benchmarks.code(evaluation["benchmarks"], evaluation["backend"])
        for checkpoint in self.checkpoints:
            yield "generation", self.samples(checkpoint), hashed(drawn)
            yield "grading", self.grades(checkpoint), hashed(Code("grade"))

    @cached_property
    def runs(self) -> Mapping[str, Planned]:
        """The planned runs by `<model>/<method>/seed<k>`."""
        return {planned.run.path.as_posix(): planned for planned in self.planned}

    @cached_property
    def files(self) -> Mapping[str, tuple[str, str]]:
        """Path and text, by name, of files that pass the plan to commands: it may be too long for a command line.

        The path depends on the text: a rule with the path in its params tracks the content, not its time.
        """
        listed = [f"{c['model']}/{c['method']}/seed{c['seed']}/step{c['step']}" for c in self.matrix["checkpoints"]]
        texts = {"matrix.json": json_text(self.matrix), "checkpoints.txt": "\n".join(listed)}
        folder = f"logs/{self.config['scale']}/asked"
        return {name: (f"{folder}/{sha256_bytes(text.encode())[:12]}/{name}", text) for name, text in texts.items()}

    def check_folder(self) -> None:
        """Raise `ConfigError` if results cannot be written."""
        root = self.results.root.absolute()
        folder = next(path for path in [root, *root.parents] if path.exists())
        if not (folder.is_dir() and os.access(folder, os.W_OK)):
            raise ConfigError(f"results: {self.config['results']}: {folder} cannot be written; choose another folder")

    def run_specification(self, planned: Planned, prompts: str) -> str:
        """Return the input of `python -m methods.train`, as one line of JSON."""
        base = self.base(planned.run.model, planned.run.seed).as_posix()
        return json.dumps(self.specification(planned, base, prompts, self._runs), sort_keys=True)

    def yoke(self, planned: Planned) -> str | None:
        """Return curve.csv of the run whose movement a run follows, or None."""
        path: str | None = self.specification(planned, "", "", self._runs).get("yoke")
        return path

    @property
    def _runs(self) -> str:
        return (self.results.root / "runs").as_posix()

    def weights(self, checkpoint: Checkpoint) -> Path:
        """Return the folder that is evaluated: a trained checkpoint, or the base in the cache."""
        run = checkpoint.run
        return self.base(run.model, run.seed) if run.method == BASE else self.results.weights(checkpoint)

    def ready(self, checkpoint: Checkpoint) -> Path:
        """Return the file whose presence means that those weights are finished."""
        is_base = checkpoint.run.method == BASE
        return self.weights(checkpoint) / "base.json" if is_base else self.results.run(checkpoint.run) / "run.json"

    @cached_property
    def forced(self) -> set[str]:
        """Files of the tree that are made again regardless of Snakemake's metadata, which it may not have: `.snakemake`
        was removed, or the tree was moved or renamed. Then what is cheap is among them."""
        written = self.results.matrix
        found = (self.states.keys() - self.valid) | set(self.edited)
        if any(not path.is_file() for path in self.edited):
            found.add(self.results.root / MANIFEST)  # it may list what no rule makes
        found |= {self.record(planned) for planned in self.planned if self.is_of_another_specification(planned)}
        if written.is_file() and tree.made_at(written) is None:
            found |= {written, self.results.scores, self.results.root / MANIFEST}
        elif written.is_file() and tree.recorded(self.results)[0] != parse_json(json_text(self.matrix), "plan"):
            found.add(written)
        return {path.as_posix() for path in found}

    @cached_property
    def edited(self) -> list[Path]:
        """Scores, tables, figures and pages that are not as the manifest lists them."""
        return tree.changed(self.results)

    def is_of_another_specification(self, planned: Planned) -> bool:
        """Return whether a finished run was trained from another one than is planned, apart from the tree's place and
        name; with `accept_code`, whether it lacks a planned checkpoint."""
        if not self.is_finished(planned):
            return False
        trained: dict[str, Any] = read_json(self.record(planned), "run record")["spec"]
        if self.config.get("accept_code"):
            return not set(planned.steps) <= set(trained.get("checkpoints", ()))
        spec = json.loads(self.run_specification(planned, self.prompts(planned.run).as_posix()))
        one, other = (
            each
            | {"scale": ""}
            | {key: _in_cache(str(each.get(key))) for key in ("base", "prompts")}
            | {"yoke": f"{each.get('yoke')}".rpartition("/runs/")[2]}
            for each in (trained, spec)
        )
        return bool(one != other)

    @property
    def reasons(self) -> list[str]:
        """One line for each stage and kind of results that are made again, or accepted, and for each edited file."""
        again = f"is not as {MANIFEST} lists it; its rule makes it again, remove it if it has none"
        edits = [f"{path}: {again}" for path in self.edited]
        damaged = self._reasons(State.DAMAGED, "are damaged or lack a file, and are made again")
        return damaged + self.of_other_code + edits

    @property
    def of_other_code(self) -> list[str]:
        accepted = self.config.get("accept_code")
        what = "stay: accept_code" if accepted else "are made again; to keep them: --config accept_code=true"
        return self._reasons(State.OTHER, f"are of other code than today's, and {what}")

    def _reasons(self, state: State, what: str) -> list[str]:
        stages = Counter(stage for stage, _ in self.states.values())
        counts = Counter(stage for stage, found in self.states.values() if found == state)
        return [f"{stage}: {counts[stage]} of {stages[stage]} in {self.results.root} {what}" for stage in counts]


def _in_cache(path: str) -> str:
    """Return the part of a base's or prompts' path that does not depend on the folder of results."""
    return f"/{path}".rpartition(f"/{configuration.CACHE}/")[2]


def _check_data(asked: Plan, where: Where) -> None:
    """Reject problems from a file other than that of `prompts.sha256`: Snakemake accepts any imported file."""
    wanted, file = asked.config["prompts"].get("sha256"), asked.data_file
    if not wanted or file is None or not file.is_file():
        return
    record = file.with_suffix(".json")  # see `models.training_data`
    content = read_json(record, "record of the training problems") if record.is_file() else None
    found = content.get("sha256") if isinstance(content, dict) else None
    if found != wanted:
        raise ConfigError(
            f"{where(['prompts', 'sha256'])}: prompts.sha256: {wanted}, but {file} is made of a file with sha256 "
            f"{found or 'unknown'}; remove {file} to have it fetched again, or correct the key"
        )


def _check_own(asked: Plan, where: Where) -> None:
    """Reject decoding that no benchmark allows, and a user's file with fewer problems than a rollout draws."""
    changes = {key: value for key, value in asked.drawn().items() if key != "prompt"}
    for key in asked.config["evaluation"]["benchmarks"] if changes else ():
        try:
            dataclasses.replace(benchmarks.benchmark(key).decoding, **changes)
        except ConfigError as error:
            raise ConfigError(f"{where(['evaluation'])}: evaluation: {key}: {error}") from error
    if (file := asked.config["prompts"].get("file")) is not None:
        answers, _ = training_data.distinct(training_data.source("file"), Path(file))
        count = min(asked.config["prompts"]["count"] or len(answers), len(answers))
        most = max(ceil(s["prompts_per_rollout"] * s["oversample"]) for s in map(asked.training, asked.planned))
        if count < most:
            at = where(["prompts", "file"])
            raise ConfigError(
                f"{at}: prompts.file: {file}: {count} problems (without copies and those with two answers), one "
                f"rollout draws {most} different ones; add problems, or set training.prompts_per_rollout lower"
            )


def _check_training(asked: Plan, where: Where, *, here: bool) -> None:
    """Reject sizes that do not divide, and cuda if jobs run `here` on a machine without a GPU."""
    gpu = shutil.which("nvidia-smi") is not None or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/kfd")))
    for variant, planned in {(p.run.variant, p.run.model, max(p.steps)): p for p in asked.planned}.items():
        settings, at = asked.training(planned), ["training"]
        if (name := variant[0]) is not None:
            at = ["variants", name, "training"]
        validated(Training, settings, where(at), ".".join(at))
        if here and not gpu and asked.config["cluster"] is None and settings.get("device") == "cuda":
            raise ConfigError(
                f"{where([*at, 'device'])}: {'.'.join(at)}.device: 'cuda': this machine has no GPU; allowed: cpu"
            )


def plan(
    files: Sequence[Path | str], options: Mapping[str, Any] | None = None, *, job: bool = False, here: bool = False
) -> Plan:
    """Return the plan of configuration files, later ones on top, and of the `--config` options.

    job: called in a job of a running plan. here: jobs run on this machine. Raises `BenchError` for the first problem.
    """
    config, where = configuration.resolved(files, options)
    key_of = cache(registry.key_of)
    config["models"] = config["models"] and [*map(key_of, config["models"])]
    config["matrix"] = [block | {"models": [*map(key_of, block["models"])]} for block in config["matrix"]]
    results = Plan(config).results
    # The key of a user's file is its name; commands that draw its responses get the file.
    evaluation = config["evaluation"]
    evaluation["names"] = evaluation["benchmarks"]
    evaluation["benchmarks"] = [benchmarks.key_of(name) for name in evaluation["names"]]
    at = where(["evaluation", "benchmarks"])
    for name, key in zip(evaluation["names"], evaluation["benchmarks"], strict=True):
        if name == key and "/" in name:
            raise ConfigError(f"{at}: evaluation.benchmarks: {name}: set it to a file named *{benchmarks.OWN}")
        if name != key and Path(name).resolve().parent == results.data.resolve():
            raise ConfigError(f"{at}: {name}: lies in {results.data}, whose files are replaced; move it")
        if evaluation["benchmarks"].count(key) > 1:
            raise ConfigError(f"{at}: evaluation.benchmarks: {key} is given twice")
    check_known(at, "evaluation.benchmarks", evaluation["benchmarks"], benchmarks.keys())
    matrix.canonical(config, config["baseline"], where(["baseline"]), "baseline")
    if not job and config.keys() & {"reward", "reward_weights"}:
        try:
            Reward(config.get("reward") or [matrix.REWARD], config.get("reward_weights") or ())
        except ConfigError as error:
            raise ConfigError(f"{where(['reward'])}: {str(error).removeprefix('spec: ')}") from error
    before, problem = tree.recorded(results)
    config |= {"matrix": matrix.blocks(config, where), "models": None, "methods": None, "seeds": None}
    config |= sweep.expanded(config, results, where)
    matrix.plan(config, where)
    config["matrix"] = config["matrix"] + tree.with_steps(Matrix(config), before)
    asked = Plan(config)
    _check_training(asked, where, here=here)
    kept = tree.kept(asked, before, results)
    content = asked.content(kept)
    if not job:
        tree.check(content["settings"], before, kept, results, where)
        _check_data(asked, where)
        _check_own(asked, where)
    notes = [problem] if problem else []
    if lost := tree.gone(before):
        notes.append(f"{results.root}: runs of {', '.join(lost)} are in no table: no such model or method any more")
    if kept["runs"]:
        notes.append(
            f"{results.root}: {len(kept['runs'])} finished runs of earlier questions stay in its tables; a tree of its "
            "own: --config name=..."
        )
    made = Plan(config, content, notes)
    if problem and not job and any(map(made.is_of_another_specification, made.planned)):
        raise ConfigError(
            f"{problem}; and finished runs have another specification than is planned: restore the file, or a tree of "
            "its own: --config name=..."
        )
    if not job and config.get("accept_code") and (lines := made.of_other_code):
        content["accepted_code"] = lines  # marks the tree: pages and `report.verify` show it
    return made
