"""Each row finds its runs, each cell is compared with the right one, corrected once per column; the table of all runs;
the A/A arm below the table."""

import random
import shutil
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import BenchError
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals.scores import read_scores
from evals.stats import compare
from evals.stats.compare import holm
from evals.stats.estimate import Comparison
from evals.tree import Tree
from paper.printed import read
from report import rows as declared
from report import show, view
from report import tables as filling
from tests.paper.claim_trees import tree as claim_tree
from tests.report import synthetic
from tests.report import tables as helper
from tests.report.tables import behind, cell, cells, filled, rows

TABLES = "1234"
MODEL = "tiny_qwen2"
SLOTS = {"q7": MODEL, "q14": "tiny_qwen3", "l8": "tiny_llama", "m7": "tiny_mistral", "dq7": "tiny_qwen2_distilled"}


# Which checkpoints are behind a row.


def test_every_row_of_the_four_tables_is_measured(embedded: Tree, paper: Tree) -> None:
    for key, tree in product(TABLES, (embedded, paper)):
        table = filled(tree, key)
        assert {c.state for c in cells(table)} == {"measured"}, (tree.scale, key)
        assert not [note for note in table["notes"] if note.startswith(("Missing", "Rows of", "No benchmark"))]


def test_printed_rows_of_one_run_are_one_checkpoint_here_of_the_stand_in_of_its_model(embedded: Tree) -> None:
    """Where the paper prints one run in several rows, so do we, and other rows have other checkpoints."""
    found = {id: checkpoints for key in TABLES for id, checkpoints in behind(filled(embedded, key)).items()}
    runs: dict[object, set[frozenset[Checkpoint]]] = {}
    for id, printed in read().items():
        assert {c.run.model for c in found[id]} == {SLOTS[printed.model]}
        if printed.run is not None and not id.startswith("T4."):
            runs.setdefault(printed.run, set()).add(frozenset(found[id]))
    assert all(len(checkpoints) == 1 for checkpoints in runs.values())
    assert len({next(iter(checkpoints)) for checkpoints in runs.values()}) == len(runs)


def test_a_name_of_the_configuration_wins_and_a_changed_method_never_has_the_papers_label(
    embedded: Tree, paper: Tree
) -> None:
    """`entropy_adv` is the printed coefficient there, and also the key of the original's."""
    assert {c.run.method for c in behind(filled(paper, "1"))["T1.5"]} == {"entropy_adv+alpha=0.0004"}
    found = rows(filled(embedded, "1"))
    assert (found["T1.3"].name, found["T1.8"].name) == ("w. CLIP-Cov (fraction 0.01)", "TEPO")


SEEDS = (4, 0, 19)  # numbers in any order, 0 among them: none means anything


def test_rows_find_seeds_and_bases_whatever_their_numbers(tmp_path: Path) -> None:
    own = Tree(synthetic.write_tree(tmp_path / "quick", seeds=SEEDS, base_seeds=SEEDS))
    for found in (*cells(filled(own, "1")), *cells(filled(own, "runs"))):
        if (found.kind, found.model, found.state) == ("base", MODEL, view.MEASURED) and found.benchmark:
            scores = {seed: own.scores[Checkpoint.base(MODEL, seed), found.benchmark].value for seed in sorted(SEEDS)}
            assert found.by_seed == scores, found.column
            assert (found.level, found.n, found.seeds) == ("seed", 3, tuple(sorted(SEEDS)))
    first, second, _ = sorted(SEEDS)
    expected = {"T4.1": (first,), "T4.2": (second,), "T4.5": (first,), "T4.7": (first, second)}
    assert {row: cell(filled(own, "4"), row, "avg_pooled").seeds for row in expected} == expected


