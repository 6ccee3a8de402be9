"""Every trained row of Tables 1 to 4 names a method that the catalog has, and other names stand for one.

`tests/paper/test_printed.py` compares the rows and their labels with the text of the paper.
"""

from __future__ import annotations

from methods import catalog
from paper import printed

TRAINED = {row.id: row.run.method for row in printed.read().values() if row.kind == "run" and row.run}


def test_every_row_has_a_catalog_method_at_its_canonical_key() -> None:
    """58 printed rows = 2 Delta + 3 means + 5 bases + 48 trained."""
    assert len(TRAINED) == 48
    assert {row: catalog.parse(text).key for row, text in TRAINED.items()} == TRAINED


def test_every_catalog_method_that_claims_a_row_has_one_and_the_others_have_none() -> None:
    in_rows = {text.split("+")[0] for text in TRAINED.values()}
    assert {key for key, entry in catalog.entries().items() if entry.paper_rows} == in_rows


def test_other_names_stand_for_a_catalog_method() -> None:
    for alias, (key, settings) in catalog.aliases().items():
        spelt = "+".join([key, *(f"{name}={value}" for name, value in settings.items())])
        assert catalog.parse(alias).key == catalog.parse(spelt).key, alias


def test_the_printed_and_the_original_alpha_are_two_methods() -> None:
    assert catalog.parse("entropy_adv_printed").params["alpha"] == 4e-4
    assert catalog.parse("entropy_adv").params["alpha"] == 0.4
