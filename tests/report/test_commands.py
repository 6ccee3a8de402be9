"""Commands as typed: what they write, print and export, the state of runs, one line on a fault, a light start."""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import yaml

from core import digests, lock
from core.layout import Checkpoint, Run
from core.provenance import ROOT
from core.results_tree import Tree
from core.scores import read_rows, read_scores
from evals.benchmark import benchmark
from evals.stats import robust
from report import export, figure, rliable, show, table
from report.tables import render
from tests.report import tables
from tests.report.conftest import Command
from tests.report.finished import edit

SUFFIXES = (".csv", ".md", ".sha256", ".tex", ".tidy.csv")
TEPO, GSPO, NOKL = (Run("tiny_qwen2", method, 1) for method in ("tepo", "gspo", "tepo_nokl"))


def test_table_writes_every_rendering_and_prints_its_path(scored_copy: Tree, command: Command) -> None:
    for key in ("1", "2", "3", "4"):
        code, out, err = command(table.main, "--results", scored_copy.root, "--table", key)
        assert (code, err) == (0, ""), key
        written = sorted(scored_copy.layout.tables.glob(f"table{key}.*"))
        assert [path.name for path in written] == [f"table{key}{suffix}" for suffix in SUFFIXES]
        assert all(str(path) in out for path in written if path.suffix != digests.SUFFIX)
        before = {path: path.read_bytes() for path in written}
        command(table.main, "--results", scored_copy.root, "--table", f"table{key}")
        assert {path: path.read_bytes() for path in written} == before, key


def test_figure_writes_its_pictures_and_their_numbers(copy: Tree, command: Command) -> None:
    for path in copy.layout.figures.iterdir():
        path.unlink()
    code, _, err = command(figure.main, "--results", copy.root, "--figure", "figure2")
    assert (code, err) == (0, "")
    assert {path.name for path in copy.layout.figures.iterdir()} == {
        "figure2.csv", "figure2.json", "figure2.pdf", "figure2.png", "figure2.svg",
        "figure2.sha256",
    }  # fmt: skip


def test_show_prints_values_marks_intervals_and_where_the_report_lies(scored_copy: Tree, command: Command) -> None:
    scored_copy.layout.report.touch()
    table.write(scored_copy, "1")
    filled = tables.filled(scored_copy, "1")
    code, out, _ = command(show.main, "table1", "--results", scored_copy.root)
    assert code == 0
    assert out.startswith("Quick scale: this shows that the harness runs, not which method wins.")
    row = next(row for row in filled.rows if row.id == "T1.7")
    printed = next(line for line in out.splitlines() if line.startswith("w. GSPO"))
    words = [render.shown(row.cells[c.slot], filled) for c in filled.columns]
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


def test_show_details_prints_no_score_that_was_edited(scored_copy: Tree, command: Command) -> None:
    path = scored_copy.layout.scores
    rows = list(csv.DictReader(path.open(newline="")))
    row = next(row for row in rows if row["pass_at_k"])
    path.write_text(path.read_text().replace(f",{row['pass_at_k']},", ",0.123,", 1))
    code, out, err = command(show.main, "details", "--results", scored_copy.root)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{path}: damaged: sha256 is " in err
    assert "run: python -m evals.score, or snakemake" in err


def test_show_of_a_table_that_is_not_filled_says_what_to_run(scored: Tree, command: Command) -> None:
    code, _, err = command(show.main, "table1", "--results", scored.root)
    assert code == 2
    assert err.count("\n") == 1
    assert f"run: python -m report.table --results {scored.root} --table 1" in err


def test_a_table_that_cannot_be_trusted_is_one_line_and_nothing_is_written(scored_copy: Tree, command: Command) -> None:
    """What else is refused: tests/evals/stats/test_score.py."""
    path = scored_copy.layout.grades(Checkpoint(TEPO, 12)) / "syn_mul4.parquet"
    path.write_bytes(path.read_bytes() + b" ")
    code, _, err = command(table.main, "--results", scored_copy.root, "--table", "1")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"error: {path}: sha256 is")
    assert not scored_copy.layout.tables.exists()


