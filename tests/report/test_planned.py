"""Tables of everything that a configuration plans, the paper's four and that of all runs: each row finds its run."""

import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from core.errors import BenchError, ConfigError, CorruptInputError, MissingInputError
from core.layout import BASE, Checkpoint, Run
from core.provenance import ROOT
from core.results_tree import Tree
from evals.stats import compare
from paper.printed import read
from report import build, manifest, show
from report.site import links
from report.site import paper as claims
from report.site import tables as site
from report.tables import check, render, spec, tidy
from tests.report import synthetic
from tests.report.conftest import write_files
from tests.report.finished import rehash
from tests.report.tables import cell
from tests.report.tables import filled as fill

SLOTS = {
    "q7": "tiny_qwen2",
    "q14": "tiny_qwen3",
    "l8": "tiny_llama",
    "m7": "tiny_mistral",
    "dq7": "tiny_qwen2_distilled",
}


def test_every_row_of_the_four_tables_is_measured(embedded: Tree, paper: Tree, subtests: pytest.Subtests) -> None:
    for key, tree in product("1234", (embedded, paper)):
        with subtests.test(f"{tree.scale} {key}"):
            filled = fill(tree, key)
            assert {c.state for c in filled.cells} == {"measured"}
            assert not [note for note in filled.notes if note.startswith(("Missing", "Rows of", "Column"))]


def test_printed_rows_of_one_run_are_one_checkpoint_here_of_the_stand_in_of_its_model(embedded: Tree) -> None:
    """Where the paper prints one run in several rows, so do we, and other rows have other checkpoints."""
    rows = {row.id: row for key in "1234" for row in fill(embedded, key).rows}
    runs: dict[object, set[frozenset[Checkpoint]]] = {}
    for id, printed in read().items():
        whole = rows[id].checkpoints
        assert {rows[id].model, *(c.run.model for c in whole)} == {SLOTS[printed.model]}
        if printed.run is not None and printed.table != "4":
            runs.setdefault(printed.run, set()).add(frozenset(whole))
    assert all(len(found) == 1 for found in runs.values())
    assert len({next(iter(found)) for found in runs.values()}) == len(runs)


