"""Every trained row of Tables 1 to 4 names a method that the catalog has. Typed from the paper, label by label.

A row whose method is `None` is printed and not yet in the catalog: it fails here until it is.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from methods import catalog

PAPER = Path(__file__).resolve().parents[3] / "shared" / "paper" / "tepo.md"

# (row id of paper/tables, printed label, catalog key); base models, Delta and mean rows train nothing.
ROWS: list[tuple[str, str, str | None]] = [
    ("T1.2", "w. GRPO/DAPO", "grpo"),
    ("T1.3", "w. CLIP-Cov", "clip_cov"),
    ("T1.4", "w. KL-Cov", "kl_cov"),
    ("T1.5", "w. Entropy-based Term", "entropy_adv"),
    ("T1.6", "w. GPG", "gpg"),
    ("T1.7", "w. GSPO", "gspo"),
    ("T1.8", "TEPO", "tepo"),
    ("T1.11", "w. GRPO/DAPO", "grpo"),
    ("T1.12", "w. CLIP-Cov", "clip_cov"),
    ("T1.13", "w. KL-Cov", "kl_cov"),
    ("T1.14", "w. Entropy-based Term", "entropy_adv"),
    ("T1.15", "w. GPG", "gpg"),
    ("T1.16", "w. GSPO", "gspo"),
    ("T1.17", "TEPO", "tepo+beta=1"),
    ("T2.2", "w. GRPO/DAPO", "grpo"),
    ("T2.3", "TEPO", "tepo"),
    ("T2.5", "w. GRPO/DAPO", "grpo"),
    ("T2.6", "TEPO", "tepo"),
    ("T2.8", "w. GRPO/DAPO", "grpo"),
    ("T2.9", "TEPO", "tepo"),
    ("T3.1", "TEPO-w/o. KL", "tepo_nokl"),
    ("T3.2", "w. $\\beta = 1$ (model collapse in 24 steps)", "tepo_kl_all+beta=1"),
    ("T3.3", "w. $\\beta = 0.1$ (leads to Avg drop of 4.6%.)", "tepo_kl_all+beta=0.1"),
    ("T3.4", "w. $\\beta = 0.01$", "tepo_kl_all+beta=0.01"),
    ("T3.5", "w. $\\beta = 0.001$", "tepo_kl_all"),
    ("T3.6", "w. $\\beta = 0.0001$", "tepo_kl_all+beta=0.0001"),
    ("T3.7", "w. Max-Entropy", "tepo_maxent"),
    ("T3.8", "w. Min-Entropy", "tepo_minent"),
    ("T3.9", "w. STEEL", "tepo_steer"),
    ("T3.10", "w. CLIP-Cov", "clip_cov"),
    ("T3.11", "w. KL-Cov", "kl_cov"),
    ("T3.12", "w. Entropy-based Term", "entropy_adv"),
    ("T3.13", "w. GRPO/DAPO (token-level)", "grpo"),
    ("T3.14", "w. GPG (remove IS)", "gpg"),
    ("T3.15", "w. CISPO/Reinforce (token-level)", "cispo"),
    ("T3.16", "w. Sentence Prefix IS", "prefix_is"),
    ("T3.17", "w. sequence-mean token-mean/GSPO aggregation", "gspo"),
    ("T3.18", "w. sequence-mean token-sum aggregation", "tepo_seqsum"),
    ("T3.19", "TEPO-w/o. KL", "tepo_nokl"),
    ("T3.20", "TEPO-w. $KL(A_{i,t} < 0 \\wedge \\Delta\\mathcal{H}_{i,t} > 0)$", "tepo_kl_neg"),
    (
        "T3.21",
        "TEPO-w. $KL(A_{i,t} > 0 \\wedge \\Delta\\mathcal{H}_{i,t} < 0) "
        "\\vee (A_{i,t} < 0 \\wedge \\Delta\\mathcal{H}_{i,t} > 0)$",
        "tepo_kl_both",
    ),
    ("T3.22", "TEPO", "tepo"),
    ("T4.1", "GRPO/DAPO (72 steps, seed1)", "grpo"),
    ("T4.2", "GRPO/DAPO (72 steps, seed2)", "grpo"),
    ("T4.3", "GRPO/DAPO (132 steps, seed1)", "grpo"),
    ("T4.4", "GRPO/DAPO (132 steps, seed2)", "grpo"),
    ("T4.5", "TEPO (72 steps, seed1)", "tepo"),
    ("T4.6", "TEPO (72 steps, seed2)", "tepo"),
]


def test_every_row_has_a_catalog_method_at_its_canonical_key() -> None:
    wrong = [(row, label, text) for row, label, text in ROWS if text is None or catalog.parse(text).key != text]
    assert not wrong, "add a method to methods/catalog"


def test_all_trained_rows_are_here() -> None:
    """58 printed rows = 2 Delta + 3 means + 5 bases + 48 trained."""
    assert len(ROWS) == len({row for row, _, _ in ROWS}) == 48


def test_the_labels_are_those_printed_in_that_order() -> None:
    if not PAPER.exists():
        pytest.skip(f"the paper's text is not at {PAPER}")
    number = re.compile(r"^(.*?)((?:\t-?[\d.]+|\t-){8})$")
    printed = [m.group(1) for line in PAPER.read_text().splitlines() if (m := number.match(line))]
    trained = [x for x in printed if re.match(r"w\. |TEPO|GRPO", x) and "Δ" not in x and "mean)" not in x]
    assert [label for _, label, _ in ROWS] == trained


def test_every_catalog_method_that_claims_a_row_has_one_and_the_others_have_none() -> None:
    in_rows = {text.split("+")[0] for _, _, text in ROWS if text}
    claims = {key for key, entry in catalog.entries().items() if entry.paper_rows}
    assert claims == in_rows


def test_other_names_stand_for_a_catalog_method() -> None:
    for alias, (key, settings) in catalog.aliases().items():
        spelt = "+".join([key, *(f"{name}={value}" for name, value in settings.items())])
        assert catalog.parse(alias).key == catalog.parse(spelt).key, alias


def test_the_printed_and_the_original_alpha_are_two_methods() -> None:
    assert catalog.parse("entropy_adv_printed").params["alpha"] == 4e-4
    assert catalog.parse("entropy_adv").params["alpha"] == 0.4
