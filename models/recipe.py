"""How a tiny base is made: a clean phase until it has learnt the method, then a noisy phase that spoils its
habits.

Phase 1 trains on worked solutions until sampled answers are right, whatever step that takes: the loss
plateaus and drops at a step that depends on the seed, so the gate is on accuracy. Phase 2 mixes in bare
answers, repetition and slips, so that RL finds a policy that knows the way and seldom takes it. A base
outside its aims is refused: all methods would start from a model with no room, or with nothing to reward.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from evals.arithmetic import LADDERS
from models import registry
from models.registry import Architecture
from records import provenance
from records.errors import ConfigError, unknown
from records.files import read_json
from records.provenance import ROOT, code_hash


@dataclass(frozen=True)
class Clean:
    """Phase 1, left when the share of right answers sampled at temperature 1 passes `gate`; after `cooling` steps it
    must have passed `cooled_gate`. `limit` steps without passing are an error."""

    batch: int = 96
    learning_rate: float = 1.5e-3
    warmup: int = 50
    cooling: int = 60
    gate: float = 0.90
    cooled_gate: float = 0.90
    check_every: int = 50
    check_answers: int = 256
    limit: int = 1500


@dataclass(frozen=True)
class Noisy:
    """Phase 2. `styles`: shares of worked, direct, check; `noise`: probability of a slip per step."""

    steps: int
    noise: float
    styles: tuple[tuple[str, float], ...]
    batch: int = 96
    learning_rate: float = 3e-4
    last_learning_rate: float = 1e-5
    warmup: int = 20


@dataclass(frozen=True)
class Aims:
    """Ranges a finished base must lie in, both ends included; names are those of `models.measure.Figures`."""

    accuracy: tuple[float, float]
    entropy: tuple[float, float]
    mixed_groups: tuple[float, float]
    direct_share: tuple[float, float]
    length: tuple[float, float]
    unfinished: tuple[float, float]


@dataclass(frozen=True)
class Recipe:
    """All that decides a base's weights, besides code; and the aims that decide whether it is accepted."""

    model: str
    ladder: str
    kind: str
    seed: int
    architecture: Architecture
    clean: Clean
    noisy: Noisy
    aims: Aims
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    completion_tokens: int = 64
    measured_prompts: int = 128
    samples_per_prompt: int = 8

    def json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def where(self) -> str:
        """How an error names it."""
        return f"config/models/{self.model}.yaml: recipe {self.kind}, ladder {self.ladder}"


_SCRAMBLED = Noisy(steps=150, noise=0.12, styles=(("worked", 0.30), ("direct", 0.55), ("check", 0.15)))
_DISTILLED = Noisy(steps=100, noise=0.20, styles=(("worked", 0.80), ("direct", 0.10), ("check", 0.10)))

# By ladder. `quick` is the serial head of a run of minutes: smaller batches, and left as soon as cooling does the rest.
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

# (noisy phase, aims) by kind and ladder.
KINDS: dict[str, dict[str, tuple[Noisy, Aims]]] = {
    "standard": {"full": (_SCRAMBLED, _ROOM_TO_RISE), "quick": (replace(_SCRAMBLED, batch=64), _ROOM_TO_RISE)},
    "distilled": {"full": (_DISTILLED, _STRONGER), "quick": (replace(_DISTILLED, batch=64), _STRONGER)},
}


def recipe(model: str, ladder: str) -> Recipe:
    """The recipe of a model made here on a ladder; ConfigError for an unknown model, ladder, kind, or a hub model."""
    made = registry.model(model).made_here
    where = f"config/models/{model}.yaml"
    if made is None:
        raise ConfigError(f"{where}: made_here: missing; {model} comes from the hub and is not built here")
    if ladder not in LADDERS:
        raise unknown(where, "ladder", ladder, LADDERS)
    if made.recipe not in KINDS:
        raise unknown(where, "recipe", made.recipe, KINDS)
    noisy, aims = KINDS[made.recipe][ladder]
    return Recipe(model, ladder, made.recipe, made.seed, made.architecture, _CLEAN[ladder], noisy, aims)


# Where built bases lie: `results/cache/models/<model>-<recipe hash>/`, so that each is built once per recipe.
#
# The hash covers the recipe and the source files that decide the weights, not package versions: those are in
# `base.json`.


CACHE = ROOT / "results" / "cache" / "models"
RECORD = "base.json"
WEIGHTS = "model.safetensors"
CODE = (
    "evals/arithmetic.py",
    "models/tokenizer.py",
    "models/batches.py",
    "models/measure.py",
    "models/build.py",
)


def hash_of(recipe: Recipe) -> str:
    """12 hex digits over the recipe and the code that decides the weights; aims decide acceptance, not weights."""
    decisive = {name: value for name, value in recipe.json().items() if name != "aims"}
    text = json.dumps(decisive, sort_keys=True) + code_hash(CODE)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


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


def record(base: Path) -> dict[str, Any]:
    """`base.json` after checking the weights against it; an error names the file that is missing or differs."""
    provenance.weights(base, base / RECORD)
    found: dict[str, Any] = read_json(base / RECORD, "record of a base model")
    return found
