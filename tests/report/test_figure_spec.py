"""A figure that cannot be right is refused before anything is drawn; the error says where, and what instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from records.errors import ConfigError
from report import figure_spec, spec


@pytest.mark.parametrize("name", ["2", "figure2", "3", "figure3", "entropy"])
def test_figures_are_found_by_key_and_by_number(name: str) -> None:
    assert figure_spec.figure(name).key in {f"figure{name}", name}


def test_every_line_of_the_figures_is_a_catalog_method() -> None:
    for name in figure_spec.figure("2").lines:
        spec.check_method(name, "report", "method")


def test_an_unknown_aggregate_is_refused(tmp_path: Path) -> None:
    text = figure_spec.FIGURES.read_text(encoding="utf-8").replace("aggregate: mean", "aggregate: median", 1)
    (tmp_path / "figures.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="aggregate: unknown value 'median'; allowed: first, mean, sum"):
        figure_spec.figure("2", tmp_path / "figures.yaml")