def test_a_partly_finished_matrix_gives_every_table_and_lists_what_is_missing(embedded: Tree, tmp_path: Path) -> None:
    """A benchmark without any score is named, a mean waits for all of its rows, a missing baseline compares nothing."""
    step = embedded.matrix["table_step"]

    def without(words: str, key: str) -> dict[str, Any]:
        folder = Path(shutil.copytree(embedded.root, tmp_path / str(len(list(tmp_path.iterdir())))))
        kept = [line for line in (folder / "scores.csv").read_text().splitlines(keepends=True) if words not in line]
        (folder / "scores.csv").write_text("".join(kept))
        return filled(Tree(folder), key)

    table = without(",tepo,", "2")
    assert all(make(table) for make in view.RENDERINGS.values())
    assert f"Missing: tiny_llama/tepo/seed1/step{step} has no scores." in table["notes"]
    table = without(",syn_add2,", "2")
    assert {row.cells["amc"]["state"] for row in rows(table).values()} == {"missing"}
    assert f"Missing: tiny_llama/tepo/seed1/step{step} has no score of syn_add2." in table["notes"]
    table = without(f",tepo,2,{step},", "4")
    assert [cell(table, f"T4.{n}", "amc").state for n in (5, 6, 9)] == ["measured", "missing", "missing"]
    table = without(",grpo,", "1")
    assert cell(table, "T1.8", "amc").versus is None
    assert {cell(table, row, "amc").state for row in ("T1.2", "T1.9", "T1.18")} == {"missing"}


# The numbers.


def test_one_seed_prints_the_score_and_several_their_mean(scored: Tree, scored_twice: Tree) -> None:
    one, several = (cell(filled(tree, "1"), "T1.8", "avg_macro") for tree in (scored, scored_twice))
    table = read_scores(scored_twice.layout.scores).query("method == 'tepo' and benchmark == 'avg_macro'")
    first, expected = table.iloc[0], compare.over_seeds(dict(zip(table.seed, table.score, strict=True)))
    assert [one.value, one.low, one.high] == [first.score, first.low, first.high]
    assert [several.value, several.low, several.high] == [expected.value, expected.low, expected.high]
    assert [one.level, several.level, several.n, several.seeds] == ["problem", "seed", 2, (1, 2)]
    both = "/".join(f"{100 * value:.0f}" for value in several.by_seed.values())
    assert both in show.text(filled(scored_twice, "1")), "two seeds are two numbers in the terminal too"
    base = cell(filled(scored_twice, "1"), "T1.1", "avg_macro")
    assert (base.level, base.seeds) == ("problem", ()), "the base model has no training seed"


def assert_compared(found: SimpleNamespace, expected: Comparison) -> None:
    assert found.versus == expected.difference
    for name in ("low", "high", "p", "level", "how", "n"):
        assert getattr(found, f"versus_{name}") == getattr(expected, name), name


COMPARED = {  # row -> method and step of the row and of its baseline; None: the table's step, long: the later
    "T1.3": (("clip_cov+fraction=0.01", None), ("grpo", None)),
    "T1.8": (("tepo", None), ("grpo", None)),
    "T1.9": (("tepo", None), ("grpo", None)),
    "T3.5": (("tepo_kl_all", None), ("tepo_nokl", None)),
    "T4.8": (("grpo", "long"), ("grpo", None)),
    "T4.9": (("tepo", None), ("grpo", None)),
}


@pytest.mark.parametrize("row", COMPARED)
def test_seeds_are_compared_one_by_one_with_the_baseline_of_the_block(embedded: Tree, row: str) -> None:
    scores = read_scores(embedded.layout.scores).query(f"model == '{MODEL}'").set_index(["method", "step", "benchmark"])
    for column in ("amc", "avg_macro"):
        found = cell(filled(embedded, row[1]), row, column)
        of = [scores.loc[(method, embedded.step(step), found.benchmark)] for method, step in COMPARED[row]]
        a, b = (dict(zip(side.seed, side.score, strict=True)) for side in of)
        a = {seed: a[seed] for seed in found.seeds}  # some rows of Table 4 are about two of the seeds
        assert len(a) >= 2
        assert_compared(found, compare.compare_seeds(a, b, clusters=embedded.clean_models(MODEL)))
        assert row != "T1.9" or found.value == found.versus, "a difference is its own comparison"


