"""Recipes of the tiny base models, and the location of built ones.

Phase 1 ("clean") trains on worked solutions until sampled answers are right. Phase 2 ("noisy") mixes in bare answers,
repetition and slips, so that RL starts from a model that has learnt the method and seldom uses it.

Each seed of an experiment has a separate base. Phase 1 dominates the cost, so a model has a few clean models
(`made_here.starts`), and seed k continues clean model k modulo their number with a separate noisy phase. A model may
continue the clean models of another one (`made_here.continues`).

A clean model that misses a gate, or a base whose figures lie outside its aims, is rejected. The build then restarts
with the next initialisation (phase 1) or the next data (phase 2), with at most `attempts` attempts.
"""

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from core import digests
from core.code import Code
from core.declared import Declared, Tuple, validated
from core.errors import ConfigError, CorruptInputError, unknown
from core.files import read_json, read_yaml
from core.provenance import ROOT
from models import registry
from models.registry import Architecture

RECIPES = "models/recipes.yaml"
Range = Annotated[tuple[float, float], Field(strict=False)]  # both ends included
Share = Annotated[tuple[str, float], Field(strict=False)]


class Clean(Declared):
    """Settings of phase 1."""

    ladder: str | None = None  # training problems; None: the ladder of the base
    batch: int = 96  # problems per update
    learning_rate: float = 1.5e-3
    warmup: int = 50  # steps of rising learning rate
    gate: float = 0.90  # the phase ends when the share of right answers, sampled at temperature 1, exceeds this
    check_every: int = 50  # steps between two such checks
    check_answers: int = 256  # answers per check
    limit: int = 1500  # steps; the attempt ends if the gate is not passed by then
    cooling: int = 60  # steps of falling learning rate after the gate
    cooled_gate: float = 0.90  # share of right answers that must be exceeded after cooling
    attempts: int = 3  # initialisations to try


class Noisy(Declared):
    """Settings of phase 2."""

    steps: int
    noise: float  # probability of a slip per step of a solution
    styles: Tuple[Share]  # style of solution (worked, direct, check) and its share
    batch: int = 96
    learning_rate: float = 3e-4
    last_learning_rate: float = 1e-5
    warmup: int = 20
    attempts: int = 3  # random streams to try


class Aims(Declared):
    """Required ranges of a finished base's figures, named as in `models.tiny.figures`."""

    accuracy: Range
    entropy: Range
    mixed_groups: Range
    direct_share: Range
    length: Range
    unfinished: Range


class Start(Declared):
    """Everything besides code that determines a clean model's weights."""

    model: str
    ladder: str
    seed: int  # the model's, from its file
    number: int  # which of the model's clean models
    architecture: Architecture
    clean: Clean
    betas: tuple[float, float] = (0.9, 0.98)  # of AdamW, in both phases
    weight_decay: float = 0.01
    gradient_clip: float = 1.0
    completion_tokens: int = 64  # longest sampled answer

    @property
    def where(self) -> str:
        return f"config/models/{self.model}.yaml: clean model {self.number}, ladder {self.ladder}"


class Recipe(Declared):
    """Everything besides code that determines a base's weights."""

    model: str
    kind: str  # a key of models/recipes.yaml
    seed: int  # of the runs that start from this base
    start: Start
    noisy: Noisy
    aims: Aims  # they determine which attempt is accepted
    measured_prompts: int = 128  # prompts behind the figures of a finished base
    samples_per_prompt: int = 8

    @property
    def where(self) -> str:
        return f"config/models/{self.model}.yaml: recipe {self.kind}, ladder {self.start.ladder}, seed {self.seed}"


class Kind(Declared):
    """One entry of models/recipes.yaml."""

    clean: dict[str, Clean]  # by ladder
    noisy: Noisy
    aims: Aims


@cache
def kinds() -> dict[str, Kind]:
    """Return the kinds of models/recipes.yaml."""
    entries = read_yaml(ROOT / RECIPES, "recipes")["kinds"]
    return {name: validated(Kind, entry, RECIPES, name) for name, entry in entries.items()}


