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
from typing import Any, NamedTuple

from core import digests
from core.code import Code
from core.declared import Declared
from core.errors import ConfigError, CorruptInputError, unknown
from core.files import read_json
from core.provenance import ROOT
from models import registry
from models.registry import Architecture, MadeHere

Range = tuple[float, float]  # both ends included


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
    styles: tuple[tuple[str, float], ...]  # style of solution (worked, direct, check) and its share
    batch: int = 96
    learning_rate: float = 3e-4
    last_learning_rate: float = 1e-5
    warmup: int = 20
    attempts: int = 3  # random streams to try


class Aims(Declared):
    """Required ranges of a finished base's figures, named as in `models.tiny.Figures`."""

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
    kind: str  # a key of KINDS
    seed: int  # of the runs that start from this base
    start: Start
    noisy: Noisy
    aims: Aims  # they determine which attempt is accepted
    measured_prompts: int = 128  # prompts behind the figures of a finished base
    samples_per_prompt: int = 8

    @property
    def where(self) -> str:
        return f"config/models/{self.model}.yaml: recipe {self.kind}, ladder {self.start.ladder}, seed {self.seed}"


_SCRAMBLED = Noisy(steps=150, noise=0.12, styles=(("worked", 0.30), ("direct", 0.55), ("check", 0.15)))
# Tiny Llama and tiny Mistral recover more slowly: after `_SCRAMBLED` some scores of their baseline were near 30 %.
_MILDER = Noisy(steps=150, noise=0.12, styles=(("worked", 0.42), ("direct", 0.43), ("check", 0.15)))
_DISTILLED = Noisy(steps=100, noise=0.20, styles=(("worked", 0.47), ("direct", 0.38), ("check", 0.15)))

# By ladder. Every training run of the quick scale waits for its base, so that ladder has smaller batches and a lower
# first gate; cooling closes the gap.
_CLEAN = {"wide": Clean(limit=4000, cooled_gate=0.85), "quick": Clean(batch=64, gate=0.80, cooled_gate=0.85)}
# At a constant rate the last points before a high gate take most steps (2,300 of 3,250 for one model), and 7 of 16
# clean models without the additional look-ups never learnt to look up, so that a model's score there was due to chance.
# Not for `standard`: its bases are those of all kept trees.
_EARLY = _CLEAN | {"wide": Clean(ladder="lookups", limit=4000, gate=0.80, cooling=150, cooled_gate=0.85)}
_STARTS = {"quick": 1}  # number of clean models if it is not the model's: that scale has one seed

# Ranges of eight `standard` bases of four classes, widened for other seeds and other machines' rounding: accuracy
# .125-.193, entropy .429-.526, mixed_groups .63-.79, direct_share .49-.57, length 13.4-16.4, unfinished .000-.009.
# Four of ladder `wide` had higher entropy, .511-.623.
_ROOM_TO_RISE = Aims(
    accuracy=(0.06, 0.28),
    entropy=(0.36, 0.72),
    mixed_groups=(0.45, 0.92),
    direct_share=(0.38, 0.65),
    length=(11.0, 18.5),
    unfinished=(0.0, 0.02),
)
# Eight `milder` bases: accuracy .211-.265, direct_share .308-.425, length 14.2-17.9.
_FEWER_BARE = _ROOM_TO_RISE.model_copy(
    update={"accuracy": (0.10, 0.36), "direct_share": (0.22, 0.60), "length": (12.0, 22.0)}
)
# Eight `distilled` bases, four with .55 and four with .50 of worked solutions: accuracy .155-.258, entropy .463-.567,
# mixed_groups .625-.797, direct_share .144-.302, length 18.6-20.6, unfinished .000-.007.
_STRONGER = Aims(
    accuracy=(0.10, 0.36),
    entropy=(0.36, 0.68),
    mixed_groups=(0.50, 0.95),
    direct_share=(0.05, 0.45),
    length=(16.0, 26.0),
    unfinished=(0.0, 0.02),
)