def test_one_common_seed_is_compared_by_problem_from_the_grades(scored: Tree) -> None:
    gspo, grpo = (Checkpoint(Run(MODEL, method, 1), 12) for method in ("gspo", "grpo"))
    expected = compare.paired(scored, gspo, grpo)
    for column, benchmark in {"aime24": "syn_mix3", "avg_pooled": "avg_pooled"}.items():
        found = cell(filled(scored, "1"), "T1.7", column)
        assert_compared(found, expected[benchmark])
        assert found.versus_level == "problem"
    assert cell(filled(scored, "1"), "T1.7", "aime24").mark == "(↑?)", "two checkpoints, not two methods"
    gain, tepo = (cell(filled(scored, "1"), row, "aime24") for row in ("T1.9", "T1.8"))
    assert (gain.value, gain.low, gain.high) == (tepo.versus, tepo.versus_low, tepo.versus_high)


def test_p_is_corrected_over_each_column_and_over_the_table() -> None:
    table = filled(Tree(ROOT / "results/reference/embedded"), "1")
    own = [row for row in rows(table).values() if row.kind == "run" and row.cells["amc"]["baseline"] is not None]
    tested = [cell for row in own for cell in row.cells.values()]
    assert len(tested) == 13 * 9
    assert [found["versus_p_table"] for found in tested] == holm([found["versus_p"] for found in tested])
    for slot in (column["slot"] for column in table["columns"]):  # and over each column, a test once
        expected = holm([row.cells[slot]["versus_p"] for row in own])
        assert [row.cells[slot]["versus_p_holm"] for row in own] == expected
    repeated = {(c.row, c.column): c.versus_p_holm for c in cells(table)}
    assert repeated["T1.9", "amc"] == repeated["T1.8", "amc"]


# What the paper prints, and collapses.


def test_the_printed_value_stands_in_the_papers_rows_and_is_comparable_only_there(embedded: Tree, paper: Tree) -> None:
    for row, column, expected in (
        ("T3.2", "amc", "0.0000"),
        ("T3.22", "math500", "0.7740"),  # digits are kept
        ("T3.22", "avg_pooled", "0.3259"),
        ("T3.22", "avg_macro", "None"),  # the paper does not print it
        ("X3.k1", "amc", "None"),  # not the paper's row
        ("T2.6", "aime24", "None"),  # printed as -
        ("T1.9", "amc", "0.0568"),  # as printed, whatever it should be
    ):
        assert str(cell(filled(embedded, row[1]), row, column).printed) == expected, (row, column)
    for key in TABLES:
        assert not any(c.comparable for c in cells(filled(embedded, key))), key
        for found in cells(filled(paper, key)):
            if found.printed is not None:
                mistral = found.row in ("T2.4", "T2.5", "T2.6")
                assert found.comparable == (not mistral or found.column != "avg_pooled"), found.row


def test_a_collapsed_run_is_marked_and_named_with_seed_and_rollout(embedded: Tree) -> None:
    table, rollouts = filled(embedded, "3"), embedded.matrix["training"]["rollouts"]
    collapsed = {id: (row.label, row.collapsed) for id, row in rows(table).items() if row.collapsed}
    assert collapsed == {"T3.2": ("w. β = 1 †", (f"seed2:6/{rollouts}",))}
    at = f"seed 2 collapsed at rollout 6 of {rollouts}"
    assert f"† w. β = 1 (tiny Qwen2): {at}; scored is what was left of the policy." in table["notes"]


# The table of all runs.

MINE = "gspo_token"  # stands for a user's own method: of the catalog, and in no table of the paper
METHODS = {
    "grpo": ("GRPO/DAPO", 0.62),
    MINE: ("My method", 0.70),
    "tepo+beta=1": ("TEPO, beta 1", 0.72),
    "tepo_nokl@cool": ("TEPO without KL, learning rate 5e-5", 0.74),
}


