"""Paths and names under `results/<scale>/`.

    runs/<model>/<method>/seed<k>/{run.json, curve.csv, checkpoints/step<N>/, state/}
    samples/<model>/<method>/seed<k>/step<N>/<benchmark>.parquet     one row per response
    grades/<model>/<method>/seed<k>/step<N>/<benchmark>.parquet      one row per response
    responses.parquet                                                of a reference: a sample of the two above
    scores.csv                                                       one row per checkpoint and benchmark
    tables/table<n>.{csv,tidy.csv,md,tex}   figures/figure<n>.{svg,png,pdf,csv}   report.html

`step` counts rollouts (verl's step), not optimizer updates. The untrained model is method `base`, step 0, with the seed
of the runs that start from it; a model from the hub is one base for all seeds, with seed 0.
The name of a variant, with settings other than the scale's, follows that of the method: `tepo@hot`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from core.errors import ConfigError

BASE = "base"
SNAKEMAKE_REPORT = "snakemake.html"  # Snakemake's report, which a user may add to a results tree
REFERENCE = "grpo"  # GRPO/DAPO: the paper compares every method with it
_NAME = re.compile(r"[A-Za-z0-9_.+=-]+")
_METHOD = re.compile(r"[A-Za-z0-9_.+=-]+(@[A-Za-z0-9_-]+)?")


def split(method: str) -> tuple[str, str | None]:
    """Return `("tepo", "hot")` for `tepo@hot`, `("tepo", None)` for `tepo`."""
    key, at, variant = method.partition("@")
    return key, variant if at else None


@dataclass(frozen=True, order=True)
class Run:
    """A training run: a model trained by a method with a seed. `method` is `<canonical key>[@<variant>]`."""

    model: str
    method: str
    seed: int

    def __post_init__(self) -> None:
        for field, value, name in (("model", self.model, _NAME), ("method", self.method, _METHOD)):
            if not name.fullmatch(value):
                raise ConfigError(f"run: {field}: {value!r} cannot be a folder name (letters, digits, _ . + = -)")

    @property
    def key(self) -> str:
        """The method's canonical key in the catalog, without the variant."""
        return split(self.method)[0]

    @property
    def variant(self) -> str | None:
        """The variant whose settings apply; None: those of the scale."""
        return split(self.method)[1]

    @cached_property
    def path(self) -> Path:
        """`<model>/<method>/seed<k>`"""
        return Path(self.model, self.method, f"seed{self.seed}")


@dataclass(frozen=True, order=True)
class Checkpoint:
    """A run after `step` rollouts; a base model is `Checkpoint(Run(model, "base", seed), 0)`."""

    run: Run
    step: int

    @classmethod
    def base(cls, model: str, seed: int = 0) -> Checkpoint:
        """Return the base model. seed: of the runs that start from it; 0 if all seeds share one base."""
        return cls(Run(model, BASE, seed), 0)

    @property
    def path(self) -> Path:
        """`<model>/<method>/seed<k>/step<N>`"""
        return self.run.path / f"step{self.step}"

    @classmethod
    def parse(cls, path: Path | str) -> Checkpoint:
        """Parse the last four parts of a folder name, as the inverse of `path`."""
        found = re.fullmatch(r"(?:.*/)?([^/]+)/([^/]+)/seed(\d+)/step(\d+)", Path(path).as_posix(), re.DOTALL)
        if found is None:
            raise ConfigError(f"{path}: not of the form <model>/<method>/seed<k>/step<N>")
        return cls(Run(found[1], found[2], int(found[3])), int(found[4]))


def _below(name: str) -> cached_property[Path]:
    """Return the path of a file or folder that every tree has."""
    return cached_property(lambda tree: tree.root / name)


@dataclass(frozen=True)
class Results:
    """The tree of one scale, rooted at `results/<scale>`."""

    root: Path

    matrix = _below("matrix.json")
    scores = _below("scores.csv")
    tables = _below("tables")
    figures = _below("figures")
    report = _below("report.html")
    companions = _below("report.data")  # of the page: files that it loads
    data = _below("data")  # items of the benchmarks, in trees of `evals.run` and `evals.adopt`
    responses = _below("responses.parquet")  # of a reference, which keeps a sample of all `samples` and `grades`

    def run(self, run: Run) -> Path:
        return self.root / "runs" / run.path

    def weights(self, checkpoint: Checkpoint) -> Path:
        """Return the folder of a trained checkpoint. Base models are in the cache, not here: see `models.recipe`."""
        return self.run(checkpoint.run) / "checkpoints" / f"step{checkpoint.step}"

    def samples(self, checkpoint: Checkpoint) -> Path:
        return self.root / "samples" / checkpoint.path

    def grades(self, checkpoint: Checkpoint) -> Path:
        return self.root / "grades" / checkpoint.path
