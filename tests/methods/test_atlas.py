"""The loss atlas: the kept file is that of the installed frameworks, and a planted difference is named."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from core.errors import BenchError
from core.files import read_csv, read_yaml
from studies.atlas import __main__ as atlas
from studies.atlas import explain, microbatches
from studies.atlas.explain import batches

DECLARED = read_yaml(atlas.DECLARED)
KEPT = read_csv(atlas.KEPT, "the atlas", atlas.COLUMNS)
INSTALLED = [framework for framework in DECLARED["frameworks"] if framework.get("installed")]


def test_every_framework_is_kept_and_every_difference_explained() -> None:
    """By ingredients, or in words where no composition of ours gives it."""
    assert {row["framework"] for row in KEPT if row["verdict"] != "read"} == {f["name"] for f in DECLARED["frameworks"]}
    for row in KEPT:
        if row["verdict"] == "differs" and row["differs"] == "no composition of ours":
            assert row["note"], (row["name"], row["framework"])


@pytest.mark.parametrize("name", sorted(explain.FAMILIES))
def test_our_own_methods_are_compositions_of_what_is_tried(name: str) -> None:
    """Otherwise no framework could be found equal to them by search."""
    assert explain.own_ingredients(name, batches()) is not None


@pytest.mark.slow
@pytest.mark.parametrize("framework", INSTALLED, ids=lambda framework: framework["runner"])
def test_the_installed_frameworks_are_as_kept(framework: dict, tmp_path: Path) -> None:
    again = list(atlas.lines(framework["name"], *atlas.answers(framework, None, tmp_path), DECLARED["notes"]))
    kept = [row for row in KEPT if row["framework"] == framework["name"] and row["verdict"] != "read"]
    assert atlas.moved(kept, again) == []


# What is written into a copy of TRL: where, what instead, under which name it shows, and what the atlas has to say.
PLANTED = {
    "second clip": (
        "coef_2 = torch.clamp(coef_1, 1 - self.epsilon_low, 1 + self.epsilon_high)",
        "coef_2 = torch.clamp(coef_1, 1 - 3e-4, 1 + 4e-4)",
        "DAPO",
        "bounds: [0.9997, 1.0004]",
    ),
    "denominator": (
        "per_token_loss * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()",
        "per_token_loss * mask).sum(-1)).mean()",
        "GRPO",
        "denominator: sequences",
    ),
}


@pytest.mark.slow
def test_planted_differences_are_named(tmp_path: Path) -> None:
    """Both at once, in a copy of the installed TRL."""
    copy = tmp_path / "front"
    source = Path(str(find_spec("trl").origin)).parent  # type: ignore[union-attr]
    shutil.copytree(source, copy / "trl", ignore=shutil.ignore_patterns("__pycache__"))
    file = copy / "trl/trainer/grpo_trainer.py"
    text = file.read_text(encoding="utf-8")
    for before, after, _, _ in PLANTED.values():
        assert before in text
        text = text.replace(before, after)
    file.write_text(text, encoding="utf-8")
    framework = next(f for f in INSTALLED if f["runner"] == "run_trl")
    again = {row["name"]: row for row in atlas.lines(framework["name"], *atlas.answers(framework, copy, tmp_path), [])}
    for _, _, name, says in PLANTED.values():
        assert says in again[name]["differs"], again[name]["differs"]
    kept = [row for row in KEPT if row["framework"] == framework["name"] and row["verdict"] != "read"]
    said = " ".join(atlas.moved(kept, list(again.values())))
    assert all(f"moved: {name} of" in said for _, _, name, _ in PLANTED.values())


MICRO = DECLARED["microbatches"]
MICRO_KEPT = read_csv(microbatches.KEPT, "the micro-batches", microbatches.COLUMNS)
TWO = {"micro_trl": ("DAPO", "BNPO"), "micro_verl": ("GRPO, token-mean", "GMPO")}
GENERATION = "steps_per_generation 4, accumulation 2"


MICRO_ROWS: dict[tuple[str, str], list[dict[str, str]]] = {}
for _row in MICRO_KEPT:
    MICRO_ROWS.setdefault((f"{_row['framework']} {_row['version']}", _row["loss"]), []).append(_row)


def kept(framework: str, loss: str) -> dict[str, float]:
    """Setting -> factor."""
    return {row["setting"]: float(row["factor"]) for row in MICRO_ROWS[framework, loss]}


def changed(framework: str, loss: str) -> set[str]:
    """Settings whose gradient is not the whole batch's."""
    return {row["setting"] for row in MICRO_ROWS[framework, loss] if microbatches.departs(row)}


