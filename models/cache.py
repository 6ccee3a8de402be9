"""Where built bases lie: `results/cache/models/<model>-<recipe hash>/`, so that each is built once per recipe.

The hash covers the recipe and the source files that decide the weights, not package versions: those are in `base.json`.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from models.recipe import Recipe, recipe
from records import verify
from records.provenance import ROOT, code_hash
from records.read import read_json

CACHE = ROOT / "results" / "cache" / "models"
RECORD = "base.json"
WEIGHTS = "model.safetensors"
CODE = (
    "evals/arithmetic.py",
    "models/architectures.py",
    "models/batches.py",
    "models/gradients.py",
    "models/measure.py",
    "models/phases.py",
    "models/tokenizer.py",
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
    verify.weights(base, base / RECORD)
    found: dict[str, Any] = read_json(base / RECORD, "record of a base model")
    return found