def test_an_own_method_and_model_have_numbers_and_a_paired_difference(tmp_path: Path) -> None:
    """In a user's tree: a model that stands for nothing, one method in other settings, another baseline."""

    def change(matrix: dict[str, Any]) -> None:
        matrix["variants"] = {"cool": {"title": "learning rate 5e-5", "changes": {"training.learning_rate": 5e-5}}}
        matrix["baseline"] = MINE

    model = {"key": "my_model", "title": "My model", "stands_for": None}
    root = synthetic.write_tree(tmp_path / "mine", seeds=(1, 2), methods=METHODS, model=model, change=change)
    table = filled(Tree(root), "runs")
    names = [row["name"] for row in table["blocks"][0]["rows"]]
    assert names == ["My model (base)", "My method", "GRPO/DAPO", "TEPO, beta 1"]
    own, other = (cell(table, f"my_model/{method}/step12", "avg_pooled") for method in (MINE, "grpo"))
    assert (own.state, own.seeds, own.versus, other.baseline) == ("measured", (1, 2), None, own.row)
    expected = compare.compare_seeds(other.by_seed, own.by_seed)
    assert_compared(other, expected)
    area = cell(table, own.row, "area")
    assert area.value == pytest.approx(sum(area.by_seed.values()) / 2)
    assert table["blocks"][1]["head"] == "Learning rate 5e-5, after 12 rollouts: My model"
    assert any("no run of the baseline" in note for note in table["notes"])


# A tree's own methods, and what its rows are after.

OWN = {"dr_grpo": ("Dr. GRPO", 0.80), "rloo": ("RLOO", 0.50)}


def test_methods_of_no_table_stand_below_table_1_and_move_no_number_in_it(tmp_path: Path) -> None:
    def made(name: str, methods: synthetic.Methods) -> Tree:
        return Tree(synthetic.write_tree(tmp_path / name, seeds=(1, 2, 3), scale="quick", methods=methods))

    tree, without = made("a", synthetic.METHODS | OWN), made("b", synthetic.METHODS)
    found = helper.filling(tree, "1")
    assert [c for c in found if c["kind"] != view.ALSO] == helper.filling(without, "1")
    table = filled(tree, "1")
    for slot in (column["slot"] for column in table["columns"]):
        own = [cell(table, f"{MODEL}/{key}", slot) for key in OWN]
        baseline = cell(table, "T1.2", slot)
        for one, p in zip(own, holm([c.versus_p for c in own]), strict=True):
            assert_compared(one, compare.compare_seeds(one.by_seed, baseline.by_seed))
            assert (one.versus_p_holm, one.versus_tests, one.versus_p_table) == (p, 2, None)
    assert table["blocks"][1]["head"] == "Also trained here: tiny Qwen2, standing for Qwen2.5-7B"
    for text in (show.text(table), *(make(table) for make in view.RENDERINGS.values())):
        assert text.index("Dr. GRPO") > text.index("TEPO")
    assert OWN.keys().isdisjoint(c["method"] for c in helper.filling(tree, "3"))


def test_a_table_shows_after_how_many_of_how_many_rollouts_it_is(embedded: Tree, scored: Tree) -> None:
    for key, after in (("1", "after 7"), ("4", "after 7 and 12"), ("runs", "After 7")):
        words = f"{after} of 12 rollouts"
        table = filled(embedded, key)
        assert all(words in text for text in (show.text(table), view.markdown(table), view.latex(table))), key
    assert "of 12 rollouts" not in show.text(filled(scored, "1")), "the last rollout"


def test_rows_with_equal_scores_have_a_note_with_the_reason() -> None:
    notes = filling.shown(Tree(ROOT / "results/reference/smollm"), "1")["notes"]
    (note,) = (note for note in notes if "equal scores" in note)
    assert note.startswith("TEPO and TEPO without KL (Table 3) have equal scores: with equal seeds, they drew equal")
    assert "a KL term (beta 0.001) is 0 at a rollout's first update" in note


# A method under two names.

