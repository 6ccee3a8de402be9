"""The suite notices every small wrong done to any method: the mutation check of `python -m tests.methods.mutate`."""

from __future__ import annotations

import pytest

from methods import catalog
from tests.methods import subjects
from tests.methods.mutate import table
from tests.methods.mutations_of_parts import MUTATIONS

CORRECTED = (
    "grpo+correction=icepop+correction-cap=1.5+correction-floor=0.6",
    "gspo+correction=seq-tis",
    "kl_cov+correction=tis+correction-on=objective",
    "grpo+correction=geo-rs+correction-cap=1.2+correction-floor=0.85",
    "grpo+correction=tis+rejection=geo-rs+rejection-cap=1.2+rejection-floor=0.85",
)


@pytest.mark.slow
def test_every_mutation_of_every_method_is_caught() -> None:
    keys = (*catalog.keys(), *CORRECTED)
    _, mutants, survived = table(keys)
    assert survived == []
    assert mutants >= 20 * len(keys)


@pytest.mark.slow
def test_every_mutation_of_every_reading_is_caught() -> None:
    _, _, survived = table(subjects.shapes())
    assert survived == []


def test_every_mutation_acts_on_some_method() -> None:
    idle = [
        name
        for name, mutate in MUTATIONS.items()
        if all(mutate(catalog.parse(key)) is None for key in subjects.shapes())
    ]
    assert idle == []
