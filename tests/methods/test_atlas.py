"""The loss atlas: the kept file is that of the installed frameworks, and a planted difference is named."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from core.files import read_csv, read_yaml
from studies.atlas import __main__ as atlas
from studies.atlas import explain
from studies.atlas.batches import batches

DECLARED = read_yaml(atlas.DECLARED)
KEPT = read_csv(atlas.KEPT, "the atlas", atlas.COLUMNS)
INSTALLED = [framework for framework in DECLARED["frameworks"] if framework.get("installed")]


def test_the_kept_file_has_every_framework() -> None:
    assert {row["framework"] for row in KEPT if row["verdict"] != "read"} == {f["name"] for f in DECLARED["frameworks"]}


def test_every_difference_is_explained() -> None:
    """By ingredients, or in words where no composition of ours gives it."""
    for row in KEPT:
        if row["verdict"] == "differs" and row["differs"] == "no composition of ours":
            assert row["note"], (row["name"], row["framework"])


def test_what_moved_is_said() -> None:
    cell = {"name": "GRPO", "framework": "X 1", "verdict": "same", "differs": "", "defaults": "beta 0.0"}
    assert atlas.moved([cell], [cell]) == []
    assert atlas.moved([cell], [{**cell, "verdict": "differs", "differs": "kl: k3"}]) == [
        "moved: GRPO of X 1: same -> differs kl: k3"
    ]
    assert atlas.moved([cell], [{**cell, "defaults": "beta 0.04"}]) == [
        "defaults of GRPO of X 1: beta 0.0 -> beta 0.04"
    ]
    assert atlas.moved([], [cell]) == ["new: GRPO of X 1: same"]
    assert atlas.moved([cell], []) == ["gone: GRPO of X 1"]


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