VARIANTS = {
    "again": {"title": "again", "changes": {"stream": 1}},
    "coin": {"title": "placebo, coin", "changes": {"reward": "coin"}},
}


def invented(folder: Path, again: float | None) -> Tree:
    """again: how far the second stream's scores lie above the first's; None: it is not planned."""
    draw = random.Random(1)
    runs: dict[tuple[str, str], Any] = {
        ("q7", method): [{"score": 0.5 + draw.gauss(0, 0.01)} for _ in range(5)]
        for method in ("grpo", "tepo", "clip_cov", "gspo")
    }
    if again is not None:
        runs["q7", "grpo@again"] = [{"score": r["score"] + again + draw.gauss(0, 0.01)} for r in runs["q7", "grpo"]]
    runs["q7", "grpo@coin"] = [{"score": 0.2} for _ in range(5)]
    return claim_tree(folder, runs, variants=VARIANTS)


@pytest.mark.parametrize(
    ("again", "line"),
    [
        (0.0, "A/A arm (GRPO under two names, q7, 5 seeds): 0 of 9 cells marked; 0 before Holm's correction."),
        (0.3, "A/A arm (GRPO under two names, q7, 5 seeds): 9 of 9 cells marked; 9 before Holm's correction."),
        (None, "A/A arm: not run."),  # and a placebo is not such an arm
    ],
)
def test_a_line_counts_the_marks_of_the_arm(tmp_path: Path, again: float | None, line: str) -> None:
    table = filled(invented(tmp_path / "t", again), "1")
    assert table["again"][-1] == line
    for suffix, make in view.RENDERINGS.items():
        assert line in make(table).replace("$'$", "'"), suffix
    assert not [id for id in rows(table) if id.startswith("A/A")], "it is not a row of the table"


def test_the_arm_is_compared_as_two_methods_and_corrected_as_one_more_row_that_changes_no_other(tmp_path: Path) -> None:
    found = invented(tmp_path / "a", 0.01)
    with_arm, own = (helper.filling(tree, "1") for tree in (found, invented(tmp_path / "b", None)))
    assert [c for c in with_arm if c["kind"] != "again"] == own
    arm = [SimpleNamespace(**c) for c in with_arm if c["kind"] == "again"]
    again, once = (
        {c.run.seed: found.scores[c, "amc"].value for c in found.checkpoints if (c.run.method, c.step) == (method, 8)}
        for method in ("grpo@again", "grpo")
    )
    (amc,) = (c for c in arm if c.column == "amc")
    assert_compared(amc, compare.compare_seeds(again, once, clusters=found.clean_models("q7")))  # type: ignore[arg-type]
    for shown in arm:
        # The rows of TEPO, CLIP-Cov and GSPO, and the arm; the difference row is its minuend's test.
        of_column = [c for c in own if c["column"] == shown.column and c["kind"] == "run" and c["baseline"]]
        expected = holm([*(c["versus_p"] for c in of_column), shown.versus_p])[-1]
        assert (shown.versus_p_holm, shown.versus_tests) == (expected, 4)


# Declarations: what would show a wrong number is refused by name before anything is trained.

