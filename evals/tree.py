"""A results tree: the planned contents (matrix.json) and the existing ones (scores, run records).

A missing or broken file is an error naming it; planned runs that have not been run yet are not an error.
"""

import io
import lzma
import os
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from core.declared import check
from core.errors import ConfigError, CorruptInputError, MissingInputError, hint
from core.files import read_csv, read_json
from core.layout import BASE, Checkpoint, Results, Run
from core.provenance import sha256_file
from evals.scores import NOT_CORRECT, read_rows

# A kept tree in its normal layout, as one file next to its README, tables and figures.
ARCHIVE = "tree.tar.xz"

# The keys that are read from the tree's records (`core.declared.check`).
SEED = {"model": str, "method": str, "seed": int}
TRAINING = {
    "rollouts?": int, "prompts_per_rollout?": int, "samples_per_prompt?": int, "minibatches?": int, "passes?": int,
    "learning_rate?": float, "device?": str,
}  # fmt: skip
MATRIX = {  # matrix.json, as `workflow.plan` writes it
    "scale": str, "title": str, "note?": str, "table_step": int, "long_step?": int, "seeds?": [int], "baseline?": str,
    "models": [{"key": str, "title": str, "stands_for?": str, "starts?": int, "bases?": str}],
    "methods": [{"key": str, "row": str, "title": str, "variant?": str}],
    "benchmarks": [{"key": str, "title": str, "stands_for?": str, "items?": int, "samples?": int}],
    "runs": [SEED | {"row?": str, "steps?": [int]}],
    "checkpoints": [SEED | {"step": int}],
    "variants?": {"*": {"title?": str, "note?": str, "changes?": dict}},
    "training?": TRAINING, "settings?": dict, "accepted_code?": [str],
    "sweep?": {"test_seeds": [int], "points": [{"model": str, "method": str, "base": str, "row": str}]},
}  # fmt: skip
RUN_RECORD = {  # run.json, as `methods.training.run_folder` writes it
    "spec": {"trainer?": str, "training?": TRAINING}, "method?": {"params?": dict, "readings?": {"*": str}},
    "environment?": {
        "commit?": str, "dirty?": bool, "packages?": dict, "python?": str, "cpu?": str, "cores?": int,
    },
    "inputs?": {"*": str}, "outputs?": {"*": str}, "updates?": int, "collapsed_at?": int, "no_update?": str,
    "wall_seconds?": float, "cpu_seconds?": float, "finished_at?": str, "code_warning?": str,
}  # fmt: skip
MANIFEST = "manifest.json"
LISTED = {"files": {"*": str}, "weights": {"*": str}, "inputs": {"*": str}, "left_out": [str]}  # by name the sha256


def read_manifest(root: Path) -> dict[str, Any]:
    """Read manifest.json of the tree at `root`. Raises MissingInputError or CorruptInputError."""
    return _read(root / MANIFEST, "manifest (python -m report.manifest writes it)", LISTED)


