"""A results tree: the planned contents (matrix.json) and the existing ones (scores, run records).

A missing or broken file is an error naming it; planned runs that have not been run yet are not an error.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from core import kept
from core.declared import Declared, Recorded, Tuple, validated
from core.errors import ConfigError, CorruptInputError, MissingInputError, hint, written_by
from core.files import read_csv, read_json
from core.layout import BASE, Checkpoint, Results, Run
from evals.scores import NOT_CORRECT, read_rows


class PlannedModel(Declared):
    key: str
    title: str
    stands_for: str | None = None  # the paper's model
    starts: int | None = None  # clean models that its bases continue: seed k has number k modulo these; None: none
    bases: str | None = None  # their family, as text; None: unknown


class PlannedMethod(Declared):
    key: str  # canonical, with variant
    row: str  # name in the configuration
    title: str
    variant: str | None = None


class PlannedBenchmark(Declared):
    key: str
    title: str
    stands_for: str | None = None  # the paper's benchmark
    items: int | None = None
    samples: int | None = None


class PlannedSeed(Declared):
    model: str
    method: str
    seed: int


class PlannedRun(PlannedSeed):
    row: str = ""
    steps: Tuple[int] = ()


class PlannedCheckpoint(PlannedSeed):
    step: int


class TrainingSettings(Recorded):
    rollouts: int | None = None
    prompts_per_rollout: int | None = None
    samples_per_prompt: int | None = None
    minibatches: int | None = None
    passes: int | None = None
    learning_rate: float | None = None
    device: str | None = None


class PlannedVariant(Recorded):
    title: str = ""
    note: str = ""
    changes: dict[str, Any] = Field(default_factory=dict)  # by dotted key


class Matrix(Declared):
    """matrix.json, as `workflow.plan` writes it."""

    scale: str
    title: str
    version: int = Field(alias="schema")
    note: str = ""
    models: Tuple[PlannedModel]
    methods: Tuple[PlannedMethod]
    benchmarks: Tuple[PlannedBenchmark]
    runs: Tuple[PlannedRun]
    checkpoints: Tuple[PlannedCheckpoint]
    table_step: int  # rollouts of the checkpoint that tables show
    long_step: int | None = None  # of their second look
    variants: dict[str, PlannedVariant] = Field(default_factory=dict)
    training: TrainingSettings = Field(default_factory=lambda: TrainingSettings())
    seeds: Tuple[int] = ()
    baseline: str | None = None  # canonical key of the method that others are compared with
    settings: dict[str, Any] = Field(default_factory=dict)  # by dotted key, shared by all runs
    sweep: dict[str, Any] | None = None  # axes, seeds and points of a sweep (`workflow.sweep`)
    base: str = BASE
    accepted_code: Tuple[str] = ()  # lines on results of other code that `accept_code` kept
    record_sha256: str | None = None  # of older trees


MANIFEST = "manifest.json"


class Listed(Recorded):
    """manifest.json, as `report.manifest` writes it: by name the sha256."""

    files: dict[str, str]
    weights: dict[str, str]
    inputs: dict[str, str]
    left_out: Tuple[str]


def read_manifest(root: Path) -> dict[str, Any]:
    """Read manifest.json of the tree at `root`; its keys are those of `Listed`, and further ones."""
    path = root / MANIFEST
    value = read_json(path, "manifest (python -m report.manifest writes it)")
    validated(Listed, value, str(path), error=CorruptInputError)
    return dict(value)


class Made(Recorded):
    """The origin of a result, as recorded by `core.provenance.environment`."""

    commit: str | None = None
    dirty: bool | None = None
    packages: dict[str, str | None] | None = None
    python: str | None = None
    cpu: str | None = None
    cores: int | None = None


class MethodEntry(Recorded):
    params: dict[str, Any] = Field(default_factory=dict)
    readings: dict[str, str] = Field(default_factory=dict)


class RunSettings(Recorded):
    trainer: str | None = None
    training: TrainingSettings | None = None


class RunRecord(Recorded):
    """run.json, with the fields read outside the run's folder; `methods.training.run_folder` writes it."""

    spec: RunSettings
    method: MethodEntry | None = None
    environment: Made | None = None
    inputs: dict[str, str] = Field(default_factory=dict)
    outputs: dict[str, str] = Field(default_factory=dict)
    updates: int | None = None
    collapsed_at: Annotated[int, Field(ge=1)] | None = None
    no_update: str | None = None  # why the weights did not change
    wall_seconds: float | None = None
    cpu_seconds: float | None = None
    finished_at: str | None = None


