"""Commands as typed: what they write and print, the state of runs, one line on a fault, a light start."""

import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from core.files import locked, write_json
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from evals.scores import MACRO, POOLED, read_rows
from evals.tree import MANIFEST, Tree
from report import manifest, show, tables
from tests.report.conftest import Command
from tests.report.finished import cut, replace
from tests.report.tables import filled, rows

SUFFIXES = (".csv", ".md", ".tex", ".tidy.csv")
TEPO, GSPO, NOKL = (Run("tiny_qwen2", method, 1) for method in ("tepo", "gspo", "tepo_nokl"))


def test_table_writes_every_rendering_and_prints_its_path(scored_copy: Tree, command: Command) -> None:
    code, out, err = command(tables.main, "--results", scored_copy.root, "--table", "1")
    assert (code, err) == (0, "")
    written = sorted(scored_copy.layout.tables.glob("table1.*"))
    assert [path.name for path in written] == [f"table1{suffix}" for suffix in SUFFIXES]
    assert all(str(path) in out for path in written)
    before = {path: path.read_bytes() for path in written}
    command(tables.main, "--results", scored_copy.root, "--table", "table1")
    assert {path: path.read_bytes() for path in written} == before


def test_show_prints_values_marks_intervals_and_where_the_report_lies(scored_copy: Tree, command: Command) -> None:
    scored_copy.layout.report.touch()
    tables.write(scored_copy, "1")
    code, out, _ = command(show.main, "table1", "--results", scored_copy.root)
    assert code == 0
    assert out.startswith("Quick scale: this shows that the harness runs, not which method wins.")
    words = rows(filled(scored_copy, "1"))["T1.7"].cells.values()
    printed = next(line for line in out.splitlines() if line.startswith("w. GSPO"))
    assert printed.split()[2:] == [w["text"] + "*" * w["best"] + w["mark"] for w in words]
    assert "not run at this scale: w. CLIP-Cov, w. KL-Cov" in out
    assert str(scored_copy.layout.report) in out
    assert max(len(line) for line in out.splitlines() if not line.startswith("report:")) <= 115


def test_show_details_prints_what_stands_beside_each_score(embedded: Tree, command: Command) -> None:
    code, out, _ = command(show.main, "details", "--results", embedded.root)
    assert code == 0
    rows = [row for row in read_rows(embedded.layout.scores) if row["samples"] is not None]
    printed = out.splitlines()[1:-1]
    assert len(printed) == len(rows) > 7
    for line, row in zip(printed, rows, strict=True):
        path, key, k, *figures = line.split()
        assert (path.split("/")[:2], key, int(k)) == ([row["model"], row["method"]], row["benchmark"], row["samples"])
        shares = [row[name] for name in ("score", "pass_at_k", "maj_at_k")]
        assert figures[:3] == ["-" if share is None else f"{100 * share:.2f}" for share in shares]


def test_what_cannot_be_read_is_one_line_with_the_command_that_makes_it(scored_copy: Tree, command: Command) -> None:
    """And nothing is written. What else is refused: tests/evals/stats/test_score.py."""
    grades = scored_copy.layout.grades(Checkpoint(TEPO, 12)) / "syn_mul4.parquet"
    grades.write_bytes(grades.read_bytes() + b" ")
    root = scored_copy.root
    for main, *words, line in (
        (show.main, "table1", f"run: python -m report.tables --results {root} --table 1"),
        (tables.main, "--table", "1", f"error: {grades}: sha256 is"),
        (show.main, "details", "run: python -m evals.score, or snakemake"),
    ):
        if "details" in words:
            cut(scored_copy.layout.scores)
        code, out, err = command(main, *words, "--results", root)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert line in err
    assert not scored_copy.layout.tables.exists()


def test_a_command_to_type_next_is_quoted_for_a_shell(scored: Tree, tmp_path: Path, command: Command) -> None:
    shutil.copytree(scored.root, root := tmp_path / "my results")
    _, _, err = command(show.main, "table1", "--results", root)
    assert shlex.split(err.split("run: ")[1])[-4:] == ["--results", str(root), "--table", "1"]


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
| `a-b` | A \| B \*and\* a statement that is much longer than the width of this terminal | 0.5 |

