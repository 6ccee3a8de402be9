"""The commands work as typed, plan what they should, and refuse nonsense before any job starts."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, Snakemake, copy_of, large_matrix, run_snakemake
from tests.workflow.test_code_hashes import BENCHMARK, METHOD

QUICK = ("--configfile", "config/quick.yaml")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository without its results: everything is still to do."""
    return copy_of(tmp_path_factory.mktemp("copy") / "clone")


def planned(output: str) -> dict[str, int]:
    """Jobs by rule, from the table that `snakemake -n` prints."""
    return {name: int(count) for name, count in re.findall(r"^([a-z_0-9]+) +(\d+)$", output, re.MULTILINE)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [(), ("report",), ("table1",), ("table_beyond",), ("table_controls",), ("figure2", "figure3"), ("report", *QUICK)],
    ids=lambda words: " ".join(words) or "all",
)
def test_commands_work_as_typed(copy: Path, words: tuple[str, ...]) -> None:
    done = run_snakemake(copy, "-n", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned(done.stdout)["train"] > 0


def test_quick_plans_each_thing_once(copy: Path) -> None:
    said = run_snakemake(copy, "-n", "-p", *QUICK).stdout
    jobs = planned(said)
    # One argument of a command may be 128 KiB long, 3,600 checkpoints are longer.
    assert "--checkpoints @logs/quick/asked/checkpoints.txt" in said
    expected = {"base": 1, "prompts": 1, "train": 4, "benchmark_data": 7, "generate": 5, "grade": 5, "score": 1}
    assert {name: jobs.get(name) for name in expected} == expected


def test_the_papers_scale_plans_without_network_or_any_file_staged(copy: Path) -> None:
    """Models and data are fetched by their own rules."""
    done = run_snakemake(copy, "-n", "--configfile", "config/paper.yaml")
    assert done.returncode == 0, done.stderr
    jobs = planned(done.stdout)
    expected = {
        "fetch_model": 5, "training_data": 1, "hub_prompts": 5, "benchmark_data": 7, "train": 35, "train_nodes": 7,
        "generate": 51, "grade": 51, "score": 1,
    }  # fmt: skip
    assert {name: jobs.get(name) for name in expected} == expected


@pytest.mark.slow
def test_four_hundred_runs_are_planned_each_once(copy: Path) -> None:
    (copy / "large.yaml").write_text(large_matrix(12))
    done = run_snakemake(copy, "-n", "-q", "rules", "--configfile", "config/paper.yaml", "large.yaml")
    jobs = planned(done.stdout)
    # Runs over several nodes have a rule of their own: 12 seeds of the 14B model's seven methods.
    assert (jobs["train"], jobs["train_nodes"]) == (396, 84), done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "said"), [("quick", "4 unique runs (0 done)"), ("paper", "42 unique runs (0 done)")])
def test_plan_is_a_target(copy: Path, scale: str, said: str) -> None:
    done = run_snakemake(copy, "plan", "--configfile", f"config/{scale}.yaml", "--cores", "1")
    assert said in done.stdout
    # The paper's runs need more room than most disks have.
    assert (done.returncode == 0) == ("Missing or wrong: nothing" in done.stdout), done.stderr
    assert scale == "paper" or done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--config", "methods=tepoo"), r"error: .*methods: .*'tepoo'.*nearest: tepo"),
        (("--config", "trainer=trll"), r"error: command line.*trainer: unknown value 'trll'.*nearest: trl"),
        (("--config", "sclae=x"), r"error: command line.*sclae: unknown key.*nearest: scale"),
        (("--config", "training.rolouts=3"), r"error: command line.*training.rolouts: unknown key.*nearest: rollouts"),
        (("--configfile", "config/quik.yaml"), r"error: command line: --configfile: .*nearest: config/quick.yaml"),
        (("tabel1",), r"error: command line: target: unknown value 'tabel1'; .*nearest: table1"),
    ],
)
def test_nonsense_is_one_line_before_any_job(copy: Path, words: tuple[str, ...], message: str) -> None:
    done = run_snakemake(copy, "-n", *words)
    assert done.returncode == 2
    assert "Traceback" not in done.stdout + done.stderr
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert re.search(message, lines[0]), lines[0]


@pytest.mark.slow
def test_a_refused_run_leaves_no_file(copy: Path) -> None:
    """Not a dry run, which has no log."""
    before = sorted(copy.rglob("*"))
    assert run_snakemake(copy, "audit", "--config", "methods=tepoo").returncode == 2
    assert [path for path in sorted(copy.rglob("*")) if path not in before and "__pycache__" not in path.parts] == []


