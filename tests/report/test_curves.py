"""Curves: what is drawn is what was logged, by rollout; a broken curve stops the figure."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from pathlib import Path

import pytest

from records.errors import BenchError
from report import curves, draw, figure_spec
from report.results import Tree


def logged(tree: Tree, method: str, seed: int = 1) -> dict[int, list[dict[str, str]]]:
    rollouts: dict[int, list[dict[str, str]]] = defaultdict(list)
    path = tree.root / f"runs/tiny_qwen2/{method}/seed{seed}/curve.csv"
    for row in csv.DictReader(path.open(newline="")):
        rollouts[int(row["rollout"])].append(row)
    return rollouts


def by_hand(rows: list[dict[str, str]], panel: str) -> float:
    """The drawn value of a panel, written out again without the code under test."""
    numbers = {c: [float(r[c]) for r in rows if r[c]] for c in rows[0]}
    return {
        "2a": 100 * sum(numbers["clip_fraction_tokens"]) / 8,
        "2b": sum(numbers["seconds_update"]) + numbers["seconds_rollout"][0],
        "3a": 100 * numbers["reward"][0],
        "3b": sum(numbers["grad_norm"]) / 8,
        "entropy": sum(numbers["entropy"]) / 8,
        "length": numbers["response_tokens"][0],
        "spread": sum(numbers["ratio_spread"]) / 8,
        "kl": sum(numbers["kl_old"]) / 8,
    }[panel]


@pytest.mark.parametrize("key", figure_spec.figure_keys())
def test_every_point_is_the_logged_value(key: str, one_seed: Tree) -> None:
    drawing = curves.draw_data(figure_spec.figure(key), one_seed)
    assert {line.method for line in drawing.lines} == {"grpo", "gspo", "tepo_nokl", "tepo"}
    for line in drawing.lines:
        rollouts = logged(one_seed, line.method)
        assert [point.rollout for point in line.points] == list(rollouts)
        for point in line.points:
            assert point.value == pytest.approx(by_hand(rollouts[point.rollout], line.panel.id), rel=1e-12)
            assert (point.low, point.high, point.seeds) == (None, None, 1)


def test_two_seeds_give_the_mean_and_a_band_from_smallest_to_largest(two_seeds: Tree) -> None:
    drawing = curves.draw_data(figure_spec.figure("3"), two_seeds)
    line = next(x for x in drawing.lines if (x.method, x.panel.id) == ("tepo", "3a"))
    for point in line.points:
        values = [by_hand(logged(two_seeds, "tepo", seed)[point.rollout], "3a") for seed in (1, 2)]
        assert point.value == pytest.approx(sum(values) / 2)
        assert (point.low, point.high) == (pytest.approx(min(values)), pytest.approx(max(values)))


@pytest.mark.parametrize("key", figure_spec.figure_keys())
def test_the_csv_holds_exactly_what_is_drawn(key: str, two_seeds: Tree) -> None:
    drawing = curves.draw_data(figure_spec.figure(key), two_seeds)
    written = list(csv.DictReader((two_seeds.layout.figures / f"{key}.csv").open(newline="")))
    drawn = [
        (line.panel.id, line.method, str(p.rollout), repr(p.value), repr(p.low), repr(p.high))
        for line in drawing.lines
        for p in line.points
    ]
    assert [tuple(row[c] for c in ("panel", "method", "rollout", "value", "low", "high")) for row in written] == drawn


def curve_with(tree: Tree, change: object) -> Path:
    path = tree.root / "runs/tiny_qwen2/tepo/seed1/curve.csv"
    lines = list(csv.reader(path.open(newline="")))
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(change(lines))  # type: ignore[operator]
    path.write_text(out.getvalue())
    return path


def without_column(name: str) -> object:
    return lambda lines: [[v for v, head in zip(line, lines[0], strict=True) if head != name] for line in lines]


def with_value(row: int, name: str, value: str) -> object:
    def change(lines: list[list[str]]) -> list[list[str]]:
        lines[row][lines[0].index(name)] = value
        return lines

    return change


BROKEN = {
    "a rollout is missing": (
        lambda lines: lines[:1] + [[*line] for line in renumbered(line for line in lines[1:] if line[0] != "3")],
        "rollout 3 is missing",
    ),
    "an update is missing": (lambda lines: lines[:5] + lines[6:], "update 4 is missing: line 6 has update 5"),
    "a column is missing": (without_column("grad_norm"), "'grad_norm'"),
    "a value is not a number": (with_value(4, "grad_norm", "oops"), "update 3: grad_norm is 'oops'"),
    "a value is not finite": (with_value(4, "grad_norm", "nan"), "update 3: grad_norm is 'nan'"),
    "a line is cut off": (lambda lines: [*lines[:-1], lines[-1][:5]], "line 97: 5 fields"),
    "there are no rows": (lambda lines: lines[:1], "holds no rows"),
}


def renumbered(lines: object) -> list[list[str]]:
    return [[line[0], str(n), *line[2:]] for n, line in enumerate(lines)]  # type: ignore[call-overload]


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_curve_is_an_error_naming_file_and_place(case: str, copy: Tree) -> None:
    change, words = BROKEN[case]
    path = curve_with(copy, change)
    with pytest.raises(BenchError) as error:
        curves.draw_data(figure_spec.figure("3"), copy)
    assert str(error.value).startswith(str(path))
    assert words in str(error.value)


def test_a_value_that_is_not_defined_is_a_gap_and_not_a_zero(copy: Tree) -> None:
    def empty(lines: list[list[str]]) -> list[list[str]]:
        column = lines[0].index("ratio_spread")
        return [lines[0]] + [[*line[:column], "", *line[column + 1 :]] for line in lines[1:]]

    curve_with(copy, empty)
    drawing = curves.draw_data(figure_spec.figure("entropy"), copy)
    line = next(x for x in drawing.lines if (x.method, x.panel.id) == ("tepo", "spread"))
    assert {point.value for point in line.points} == {None}


def test_a_run_without_a_curve_is_noted_and_the_others_are_drawn(copy: Tree) -> None:
    (copy.root / "runs/tiny_qwen2/tepo/seed1/curve.csv").unlink()
    drawing = curves.draw_data(figure_spec.figure("2"), copy)
    assert drawing.notes == ("Not drawn, not run yet: tiny_qwen2/tepo/seed1.",)
    assert len({line.method for line in drawing.lines}) == 3


def test_no_curve_at_all_is_an_error(copy: Tree) -> None:
    for path in copy.root.glob("runs/*/*/*/curve.csv"):
        path.unlink()
    with pytest.raises(BenchError, match="no learning curve of tiny_qwen2 for figure2"):
        curves.draw_data(figure_spec.figure("2"), copy)


def test_drawing_twice_gives_the_same_bytes_without_a_date(one_seed: Tree) -> None:
    drawing = curves.draw_data(figure_spec.figure("2"), one_seed)
    first, second = draw.render(drawing), draw.render(drawing)
    assert first == second
    assert first["svg"] == (one_seed.layout.figures / "figure2.svg").read_bytes()
    assert b"<dc:date>" not in first["svg"]
    assert first["png"].startswith(b"\x89PNG")


def test_lines_differ_in_colour_and_in_dash_or_width() -> None:
    assert len({colour for colour, _, _ in draw.STYLES}) == len(draw.STYLES)
    assert len({(dashes, width) for _, dashes, width in draw.STYLES}) == len(draw.STYLES)


def test_a_method_keeps_its_style_when_others_are_not_run(copy: Tree, one_seed: Tree) -> None:
    (copy.root / "runs/tiny_qwen2/grpo/seed1/curve.csv").unlink()
    places = [
        {line.method: line.place for line in curves.draw_data(figure_spec.figure("2"), tree).lines}
        for tree in (one_seed, copy)
    ]
    assert places[1]["tepo"] == places[0]["tepo"]


@pytest.mark.parametrize(("tree", "words"), [("one_seed", "(1 seed)"), ("two_seeds", "(2 seeds)")])
def test_the_legend_says_how_many_seeds(tree: str, words: str, request: pytest.FixtureRequest) -> None:
    root = request.getfixturevalue(tree).layout.figures
    svg = (root / "figure2.svg").read_text()
    assert svg.count(words) == 4
    assert ("band: smallest to largest seed" in svg) == (tree == "two_seeds")