def recipe(model: str, ladder: str, seed: int) -> Recipe:
    """Return the recipe of a seed's base; ConfigError: unknown model, ladder or kind, a hub model, a seed below 0."""
    where, made_here = f"config/models/{model}.yaml", registry.model(model).made_here
    if made_here is None:
        raise ConfigError(f"{where}: made_here: missing; {model} comes from the hub and is not built here")
    if made_here.recipe not in kinds():
        raise unknown(where, "made_here.recipe", made_here.recipe, kinds())
    kind = kinds()[made_here.recipe]
    if ladder not in kind.clean:
        raise unknown(where, "ladder", ladder, kind.clean)
    if seed < 0:
        raise ConfigError(f"{where}: seed: {seed} is not a whole number from 0 on")
    first_model, first = model, made_here
    if made_here.continues is not None:
        first_model, other = made_here.continues, registry.model(made_here.continues).made_here
        if other is None or other.continues is not None:
            raise ConfigError(f"{where}: made_here.continues: {first_model} has no clean models of its own")
        first = other
    assert first.seed is not None  # registry.MadeHere: all three or `continues`
    assert first.architecture is not None
    start = Start(
        model=first_model, ladder=ladder, seed=first.seed, number=seed % (starts(first_model, ladder) or 1),
        architecture=first.architecture, clean=kinds()[first.recipe].clean[ladder],
    )  # fmt: skip
    noisy = kind.noisy.model_copy(update={"batch": 64}) if ladder == "quick" else kind.noisy
    return Recipe(model=model, kind=made_here.recipe, seed=seed, start=start, noisy=noisy, aims=kind.aims)


def starts(model: str, ladder: str) -> int | None:
    """Return the number n of clean models; seed k continues number k modulo n. None: a model that is not made here."""
    made_here = registry.model(model).made_here
    if made_here is None:
        return None
    if made_here.continues is not None:
        return starts(made_here.continues, ladder)
    return 1 if ladder == "quick" else made_here.starts  # that scale has one seed


def family(model: str) -> str:
    """Return the origin of a model's bases, as named in verdicts on claims."""
    made_here = registry.model(model).made_here
    if made_here is None:
        return "pretrained"
    return "injected noise" if kinds()[made_here.recipe].noisy.noise > 0 else "no injected noise"


# Locations: `results/cache/models/<model>-<hash>/` and `<model>-clean-<hash>/`, so that each is built once per recipe.
# The hash covers the recipe and the code that builds it, but not package versions, which are in the record.

CACHE = ROOT / "results" / "cache" / "models"
RECORD = "base.json"
CLEAN_RECORD = "clean.json"
WEIGHTS = "model.safetensors"


def hash_of(recipe: Recipe | Start) -> str:
    """Return 12 hex digits over the recipe and the code that determines the weights."""
    text = json.dumps(recipe.model_dump(mode="json"), sort_keys=True) + _code_hash()
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache  # a plan has many bases, and what this process imported does not change
def _code_hash() -> str:
    return code().hash


def code() -> Code:
    """Return the code that builds a base, without this file and the registry, whose content is in the recipe."""
    used = ("LADDERS", "prompt_string", "solution", "training_problem")
    return Code("bases", functions=tuple(f"evals.arithmetic:{name}" for name in used))


@cache
def base_name(model: str, ladder: str, seed: int) -> str:
    """Return the name of the cache folder of a seed's base."""
    return f"{model}-{hash_of(recipe(model, ladder, seed))}"


def name_of_clean(start: Start) -> str:
    """Return the name of the cache folder of a clean model."""
    return f"{start.model}-clean-{hash_of(start)}"


def finished(folder: Path, record: str = RECORD) -> bool:
    """Return whether the folder contains a finished model, whose record is written last."""
    return (folder / record).is_file()


def record(folder: Path, name: str = RECORD) -> dict[str, Any]:
    """Return a model's record after checking the folder; errors name the file that is missing or differs."""
    digests.check_model(folder, folder / name)
    found: dict[str, Any] = read_json(folder / name, "record of a base model")
    if lacking := [key for key in ("recipe_hash", "figures", "sha256") if key not in found]:
        raise CorruptInputError(f"{folder / name}: {lacking[0]}: is missing; remove the folder to have it built again")
    return found