@dataclass(frozen=True)
class Score:
    """One row of scores.csv. `value`, `low`, `high` are fractions, None if unknown; `how`: `not run` if intentional."""

    value: float | None
    low: float | None
    high: float | None
    level: str
    how: str
    items: int | None
    counts: Mapping[str, int | None]  # responses by verdict other than correct
    responses: int | None = None


class Tree:
    """`results/<scale>`, or a kept tree; each file is read on first use, and once."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        # Of a kept tree, the folder with its archive; its files are read from the user's cache.
        self.kept = self.root if (self.root / kept.ARCHIVE).is_file() else None
        if self.kept is not None:
            self.root = kept.unpacked(self.kept)
        self.layout = Results(self.root)
        self._computed: dict[Any, Any] = {}

    @property
    def given(self) -> Path:
        """The folder that names the tree to a reader: for a kept one that with its archive, not the user's cache."""
        return self.kept or self.root

    @cached_property
    def matrix(self) -> dict[str, Any]:
        """The content of matrix.json; its keys are those of `Matrix`."""
        value = read_json(self.layout.matrix, "the list of planned runs")
        validated(Matrix, value, str(self.layout.matrix), error=CorruptInputError)
        return dict(value)  # not a Matrix: while Snakemake plans, `workflow.plan` has the same mapping

    def once(self, compute: Callable[..., Any], *args: Any) -> Any:
        """Return `compute(self, *args)`, cached for the life of the tree."""
        if (compute, args) not in self._computed:
            self._computed[compute, args] = compute(self, *args)
        return self._computed[compute, args]

    @property
    def scale(self) -> str:
        return str(self.matrix["scale"])

    @property
    def finished(self) -> list[Run]:
        """Every run with a record, planned or left over from another plan."""
        folders = {path.parent for path in self.root.glob("runs/*/*/seed*/run.json")}
        return sorted({Checkpoint.parse(f"{folder}/step0").run for folder in folders})

    @cached_property
    def scores(self) -> dict[tuple[Checkpoint, str], Score]:
        """Every row of scores.csv by checkpoint and benchmark (or average)."""
        scores = {}
        if self.layout.scores.is_file():
            with written_by("python -m evals.score, or snakemake"):
                self.check_written(self.layout.scores.name, self.layout.scores.name)
        for row in read_rows(self.layout.scores):
            checkpoint = Checkpoint(Run(row["model"], row["method"], row["seed"]), row["step"])
            counts = {verdict: row[verdict] for verdict in NOT_CORRECT}
            figures = {name: row[name] for name in ("low", "high", "level", "how", "items", "responses")}
            scores[checkpoint, row["benchmark"]] = Score(value=row["score"], counts=counts, **figures)
        return scores

    def step(self, which: int | str | None) -> int | None:
        """Return the rollouts of a row's checkpoint: the scale's own (None), its second look (`long`) if any, or
        the given number."""
        steps = {None: self.matrix["table_step"], "long": self.matrix.get("long_step")}
        return which if isinstance(which, int) else steps[which]

    @cached_property
    def runs(self) -> dict[Run, Mapping[str, Any]]:
        """Planned runs and their entry in the matrix, in its order."""
        return {Run(run["model"], run["method"], run["seed"]): run for run in self.matrix["runs"]}

    def is_fresh(self, run: Run) -> bool:
        """Return whether a sweep's run is on a seed reserved for comparing chosen values: a mean over it and the seeds
        that chose would be too high."""
        sweep = self.matrix.get("sweep")
        return sweep is not None and run.seed in sweep["test_seeds"] and (run.model, run.method) in self._swept

    @property
    def averaged(self) -> list[Run]:
        """Planned runs that enter means over seeds, in the order of the matrix: without a sweep's fresh seeds."""
        return [run for run in self.runs if not self.is_fresh(run)]

    @cached_property
    def chosen(self) -> dict[tuple[str, str], str]:
        """By model and method (its name in the configuration, or its key without the sweep) its key at the value that a
        sweep chose, which it uses on the fresh seeds. Empty without a sweep and before its second round."""
        sweep = self.matrix.get("sweep") or {"points": (), "test_seeds": ()}
        path, decided = self.root / "sweep" / "choice.csv", None
        if path.is_file():  # the tree may also contain the runs of an earlier choice
            rows = read_csv(path, "the choice of a sweep", ("model", "method", "chosen", "question"))
            if {row["question"] for row in rows} == {sweep.get("question")}:
                decided = {(row["model"], row["method"]) for row in rows if row["chosen"] == "yes"}
        found: dict[tuple[str, str], str] = {}
        for point in sweep["points"]:
            model, method, base = point["model"], point["method"], point["base"]
            if not any(Run(model, method, seed) in self.runs for seed in sweep["test_seeds"]):
                continue
            # The scale's own value may exist beside the chosen one, to measure the cost of a single value.
            if (model, method) in decided if decided is not None else method != base or (model, base) not in found:
                found |= {(model, base): method, (model, point["row"]): method}
        return found

    @cached_property
    def _swept(self) -> frozenset[tuple[str, str]]:
        return frozenset((point["model"], point["method"]) for point in self.matrix["sweep"]["points"])

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint(Run(c["model"], c["method"], c["seed"]), c["step"]) for c in self.matrix["checkpoints"]]

    @cached_property
    def evaluated(self) -> frozenset[Checkpoint]:
        """The planned checkpoints, for membership tests."""
        return frozenset(self.checkpoints)

    def base(self, model: str, seed: int) -> Checkpoint | None:
        """Return the start of a model's runs of this seed: the seed's base, or the only one; None: not evaluated."""
        bases = self.bases.get(model, {})
        return bases.get(seed) or (next(iter(bases.values())) if len(bases) == 1 else None)

    @cached_property
    def bases(self) -> dict[str, dict[int, Checkpoint]]:
        """The evaluated bases by model and seed. A hub model has one."""
        found: dict[str, dict[int, Checkpoint]] = {}
        for checkpoint in self.checkpoints:
            if checkpoint.run.method == BASE:
                found.setdefault(checkpoint.run.model, {})[checkpoint.run.seed] = checkpoint
        return found

    def clean_models(self, model: str) -> dict[int, int] | None:
        """Return by planned seed the number of the clean model that its base continues; None: an external model.

        Seeds of one clean model are not independent repetitions (`evals.stats.compare.by_clean_model`).
        """
        return self.once(_clean_models, model)

    @property
    def models(self) -> list[Mapping[str, Any]]:
        return list(self.matrix["models"])

    @property
    def benchmarks(self) -> list[Mapping[str, Any]]:
        return list(self.matrix["benchmarks"])

    @cached_property
    def methods(self) -> dict[str, Mapping[str, Any]]:
        """Methods of the matrix by canonical key."""
        return {method["key"]: method for method in self.matrix["methods"]}

    def mixtures(self) -> list[str]:
        """Return one sentence for each stage whose results come from different code or different package versions."""
        made: dict[str, dict[str, str]] = {}  # what -> value -> the first result with it

        def note(what: str, value: Any, of: Path) -> None:
            if value is not None:
                made.setdefault(what, {}).setdefault(str(value), of.as_posix())

        def packages(record: Mapping[str, Any], trainer: str | None = None) -> dict[str, Any] | None:
            """Return package versions; verl counts only for runs that it trains, so others may be older than it."""
            found = (record.get("environment") or {}).get("packages")
            return found and {name: number for name, number in found.items() if name != "verl" or trainer == name}

        for run in self.finished:
            record = self.record(run) or {}
            inputs, trainer = record.get("inputs") or {}, record.get("spec", {}).get("trainer")
            variant = "" if run.variant is None else f" as {run.variant}"  # may train on another reward
            note(f"code of {trainer} runs{variant}", inputs.get("code"), run.path)
            note(f"code of {run.key.split('+')[0]}", inputs.get("method_code"), run.path)
            note("packages of runs", packages(record, trainer), run.path)
        for checkpoint in self.checkpoints:
            for name, folder in (("samples", self.layout.samples), ("grades", self.layout.grades)):
                if (path := folder(checkpoint) / f"{name}.json").is_file():
                    record = read_json(path, "record")
                    note(f"code of {name}", record.get("code"), checkpoint.path)
                    note(f"packages of {name}", packages(record), checkpoint.path)
        return [
            f"{what}: {len(values)} kinds, of {', '.join(values.values())}: rows differ in more than the method"
            for what, values in made.items()
            if len(values) > 1
        ]

    def code_warnings(self) -> list[str]:
        """Return one line for each result that other code than its record's may have computed (`core.code`)."""
        records = [(run.path, self.record(run) or {}) for run in self.finished]
        for checkpoint in self.checkpoints:
            for name, folder in (("samples", self.layout.samples), ("grades", self.layout.grades)):
                if (path := folder(checkpoint) / f"{name}.json").is_file():
                    records.append((checkpoint.path, read_json(path, "record")))
        warnings = [f"{place.as_posix()}: {line}" for place, record in records if (line := record.get("code_warning"))]
        return [*self.matrix.get("accepted_code", ()), *warnings]

    def record(self, run: Run) -> dict[str, Any] | None:
        """Return run.json, or None while the run is not finished (the file is written last)."""
        path = self.layout.run(run) / "run.json"
        if not path.exists():
            return None
        value = read_json(path, "the run's record")
        validated(RunRecord, value, str(path), error=CorruptInputError)
        names = {"model": run.model, "method": run.key, "seed": run.seed, "variant": run.variant}
        for name, ours in names.items():  # a complete record may belong to another run
            if (theirs := value["spec"].get(name, ours)) != ours:
                raise CorruptInputError(f"{path}: spec: {name}: {theirs!r}, but this is the folder of {ours!r}")
        return dict(value)

    def check_written(self, name: str, *needed: str) -> None:
        """Raise MissingInputError unless the files written by one command and needed by a caller exist."""
        for file in needed:
            if not (self.root / file).is_file():
                raise MissingInputError(f"{self.root / file}: missing")

    @property
    def is_listed(self) -> bool:
        """Whether there is a manifest: always in a reference, in a working tree once everything else exists."""
        return (self.root / MANIFEST).is_file()

    @property
    def is_reference(self) -> bool:
        """Whether it is kept without some of its files."""
        return self.is_listed and bool(read_manifest(self.root)["left_out"])

    def model_for(self, slot: str, title: str) -> Mapping[str, Any] | None:
        """Return the scale's model that fills a slot of the paper, None when the scale has none."""
        return _filling(self.models, slot, title, f"{self.layout.matrix}: models")

    def benchmark_for(self, slot: str, title: str) -> Mapping[str, Any] | None:
        """Return the scale's benchmark that fills a column of the paper, None when the scale has none."""
        return _filling(self.benchmarks, slot, title, f"{self.layout.matrix}: benchmarks")

    def method_for(self, name: str) -> str | None:
        """Return the canonical key of the method `name` in the configuration; None when the scale does not train it."""
        if name == BASE:
            return BASE
        rows = [key for key, method in self.methods.items() if method.get("row") == name]
        if len(rows) == 1:  # a unique name, although another method may have it as its key
            return rows[0]
        if name in self.methods:
            return name
        # A scale may train one method under several settings; only one of them can have the plain name as its key.
        if rows:
            raise ConfigError(f"{self.layout.matrix}: methods: {name!r} names {' and '.join(rows)}: write one of these")
        return None


