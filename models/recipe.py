"""How a tiny base model is made, and where it lies once it is built.

Phase 1 ("clean") trains on worked solutions until sampled answers are right, whatever step that takes: the loss
plateaus and drops at a step that depends on the seed, so the gate is on accuracy. Phase 2 ("noisy") mixes in bare
answers, repetition and slips, so that RL starts from a model that knows the method and seldom uses it. A base whose
figures lie outside its aims is refused: all methods would start from a model with no room to improve, or with nothing
to reward.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field

from evals.arithmetic import LADDERS
from models import registry
from models.registry import Architecture
from records import digests
from records.code_hashes import closure, code_hash
from records.declared import Declared, validated
from records.errors import ConfigError, CorruptInputError, unknown
from records.files import read_json
from records.provenance import ROOT

Range = tuple[float, float]  # both ends included


class Clean(Declared):
    """Phase 1."""

    batch: int = 96  # problems per update
    learning_rate: float = 1.5e-3
    warmup: int = 50  # steps of rising learning rate
    gate: float = 0.90  # the phase ends when the share of right answers, sampled at temperature 1, passes this
    check_every: int = 50  # steps between two such checks
    check_answers: int = 256  # answers per check
    limit: int = 1500  # steps; not to have passed the gate by then is an error
    cooling: int = 60  # steps of falling learning rate after the gate
    cooled_gate: float = 0.90  # share of right answers to have passed after cooling


class Noisy(Declared):
    """Phase 2."""

    steps: int
    noise: float  # probability of a slip per step of a solution
    styles: tuple[tuple[str, float], ...]  # style of solution (worked, direct, check) and its share
    batch: int = 96
    learning_rate: float = 3e-4
    last_learning_rate: float = 1e-5
    warmup: int = 20


class Aims(Declared):
    """Ranges a finished base must lie in; the names are those of `models.measure.Figures`."""

    accuracy: Range
    entropy: Range
    mixed_groups: Range
    direct_share: Range
    length: Range
    unfinished: Range


class Recipe(Declared):
    """All that decides a base's weights, besides code; and the aims that decide whether it is accepted."""

    model: str
    ladder: str
    kind: str  # a key of KINDS
    seed: int
    architecture: Architecture
    clean: Clean
    noisy: Noisy
    aims: Aims
    betas: tuple[float, float] = (0.9, 0.98)  # of AdamW, in both phases
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    completion_tokens: int = 64  # longest sampled answer
    measured_prompts: int = 128  # prompts behind the figures of a finished base
    samples_per_prompt: int = 8

    @property
    def where(self) -> str:
        """How an error names it."""
        return f"config/models/{self.model}.yaml: recipe {self.kind}, ladder {self.ladder}"


_SCRAMBLED = Noisy(steps=150, noise=0.12, styles=(("worked", 0.30), ("direct", 0.55), ("check", 0.15)))
_DISTILLED = Noisy(steps=100, noise=0.20, styles=(("worked", 0.80), ("direct", 0.10), ("check", 0.10)))

# By ladder. Every training run of the quick scale waits for its base, so that one has smaller batches and a lower
# first gate: cooling does the rest.
_CLEAN = {"full": Clean(limit=2000), "quick": Clean(batch=64, gate=0.80, cooled_gate=0.85)}

# Where eight `standard` bases of four classes fell, with room for other seeds and other machines' rounding: accuracy
# .125-.193, entropy .429-.526, mixed_groups .63-.79, direct_share .49-.57, length 13.4-16.4, unfinished .000-.009.
_ROOM_TO_RISE = Aims(
    accuracy=(0.06, 0.28),
    entropy=(0.36, 0.62),
    mixed_groups=(0.45, 0.92),
    direct_share=(0.38, 0.65),
    length=(12.0, 18.5),
    unfinished=(0.0, 0.02),
)
# Around the one `distilled` base that was measured: .277, .296, .85, .03, 27.1, .002.
_STRONGER = Aims(
    accuracy=(0.18, 0.42),
    entropy=(0.20, 0.42),
    mixed_groups=(0.70, 1.0),
    direct_share=(0.0, 0.15),
    length=(20.0, 34.0),
    unfinished=(0.0, 0.02),
)

KINDS = {"standard": (_SCRAMBLED, _ROOM_TO_RISE), "distilled": (_DISTILLED, _STRONGER)}


def recipe(model: str, ladder: str) -> Recipe:
    """The recipe of a model made here on a ladder; ConfigError for an unknown model, ladder, kind, or a hub model."""
    made_here = registry.model(model).made_here
    where = f"config/models/{model}.yaml"
    if made_here is None:
        raise ConfigError(f"{where}: made_here: missing; {model} comes from the hub and is not built here")
    if ladder not in LADDERS:
        raise unknown(where, "ladder", ladder, LADDERS)
    if made_here.recipe not in KINDS:
        raise unknown(where, "made_here.recipe", made_here.recipe, KINDS)
    noisy, aims = KINDS[made_here.recipe]
    return Recipe(
        model=model,
        ladder=ladder,
        kind=made_here.recipe,
        seed=made_here.seed,
        architecture=made_here.architecture,
        clean=_CLEAN[ladder],
        noisy=noisy.model_copy(update={"batch": 64}) if ladder == "quick" else noisy,
        aims=aims,
    )


# Where built bases lie: `results/cache/models/<model>-<recipe hash>/`, so that each is built once per recipe. The hash
# covers the recipe and the code that builds it, not package versions: those are in `base.json`.

CACHE = ROOT / "results" / "cache" / "models"
RECORD = "base.json"
WEIGHTS = "model.safetensors"


class BaseRecord(Declared):
    """`base.json` of a base made here."""

    version: int = Field(alias="schema")
    model: str
    ladder: str
    recipe: dict[str, Any]  # the whole Recipe
    recipe_hash: str
    parameters: int
    figures: dict[str, dict[str, int | float]]  # "gate": how phase 1 went; "base": models.measure.Figures
    sha256: dict[str, str]  # of every file but this one
    resumed: bool  # whether an interrupted build was continued
    threads: int
    wall_seconds: float
    cpu_seconds: float
    environment: dict[str, Any]


def hash_of(recipe: Recipe) -> str:
    """12 hex digits over the recipe and the code that decides the weights; aims decide acceptance, not weights."""
    text = json.dumps(recipe.model_dump(mode="json", exclude={"aims"}), sort_keys=True) + _code()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _code() -> str:
    """Of what builds a base. Not of this file and the registry: what they say of a model is the recipe itself."""
    return code_hash(closure("models.build", without=("models.recipe", "models.registry")))


@cache
def recipe_hash(model: str, ladder: str) -> str:
    """`hash_of` the recipe of a model on a ladder."""
    return hash_of(recipe(model, ladder))


def folder(model: str, ladder: str, root: Path = CACHE) -> Path:
    """The cache folder of a base; it need not exist yet."""
    return root / f"{model}-{recipe_hash(model, ladder)}"


def finished(base: Path) -> bool:
    """Whether a base was built there: its record is written last."""
    return (base / RECORD).is_file()


def record(base: Path) -> BaseRecord:
    """`base.json` after checking the folder against it; an error names the file that is missing or differs."""
    path = base / RECORD
    digests.check_model(base, path)
    return validated(BaseRecord, read_json(path, "record of a base model"), str(path), error=CorruptInputError)