def test_table_4_looks_at_one_run_twice(embedded: Tree) -> None:
    rows = {row.id: row for row in fill(embedded, "4").rows}
    early, late = embedded.matrix["table_step"], embedded.matrix["long_step"]
    assert early < late
    assert rows["T4.1"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), early)]
    assert rows["T4.3"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", 1), late)]
    assert rows["T4.7"].checkpoints == [Checkpoint(Run("tiny_qwen2", "grpo", seed), early) for seed in (1, 2)]
    assert rows["T4.8"].label == f"GRPO/DAPO ({late} steps, mean)"


def test_at_paper_scale_single_seed_rows_are_the_printed_seed(paper: Tree) -> None:
    for key in "34":
        for row in fill(paper, key).rows:
            printed = read().get(row.id)
            twice = row.method in ("grpo", "tepo") and key == "3"  # Table 4 trains a second seed of these
            if printed is not None and printed.run is not None and not twice:
                assert row.seeds == [printed.run.seed]
                assert row.step == printed.run.steps


def test_rows_beyond_the_paper_are_left_out_quietly_where_they_are_not_run(
    embedded: Tree, readings: Tree, paper: Tree
) -> None:
    open_ones = "Beyond the paper: other readings of what it leaves open"
    beyond = {}
    for tree in (embedded, readings, paper):
        filled = fill(tree, "3")
        assert filled.blocks[-1][0].block.title == open_ones
        beyond[tree.scale] = {row.id for row in filled.blocks[-1]}
        assert not any("Beyond" in note or "X3" in note for note in filled.notes)
    clamped = {f"X3.clamp{n}" for n in range(1, 6)}
    assert beyond["embedded"] == {"X3.k1"}
    assert beyond["readings"] == {*clamped, "X3.k1", "X3.abs", "X3.ref", "X3.printed"}
    assert beyond["paper"] == {*clamped, "X3.original"}


def test_a_name_of_the_configuration_wins_over_another_methods_key(paper: Tree) -> None:
    """`entropy_adv` is the printed coefficient there, and also the key of the original's."""
    assert paper.method_for("entropy_adv") == "entropy_adv+alpha=0.0004"
    assert paper.method_for("entropy_adv_original") == "entropy_adv"
    (printed,) = [row for row in fill(paper, "1").rows if row.id == "T1.5"]
    assert {c.run.method for c in printed.checkpoints} == {"entropy_adv+alpha=0.0004"}


def partly(tree: Tree, folder: Path, wanted: Callable[[str], bool]) -> Tree:
    """The tree with the scores of some checkpoints only."""
    shutil.copytree(tree.root, folder)
    head, *lines = tree.layout.scores.read_text().splitlines(keepends=True)
    kept = [line for line in lines if wanted(line)]
    assert 0 < len(kept) < len(lines)
    (folder / "scores.csv").write_text(head + "".join(kept))
    rehash(folder)
    return Tree(folder)


def test_a_partly_finished_matrix_gives_every_table_and_lists_what_is_missing(embedded: Tree, tmp_path: Path) -> None:
    first = f",1,{embedded.matrix['table_step']},"
    some = partly(embedded, tmp_path / "embedded", lambda line: line.startswith("tiny_qwen2,") and first in line)
    missing: set[str] = set()
    for key in spec.tables():
        filled = fill(some, key)
        for name, rendered in render.RENDERINGS.items():
            assert rendered(filled), name
        shown = show.text(filled)
        assert filled.declared.heading in shown
        for block in filled.declared.blocks:  # one of whose rows this scale plans none is left out
            assert (block.title or "") in shown or all(row.when == "run" for row in block.rows), key
        missing |= {note for note in filled.notes if note.startswith("Missing")}
    scored = {checkpoint for checkpoint, _ in some.scores}
    wanted = {c for key in spec.tables() for row in fill(embedded, key).rows for c in row.checkpoints}
    assert len(wanted - scored) > 50
    assert missing == {f"Missing: {c.path.as_posix()} has no scores." for c in wanted - scored}


def test_a_benchmark_nobody_was_scored_on_is_named(embedded: Tree, tmp_path: Path) -> None:
    filled = fill(partly(embedded, tmp_path / "embedded", lambda line: ",syn_add2," not in line), "2")
    assert {row.cells["amc"].state for row in filled.rows} == {"missing"}
    step = embedded.matrix["table_step"]
    assert f"Missing: tiny_llama/tepo/seed1/step{step} has no score of syn_add2." in filled.notes


def test_a_mean_waits_for_all_of_its_rows(embedded: Tree, tmp_path: Path) -> None:
    second = f",tepo,2,{embedded.matrix['table_step']},"
    filled = fill(partly(embedded, tmp_path / "embedded", lambda line: second not in line), "4")
    state = {row.id: row.cells["amc"].state for row in filled.rows}
    assert (state["T4.5"], state["T4.6"], state["T4.9"]) == ("measured", "missing", "missing")


def test_a_second_look_that_the_scale_does_not_take_is_not_run(scored: Tree) -> None:
    rows = {row.id: row for row in fill(scored, "4").rows}
    assert {rows[id].cells["amc"].state for id in ("T4.2", "T4.3", "T4.8")} == {"not run"}
    assert rows["T4.1"].cells["amc"].state == "measured"
    assert rows["T4.3"].label == "GRPO/DAPO (more steps, seed1)"


PRINTED = Path(__file__).resolve().parents[3] / "shared/paper/tepo.md"
TABLE = """
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


def test_the_smallest_table_needs_rows_and_columns_only(spec_file: Callable[[str], Path]) -> None:
    table = spec.table("mine", spec_file(TABLE))
    assert list(table.columns.items()) == [("aime24", "AIME24"), ("avg_pooled", "Avg. (pooled)")]
    assert [row.id for row in table.rows] == ["a", "b", "c", "d", "e", "f"]
    assert [row.kind for row in table.rows] == ["run", "run", "delta", "run", "run", "mean"]
    assert table.rows[2].delta == ("b", "a")


SECOND = "second, method: gspo, seeds: [2]"
BROKEN = {
    "unknown column": ("aime24,", "aime42,", "aime42", "nearest: aime2"),
    "column twice": ("[aime24, avg_pooled]", "[aime24, aime24]", "columns", "twice"),
    "unknown model": ("model: q7", "model: q8", "'q8'", "nearest: q7"),
    "unknown method": ("method: tepo", "method: tepoo", "row b", "nearest: tepo"),
    "unknown method option is not the table's": ("method: tepo", "method: tepp+beta=1", "tepp", "tepo"),
    "row id twice": ("id: b, label: two, method", "id: a, label: two, method", "row id a", "twice"),
    "same row under two ids": ("label: two, method: tepo", "label: two, method: grpo", "rows a and b", "grpo"),
    "delta of a row that is not there": ("[b, a]", "[b, x]", "row c", "'x'"),
    "delta of three": ("[b, a]", "[b, a, a]", "row c", "minus"),
    "neither method nor delta": ("label: two, method: tepo", "label: two", "row b", "either"),
    "method and delta": ("delta: [b, a]", "delta: [b, a], method: gpg", "row c", "either"),
    "same method in other words": ("method: tepo}", "method: grpo+high=0.28}", "rows a and b", "the same"),
    "unknown option": ("method: tepo", "method: tepo+bета=1", "row b", "beta"),
    "mean of one": ("mean: [d, e]", "mean: [d]", "row f", "two rows"),
    "mean of a row that is not there": ("mean: [d, e]", "mean: [d, a]", "row f", "'a'"),
    "mean of an untrained model": (SECOND, "second, method: base", "row f", "no trained row"),
    "mean over one seed twice": ("seeds: [2]", "seeds: [1], step: 3", "row f", "more than the seed"),
    "mean of two methods": ("second, method: gspo", "second, method: gpg", "row f", "more than the seed"),
    "mean of rows of all seeds": (SECOND, "second, method: gspo", "row f", "different seeds"),
    "mean of equal seeds": ("seeds: [2]", "seeds: [2, 1]", "row f", "different seeds"),
    "seeds of a mean": ("mean: [d, e]", "mean: [d, e], seeds: [1]", "row f", "seeds belongs to the rows"),
    "seeds are no list": ("seeds: [2]", "seeds: 2", "blocks.1.rows.1.seeds", "must be a list, got 2"),
    "no seed": ("seeds: [2]", "seeds: []", "row e", "one place or more"),
    "a seed twice": ("seeds: [2]", "seeds: [2, 2]", "row e", "each once"),
    "unknown step": ("seeds: [2]", "seeds: [2], step: lang", "blocks.1.rows.1.step", "`long`", "'lang'"),
    "step zero": ("seeds: [2]", "seeds: [2], step: 0", "blocks.1.rows.1.step", "number of rollouts"),
    "unknown baseline": ("baseline: a", "baseline: x", "blocks.1.baseline", "'x'"),
    "a difference as baseline": ("baseline: a", "baseline: c", "blocks.1.baseline", "'c'"),
    "a baseline of another model": ("- model: q7\n        rows", "- model: q14\n        rows", "baseline", "'a'"),
}


def test_a_broken_table_is_refused_with_the_place_in_the_error(
    spec_file: Callable[[str], Path], subtests: pytest.Subtests
) -> None:
    for case in BROKEN:
        with subtests.test(case):
            old, new, *words = BROKEN[case]
            assert old in TABLE
            path = spec_file(TABLE.replace(old, new, 1))
            with pytest.raises(BenchError) as error:
                check.check(spec.table("mine", path))
            assert str(path) in str(error.value)
            assert "\n" not in str(error.value)
            for word in words:
                assert word in str(error.value)


TWINS = {  # rows that claim to be printed ones
    "another method": ("{id: T1.7, label: x, method: gpg}", "T1.7: method 'gpg', but the printed row is 'gspo'"),
    "another option": ("{id: T3.4, label: x, method: tepo_kl_all}", "'tepo_kl_all', but", "'tepo_kl_all+beta=0.01'"),
    "another model": ("{id: T1.17, label: x, method: tepo+beta=1}", "T1.17: model 'q7'", "'q14'"),
    "another variant": ("{id: T1.7, label: x, method: gspo@hot}", "T1.7: method 'gspo@hot'", "'gspo'"),
    "another seed": ("{id: T1.7, label: x, method: gspo, seeds: [1]}", "T1.7: seeds (1,)", "(2,)"),
    "another step": ("{id: T4.4, label: x, method: grpo, seeds: [2]}", "T4.4: step None", "'long'"),
    "another kind": ("{id: T1.1, label: x, method: gpg}", "T1.1: kind 'run'", "'base'"),
    "other rows": ("{id: T1.9, label: x, delta: [b, a]}", "T1.9: made of ('b', 'a')", "('T1.8', 'T1.2')"),
    "no printed row": ("{id: T3.99, label: x, method: gpg}", "'T3.99'", "nearest: T3.9"),
}


def test_a_row_with_a_printed_id_must_be_that_run(spec_file: Callable[[str], Path], subtests: pytest.Subtests) -> None:
    for case in TWINS:
        with subtests.test(case):
            row, *words = TWINS[case]
            path = spec_file(TABLE.replace("{id: c, label: gain, delta: [b, a]}", row))
            with pytest.raises(ConfigError) as error:
                check.check(spec.table("mine", path))
            assert all(word in str(error.value) for word in (str(path), *words)), error.value


def test_the_shipped_tables_name_methods_of_the_catalog_and_printed_rows_as_they_are() -> None:
    for table in spec.tables().values():
        check.check(table)


def test_a_row_with_a_beta_of_its_own_shows_it() -> None:
    rows = [row for table in spec.tables().values() for row in table.rows]
    betas = {row.id: (found[1], row.label) for row in rows if (found := re.search(r"\+beta=([^+]+)", row.method or ""))}
    assert len(betas) > 10
    assert {id: label for id, (beta, label) in betas.items() if beta not in label} == {}


def test_unknown_table_and_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"tables\.yaml: tables: unknown value '11'.*nearest: 1"):
        spec.table("11")
    with pytest.raises(MissingInputError, match="nowhere"):
        spec.table("1", tmp_path / "nowhere.yaml")


def test_every_printed_row_is_declared_once_in_printed_order() -> None:
    for key in "1234":
        declared = [row.id for row in spec.table(key).rows if row.id.startswith(f"T{key}.")]
        assert declared == [row.id for row in read().values() if row.table == key]


def test_panels_hold_the_rows_that_the_paper_puts_there() -> None:
    paper = read()
    for block in spec.table("3").blocks:
        letter = block.title[6] if block.title and block.title.startswith("Panel ") else ""
        assert {paper[row.id].panel for row in block.rows if row.id in paper} <= {letter}


@pytest.mark.skipif(not PRINTED.is_file(), reason=f"the paper's text is not at {PRINTED}")
def test_panel_titles_are_printed_so() -> None:
    text = PRINTED.read_text(encoding="utf-8")
    titles = [block.title for block in spec.table("3").blocks if block.title and block.title.startswith("Panel")]
    assert len(titles) == 5
    assert all(f"<i>{title}</i>" in text for title in titles)


BASELINES = {"T1.8": "T1.2", "T1.17": "T1.11", "T2.6": "T2.5", "T3.3": "T3.1", "T3.15": "T3.13", "T4.9": "T4.7"}


def test_rows_are_held_against_what_the_paper_compares_them_with() -> None:
    baselines = {row.id: block.baseline for key in "1234" for block in spec.table(key).blocks for row in block.rows}
    assert {row: baselines[row] for row in BASELINES} == BASELINES


MODEL = str(synthetic.MODEL["key"])
SEEDS = (4, 0, 19)  # numbers in any order, 0 among them: none means anything


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    folder = tmp_path_factory.mktemp("bases") / "quick"
    return Tree(synthetic.write_tree(folder, seeds=SEEDS, base_seeds=SEEDS))


@pytest.mark.parametrize("key", ["1", spec.RUNS])
def test_a_base_row_is_a_mean_over_its_seeds_with_an_interval(own: Tree, key: str) -> None:
    for found in fill(own, key).cells:
        if (found.kind, found.model, found.state) == ("base", MODEL, tidy.MEASURED) and found.benchmark:
            scores = {seed: own.scores[Checkpoint.base(MODEL, seed), found.benchmark].value for seed in sorted(SEEDS)}
            assert found.seed_values == scores, found.column
            assert found.value == pytest.approx(fmean(scores.values()), abs=1e-12)
            assert (found.level, found.n, found.seeds) == ("seed", 3, tuple(sorted(SEEDS)))
            assert None not in (found.low, found.high)


def test_a_row_of_one_seed_is_the_tree_s_first_or_second_whatever_its_number(own: Tree) -> None:
    rows = {found.row: found for found in fill(own, "4").cells if found.column == "avg_pooled"}
    first, second, _ = sorted(SEEDS)
    assert (rows["T4.1"].seeds, rows["T4.2"].seeds, rows["T4.5"].seeds) == ((first,), (second,), (first,))
    assert rows["T4.7"].seeds == (first, second)


def test_a_run_goes_to_the_base_of_its_seed(own: Tree, scored: Tree) -> None:
    for seed in SEEDS:
        of_grpo = Checkpoint(Run(MODEL, "grpo", seed), 12)
        assert links.counterpart(of_grpo, own) == own.base(MODEL, seed) == Checkpoint.base(MODEL, seed)
        assert links.title(Checkpoint.base(MODEL, seed), own) == f"base model, seed {seed}"
    of_grpo = Checkpoint(Run(MODEL, "grpo", 1), 12)  # one base for all seeds: a hub model, a tree of an older version
    assert links.counterpart(of_grpo, scored) == scored.base(MODEL, 1) == Checkpoint.base(MODEL)
    assert links.title(Checkpoint.base(MODEL), scored) == "base model"
    assert own.base(MODEL, 99) is None
    assert links.counterpart(Checkpoint(Run(MODEL, BASE, SEEDS[0]), 0), own) is None


def test_the_base_of_a_seed_is_held_against_the_runs_of_that_seed(own: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bases of different seeds have different weights, which is no contradiction; of one seed it is."""
    base = Checkpoint.base(MODEL, SEEDS[0])

    def record(run: Run) -> dict[str, object]:
        return {"inputs": {"base": str(run.seed), "base_files": None}}

    monkeypatch.setattr(own, "record", record)
    monkeypatch.setattr(manifest.store, "read_folder", lambda path: drawn)
    monkeypatch.setattr(type(own.layout.root), "is_file", lambda path: True)
    monkeypatch.setattr(manifest, "_check_parquets", lambda path: [])
    drawn = {"weights_sha256": str(SEEDS[0]), "files_sha256": None, "benchmarks": {}}
    assert list(manifest._check_samples(own, base)) == []
    drawn["weights_sha256"] = str(SEEDS[1])
    said = list(manifest._check_samples(own, base))
    assert len(said) == len(synthetic.METHODS)
    assert all(f"seed{SEEDS[0]} was trained from" in line for line in said)


# The table of all runs.

MINE = "gspo_token"  # stands for a method of a user's own: of the catalog, and in no table of the paper
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
        table = tidy.view(declared := spec.of_runs(tree), tree, [])
        assert table.rows == ()
        planned = [
            (checkpoint.run, checkpoint.step)
            for row in declared.rows
            if row.method != BASE
            for checkpoint in tidy.planned(row, next(b.model for b in declared.blocks if row in b.rows), tree)
        ]
        assert len(planned) == len(set(planned))
        assert set(planned) == {(c.run, c.step) for c in tree.evaluated if c.run.method != BASE}
        assert len({row.id for row in declared.rows}) == len(declared.rows)


def test_an_own_method_and_model_have_numbers_and_a_paired_difference(mine: Tree) -> None:
    table = fill(mine, "runs")
    assert [row.label for row in table.blocks[0]] == ["My model (base)", "My method", "GRPO/DAPO", "TEPO, beta 1"]
    own, other = (cell(table, f"my_model/{method}/step12", "avg_pooled") for method in (MINE, "grpo"))
    assert (own.state, own.seeds, own.versus) == ("measured", (1, 2), None)
    assert other.baseline == own.row
    expected = compare.compare_seeds(other.seed_values, own.seed_values)
    assert (other.versus, other.versus_low, other.versus_p) == (expected.difference, expected.low, expected.p)
    delta = cell(table, other.row, "delta")
    assert (delta.value, delta.low, delta.high) == (expected.difference, expected.low, expected.high)
    assert render.mark(delta) == render.mark(other)
    area = cell(table, own.row, "area")
    assert area.value == pytest.approx(sum(area.seed_values.values()) / 2)
    assert {"avg_pooled", "final", "area", "delta", "best", "syn_mix3"} <= {column.slot for column in table.columns}
    assert render.head(table.blocks[1]) == "Learning rate 5e-5, after 12 rollouts: My model"
    assert any("no run of the baseline" in note for note in table.notes)
    assert "standing for" not in render.markdown(table)


def test_chances_and_places_follow_from_the_paired_differences() -> None:
    rng = np.random.default_rng(3)
    for seeds in (2, 3, 8):
        shared = rng.normal(0, 0.1, seeds)
        a, b = (dict(enumerate(0.5 + gain + shared + rng.normal(0, 0.01, seeds))) for gain in (0.01, 0.0))
        comparison = compare.compare_seeds(a, b)
        assert comparison.p is not None
        expected = 1 - comparison.p / 2 if comparison.difference > 0 else comparison.p / 2  # type: ignore[operator]
        chances, how = compare.chances_of_being_best({"a": a, "b": b})
        assert chances["a"] == pytest.approx(expected, abs=0.012)  # 3.4 standard errors of 20,000 draws
        assert sum(chances.values()) == pytest.approx(1)
        assert f"{seeds} seeds in common" in how
    one, two, three = ({1: x, 2: x + 0.1, 3: x + 0.2} for x in (0.1, 0.5, 0.3))
    assert compare.ranks({"a": one, "b": two, "c": three}) == {"a": (3, 3), "b": (1, 1), "c": (2, 2)}, "always apart"
    assert compare.ranks({"a": one, "b": dict(one)}) == {"a": (1, 1), "b": (1, 1)}, "a tie has the better place"
    assert compare.chances_of_being_best({"a": one, "b": dict(one)})[0] == {"a": 0.5, "b": 0.5}
    for fewer in ({"a": one}, {"a": one, "b": {1: 0.4, 4: 0.6}}):  # one method, one seed in common
        assert (compare.chances_of_being_best(fewer)[0], compare.ranks(fewer)) == ({}, {})
    unsure = compare.ranks({"a": {1: 0.5, 2: 0.1}, "b": {1: 0.1, 2: 0.5}})
    assert unsure == {"a": (1, 2), "b": (1, 2)}


def test_one_seed_has_no_probability_and_says_so(scored: Tree) -> None:
    found = cell(fill(scored, "runs"), "tiny_qwen2/tepo/step12", "best")
    assert (found.value, render.number(found)) == (None, "–")


def test_a_tree_of_ones_own_begins_with_all_runs_and_the_papers_with_its_claims(
    mine: Tree, one_seed: Tree, tmp_path: Path
) -> None:
    tree = Tree(shutil.copytree(mine.root, tmp_path / "mine"))
    write_files(tree)
    own, papers = build.build(tree.root), build.build(one_seed.root)
    for text in (own, papers):
        assert '"start":"overview"' in text
    assert own.index('id="tableruns"') < own.index('id="table1"')
    assert papers.index('id="table1"') < papers.index('id="tableruns"')
    section = own[own.index('id="tableruns"') :]
    section = section[: section.index("</section>")]
    for title in ("My method", "TEPO, beta 1", "TEPO without KL"):
        assert title in section
    assert "My method" in show.text(tidy.checked_table(tree, "runs"))
    altered = synthetic.replanned(tree, runs=[r for r in tree.matrix["runs"] if r["method"] != MINE])
    with pytest.raises(CorruptInputError, match="not filled from"):
        tidy.read_table(altered, "runs")


@pytest.mark.parametrize(("name", "papers"), [("embedded", True), ("beyond", False)])
def test_a_kept_tree_whose_other_runs_stand_behind_claims_is_the_papers(name: str, papers: bool) -> None:
    tree = Tree(ROOT / "results/reference" / name)
    assert site.is_papers(tree, site.read(tree), claims.claims(tree)["judged"]) == papers


def test_a_run_without_a_score_is_missing_and_not_left_out(mine: Tree, tmp_path: Path) -> None:
    shutil.copytree(mine.root, tmp_path / "mine")
    for path in (tmp_path / f"mine/runs/my_model/{MINE}").glob("seed*/run.json"):
        path.unlink()
    tree = Tree(tmp_path / "mine")
    assert Run("my_model", MINE, 1) in tree.runs
    assert {cell(fill(tree, "runs"), f"my_model/{MINE}/step12", key).state for key in ("final", "area")} == {"missing"}