@pytest.mark.slow
def test_a_tree_of_a_thousand_runs_writes_its_matrix(copy: Path) -> None:
    """What stays of it is longer than one argument of a command may be (128 KiB)."""
    seeds = ",".join(map(str, range(1, 251)))
    large = run_snakemake(copy, "results/large/matrix.json", *QUICK, "--config", "name=large", f"seeds={seeds}")
    assert large.returncode == 0, large.stdout + large.stderr
    content = json.loads((copy / "results/large/matrix.json").read_text())
    for entry in content["checkpoints"]:
        place = f"{entry['model']}/{entry['method']}/seed{entry['seed']}"
        for file in (f"runs/{place}/run.json", f"grades/{place}/step{entry['step']}/grades.json"):
            path = copy / "results/large" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
    more = run_snakemake(copy, "results/large/matrix.json", *QUICK, "--config", "name=large", "methods=gpg", "seeds=1")
    assert more.returncode == 0, more.stdout + more.stderr
    kept = copy / "logs/large/asked/kept.json"
    assert kept.stat().st_size > 2**17
    assert len(json.loads((copy / "results/large/matrix.json").read_text())["runs"]) == 1001


@pytest.mark.slow
def test_any_catalog_key_runs_by_name(copy: Path) -> None:
    done = run_snakemake(copy, "-n", *QUICK, "--config", "methods=gpg,tepo+beta=1")
    assert done.returncode == 0, done.stderr
    assert planned(done.stdout)["train"] == 2
    assert "runs/tiny_qwen2/tepo+beta=1/seed1/run.json" in done.stdout


@pytest.mark.slow
def test_a_model_that_continues_another_ones_clean_models_runs_alone(copy: Path) -> None:
    done = run_snakemake(copy, "-n", "--config", "models=tiny_qwen2_distilled")
    assert done.returncode == 0, done.stdout + done.stderr
    jobs = planned(done.stdout)
    assert (jobs["clean"], jobs["base"], jobs["train"]) == (4, 4, 8)
    assert "models/tiny_qwen2-clean-" in done.stdout


@pytest.mark.slow
def test_numbers_are_set_on_the_command_line(copy: Path) -> None:
    """As a user of other tools types it; the dotted keys are those that Snakemake refuses."""
    options = ("models=tiny_qwen2", "methods=grpo,tepo", "seeds=1,2,3", "training.learning_rate=3e-5")
    done = run_snakemake(copy, "-n", "--config", *options, "training.rollouts=4", "name=myrun")
    assert done.returncode == 0, done.stdout + done.stderr
    assert planned(done.stdout)["train"] == 6, "two methods and three seeds"
    assert "results/myrun/runs/tiny_qwen2/tepo/seed3/run.json" in done.stdout


@pytest.mark.demo
def test_another_question_adds_to_the_demos_tree(tmp_path: Path) -> None:
    target = copy_of(tmp_path / "clone", "README.md", "results/quick", "results/cache", ".snakemake")
    done = run_snakemake(target, "-n", *QUICK, "--config", "methods=gpg,tepo+beta=1")
    assert "results/quick: 4 finished runs of earlier questions stay in its tables" in done.stderr
    assert planned(done.stdout)["train"] == 2
    refused = run_snakemake(target, "-n", *QUICK, "--config", "training.learning_rate=3e-5")
    assert refused.returncode == 2
    assert "holds finished runs with 0.0001; a tree of its own: --config name=..." in refused.stderr


@pytest.mark.demo
def test_a_second_demo_does_nothing(here: Snakemake) -> None:
    done = here("-n", *QUICK)
    assert done.returncode == 0, done.stderr
    assert "Nothing to be done" in done.stdout + done.stderr, done.stdout


@pytest.mark.demo
def test_asking_for_a_logger_makes_nothing_again(here: Snakemake) -> None:
    done = here("-n", *QUICK, "--config", "log=tensorboard")
    assert done.returncode == 0, done.stderr
    assert "Nothing to be done" in done.stdout + done.stderr, done.stdout


CODE, COMMENT = "\nEDITED = 1\n", "\n# edited\n"
MEASURED = {"base", "prompts", "benchmark_data", "train", "generate", "grade"}
MODEL = "title: mine\nhub: a/b\nrevision: null\nsize: 7B\n"


