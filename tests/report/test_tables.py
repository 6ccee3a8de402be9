"""Each row finds its runs, each cell is compared with the right one, corrected once per column; the table of all runs;
the A/A arm below the table."""

import json
import random
import shutil
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import CorruptInputError
from core.layout import BASE, Checkpoint, Run
from core.provenance import ROOT
from evals import score
from evals.scores import read_scores
from evals.stats import compare
from evals.stats.compare import holm
from evals.stats.estimate import Comparison
from evals.tree import Tree
from paper.printed import read
from report import markdown, runs, show, view
from report import rows as declared
from report import tables as filling
from tests.paper.claim_trees import tree as claim_tree
from tests.report import synthetic
from tests.report.synthetic import replanned
from tests.report.tables import cell, cells, filled, frame, rows

TABLES = "1234"
SLOTS = {
    "q7": "tiny_qwen2", "q14": "tiny_qwen3", "l8": "tiny_llama", "m7": "tiny_mistral", "dq7": "tiny_qwen2_distilled",
}  # fmt: skip


# Which checkpoints are behind a row.


def test_every_row_of_the_four_tables_is_measured(embedded: Tree, paper: Tree, subtests: pytest.Subtests) -> None:
    for key, tree in product(TABLES, (embedded, paper)):
        with subtests.test(f"{tree.scale} {key}"):
            table = filled(tree, key)
            assert {c.state for c in cells(table)} == {"measured"}
            assert not [note for note in table["notes"] if note.startswith(("Missing", "Rows of", "Column"))]


def test_printed_rows_of_one_run_are_one_checkpoint_here_of_the_stand_in_of_its_model(
    embedded: Tree, paper: Tree
) -> None:
    """Where the paper prints one run in several rows, so do we, and other rows have other checkpoints."""
    found = {id: row for key in TABLES for id, row in rows(filled(embedded, key)).items()}
    runs: dict[object, set[frozenset[Checkpoint]]] = {}
    for id, printed in read().items():
        whole = found[id].checkpoints
        assert {found[id].model, *(c.run.model for c in whole)} == {SLOTS[printed.model]}
        if printed.run is not None and printed.table != "4":
            runs.setdefault(printed.run, set()).add(frozenset(whole))
    assert all(len(checkpoints) == 1 for checkpoints in runs.values())
    assert len({next(iter(checkpoints)) for checkpoints in runs.values()}) == len(runs)
    # At the paper's scale a row of one seed is the printed seed; Table 4 trains a second one of GRPO and TEPO.
    for id, row in (row for key in "34" for row in rows(filled(paper, key)).items()):
        printed_run = read()[id].run if id in read() else None
        if printed_run is not None and not (row.method in ("grpo", "tepo") and id.startswith("T3")):
            assert ({c.run.seed for c in row.checkpoints}, row.step) == ({printed_run.seed}, printed_run.steps)