def test_help_is_quick_because_nothing_heavy_is_imported() -> None:
    heavy = ("numpy", "pandas", "matplotlib", "torch", "jinja2", "pyarrow", "scipy")
    commands = ("table", "figure", "convergence", "build", "show", "compare", "manifest", "reference",
                "verify")  # fmt: skip
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
    state.mkdir()
    (state / "events.jsonl").write_text(json.dumps({"event": "start"}) + "\n")
    lines = [f"{n // 4 + 1},{n},{n % 4},{n / 100},1.0,{2.0 if n % 4 == 0 else ''}\n" for n in range(rows)]
    (state / "curve.csv").write_text(HEADER + "".join(lines) + ("9,9" if torn else ""))
    return state / "lock"


@pytest.fixture
def busy(scored_copy: Tree) -> Iterator[Tree]:
    """GRPO done, TEPO running in this process after 6 of 12 rollouts, GSPO stopped, TEPO without KL waiting."""
    with ExitStack() as held:
        held.enter_context(lock.held(begun(scored_copy, TEPO, 24, torn=True), "busy"))
        begun(scored_copy, GSPO, 5)
        (scored_copy.layout.run(NOKL) / "run.json").unlink()
        yield scored_copy


def test_show_prints_counts_and_what_needs_a_look(busy: Tree, command: Command) -> None:
    code, out, err = command(show.main, "runs", "--results", busy.root)
    assert (code, err) == (0, "")
    assert "4 runs: 1 done, 1 running, 1 stopped, 1 waiting" in out
    assert "5 of 5 checkpoints evaluated" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out
    assert "stopped  tiny_qwen2/gspo/seed1  rollout 2; failed or interrupted" in out


def test_before_the_plan_is_written_the_folders_are_shown(busy: Tree, command: Command) -> None:
    busy.layout.matrix.unlink()
    code, out, _ = command(show.main, "runs", "--results", busy.root)
    assert code == 0
    assert "what else is planned is unknown" in out
    assert "running  tiny_qwen2/tepo/seed1  rollout 6" in out


def test_a_scale_is_short_for_its_folder(
    scored: Tree, command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "results").symlink_to(scored.root.parent)
    monkeypatch.chdir(tmp_path)
    assert command(show.main, "runs", "--scale", "quick")[1] == command(show.main, "runs", "--results", scored.root)[1]
    code, _, err = command(show.main, "runs", "--scale", "quik")
    assert code == 2
    assert "nearest: quick" in err


# Exports, each read back by the library that it is for.


def test_eval_results_come_back_from_huggingface_hub(finished: Tree, tmp_path: Path, command: Command) -> None:
    from huggingface_hub import parse_eval_result_entries

    folder = tmp_path / "out"
    datasets = "--dataset", "syn_mix3=me/mixed", "--dataset", "syn_as3=me/sums"
    line = "--results", finished.root, "--to", "eval-results", "--out", folder
    code, said, err = command(export.main, *line, *datasets)
    assert (code, err) == (0, "")
    files = sorted(folder.rglob("*.yaml"))
    assert len(files) == 2 * len(finished.checkpoints)
    assert {path.parent.name for path in files} == {".eval_results"}
    for checkpoint in finished.checkpoints:
        path = folder / checkpoint.path / ".eval_results/syn_mix3.yaml"
        (entry,) = parse_eval_result_entries(yaml.safe_load(path.read_text(encoding="utf-8")))
        score = finished.scores[checkpoint, "syn_mix3"]
        assert score.value is not None
        assert (entry.dataset_id, entry.task_id) == ("me/mixed", "syn_mix3")
        assert entry.value == pytest.approx(100 * score.value, abs=1e-6)
        assert entry.notes is not None
        assert entry.notes.startswith("avg@8, 20 problems, 95 % interval ")
    assert "left out, no data set on the hub: syn_inv2, syn_add2q, syn_mix2, syn_mul4, syn_seq1" in said