def test_the_kept_file_has_every_framework_and_ours_is_exact() -> None:
    assert {f"{row['framework']} {row['version']}" for row in MICRO_KEPT} == {framework["name"] for framework in MICRO}
    assert not [row for row in MICRO_KEPT if row["framework"] == "ours" and microbatches.departs(row)]


def test_known_faults_show_in_the_versions_that_had_them() -> None:
    splits = {"accumulation 2", "accumulation 4", "accumulation 8", "ranks 2"}
    # TRL #2995, #3021: a token mean over each micro-batch in 0.16; none in 0.15, nor of loss_type grpo later
    assert changed("TRL 0.16.1", "GRPO") == splits
    assert not changed("TRL 0.15.2", "GRPO") | changed("TRL 1.16.0", "GRPO")
    assert splits < changed("TRL 1.16.0", "BNPO")
    # TRL pull request 6024: tokens of the generation in place of the update's
    assert kept("TRL 1.7.0", "DAPO")[GENERATION] < 0.6 < 0.9 < kept("TRL 1.16.0", "DAPO")[GENERATION]
    assert not changed("TRL 1.16.0", "DAPO") & splits
    # verl #5625: samples in place of tokens; #7913: GMPO is multiplied by the number of micro-batches
    assert changed("verl 0.7.1", "GRPO, token-mean") == splits
    assert not changed("verl 0.9.1", "GRPO, token-mean")
    assert [kept("verl 0.9.1", "GMPO")[f"accumulation {k}"] for k in (1, 2, 4, 8)] == [1, 2, 4, 8]


def test_a_factor_and_a_turn_are_told_apart() -> None:
    whole = np.array([3.0, 4.0])
    found = {"L|accumulation 1": whole, "L|accumulation 2": 2 * whole, "L|ranks 2": np.array([4.0, 3.0])}
    rows = list(microbatches.lines("X Y 1", found))
    assert [(row["factor"], row["cosine"]) for row in rows] == [
        ("1.000000", "1.000000"), ("2.000000", "1.000000"), ("1.000000", "0.960000")]  # fmt: skip
    assert [microbatches.departs(row) for row in rows] == [False, True, True]
    assert {row["framework"] for row in rows} == {"X Y"}
    assert "| X Y 1 | L | 2.000 (1.000) |" in microbatches.table(rows)[2]
    with pytest.raises(BenchError, match="norm is 0"):
        list(microbatches.lines("X 1", {"L|accumulation 1": 0 * whole}))


@pytest.mark.slow
def test_what_a_runner_says_last_is_the_error(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("raise SystemExit('no such trainer')", encoding="utf-8")
    with pytest.raises(BenchError, match="Broken 1: no such trainer"):
        microbatches.gradients({"name": "Broken 1", "runner": str(tmp_path / "broken")}, None, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("runner", TWO)
def test_the_installed_trainers_are_as_kept(runner: str, tmp_path: Path) -> None:
    framework = next(f for f in MICRO if f["runner"] == runner and f.get("installed"))
    again = microbatches.lines(framework["name"], microbatches.gradients(framework, None, tmp_path, TWO[runner]))
    figures: dict[str, dict[str, float]] = {}
    for row in again:
        figures.setdefault(row["loss"], {})[row["setting"]] = float(row["factor"])
    assert set(figures) == set(TWO[runner])
    for loss, by_setting in figures.items():
        assert by_setting == pytest.approx(kept(framework["name"], loss), abs=2e-6), loss