# No noise is injected: the base is a clean model stopped when it solves about a quarter of the problems. It lacks
# skill, so that RL has something to teach. Seeds 1 and 2: accuracy 0.25, 0.27, mixed_groups 0.54, 0.53.
_STOPPED = Clean(limit=4000, gate=0.25, check_every=10, check_answers=512, cooling=20, cooled_gate=0.22)
_LEFT_ALONE = Noisy(steps=0, noise=0.0, styles=(("worked", 1.0),))
_UNSKILLED = Aims(
    accuracy=(0.20, 0.45),
    entropy=(0.05, 0.50),
    mixed_groups=(0.35, 0.90),
    direct_share=(0.0, 0.05),
    length=(14.0, 28.0),
    unfinished=(0.0, 0.05),
)


class Kind(NamedTuple):
    clean: dict[str, Clean]  # by ladder
    noisy: Noisy
    aims: Aims


KINDS = {
    "standard": Kind(_CLEAN, _SCRAMBLED, _ROOM_TO_RISE),
    "early": Kind(_EARLY, _SCRAMBLED, _ROOM_TO_RISE),
    "milder": Kind(_EARLY, _MILDER, _FEWER_BARE),
    "stopped": Kind({"wide": _STOPPED, "quick": _STOPPED.model_copy(update={"batch": 64})}, _LEFT_ALONE, _UNSKILLED),
    "distilled": Kind(_CLEAN, _DISTILLED, _STRONGER),
}


def recipe(model: str, ladder: str, seed: int) -> Recipe:
    """Return the recipe of a seed's base; ConfigError: unknown model, ladder or kind, a hub model, a seed below 0."""
    made_here = registry.model(model).made_here
    where = f"config/models/{model}.yaml"
    if made_here is None:
        raise ConfigError(f"{where}: made_here: missing; {model} comes from the hub and is not built here")
    if ladder not in _CLEAN:
        raise unknown(where, "ladder", ladder, _CLEAN)
    if made_here.recipe not in KINDS:
        raise unknown(where, "made_here.recipe", made_here.recipe, KINDS)
    if seed < 0:
        raise ConfigError(f"{where}: seed: {seed} is not a whole number from 0 on")
    _, noisy, aims = KINDS[made_here.recipe]
    return Recipe(
        model=model,
        kind=made_here.recipe,
        seed=seed,
        start=_start(model, made_here, ladder, seed),
        noisy=noisy.model_copy(update={"batch": 64}) if ladder == "quick" else noisy,
        aims=aims,
    )


def _start(model: str, made_here: MadeHere, ladder: str, seed: int) -> Start:
    """Return the clean model that a seed's base continues."""
    if made_here.continues is not None:
        where, continued = f"config/models/{model}.yaml: made_here.continues", made_here.continues
        of = registry.model(continued).made_here
        if of is None or of.continues is not None:
            raise ConfigError(f"{where}: {continued} has no clean models of its own")
        return _start(continued, of, ladder, seed)
    assert made_here.seed is not None  # registry.MadeHere: all three or `continues`
    assert made_here.starts is not None
    assert made_here.architecture is not None
    return Start(
        model=model,
        ladder=ladder,
        seed=made_here.seed,
        number=seed % _starts(made_here, ladder),
        architecture=made_here.architecture,
        clean=KINDS[made_here.recipe].clean[ladder],
    )


def _starts(made_here: MadeHere, ladder: str) -> int:
    if made_here.continues is not None:
        made_here = registry.model(made_here.continues).made_here or made_here
    return _STARTS.get(ladder, made_here.starts or 1)


def starts(model: str, ladder: str) -> int | None:
    """Return the number n of clean models; seed k continues number k modulo n. None: a model that is not made here."""
    made_here = registry.model(model).made_here
    return None if made_here is None else _starts(made_here, ladder)


def family(model: str) -> str:
    """Return the origin of a model's bases, as named in verdicts on claims."""
    made_here = registry.model(model).made_here
    if made_here is None:
        return "pretrained"
    return "injected noise" if KINDS[made_here.recipe].noisy.noise > 0 else "no injected noise"


# Locations: `results/cache/models/<model>-<hash>/` and `<model>-clean-<hash>/`, so that each is built once per recipe.
# The hash covers the recipe and the code that builds it, but not package versions, which are in the record.

CACHE = ROOT / "results" / "cache" / "models"
RECORD = "base.json"
CLEAN_RECORD = "clean.json"
WEIGHTS = "model.safetensors"


def hash_of(recipe: Recipe | Start) -> str:
    """Return 12 hex digits over the recipe and the code that determines the weights."""
    text = json.dumps(recipe.model_dump(mode="json"), sort_keys=True) + code().hash
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
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