- `a-b`, Section 1
"""


def test_a_page_in_the_terminal_has_no_markup_and_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.plain(PAGE, 40).splitlines() == [
        "Claims", "", "One sentence in words, TEPO < GRPO and", "bold.", "",
        "claim  tested statement              p",
        "a-b    A | B *and* a statement that  0.5",
        "       is much longer than the",
        "       width of this terminal", "", "- a-b, Section 1",
    ]  # fmt: skip


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    heavy = ("numpy", "pandas", "matplotlib", "torch", "jinja2", "pyarrow", "scipy")
    commands = ("tables", "figures", "convergence", "page", "show", "compare", "manifest", "reference", "verify")
    imports = ", ".join(f"report.{name}" for name in commands)
    code = f"import sys, {imports}; print(*(m for m in {heavy} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


HEADER = "rollout,update,minibatch,reward,seconds_update,seconds_rollout\n"


def begun(tree: Tree, run: Run, rows: int, *, torn: bool = False) -> Path:
    """Make `run` one that has written `rows` updates, 4 to a rollout, of 1 s each and 2 s more per rollout."""
    folder = tree.layout.run(run)
    (folder / "run.json").unlink()
    state = folder / "state"
    lines = [f"{n // 4 + 1},{n},{n % 4},{n / 100},1.0,{2.0 if n % 4 == 0 else ''}\n" for n in range(rows)]
    (state / "curve.csv").write_text(HEADER + "".join(lines) + ("9,9" if torn else ""))
    return state / "lock"


@pytest.fixture
def busy(scored_copy: Tree) -> Iterator[Tree]:
    """GRPO done, TEPO running in this process after 6 of 12 rollouts, GSPO stopped, TEPO without KL waiting."""
    with ExitStack() as held:
        held.enter_context(locked(begun(scored_copy, TEPO, 24, torn=True), "busy"))
        begun(scored_copy, GSPO, 5)
        shutil.rmtree(scored_copy.layout.run(NOKL))
        yield scored_copy


def test_show_prints_counts_and_what_needs_a_look(busy: Tree, command: Command) -> None:
    code, out, err = command(show.main, "runs", "--results", busy.root)
    assert (code, err) == (0, "")
    assert "4 runs: 1 done, 1 running, 1 stopped, 1 waiting" in out
    assert "5 of 5 checkpoints evaluated" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out
    assert "stopped  tiny_qwen2/gspo/seed1  rollout 2; failed or interrupted" in out


def test_a_scale_is_short_for_its_folder(
    scored: Tree, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "results").symlink_to(scored.root.parent)
    monkeypatch.chdir(tmp_path)
    assert command(show.main, "runs", "--scale", "quick")[1] == command(show.main, "runs", "--results", scored.root)[1]
    code, _, err = command(show.main, "runs", "--scale", "quik")
    assert code == 2
    assert "nearest: quick" in err


def test_the_recipe_on_the_page_pivots_scores_into_the_arrays_of_rliable(scored_twice: Tree) -> None:
    """docs/statistics.md; typed as it stands there, without rliable."""
    page = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    recipe = textwrap.dedent(page.split("## Aggregates of rliable")[1].split(":\n\n", 1)[1].split("\n\n", 1)[0])
    names: dict[str, Any] = {}
    exec(recipe.replace("results/quick/scores.csv", str(scored_twice.layout.scores)), names)
    rows = [row for row in read_rows(scored_twice.layout.scores) if row["step"] == 12]
    benchmarks = sorted({row["benchmark"] for row in rows} - {POOLED, MACRO})
    assert set(names["arrays"]) == {row["method"] for row in rows} - {"base"}
    for method, runs in names["arrays"].items():
        of_method = {(row["seed"], row["benchmark"]): row["score"] for row in rows if row["method"] == method}
        assert runs.tolist() == [[of_method[seed, benchmark] for benchmark in benchmarks] for seed in (1, 2)]