def test_an_export_says_how_responses_were_drawn_and_not_how_the_registry_would(finished: Tree, tmp_path: Path) -> None:
    own = Tree(shutil.copytree(finished.root, tmp_path / "quick"))
    one, other = own.checkpoints[:2]
    path = own.layout.samples(one) / "samples.json"
    entries = json.loads(path.read_text())["benchmarks"]
    entries["syn_mix3"] |= {
        "decoding": {"samples": 8, "temperature": 0.25, "top_p": 0.9, "max_tokens": 48},
        "deviations": ["temperature 0.25, the registry's is 0.6"],
    }
    edit(path, benchmarks=entries)
    list(export.eval_results(own, tmp_path / "out", ["syn_mix3=me/mixed"]))
    notes = {
        at: yaml.safe_load((tmp_path / "out" / at.path / ".eval_results/syn_mix3.yaml").read_text())[0]["notes"]
        for at in (one, other)
    }
    assert "; temperature 0.25, top_p 0.9, max_tokens 48, temperature 0.25, the registry's is 0.6; " in notes[one]
    registered = benchmark("syn_mix3").decoding
    assert f"temperature {registered.temperature}, top_p {registered.top_p}" in notes[other], "no record of it"


@pytest.mark.parametrize(
    ("main", "options", "said"),
    [
        (export.main, "--to eval-result", "--to: unknown value 'eval-result'; allowed: .*; nearest: eval-results"),
        (export.main, "--to eval-results", "none of its benchmarks is a data set .*--dataset KEY=ORGANISATION/NAME"),
        (export.main, "--to eval-results --dataset syn_mix3", "--dataset: 'syn_mix3' is not of the form"),
        (export.main, "--to eval-results --dataset syn_mix9=a/b", "'syn_mix9'.*nearest: syn_mix3"),
        (rliable.main, "--out scores.csv", r"--out: scores.csv ends neither in .npz nor in .json"),
        (rliable.main, "--model tiny_qwen", r"--model: unknown value 'tiny_qwen'; .*nearest: tiny_qwen"),
        (rliable.main, "--step 8", r"no method is scored after 8 rollouts; set --step to \[7, 12\]"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_leaves_nothing(
    main: Callable[[], None], options: str, said: str, finished: Tree, kept: Tree, tmp_path: Path, command: Command
) -> None:
    out = tmp_path / "out.npz"
    tree = finished if main == export.main else kept
    code, printed, err = command(main, "--results", tree.root, "--out", out, *options.split())
    assert (code, printed, err.count("\n")) == (2, "", 1)
    assert re.search(said, err), err
    assert not out.exists()


def test_a_folder_with_something_in_it_is_left_alone(finished: Tree, tmp_path: Path, command: Command) -> None:
    (tmp_path / "mine").write_text("?")
    code, _, err = command(export.main, "--results", finished.root, "--to", "eval-results", "--out", tmp_path)
    assert (code, err.startswith("error: command line: --out: ")) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


KEPT = ROOT / "results/reference/embedded"
NEEDED = ("manifest.json", "origins.json.gz", "matrix.json", "scores.csv.gz", "tables")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    """The part of the kept tree that the command reads, to write into."""
    root = tmp_path_factory.mktemp("kept") / "embedded"
    root.mkdir()
    for name in NEEDED:
        copy = shutil.copytree if (KEPT / name).is_dir() else shutil.copy
        copy(KEPT / name, root / name)
    return Tree(root)


def counted(method: str) -> dict[int, list[float]]:
    """The scores of tiny Qwen2 after 7 rollouts by seed, from scores.csv."""
    table = read_scores(KEPT / "scores.csv")
    of_method = (table.model == "tiny_qwen2") & (table.step == 7) & (table.method == method)
    rows = table[of_method & ~table.benchmark.str.startswith("avg_")]
    return {int(seed): list(rows[rows.seed == seed].sort_values("benchmark").score) for seed in sorted(set(rows.seed))}


def test_the_csv_holds_what_loops_over_the_scores_find(kept: Tree, command: Command) -> None:
    code, out, err = command(rliable.main, "--results", kept.root)
    assert (code, out.split(), err) == (0, [str(kept.layout.tables / f"robust.{end}") for end in ("csv", "md")], "")
    lines = {line["row"]: line for line in csv.DictReader((kept.layout.tables / "robust.csv").open(encoding="utf-8"))}
    for method in ("tepo", "cispo", "tepo_kl_all+beta=1+kl-estimator=k1"):  # the last one has four of eight seeds
        line, ours, theirs = lines[f"tiny_qwen2/{method}/step7"], counted(method), counted("grpo")
        flat = sorted(score for scores in ours.values() for score in scores)
        assert line["seeds"] == " ".join(map(str, ours))
        assert float(line["mean"]) == pytest.approx(sum(flat) / len(flat), abs=1e-12)
        middle = flat[len(flat) // 4 : len(flat) - len(flat) // 4]
        assert float(line["iqm"]) == pytest.approx(sum(middle) / len(middle), abs=1e-12)
        assert float(line["above_50"]) == pytest.approx(sum(score > 0.5 for score in flat) / len(flat), abs=1e-12)
        for column, seeds in (("paired", [(s, s) for s in ours]), ("unpaired", list(product(ours, theirs)))):
            pairs = [pair for a, b in seeds for pair in zip(ours[a], theirs[b], strict=True)]
            won = sum(1.0 if x > y else 0.5 if x == y else 0.0 for x, y in pairs) / len(pairs)
            assert float(line[column]) == pytest.approx(won, abs=1e-12)
            ends = line[f"{column}_low"], line[f"{column}_high"]
            if won in (0, 1) and column == "unpaired":
                assert ends == ("", ""), "every resample is alike"
            else:
                assert float(ends[0]) <= won <= float(ends[1])
                assert ends[0] != ends[1]
    assert lines["tiny_qwen2/grpo/step7"]["paired"] == lines["tiny_qwen2/base/step7"]["paired"] == ""
    text = (kept.layout.tables / "robust.md").read_text(encoding="utf-8")
    assert f"| TEPO | 8 | {100 * float(lines['tiny_qwen2/tepo/step7']['mean']):.2f} |" in text


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_the_export_has_every_method_as_runs_by_benchmarks(
    kept: Tree, tmp_path: Path, command: Command, suffix: str
) -> None:
    out = tmp_path / f"scores{suffix}"
    code, printed, err = command(rliable.main, "--results", kept.root, "--out", out, "--model", "tiny_qwen2")
    assert (code, err) == (0, "")
    read = dict(np.load(out)) if suffix == ".npz" else {k: np.array(v) for k, v in json.loads(out.read_text()).items()}
    assert read["grpo"].shape == read["tepo"].shape == (8, 7)
    assert len(read) == 22
    order = printed.splitlines()[1].removeprefix("benchmarks: ").split(", ")
    expected = np.array(list(counted("tepo").values()))  # by the alphabet
    assert (read["tepo"] == expected[:, [sorted(order).index(name) for name in order]]).all()
    assert "tepo: seeds 1, 2, 3, 4, 5, 6, 7, 8" in printed


def test_intervals_are_those_of_rliables_bootstrap(kept: Tree) -> None:
    """To its Monte Carlo error; the estimates themselves are those of the loops above."""
    library, metrics = pytest.importorskip("rliable.library"), pytest.importorskip("rliable.metrics")
    _, found = rliable.methods(kept, "tiny_qwen2", 7)
    pair = [np.array(list(found[method].values())) for method in ("tepo", "grpo")]
    np.random.seed(1)
    _, theirs = library.get_interval_estimates(
        {"pair": pair}, lambda x, y: np.array([metrics.probability_of_improvement(x, y)]), reps=200
    )
    assert [float(end) for end in robust.bootstrap(robust.improvement, *pair)] == pytest.approx(
        theirs["pair"].ravel(), abs=0.03
    )