def _clean_models(tree: Tree, model: str) -> dict[int, int] | None:
    entry = next(entry for entry in tree.models if entry["key"] == model)
    starts: int | None = entry["starts"]
    runs = [*tree.runs, *(checkpoint.run for checkpoint in tree.checkpoints)]
    return None if starts is None else {run.seed: run.seed % starts for run in runs if run.model == model}


CONTENTS = (kept.ARCHIVE, "matrix.json", "runs", "samples", "scores.csv", "tables")  # a tree has at least one


def open_tree(root: Path | str) -> Tree:
    """Return the tree at `root`. Raise MissingInputError where there is none, naming the trees in it or beside it."""
    root = Path(root)
    if not _holds_results(root):
        around, relation = (root, "in") if root.is_dir() else (root.parent, "beside")
        trees = sorted(p.name for p in around.iterdir() if _holds_results(p)) if around.is_dir() else []
        more = hint(root.name, trees) if trees else "; snakemake makes one (docs/usage.md)"
        raise MissingInputError(f"{root}: no results there; trees {relation} it: {', '.join(trees) or 'none'}{more}")
    return Tree(root)


def _holds_results(folder: Path) -> bool:
    return any((folder / name).exists() for name in CONTENTS)


def open_or_kept(root: Path) -> Tree:
    """Return the tree at `root`, or if missing the kept reference of its name, as a line on stderr reports."""
    reference = root.parent / "reference" / root.name
    if root.exists() or not reference.is_dir():
        return open_tree(root)
    print(f"{root}: not made yet; the kept reference {reference} in its place", file=sys.stderr)
    return open_tree(reference)


def plain(text: object) -> str:
    """Return letters and digits only, lower case: `MATH-500` and `math500` name one benchmark."""
    return "".join(c for c in str(text).casefold() if c.isalnum())


def _filling(entries: Sequence[Mapping[str, Any]], slot: str, title: str, where: str) -> Mapping[str, Any] | None:
    # By key, by title and by what it stands for: a scale may name the paper's benchmark in any of these ways.
    names = {plain(slot), plain(title)}
    hits = [e for e in entries if plain(e.get("stands_for") or e["key"]) in names or plain(e["key"]) in names]
    if len(hits) > 1:
        raise ConfigError(f"{where}: {' and '.join(e['key'] for e in hits)} both stand for {title}")
    return hits[0] if hits else None