def test_table_4_looks_at_one_run_twice_where_the_scale_does(embedded: Tree, scored: Tree) -> None:
    found = rows(filled(embedded, "4"))
    early, late = embedded.matrix["table_step"], embedded.matrix["long_step"]
    assert early < late
    assert found["T4.1"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), early)]
    assert found["T4.3"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), late)]
    assert found["T4.7"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", seed), early) for seed in (1, 2)]
    assert found["T4.8"].label == f"GRPO/DAPO ({late} steps, mean)"
    once = rows(filled(scored, "4"))
    assert {once[id].cells["amc"]["state"] for id in ("T4.2", "T4.3", "T4.8")} == {"not run"}
    assert once["T4.1"].cells["amc"]["state"] == "measured"
    assert once["T4.3"].label == "GRPO/DAPO (more steps, seed1)"


def test_rows_beyond_the_paper_are_left_out_quietly_where_they_are_not_run(
    embedded: Tree, readings: Tree, paper: Tree
) -> None:
    beyond = {}
    for tree in (embedded, readings, paper):
        table = filled(tree, "3")
        assert table["blocks"][-1]["title"] == "Beyond the paper: other readings of what it leaves open"
        beyond[tree.scale] = {row["id"] for row in table["blocks"][-1]["rows"]}
        assert not any("Beyond" in note or "X3" in note for note in table["notes"])
    clamped = {f"X3.clamp{n}" for n in range(1, 6)}
    assert beyond["embedded"] == {"X3.k1"}
    assert beyond["readings"] == {*clamped, "X3.k1", "X3.abs", "X3.ref", "X3.printed"}
    assert beyond["paper"] == {*clamped, "X3.original"}


def test_a_name_of_the_configuration_wins_over_another_methods_key(paper: Tree, tmp_path: Path) -> None:
    """`entropy_adv` is the printed coefficient there, and also the key of the original's; with settings of a scale
    `tepo` lies under another, canonical key."""
    assert paper.method_for("entropy_adv_original") == "entropy_adv"
    behind = rows(filled(paper, "1"))["T1.5"].checkpoints
    assert {c.run.method for c in behind} == {"entropy_adv+alpha=0.0004"}

    def by_settings(matrix: dict[str, Any]) -> None:
        matrix["methods"][-1]["row"] = "tepo"

    methods = {"grpo": ("GRPO/DAPO", 0.6), "tepo+beta=1": ("TEPO, beta 1", 0.7)}
    table = filled(Tree(synthetic.write_tree(tmp_path / "quick", methods=methods, change=by_settings)), "1")
    assert rows(table)["T1.8"].checkpoints[0].run.method == "tepo+beta=1"
    assert "TEPO (beta 1) is run as tepo+beta=1 at this scale." in table["notes"]


def test_a_changed_method_never_has_the_papers_label(embedded: Tree) -> None:
    found = rows(filled(embedded, "1"))
    assert (found["T1.3"].name, found["T1.8"].name) == ("w. CLIP-Cov (fraction 0.01)", "TEPO")


MODEL = str(synthetic.MODEL["key"])
SEEDS = (4, 0, 19)  # numbers in any order, 0 among them: none means anything


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("bases") / "quick"
    return Tree(synthetic.write_tree(folder, seeds=SEEDS, base_seeds=SEEDS))


@pytest.mark.parametrize("key", ["1", declared.RUNS])
def test_a_base_row_is_a_mean_over_its_seeds_with_an_interval(own: Tree, key: str) -> None:
    for found in cells(filled(own, key)):
        if (found.kind, found.model, found.state) == ("base", MODEL, view.MEASURED) and found.benchmark:
            scores = {seed: own.scores[Checkpoint.base(MODEL, seed), found.benchmark].value for seed in sorted(SEEDS)}
            assert found.by_seed == scores, found.column
            assert found.value == pytest.approx(fmean(scores.values()), abs=1e-12)
            assert (found.level, found.n, found.seeds) == ("seed", 3, tuple(sorted(SEEDS)))
            assert None not in (found.low, found.high)


def test_a_row_of_one_seed_is_the_trees_first_or_second_whatever_its_number(own: Tree) -> None:
    found = {c.row: c.seeds for c in cells(filled(own, "4")) if c.column == "avg_pooled"}
    first, second, _ = sorted(SEEDS)
    assert [found[row] for row in ("T4.1", "T4.2", "T4.5", "T4.7")] == [(first,), (second,), (first,), (first, second)]


def test_a_run_goes_to_the_base_of_its_seed(own: Tree, scored: Tree) -> None:
    for seed in SEEDS:
        of_grpo = Checkpoint(Run(MODEL, "grpo", seed), 12)
        assert runs.counterpart(of_grpo, own) == own.base(MODEL, seed) == Checkpoint.base(MODEL, seed)
        assert runs.title(Checkpoint.base(MODEL, seed), own) == f"base model, seed {seed}"
    of_grpo = Checkpoint(Run(MODEL, "grpo", 1), 12)  # one base for all seeds: a hub model, a tree of an older version
    assert runs.counterpart(of_grpo, scored) == scored.base(MODEL, 1) == Checkpoint.base(MODEL)
    assert runs.title(Checkpoint.base(MODEL), scored) == "base model"
    assert own.base(MODEL, 99) is None
    assert runs.counterpart(Checkpoint(Run(MODEL, BASE, SEEDS[0]), 0), own) is None


def partly(tree: Tree, folder: Path, wanted: Callable[[str], bool]) -> Tree:
    """The tree with the scores of some checkpoints only."""
    shutil.copytree(tree.root, folder)
    head, *lines = tree.layout.scores.read_text().splitlines(keepends=True)
    kept = [line for line in lines if wanted(line)]
    assert 0 < len(kept) < len(lines)
    (folder / "scores.csv").write_text(head + "".join(kept))
    return Tree(folder)


def test_a_partly_finished_matrix_gives_every_table_and_lists_what_is_missing(embedded: Tree, tmp_path: Path) -> None:
    first = f",1,{embedded.matrix['table_step']},"
    some = partly(embedded, tmp_path / "embedded", lambda line: line.startswith("tiny_qwen2,") and first in line)
    missing: set[str] = set()
    for key in declared.tables():
        table = filled(some, key)
        for name, rendered in markdown.RENDERINGS.items():
            assert rendered(table), name
        shown = show.text(table)
        assert table["heading"] in shown
        for block in declared.table(key).blocks:  # one of whose rows this scale plans none is left out
            assert (block.title or "") in shown or all(row.when == "run" for row in block.rows), key
        missing |= {note for note in table["notes"] if note.startswith("Missing")}
    scored = {checkpoint for checkpoint, _ in some.scores}
    wanted = {c for key in declared.tables() for row in rows(filled(embedded, key)).values() for c in row.checkpoints}
    assert len(wanted - scored) > 50
    assert missing == {f"Missing: {c.path.as_posix()} has no scores." for c in wanted - scored}


def test_a_benchmark_without_any_score_is_named_and_a_mean_waits_for_all_of_its_rows(
    embedded: Tree, tmp_path: Path
) -> None:
    step = embedded.matrix["table_step"]
    table = filled(partly(embedded, tmp_path / "a", lambda line: ",syn_add2," not in line), "2")
    assert {row.cells["amc"]["state"] for row in rows(table).values()} == {"missing"}
    assert f"Missing: tiny_llama/tepo/seed1/step{step} has no score of syn_add2." in table["notes"]
    table = filled(partly(embedded, tmp_path / "b", lambda line: f",tepo,2,{step}," not in line), "4")
    state = {id: row.cells["amc"]["state"] for id, row in rows(table).items()}
    assert (state["T4.5"], state["T4.6"], state["T4.9"]) == ("measured", "missing", "missing")
    table = filled(partly(embedded, tmp_path / "c", lambda line: ",grpo," not in line), "1")
    assert cell(table, "T1.8", "amc").versus is None, "a baseline without scores compares nothing"
    assert {cell(table, row, "amc").state for row in ("T1.2", "T1.9", "T1.18")} == {"missing"}


# The numbers.


def test_one_seed_prints_the_score_and_several_their_mean(scored: Tree, scored_twice: Tree) -> None:
    scores = read_scores(scored.layout.scores).set_index(["method", "benchmark"])
    for row, method in {"T1.1": "base", "T1.2": "grpo", "T1.7": "gspo", "T1.8": "tepo", "T3.1": "tepo_nokl"}.items():
        for slot, benchmark in {"aime24": "syn_mix3", "minerva": "syn_seq1", "avg_pooled": "avg_pooled"}.items():
            found = cell(filled(scored, "1"), row, slot)
            assert found.value == scores.loc[(method, benchmark), "score"]
            assert (found.low, found.high) == tuple(scores.loc[(method, benchmark), ["low", "high"]])
            assert found.level == "problem"
    twice = read_scores(scored_twice.layout.scores)
    chosen = twice[(twice.method == "tepo") & (twice.benchmark == "avg_macro")]
    expected = compare.over_seeds(dict(zip(chosen.seed, chosen.score, strict=True)))
    found = cell(filled(scored_twice, "1"), "T1.8", "avg_macro")
    assert found.value == pytest.approx(chosen.score.mean(), abs=1e-15)
    assert (found.low, found.high) == (expected.low, expected.high)
    assert (found.level, found.n, found.seeds) == ("seed", 2, (1, 2))
    base = cell(filled(scored_twice, "1"), "T1.1", "avg_macro")
    assert (base.level, base.seeds) == ("problem", ()), "the base model has no training seed"
    assert [run.path.as_posix() for run in base.runs] == ["tiny_qwen2/base/seed0/step0"]


def test_grades_that_contradict_the_scores_are_an_error_and_without_them_there_is_no_interval(
    scored_copy: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Comparison(difference=0.9, p=0.5, level="problem", how="paired", n=20)
    keys = [b["key"] for b in scored_copy.benchmarks]
    with monkeypatch.context() as patch:
        patch.setattr(score, "paired_of_tree", lambda *_: dict.fromkeys([*keys, "avg_pooled", "avg_macro"], wrong))
        with pytest.raises(CorruptInputError, match=r"scores\.csv: syn_mix3: .*score again"):
            filled(Tree(scored_copy.root), "1")
    shutil.rmtree(scored_copy.root / "grades")
    found = cell(filled(scored_copy, "1"), "T1.9", "aime24")
    assert (found.low, found.high) == (None, None)
    assert "no grades" in found.how
    assert "[no interval]" in markdown.markdown(filled(scored_copy, "1"))


@cache
def by_seed(tree: Tree, method: str, step: int | None, benchmark: str | None) -> dict[int, float]:
    """The scores of tiny Qwen2, from scores.csv."""
    table = read_scores(tree.layout.scores).query("model == 'tiny_qwen2' and method == @method and step == @step")
    chosen = table[table.benchmark == benchmark]
    return dict(zip(chosen.seed, chosen.score, strict=True))


def assert_compared(found: SimpleNamespace, expected: Comparison) -> None:
    assert found.versus == expected.difference
    for name in ("low", "high", "p", "level", "how", "n"):
        assert getattr(found, f"versus_{name}") == getattr(expected, name), name


COMPARED = {  # row, table -> method and step of the row and of its baseline; None: the table's step, long: the later
    ("T1.3", "1"): (("clip_cov+fraction=0.01", None), ("grpo", None)),
    ("T1.8", "1"): (("tepo", None), ("grpo", None)),
    ("T1.9", "1"): (("tepo", None), ("grpo", None)),
    ("T3.5", "3"): (("tepo_kl_all", None), ("tepo_nokl", None)),
    ("T3.10", "3"): (("clip_cov+fraction=0.01", None), ("tepo_nokl", None)),
    ("T3.16", "3"): (("prefix_is", None), ("grpo", None)),
    ("T4.8", "4"): (("grpo", "long"), ("grpo", None)),
    ("T4.9", "4"): (("tepo", None), ("grpo", None)),
}


def test_seeds_are_compared_one_by_one_with_the_baseline_of_the_block(
    embedded: Tree, subtests: pytest.Subtests
) -> None:
    for ((row, key), sides), column in product(COMPARED.items(), ("amc", "avg_macro")):
        with subtests.test(f"{row} {column}"):
            found = cell(filled(embedded, key), row, column)
            a, b = (by_seed(embedded, method, embedded.step(which), found.benchmark) for method, which in sides)
            a = {seed: a[seed] for seed in found.seeds}  # some rows of Table 4 are about two of the seeds
            assert len(a) >= 2
            assert_compared(found, compare.compare_seeds(a, b, clusters=embedded.clean_models("tiny_qwen2")))
            assert found.versus_level == "seed"
            assert row != "T1.9" or found.value == found.versus, "a difference is its own comparison"


def test_one_common_seed_is_compared_by_problem_from_the_grades(scored: Tree) -> None:
    gspo, grpo = (Checkpoint(Run("tiny_qwen2", method, 1), 12) for method in ("gspo", "grpo"))
    expected = score.paired(scored.layout, gspo, grpo, [b["key"] for b in scored.benchmarks])
    for column, benchmark in {"aime24": "syn_mix3", "avg_pooled": "avg_pooled"}.items():
        found = cell(filled(scored, "1"), "T1.7", column)
        assert_compared(found, expected[benchmark])
        assert found.versus_level == "problem"
    assert cell(filled(scored, "1"), "T1.7", "aime24").mark == "(↑?)", "two checkpoints, not two methods"
    gain, tepo = (cell(filled(scored, "1"), row, "aime24") for row in ("T1.9", "T1.8"))
    assert (gain.value, gain.low, gain.high) == (tepo.versus, tepo.versus_low, tepo.versus_high)


def test_base_models_baselines_and_their_own_runs_are_not_compared(embedded: Tree) -> None:
    for row in ("T1.1", "T1.2", "T3.1", "T3.13", "T3.19", "T4.1", "T4.7"):
        found = cell(filled(embedded, row[1]), row, "amc")
        assert found.value is not None
        assert (found.versus, found.inside_noise, found.mark) == (None, None, ""), row


def test_p_is_corrected_once_per_column_over_distinct_comparisons(embedded: Tree) -> None:
    for table in (filled(embedded, key) for key in TABLES):
        for slot in (column["slot"] for column in table["columns"]):
            family: dict[object, list[SimpleNamespace]] = {}
            for row in rows(table).values():
                found = cell(table, row.id, slot)
                if found.baseline is not None:
                    own = cell(table, row.declared.delta[0], slot) if row.declared.delta else found
                    family.setdefault((own.runs, cell(table, found.baseline, slot).runs), []).append(found)
            expected = holm([of_test[0].versus_p for of_test in family.values()])
            number = sum(p is not None for p in expected)
            for of_test, p in zip(family.values(), expected, strict=True):
                assert {(found.versus_p_holm, found.versus_tests) for found in of_test} == {(p, number)}


def test_p_is_corrected_over_all_columns_too_and_a_line_counts_what_holds(scored_twice: Tree) -> None:
    table = filled(Tree(ROOT / "results/reference/embedded"), "1")
    own = [row for row in rows(table).values() if row.kind == "run" and row.cells["amc"]["baseline"] is not None]
    tested = [cell for row in own for cell in row.cells.values()]
    assert len(tested) == 13 * 9
    assert [found["versus_p_table"] for found in tested] == holm([found["versus_p"] for found in tested])
    gain, tepo = (cell(table, row, "avg_macro").versus_p_table for row in ("T1.9", "T1.8"))
    assert gain == tepo
    certain = [found for found in cells(table) if found.inside_noise is False]
    marked = [found for found in certain if found.versus_low > 0 or found.versus_high < 0]
    held = [found for found in marked if found.versus_p_table < 0.05]
    line = table["errors"][0]
    assert f"{len(held)} of {len(marked)} marks ↑ ↓ also hold corrected over all 117 comparisons" in line
    assert "at most 45 % of such tables" in line
    assert line in markdown.markdown(table)
    # In the table of all runs the column of differences is the average's test.
    table = filled(scored_twice, "runs")
    tests = {c.column: c.versus_tests for c in cells(table) if c.versus_p is not None and c.column != "delta"}
    assert f"over all {sum(tests.values())} comparisons" in table["errors"][0]
    p = {c.column: c.versus_p_table for c in cells(table) if c.row == "tiny_qwen2/tepo/step12"}
    assert p["delta"] == p["avg_pooled"] is not None


def test_rows_without_a_common_seed_have_no_difference_and_are_not_called_missing(scored_twice: Tree) -> None:
    sides = []
    for row, seed in (("T1.8", 1), ("T1.2", 2)):
        whole = vars(cell(filled(scored_twice, "1"), row, "amc"))
        sides.append(whole | {"runs": tuple(run for run in whole["runs"] if run.run.seed == seed)})
    assert filling._difference(*sides, "T1.2", scored_twice) == {"state": view.NOT_COMPARED}


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
        table = filled(embedded, row[1])
        assert str(cell(table, row, column).printed) == expected, (row, column)
    for key in TABLES:
        assert not any(c.comparable for c in cells(filled(embedded, key))), key
        for found in cells(filled(paper, key)):
            if found.printed is not None and found.state == "measured":
                mistral = found.row in ("T2.4", "T2.5", "T2.6")
                assert found.comparable == (not mistral or found.column != "avg_pooled"), found.row
    fewer = filled(replanned(paper, benchmarks=paper.matrix["benchmarks"][:-1]), "1")
    assert cell(fewer, "T1.8", "amc").comparable
    assert not cell(fewer, "T1.8", "avg_pooled").comparable, "an average over other benchmarks"


def test_a_collapsed_run_is_marked_and_named_with_seed_and_rollout(embedded: Tree, tmp_path: Path) -> None:
    table, rollouts = filled(embedded, "3"), embedded.matrix["training"]["rollouts"]
    collapsed = {id: row for id, row in rows(table).items() if row.collapsed}
    assert {id: row.collapsed for id, row in collapsed.items()} == {"T3.2": (f"seed2:6/{rollouts}",)}
    assert collapsed["T3.2"].label == "w. β = 1 †"
    at = f"seed 2 collapsed at rollout 6 of {rollouts}"
    assert f"† w. β = 1 (tiny Qwen2): {at}; scored is what was left of the policy." in table["notes"]
    shutil.copytree(embedded.root, tmp_path / "embedded")  # a collapse after the first checkpoint
    path = tmp_path / "embedded/runs/tiny_qwen2/grpo/seed1/run.json"
    early, late = embedded.matrix["table_step"], embedded.matrix["long_step"]
    path.write_text(json.dumps(json.loads(path.read_text()) | {"collapsed_at": late}))
    at = f"(tiny Qwen2): seed 1 collapsed at rollout {late} of {rollouts}"
    assert [note for note in filled(Tree(tmp_path / "embedded"), "4")["notes"] if "collapsed" in note] == [
        f"† GRPO/DAPO ({early} steps, seed1) {at}; scored is rollout {early}.",
        f"† GRPO/DAPO ({late} steps, seed1) {at}; scored is what was left of the policy.",
        f"† GRPO/DAPO ({early} steps, mean) {at}; scored is rollout {early}.",
        f"† GRPO/DAPO ({late} steps, mean) {at}; scored is what was left of the policy.",
    ]


# The table of all runs.

MINE = "gspo_token"  # stands for a user's own method: of the catalog, and in no table of the paper
METHODS = {
    "grpo": ("GRPO/DAPO", 0.62),
    MINE: ("My method", 0.70),
    "tepo+beta=1": ("TEPO, beta 1", 0.72),
    "tepo_nokl@cool": ("TEPO without KL, learning rate 5e-5", 0.74),
}


def of_a_user(matrix: dict[str, Any]) -> None:
    """A method in other settings, and another baseline."""
    matrix["variants"] = {"cool": {"title": "learning rate 5e-5", "changes": {"training.learning_rate": 5e-5}}}
    matrix["baseline"] = MINE


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """A user's tree: a model that stands for nothing, a method of no paper, one in other settings, another baseline."""
    root = tmp_path_factory.mktemp("mine") / "mine"
    model = {"key": "my_model", "title": "My model", "stands_for": None}
    return Tree(synthetic.write_tree(root, seeds=(1, 2), scale="mine", methods=METHODS, model=model, change=of_a_user))


def test_every_checkpoint_of_the_plan_stands_in_it(mine: Tree, embedded: Tree) -> None:
    for tree in (mine, embedded):
        table = declared.of_runs(tree)
        planned = [
            (checkpoint.run, checkpoint.step)
            for block in table.blocks
            for row in block.rows
            if row.method != BASE
            for checkpoint in view.planned(row, block.model, tree)
        ]
        assert len(planned) == len(set(planned))
        assert set(planned) == {(c.run, c.step) for c in tree.evaluated if c.run.method != BASE}
        assert len({row.id for row in table.rows}) == len(table.rows)


def test_an_own_method_and_model_have_numbers_and_a_paired_difference(mine: Tree, scored: Tree, tmp_path: Path) -> None:
    table = filled(mine, "runs")
    names = [row["name"] for row in table["blocks"][0]["rows"]]
    assert names == ["My model (base)", "My method", "GRPO/DAPO", "TEPO, beta 1"]
    own, other = (cell(table, f"my_model/{method}/step12", "avg_pooled") for method in (MINE, "grpo"))
    assert (own.state, own.seeds, own.versus) == ("measured", (1, 2), None)
    assert other.baseline == own.row
    expected = compare.compare_seeds(other.by_seed, own.by_seed)
    assert (other.versus, other.versus_low, other.versus_p) == (expected.difference, expected.low, expected.p)
    delta = cell(table, other.row, "delta")
    assert (delta.value, delta.low, delta.high) == (expected.difference, expected.low, expected.high)
    assert delta.mark == other.mark
    area = cell(table, own.row, "area")
    assert area.value == pytest.approx(sum(area.by_seed.values()) / 2)
    assert table["blocks"][1]["head"] == "Learning rate 5e-5, after 12 rollouts: My model"
    assert any("no run of the baseline" in note for note in table["notes"])
    assert "standing for" not in markdown.markdown(table)
    best = cell(filled(scored, "runs"), "tiny_qwen2/tepo/step12", "best")
    assert (best.value, best.text) == (None, "–"), "of one seed there is no probability"
    shutil.copytree(mine.root, tmp_path / "mine")  # a run without a record is missing and not left out
    for path in (tmp_path / f"mine/runs/my_model/{MINE}").glob("seed*/run.json"):
        path.unlink()
    table = filled(Tree(tmp_path / "mine"), "runs")
    assert {cell(table, f"my_model/{MINE}/step12", key).state for key in ("final", "area")} == {"missing"}


def test_a_learning_curve_next_to_two_checkpoints_of_its_run_is_one_test(tmp_path: Path) -> None:
    draw = random.Random(1)
    runs = {
        ("q7", method): [{"score": mean + draw.gauss(0, 0.01), "reward": mean + draw.gauss(0, 0.01)} for _ in range(5)]
        for method, mean in (("grpo", 0.3), ("tepo", 0.7))
    }
    table = filled(claim_tree(tmp_path / "t", runs), "runs")
    early, late = (f"q7/tepo/step{step}" for step in (8, 15))
    for column, tests in (("avg_pooled", 2), ("area", 1), ("final", 1)):
        found = [cell(table, row, column) for row in (early, late)]
        assert [c.versus_tests for c in found] == [tests, tests], column
        assert tests == 2 or found[0].versus_p_holm == found[0].versus_p
    assert all(cell(table, row, "area").best for row in (early, late)), "the best run is not its own competitor"


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
    assert table["errors"][-1] == line
    shown = {suffix: make(table) for suffix, make in markdown.RENDERINGS.items()}
    for suffix, text in shown.items():
        assert line in text.replace("$'$", "'"), suffix
    last = shown[".csv"].splitlines()[-1]
    assert last.startswith("A/A,") and (last.count("not run") == 10) == (again is None)  # noqa: PT018
    assert not [id for id in rows(table) if id.startswith("A/A")], "it is not a row of the table"


def test_the_arm_is_compared_as_two_methods_and_corrected_as_one_more_row_that_changes_no_other(tmp_path: Path) -> None:
    found = invented(tmp_path / "a", 0.01)
    with_arm, without = (frame(tree, "1").to_dict("records") for tree in (found, invented(tmp_path / "b", None)))
    own = [c for c in with_arm if c["kind"] != "again"]
    assert own == without
    arm = [SimpleNamespace(**c) for c in with_arm if c["kind"] == "again"]
    assert len(arm) == 9
    again, once = (
        {c.run.seed: found.scores[c, "amc"].value for c in found.checkpoints if (c.run.method, c.step) == (method, 8)}
        for method in ("grpo@again", "grpo")
    )
    (amc,) = (c for c in arm if c.column == "amc")
    assert_compared(amc, compare.compare_seeds(again, once, clusters=found.clean_models("q7")))
    for shown in arm:
        # The rows of TEPO, CLIP-Cov and GSPO, and the arm; the difference row is its minuend's test.
        of_column = [c for c in own if c["column"] == shown.column and c["kind"] == "run" and c["baseline"]]
        assert len(of_column) == 3
        expected = holm([*(c["versus_p"] for c in of_column), shown.versus_p])[-1]
        assert (shown.versus_p_holm, shown.versus_tests) == (expected, 4)
        assert shown.inside_noise is (expected is not None and expected >= markdown.ALPHA)


def test_an_arm_that_is_a_row_of_the_table_is_not_a_second_test(tmp_path: Path) -> None:
    """What stands below such a table is what stands in it."""
    path, found = tmp_path / "tables.yaml", invented(tmp_path / "t", 0.01)
    listed = [{"id": f"C.{method}", "label": method, "method": method} for method in ("grpo", "grpo@again", "tepo")]
    block = {"model": "q7", "baseline": "C.grpo", "rows": listed}
    path.write_text(json.dumps({"tables": {"c": {"columns": ["amc", "avg_pooled", "area"], "blocks": [block]}}}))
    table = filling.fill(declared.declaration(found, "c", path), found).set_index(["row", "column"])
    for column in ("amc", "avg_pooled", "area"):
        arm, row = table.loc["A/A q7 grpo@again", column], table.loc["C.grpo@again", column]
        assert arm.versus_p is not None or column == "area"
        assert (arm.versus_p_holm, arm.versus_tests) == (row.versus_p_holm, row.versus_tests)
