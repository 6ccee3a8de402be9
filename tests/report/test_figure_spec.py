"""A figure that cannot be right is refused before anything is drawn; the error says where, and what instead."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import BenchError, ConfigError
from report.figures import spec
from report.tables.check import canonical

FIGURE = """
quantities:
  reward: {title: Reward, columns: [reward], aggregate: first, label: share}
  norm: {title: Norm, columns: [grad_norm], aggregate: mean, label: norm, log: true}
lines:
  grpo: {style: 0}
  tepo: {style: 1, methods: [tepo, tepo+beta=1], label: TEPO}
  gpg: {}
figures:
  mine:
    title: Mine
    about: {lines: [tepo], variants: [hot], models: [l8]}
    blocks:
      - model: q7
        lines: [grpo, tepo]
        across: 2
        panels: [{quantity: reward}, {id: hot, quantity: reward, variant: hot, title: Hot}]
      - each: {model: [q7, l8]}
        lines: [grpo, tepo]
        across: 2
        panels: [{quantity: norm}]
  figure9:
    title: Nine
    blocks:
      - {model: q7, each: {line: [tepo, gpg]}, lines: [grpo], across: 3, panels: [{quantity: norm}]}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "figures.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_blocks_become_panels_and_each_repeats_them(tmp_path: Path) -> None:
    figure = spec.figure("mine", write(tmp_path, FIGURE))
    ids = ["reward", "hot", "norm.q7", "norm.l8"]
    assert [panel.id for block in figure.blocks for panel in block.panels] == ids
    plain, repeated = figure.blocks
    assert [(p.title, p.variant, p.model) for p in plain.panels] == [("Reward", None, "q7"), ("Hot", "hot", "q7")]
    assert [(p.title, p.column, p.model) for p in repeated.panels] == [(None, "q7", "q7"), (None, "l8", "l8")]
    assert (plain.repeated, repeated.repeated) == (False, True)
    assert figure.about == spec.About(lines=("tepo",), variants=("hot",), models=("l8",))


def test_each_over_lines_puts_one_over_the_blocks_own(tmp_path: Path) -> None:
    (block,) = spec.figure("9", write(tmp_path, FIGURE)).blocks
    assert [[line.name for line in panel.lines] for panel in block.panels] == [["grpo", "tepo"], ["grpo", "gpg"]]
    assert [panel.alone and panel.alone.name for panel in block.panels] == ["tepo", "gpg"]
    assert [panel.quantity.log for panel in block.panels] == [True, True]


BROKEN = {
    "unknown aggregate": ("aggregate: mean", "aggregate: median", "'median'", "allowed: first, mean, sum"),
    "unknown quantity": ("[{quantity: reward}", "[{quantity: rewart}", "'rewart'", "nearest: reward"),
    "unknown line": ("lines: [grpo, tepo]", "lines: [grpo, tpo]", "'tpo'", "nearest: tepo"),
    "unknown line in each": ("line: [tepo, gpg]", "line: [tepo, gpgg]", "'gpgg'", "nearest: gpg"),
    "unknown model": ("model: q7", "model: q8", "'q8'", "nearest: q7"),
    "unknown model in each": ("model: [q7, l8]", "model: [q7, l9]", "'l9'", "nearest: l8"),
    "unknown key of a block": ("across: 2", "accross: 2", "accross", "nearest: across"),
    "unknown key of a panel": ("id: hot,", "di: hot,", "panels.1.di: unknown key", "nearest: id"),
    "a name of its own": ("gpg: {}", "gpg: {name: tepo}", "lines.gpg.name: unknown key"),
    "unknown style": ("style: 1", "style: 99", "lines.tepo.style", "'99'"),
    "two lines that look alike": ("style: 1", "style: 0", "grpo has no style, or the style of another line here"),
    "a line without style among others": ("{style: 1, methods", "{methods", "tepo has no style"),
    "panel twice": ("id: hot, quantity", "id: reward, quantity", "panel reward is given twice"),
    "no model": ("- model: q7\n        lines", "- lines", "needs one model"),
    "a model and models": ("each: {model: [q7, l8]}", "each: {model: [q7, l8]}\n        model: q7", "needs one model"),
    "both kinds of each": ("{model: [q7, l8]}", "{model: [q7, l8], line: [gpg]}", "needs one model"),
    "unknown line that it is about": ("about: {lines: [tepo]", "about: {lines: [tepu]", "'tepu'", "nearest: tepo"),
    "unknown kind of about": ("about: {lines", "about: {line", "about.line: unknown key", "nearest: lines"),
}


def test_a_broken_figure_is_refused_with_the_place_in_the_error(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for case in BROKEN:
        with subtests.test(case):
            old, new, *words = BROKEN[case]
            assert old in FIGURE
            path = write(tmp_path, FIGURE.replace(old, new, 1))
            with pytest.raises(BenchError) as error:
                spec.figures(path)
            assert str(path) in str(error.value)
            assert "\n" not in str(error.value)
            for word in words:
                assert word in str(error.value)


def test_an_unknown_figure_is_named() -> None:
    with pytest.raises(ConfigError, match=r"figures: unknown value 'figur2'.*nearest: figure2"):
        spec.figure("figur2")


def test_figures_are_found_by_key_and_by_number() -> None:
    for name in ("2", "figure2", "3", "figure3", "entropy"):
        assert spec.figure(name).key in {f"figure{name}", name}


def test_the_papers_figures_have_its_two_methods_and_its_panels() -> None:
    for key, panels in {"figure2": ["2a", "2b"], "figure3": ["3a", "3b"]}.items():
        (block,) = spec.figure(key).blocks
        assert [panel.id for panel in block.panels] == panels
        assert [line.name for line in block.panels[0].lines][:2] == ["grpo", "tepo"]
        assert len(block.panels[0].lines) <= 5  # more cannot be told apart


def test_every_line_is_a_catalog_method() -> None:
    lines = [line for figure in spec.figures() for panel in figure.panels for line in panel.lines]
    for method in {method for line in lines for method in (*line.with_model(""), *line.of_model.values())}:
        canonical(method, "figures.yaml", "lines")