TABLE = """
models: {q7: Qwen2.5-7B, q14: Qwen3-14B}
columns: {aime24: AIME24, avg_pooled: Avg. (pooled)}
tables:
  mine:
    columns: [aime24, avg_pooled]
    blocks:
      - model: q7
        rows:
          - {id: a, label: one, method: grpo}
          - {id: b, label: two, method: tepo}
          - {id: c, label: gain, delta: [b, a]}
      - model: q7
        baseline: a
        rows:
          - {id: d, label: first, method: gspo, seeds: [1]}
          - {id: e, label: second, method: gspo, seeds: [2]}
          - {id: f, label: both, mean: [d, e]}
"""
GAIN = "{id: c, label: gain, delta: [b, a]}"
BROKEN = {  # case -> what is replaced, by what, words of the error
    "unknown column": ("[aime24,", "[aime42,", "tables.mine: columns", "nearest: aime24"),
    "unknown model": ("q7\n        baseline: a", "q8", "tables.mine: model", "'q8'", "nearest: q7"),
    "unknown method": ("method: tepo", "method: tepoo", "row b: method", "nearest: tepo"),
    "row id twice": (GAIN, "{id: a, label: x, method: gpg}", "row id a", "twice"),
    "delta of a row that is not there": ("[b, a]", "[b, x]", "row c: delta", "'x'"),
    "mean of two methods": ("second, method: gspo", "second, method: gpg", "row f: mean", "nothing else"),
    "mean of equal seeds": ("seeds: [2]", "seeds: [2, 1]", "row f: mean", "must differ in `seeds`"),
    "unknown step": ("seeds: [2]", "seeds: [2], step: lang", "blocks.1.rows.1.step", "'lang'", "nearest: long"),
    "a baseline of another model": ("- model: q7\n        rows", "- model: q14\n        rows", "baseline", "'a'"),
    # Rows with the id of a printed one, which must be that run.
    "another method": (GAIN, "{id: T1.7, label: x, method: gpg}", "T1.7: another run than the paper's"),
    "other rows": (GAIN, "{id: T1.9, label: x, delta: [b, a]}", "T1.9: another run"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_table_is_refused_with_the_place_in_the_error(tmp_path: Path, case: str) -> None:
    old, new, *words = BROKEN[case]
    assert old in TABLE
    path = tmp_path / "tables.yaml"
    path.write_text(TABLE.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(BenchError) as error:
        declared.check(declared.tables(path)["mine"])
    assert all(word in str(error.value) for word in ("tables.yaml: tables.mine", *words)), error.value
    assert "\n" not in str(error.value)


BASELINES = {"T1.8": "T1.2", "T1.17": "T1.11", "T2.6": "T2.5", "T3.3": "T3.1", "T3.15": "T3.13", "T4.9": "T4.7"}


def test_every_printed_row_is_declared_once_in_its_place_and_held_against_the_papers_baseline() -> None:
    paper, tables = read(), declared.tables()
    for key in "1234":
        ids = [row.id for row in tables[key].rows if row.id.startswith(f"T{key}.")]
        assert ids == [row.id for row in paper.values() if row.id.startswith(f"T{key}.")]
    blocks = [block for key in "1234" for block in tables[key].blocks]
    baselines = {row.id: block.baseline for block in blocks for row in block.rows}
    assert {row: baselines[row] for row in BASELINES} == BASELINES
    for block in tables["3"].blocks:
        letter = block.title[6] if block.title and block.title.startswith("Panel ") else ""
        assert {paper[row.id].panel for row in block.rows if row.id in paper} <= {letter}


def test_grades_that_contradict_the_scores_are_an_error(scored_copy: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Comparison(difference=0.9, p=0.5, level="problem", how="paired", n=20)
    keys = [b["key"] for b in scored_copy.benchmarks]
    with monkeypatch.context() as patch:
        patch.setattr(compare, "paired", lambda *_: dict.fromkeys([*keys, "avg_pooled", "avg_macro"], wrong))
        with pytest.raises(BenchError, match=r"scores\.csv: syn_mix3: .*score again"):
            filled(Tree(scored_copy.root), "1")


def test_a_learning_curve_next_to_two_checkpoints_of_its_run_is_one_test(tmp_path: Path) -> None:
    draw = random.Random(1)
    runs = {
        ("q7", method): [{"score": mean + draw.gauss(0, 0.01), "reward": mean + draw.gauss(0, 0.01)} for _ in range(5)]
        for method, mean in (("grpo", 0.3), ("tepo", 0.7))
    }
    table = filled(claim_tree(tmp_path / "t", runs), "runs")
    for column, tests in (("avg_pooled", 2), ("area", 1), ("final", 1)):
        found = [cell(table, f"q7/tepo/step{step}", column) for step in (8, 15)]
        assert [c.versus_tests for c in found] == [tests, tests], column
