"""The commands work as typed, plan what they should, and refuse nonsense before any job starts.

Four dry runs of the whole graph; tests/workflow/test_code_hashes.py has what an edit makes again, by hashes.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from pathlib import Path

import pytest

from tests.workflow.conftest import ROOT, Snakemake, copy_of, run_snakemake
from workflow.plan import plan

QUICK = ("--configfile", "config/quick.yaml")


def planned(output: str) -> dict[str, int]:
    """Jobs by rule, from the table that `snakemake -n` prints."""
    return {name: int(count) for name, count in re.findall(r"^([a-z_0-9]+) +(\d+)$", output, re.MULTILINE)}


def test_quick_plans_each_thing_once(dry_run: Snakemake) -> None:
    said = dry_run(*QUICK)
    assert said.returncode == 0, said.stdout + said.stderr
    # One argument of a command may be 128 KiB long, 3,600 checkpoints are longer.
    assert "--checkpoints @logs/quick/asked/checkpoints.txt" in said.stdout
    expected = {"base": 1, "prompts": 1, "train": 4, "benchmark_data": 7, "generate": 5, "grade": 5, "score": 1}
    assert {name: planned(said.stdout).get(name) for name in expected} == expected


@pytest.mark.slow
def test_nonsense_is_one_line_before_any_job_and_leaves_no_file(clone: Path) -> None:
    """Not a dry run, which has no log. tests/test_wrong_inputs.py has all the others."""
    before = sorted(clone.rglob("*"))
    done = run_snakemake(clone, "audit", "--config", "training.rolouts=3")
    assert done.returncode == 2
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line or "Traceback" in line]
    assert re.match(r"error: command line.*training.rolouts: unknown key.*nearest: rollouts", line)
    assert [path for path in sorted(clone.rglob("*")) if path not in before and "__pycache__" not in path.parts] == []


@pytest.mark.slow
def test_plan_is_a_target(clone: Path) -> None:
    done = run_snakemake(clone, "plan", *QUICK, "--cores", "1")
    assert "4 unique runs (0 done)" in done.stdout
    assert "Missing or wrong: nothing" in done.stdout
    assert done.returncode == 0, done.stderr


def test_a_tree_of_a_thousand_runs_is_longer_than_an_argument_and_stays(tmp_path: Path) -> None:
    """What a command reads of the plan lies in files: one argument may be 128 KiB."""
    files = [ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"]
    large = plan(files, {"name": "large", "seeds": "1-250"}, root=tmp_path)
    assert len(large.runs) == 1000
    large.results.root.mkdir()
    large.results.matrix.write_text(large.files["matrix.json"][1])
    for checkpoint in large.checkpoints:
        for folder, file in ((large.results.run(checkpoint.run), "run"), (large.results.grades(checkpoint), "grades")):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{file}.json").write_text("{}")
    more = plan(files, {"name": "large", "methods": "gpg", "seeds": "1"}, root=tmp_path)
    assert len(more.matrix["runs"]) == 1001
    assert len(more.files["checkpoints.txt"][1]) + len(more.files["matrix.json"][1]) > 2**17
    (note,) = more.notes
    assert note.startswith(f"{tmp_path}/large: 1000 finished runs of earlier questions stay in its tables; a tree of ")


@pytest.mark.demo
def test_in_the_demos_tree_an_edit_makes_its_jobs_again_and_another_question_adds(tmp_path: Path) -> None:
    target = copy_of(tmp_path / "clone", "README.md", "results/quick", "results/cache", ".snakemake")
    # Asking for a logger makes nothing again.
    nothing = run_snakemake(target, "-n", *QUICK, "--config", "log=tensorboard")
    assert "Nothing to be done" in nothing.stdout + nothing.stderr, nothing.stdout
    more = run_snakemake(target, "-n", *QUICK, "--config", "methods=gpg,tepo+beta=1")
    assert "results/quick: 4 finished runs of earlier questions stay in its tables" in more.stderr
    assert planned(more.stdout)["train"] == 2
    with open(target / "methods/catalog/sequence.py", "a", encoding="utf-8") as stream:
        stream.write("\nEDITED = 1\n")
    jobs = planned(run_snakemake(target, "-n", *QUICK).stdout)
    assert {name: jobs[name] for name in ("train", "generate", "grade", "score")} == dict.fromkeys(
        ("train", "generate", "grade", "score"), 1
    )
    assert not {"base", "prompts", "benchmark_data"} & set(jobs)


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
