"""Commands as typed: what they write and print, the state of runs, one line on a fault, a light start."""

import re
import shlex
import shutil
import textwrap
from pathlib import Path
from typing import Any

import pytest

from core.files import locked, write_json
from core.layout import Run
from core.provenance import ROOT
from evals.scores import MACRO, POOLED, read_rows
from evals.tree import MANIFEST, Tree
from report import convergence, manifest, show, tables
from tests.report import synthetic
from tests.report.conftest import Command
from tests.report.finished import replace
from tests.report.tables import filled, rows

SUFFIXES = (".md", ".tex", ".tidy.csv")
TEPO, GSPO, NOKL = (Run("tiny_qwen2", method, 1) for method in ("tepo", "gspo", "tepo_nokl"))


def test_a_table_is_written_and_shown_with_marks(scored: Tree, tmp_path: Path, command: Command) -> None:
    tree = Tree(shutil.copytree(scored.root, tmp_path / "my results"))
    _, _, err = command(show.main, "table1", "--results", tree.root)
    assert shlex.split(err.split("run: ")[1])[-4:] == ["--results", str(tree.root), "--table", "1"]
    tree.layout.report.touch()
    code, out, err = command(tables.main, "--results", tree.root, "--table", "table1")
    assert (code, err) == (0, "")
    assert {path.name for path in tree.layout.tables.iterdir()} == {f"table1{end}" for end in SUFFIXES}
    assert all(str(path) in out for path in tree.layout.tables.iterdir())
    code, out, _ = command(show.main, "table1", "--results", tree.root)
    assert code == 0
    assert out.startswith("Quick scale: this shows that the harness runs, not which method wins.")
    words = rows(filled(tree, "1"))["T1.7"].cells.values()
    printed = next(line for line in out.splitlines() if line.startswith("w. GSPO"))
    assert printed.split()[2:] == [w["text"] + w["mark"] for w in words]
    assert "not run at this scale: w. CLIP-Cov, w. KL-Cov" in out
    assert str(tree.layout.report) in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("report:")) <= 115


def test_show_details_prints_what_stands_beside_each_score(embedded: Tree, command: Command) -> None:
    _, out, _ = command(show.main, "details", "--results", embedded.root)
    rows = [row for row in read_rows(embedded.layout.scores) if row["samples"] is not None]
    shares = [[row[name] for name in ("score", "pass_at_k", "maj_at_k")] for row in rows]
    shown = [["-" if share is None else f"{100 * share:.2f}" for share in of_row] for of_row in shares]
    assert [line.split()[3:6] for line in out.splitlines()[1:-1]] == shown


def test_show_names_a_file_that_was_edited_since_the_manifest(scored_copy: Tree, command: Command) -> None:
    tables.write(scored_copy, "1")
    write_json(scored_copy.root / MANIFEST, manifest.build(scored_copy))
    assert command(show.main, "table1", "--results", scored_copy.root)[2] == ""
    for path in (scored_copy.layout.scores, scored_copy.layout.tables / "table1.tidy.csv"):
        replace(path, r"0\.\d\d", "0.11")
        assert (
            f"note: {path}: edited since"
            in command(show.main, "table1", "--results", path.parents[path.parent.name == "tables"])[2]
        )


PAGE = r"""# Claims

One sentence in `words`, TEPO &lt; GRPO
and **bold**.

| claim | tested statement | p |
|---|---|---:|
| `a-b` | A \| B \*and\* a statement that is much longer than the width of this terminal | 0.5 [-0.1, 1.1] |

- `a-b`, Section 1
"""


def test_a_page_in_the_terminal_has_no_markup_and_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert show.plain(PAGE).splitlines() == [
        "Claims", "", "One sentence in words, TEPO < GRPO and bold.", "",
        "claim  tested statement                      p",
        "a-b    A | B *and* a statement that is much  0.5 [-0.1, 1.1]",
        "       longer than the width of this",
        "       terminal", "", "- a-b, Section 1",
    ]  # fmt: skip


def begun(tree: Tree, run: Run, rollouts: int) -> Path:
    """Make `run` one that has written these rollouts and half a line; return its lock."""
    (tree.layout.run(run) / "run.json").unlink()
    lines = [f"{n + 1},{n},0,0.5\n" for n in range(rollouts)]
    (tree.layout.run(run) / "state/curve.csv").write_text("rollout,update,minibatch,reward\n" + "".join(lines) + "9,9")
    return tree.layout.run(run) / "state/lock"


def test_show_prints_counts_and_what_needs_a_look(scored_copy: Tree, command: Command) -> None:
    """GRPO done, TEPO running in this process, GSPO stopped, TEPO without KL waiting."""
    with locked(begun(scored_copy, TEPO, 6), "busy"):
        begun(scored_copy, GSPO, 2)
        shutil.rmtree(scored_copy.layout.run(NOKL))
        code, out, err = command(show.main, "runs", "--results", scored_copy.root)
    assert (code, err) == (0, "")
    assert "4 runs: 1 done, 1 running, 1 stopped, 1 waiting" in out
    assert "5 of 5 checkpoints evaluated" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out
    assert "stopped  tiny_qwen2/gspo/seed1  rollout 2; failed or interrupted" in out


def test_the_recipe_on_the_page_pivots_scores_into_the_arrays_of_rliable(scored_twice: Tree) -> None:
    """docs/statistics.md; typed as it stands there, without rliable."""
    page = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    recipe = textwrap.dedent(page.split("## Aggregates of rliable")[1].split(":\n\n", 1)[1].split("\n\n", 1)[0])
    names: dict[str, Any] = {}
    exec(recipe.replace("results/quick/scores.csv", str(path := scored_twice.layout.scores)), names)
    scores = {(row["method"], row["seed"], row["step"], row["benchmark"]): row for row in read_rows(path)}
    benchmarks = sorted({benchmark for *_, benchmark in scores} - {POOLED, MACRO})
    assert set(names["arrays"]) == {"grpo", "tepo", "gspo", "tepo_nokl"}
    for method, runs in names["arrays"].items():
        assert runs.tolist() == [[scores[method, seed, 12, key]["score"] for key in benchmarks] for seed in (1, 2)]


def test_what_was_learnt_is_largest_first(embedded: Tree, tmp_path: Path) -> None:
    tree = Tree(synthetic.write_tree(tmp_path / "quick", seeds=(1, 2)))
    convergence.write(tree)
    (line,) = show.learnt(tree, filled(tree, "1"))
    shown = [float(number) for number in re.findall(r" (\d+\.\d)(?=[,;( ])", line.partition("percent:")[2])]
    assert (len(shown), shown) == (4, sorted(shown, reverse=True))
    kept = Tree(ROOT / "results/reference/embedded")  # H3 of docs/findings.md
    found = [*show.learnt(kept, tables.shown(kept, "1"))]
    assert found[0].endswith("Over 8 methods area and log movement correlate at r = 0.77.")