@pytest.mark.demo
@pytest.mark.parametrize(
    ("file", "edit", "reruns", "stays"),
    [
        ("methods/parts/reducers.py", COMMENT, {}, {"all"}),
        ("README.md", COMMENT, {}, {"all"}),
        ("methods/parts/reducers.py", CODE, {"train": 4, "generate": 4, "grade": 4, "score": 1}, {"base", "prompts"}),
        ("methods/catalog/sequence.py", CODE, {"train": 1, "generate": 1, "grade": 1, "score": 1}, {"base", "prompts"}),
        # What is added beside the others makes nothing again that is finished; pages may list it.
        ("methods/catalog/mine.py", METHOD, {"matrix": 1}, MEASURED),
        ("evals/tasks/mine.py", BENCHMARK, {"matrix": 1}, MEASURED),
        ("config/models/mine.yaml", MODEL, {"matrix": 1}, MEASURED),
        ("evals/grading/normalise.py", CODE, {"grade": 5, "score": 1}, {"train", "generate"}),
        ("evals/stats/intervals.py", CODE, {"score": 1, "table": 5, "claims": 1, "report": 1}, {"train", "grade"}),
        ("models/batches.py", CODE, {"base": 1, "train": 4}, {"prompts", "benchmark_data"}),
        ("report/tables.yaml", COMMENT, {"table": 5, "report": 1}, {"train", "grade", "score", "audit"}),
        ("report/html/overview.html.j2", COMMENT, {"report": 1, "manifest": 1}, {"train", "score", "table", "figure"}),
        ("report/captions/tables.rst", COMMENT, {"report": 1}, {"train", "grade", "score"}),
    ],
    ids=lambda value: value if isinstance(value, str) and "/" in value else None,
)
def test_an_edit_reruns_its_jobs_and_what_follows(
    tmp_path: Path, file: str, edit: str | tuple[str, str], reruns: dict[str, int], stays: set[str]
) -> None:
    """The table of docs/provenance.md, asked of Snakemake in a copy of what the demo left."""
    target = copy_of(tmp_path / "clone", "README.md", "results/quick", "results/cache", ".snakemake")
    before = planned(run_snakemake(target, "-n", *QUICK).stdout)
    assert before == {}, before
    text = (target / file).read_text() if (target / file).exists() else ""
    (target / file).write_text(text + edit if isinstance(edit, str) else text.replace(*edit))
    jobs = planned(run_snakemake(target, "-n", *QUICK).stdout)
    assert {name: jobs.get(name) for name in reruns} == reruns
    assert not set(jobs) & stays, jobs


@pytest.mark.demo
def test_an_edit_that_is_undone_while_jobs_run_gives_no_number(tmp_path: Path) -> None:
    """A sign is changed while the first run trains and restored when the second has started: neither counts, and the
    same command again makes both with the code as it is."""
    target = copy_of(tmp_path / "clone", "results/cache", ".snakemake")
    asked = (*QUICK, "--config", "methods=grpo,tepo", "name=undo", "--cores", "1", "-k")
    runs = [f"results/undo/runs/tiny_qwen2/{method}/seed1" for method in ("grpo", "tepo")]
    wanted = [f"{run}/run.json" for run in runs]
    file = target / "methods/parts/surrogates.py"
    text = file.read_text()
    edited = text.replace("torch.maximum", "torch.minimum") if "torch.maximum" in text else text + "\nEDITED = 1\n"
    assert edited != text
    done: list[subprocess.CompletedProcess[str]] = []
    thread = threading.Thread(target=lambda: done.append(run_snakemake(target, *wanted, *asked)))
    thread.start()
    while not any((target / run / "state/curve.csv").is_file() for run in runs):
        assert thread.is_alive()
        time.sleep(0.05)
    file.write_text(edited)
    thread.join()
    file.write_text(text)
    said = done[0].stdout + done[0].stderr
    assert done[0].returncode != 0
    assert "was written while this command ran" in said
    assert "code: planned with" in said
    assert not any((target / path).exists() for path in wanted)
    again = run_snakemake(target, *wanted, *asked)
    assert again.returncode == 0, again.stdout + again.stderr
    codes = {json.loads((target / path).read_text())["inputs"]["code"] for path in wanted}
    assert len(codes) == 1


@pytest.mark.demo
def test_a_tree_without_snakemakes_notes_is_held_against_its_records(tmp_path: Path) -> None:
    """`.snakemake` was removed, or the tree moved here: other code than planned is seen."""
    target = copy_of(tmp_path / "clone", "README.md", "results/quick", "results/cache")
    jobs = planned(run_snakemake(target, "-n", *QUICK).stdout)
    assert {name: jobs[name] for name in ("train", "generate", "grade", "score")} == {
        "train": 4, "generate": 5, "grade": 5, "score": 1,
    }  # fmt: skip
    subprocess.run(["cp", "-a", str(ROOT / ".snakemake"), str(target)], check=True)
    assert planned(run_snakemake(target, "-n", *QUICK).stdout) == {}
    record = target / "results/quick/runs/tiny_qwen2/tepo/seed1/run.json"
    times, content = record.stat(), json.loads(record.read_text())
    content["inputs"]["code"] = "0" * 12
    record.write_text(json.dumps(content))
    os.utime(record, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert planned(run_snakemake(target, "-n", *QUICK).stdout)["train"] == 1