def _read(path: Path, what: str, shape: Mapping[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = read_json(path, what)
    check(value, shape, str(path))
    return value


class Score(NamedTuple):
    """One row of scores.csv. `value`, `low`, `high` are fractions, None if unknown; `how`: `not run` if intentional."""

    value: float | None
    low: float | None
    high: float | None
    level: str
    how: str
    items: int | None
    responses: int | None
    counts: Mapping[str, int | None]  # responses by verdict other than correct


def _unpacked(root: Path) -> Path:
    """Return the folder with the files of the kept tree at `root`, in the user's cache (XDG_CACHE_HOME).

    Unpacks them on first use. Raises CorruptInputError for a damaged archive.
    """
    archive = root / ARCHIVE
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    # Keyed by content: another version of the tree gets another folder, and an existing one is complete.
    target = cache / "tepo-bench" / sha256_file(archive)[:16] / root.absolute().name
    if target.is_dir():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".") as scratch:
        made = Path(scratch, "tree")
        try:
            data = lzma.decompress(archive.read_bytes())  # in one piece: the checksum is at the end
            with tarfile.open(fileobj=io.BytesIO(data)) as tar:
                tar.extractall(made, filter="data")  # no files outside the folder, no links to elsewhere
        except (lzma.LZMAError, tarfile.TarError, OSError, ValueError) as error:
            raise CorruptInputError(f"{archive}: damaged ({error}); restore it with git checkout") from error
        try:
            made.rename(target)
        except OSError:  # another process was faster
            if not target.is_dir():
                raise
    return target


class Tree:
    """`results/<scale>`, or a kept tree; each file is read on first use, and once."""

    def __init__(self, root: Path | str):
        self.root = Path(root)
        # Of a kept tree, the folder with its archive; its files are read from the user's cache.
        self.kept = self.root if (self.root / ARCHIVE).is_file() else None
        if self.kept is not None:
            self.root = _unpacked(self.kept)
        self.layout = Results(self.root)
        self._computed: dict[Any, Any] = {}

    @property
    def given(self) -> Path:
        """The folder to print for this tree: of a kept one that with its archive, not the user's cache."""
        return self.kept or self.root

    def once(self, compute: Callable[..., Any], *args: Any) -> Any:
        """Return `compute(self, *args)`, cached for the life of the tree."""
        if (compute, args) not in self._computed:
            self._computed[compute, args] = compute(self, *args)
        return self._computed[compute, args]

    # The plan: matrix.json

    @cached_property
    def matrix(self) -> dict[str, Any]:
        """The content of matrix.json; its keys are those of `MATRIX`."""
        return _read(self.layout.matrix, "the list of planned runs", MATRIX)

    @property
    def scale(self) -> str:
        return str(self.matrix["scale"])

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

    @cached_property
    def runs(self) -> dict[Run, Mapping[str, Any]]:
        """Planned runs and their entry in the matrix, in its order."""
        return {_run(entry): entry for entry in self.matrix["runs"]}

    @cached_property
    def checkpoints(self) -> list[Checkpoint]:
        return [Checkpoint(_run(entry), entry["step"]) for entry in self.matrix["checkpoints"]]

    @cached_property
    def evaluated(self) -> frozenset[Checkpoint]:
        """The planned checkpoints, for membership tests."""
        return frozenset(self.checkpoints)

    def step(self, which: int | str | None) -> int | None:
        """Return the rollouts of a row's checkpoint: the scale's `table_step` (None), its `long_step` (`long`) if any,
        or the given number."""
        return which if isinstance(which, int) else self.matrix.get("long_step" if which else "table_step")

    @cached_property
    def bases(self) -> dict[str, dict[int, Checkpoint]]:
        """The evaluated bases by model and seed. A hub model has one."""
        found: dict[str, dict[int, Checkpoint]] = defaultdict(dict)
        for checkpoint in self.checkpoints:
            if checkpoint.run.method == BASE:
                found[checkpoint.run.model][checkpoint.run.seed] = checkpoint
        return found

    def base(self, model: str, seed: int) -> Checkpoint | None:
        """Return the start of a model's runs of this seed: the seed's base, or the only one; None: not evaluated."""
        bases = self.bases.get(model, {})
        return bases.get(seed) or (next(iter(bases.values())) if len(bases) == 1 else None)

    def clean_models(self, model: str) -> dict[int, int] | None:
        """Return by planned seed the number of the clean model that its base continues; None: an external model.

        Seeds of one clean model are not independent repetitions (`evals.stats.compare.by_clean_model`).
        """
        starts = next(entry for entry in self.models if entry["key"] == model).get("starts")
        runs = [*self.runs, *(checkpoint.run for checkpoint in self.checkpoints)]
        return None if starts is None else {run.seed: run.seed % starts for run in runs if run.model == model}

    def model_for(self, slot: str, title: str) -> Mapping[str, Any] | None:
        """Return the scale's model that fills a slot of the paper, None when the scale has none."""
        return self._filling("models", slot, title)

    def benchmark_for(self, slot: str, title: str) -> Mapping[str, Any] | None:
        """Return the scale's benchmark that fills a column of the paper, None when the scale has none."""
        return self._filling("benchmarks", slot, title)

    def _filling(self, part: str, slot: str, title: str) -> Mapping[str, Any] | None:
        # By key, by title and by what it stands for: a scale may name the paper's benchmark in any of these ways.
        names = {plain(slot), plain(title)}
        hits = [e for e in self.matrix[part] if {plain(e.get("stands_for") or e["key"]), plain(e["key"])} & names]
        if len(hits) > 1:
            both = " and ".join(e["key"] for e in hits)
            raise ConfigError(f"{self.layout.matrix}: {part}: {both} both stand for {title}")
        return hits[0] if hits else None

    def method_for(self, name: str) -> str | None:
        """Return the canonical key of the method `name` in the configuration; None when the scale does not train it."""
        rows = [key for key, method in self.methods.items() if method["row"] == name]
        if len(rows) == 1:  # a unique name, although another method may have it as its key
            return rows[0]
        if name == BASE or name in self.methods:
            return name
        # A scale may train one method under several settings; only one of them can have the plain name as its key.
        if rows:
            raise ConfigError(f"{self.layout.matrix}: methods: {name!r} names {' and '.join(rows)}: write one of these")
        return None

    # A sweep's choice

    def is_fresh(self, run: Run) -> bool:
        """Return whether a sweep's run is on a seed reserved for comparing chosen values: a mean over it and the seeds
        of the choice would be too high."""
        return run in self._fresh

    @property
    def averaged(self) -> list[Run]:
        """Planned runs that enter means over seeds, in the order of the matrix: without a sweep's fresh seeds."""
        return [run for run in self.runs if not self.is_fresh(run)]

    @cached_property
    def chosen(self) -> dict[tuple[str, str], str]:
        """By model and method (its name in the configuration, or its key without the sweep) its key at the value that a
        sweep chose, which it uses on the fresh seeds. Empty without a sweep and before its second round."""
        path, decided = self.root / "sweep" / "choice.csv", None
        if path.is_file():  # the tree may also contain the runs of an earlier choice
            rows = read_csv(path, "the choice of a sweep", ("model", "method", "chosen", "question"))
            if {row["question"] for row in rows} == {self._sweep.get("question")}:
                decided = {(row["model"], row["method"]) for row in rows if row["chosen"] == "yes"}
        found: dict[tuple[str, str], str] = {}
        for point in self._sweep["points"]:
            model, method, base = point["model"], point["method"], point["base"]
            if not any(Run(model, method, seed) in self.runs for seed in self._sweep["test_seeds"]):
                continue
            # The scale's own value may exist next to the chosen one, to measure the cost of a single value.
            if (model, method) in decided if decided is not None else method != base or (model, base) not in found:
                found |= {(model, base): method, (model, point["row"]): method}
        return found

    @cached_property
    def _sweep(self) -> Mapping[str, Any]:
        return self.matrix.get("sweep") or {"points": (), "test_seeds": ()}

    @cached_property
    def _fresh(self) -> frozenset[Run]:
        points, seeds = self._sweep["points"], self._sweep["test_seeds"]
        return frozenset(Run(point["model"], point["method"], seed) for point in points for seed in seeds)

    # The results

    @property
    def finished(self) -> list[Run]:
        """Every run with a record, planned or left over from another plan."""
        folders = {path.parent for path in self.root.glob("runs/*/*/seed*/run.json")}
        return sorted({Checkpoint.parse(f"{folder}/step0").run for folder in folders})

    def record(self, run: Run) -> dict[str, Any] | None:
        """Return run.json, or None while the run is not finished (the file is written last)."""
        path = self.layout.run(run) / "run.json"
        if not path.exists():
            return None
        value = _read(path, "the run's record", RUN_RECORD)
        names = {"model": run.model, "method": run.key, "seed": run.seed, "variant": run.variant}
        for name, ours in names.items():  # a complete record may belong to another run
            if (theirs := value["spec"].get(name, ours)) != ours:
                raise CorruptInputError(f"{path}: spec: {name}: {theirs!r}, but this is the folder of {ours!r}")
        return value

    @cached_property
    def scores(self) -> dict[tuple[Checkpoint, str], Score]:
        """Every row of scores.csv by checkpoint and benchmark (or average)."""
        scores = {}
        for row in read_rows(self.layout.scores):
            figures = {name: row[name] for name in ("low", "high", "level", "how", "items", "responses")}
            score = Score(row["score"], **figures, counts={verdict: row[verdict] for verdict in NOT_CORRECT})
            scores[Checkpoint(_run(row), row["step"]), row["benchmark"]] = score
        return scores

    def records(self) -> Iterator[tuple[str, Run | Checkpoint, dict[str, Any]]]:
        """Yield (`runs`, `samples` or `grades`; of what; record) of every finished run and evaluated checkpoint."""
        for run in self.finished:
            yield "runs", run, self.record(run) or {}
        for checkpoint in self.checkpoints:
            for stage, folder in (("samples", self.layout.samples), ("grades", self.layout.grades)):
                if (path := folder(checkpoint) / f"{stage}.json").is_file():
                    yield stage, checkpoint, _read(path, "record", {"environment?": {"packages?": dict}})

    def mixtures(self) -> list[str]:
        """Return one sentence for each stage whose results come from different code or different package versions."""
        made: dict[str, dict[str, str]] = defaultdict(dict)  # what -> value -> the first result with it
        for stage, of, record in self.records():
            inputs, trainer = record.get("inputs") or {}, record.get("spec", {}).get("trainer")
            if isinstance(of, Run):
                variant = f" as {of.variant}" if of.variant else ""  # may train on another reward
                facts = {f"code of {trainer} runs{variant}": inputs.get("code")}
                facts[f"code of {of.key.split('+')[0]}"] = inputs.get("method_code")
            else:
                facts = {f"code of {stage}": record.get("code")}
            packages = (record.get("environment") or {}).get("packages") or {}
            # verl counts only for runs that it trains, so others may be older than it
            counted = {name: number for name, number in packages.items() if name != "verl" or trainer == name}
            for what, value in (facts | {f"packages of {stage}": counted or None}).items():
                if value is not None:
                    made[what].setdefault(str(value), of.path.as_posix())
        return [
            f"{what}: {len(values)} kinds, of {', '.join(values.values())}: rows differ in more than the method"
            for what, values in made.items()
            if len(values) > 1
        ]

    def code_warnings(self) -> list[str]:
        """Return one line for each result that other code than its record's may have computed (`core.code`)."""
        marked = [(of.path.as_posix(), record.get("code_warning")) for _, of, record in self.records()]
        return [*self.matrix.get("accepted_code", ()), *(f"{of}: {line}" for of, line in marked if line)]

    @property
    def is_reference(self) -> bool:
        """Whether it is kept without some of its files."""
        return (self.root / MANIFEST).is_file() and bool(read_manifest(self.root)["left_out"])


def _run(entry: Mapping[str, Any]) -> Run:
    return Run(entry["model"], entry["method"], entry["seed"])


def open_tree(root: Path | str) -> Tree:
    """Return the tree at `root`. Raises MissingInputError where there is none, naming the trees in or next to it."""
    root = Path(root)
    if not _holds_results(root):
        around, relation = (root, "in") if root.is_dir() else (root.parent, "beside")
        trees = sorted(p.name for p in around.iterdir() if _holds_results(p)) if around.is_dir() else []
        more = hint(root.name, trees) if trees else "; snakemake makes one (docs/usage.md)"
        raise MissingInputError(f"{root}: no results there; trees {relation} it: {', '.join(trees) or 'none'}{more}")
    return Tree(root)


def _holds_results(folder: Path) -> bool:
    names = (ARCHIVE, "matrix.json", "runs", "samples", "scores.csv", "tables")  # a tree has at least one
    return any((folder / name).exists() for name in names)


def open_or_kept(root: Path) -> Tree:
    """Return the tree at `root`; if missing, the kept reference of its name, with a notice on stderr."""
    reference = root.parent / "reference" / root.name
    if root.exists() or not reference.is_dir():
        return open_tree(root)
    print(f"{root}: not made yet; the kept reference {reference} in its place", file=sys.stderr)
    return open_tree(reference)


def plain(text: object) -> str:
    """Return letters and digits only, lower case: `MATH-500` and `math500` name one benchmark."""
    return "".join(c for c in str(text).casefold() if c.isalnum())
