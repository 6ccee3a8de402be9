"""Configurations and the commands that read them. tests/test_wrong_inputs.py has what is refused."""

import os
import re
import shutil
import subprocess
import typing
from pathlib import Path
from typing import Any

import pytest
import yte
from snakemake.cli import parse_config

from core.declared import Declared
from core.errors import ConfigError
from core.files import write_json, write_text
from methods.training import spec
from tests.merged_config import load
from tests.workflow.conftest import ROOT, Snakemake, copy_of, finish, run_snakemake
from workflow import command_line
from workflow import config as configuration
from workflow.matrix import Matrix
from workflow.plan import plan

EMBEDDED, QUICK = ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"


def files_of(scale: str) -> list[Path]:
    """The file of a scale on top of that which Snakemake always reads."""
    return [EMBEDDED] if scale == "embedded" else [EMBEDDED, ROOT / f"config/{scale}.yaml"]


@pytest.fixture
def quick() -> dict[str, Any]:
    return load(files_of("quick"))


def test_every_key_is_documented() -> None:
    text = (ROOT / "config/README.md").read_text()
    models: list[Any] = [configuration.Config]
    for model in models:
        for name, field in model.model_fields.items():
            assert re.search(rf"`([\w.]+\.)?{name}(\.\w+)?`", text), f"{model.__name__}: {name}"
            kinds = [field.annotation, *typing.get_args(field.annotation)]
            models += [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Declared)]


Q = "tiny_qwen2"
CHOSEN = [  # files, options, and the runs with their checkpoints
    ("quick", {"methods": "gpg, cispo"}, f"{Q}/gpg/seed1: 4; {Q}/cispo/seed1: 4"),
    # A setting of the scale shows in the key.
    ("quick", {"methods": "clip_cov,clip_cov+fraction=0.5"},
     f"{Q}/clip_cov+fraction=0.01/seed1: 4; {Q}/clip_cov+fraction=0.5/seed1: 4"),
    ("quick", {"models": "tiny_llama", "methods": "gpg", "seeds": "4,5"},
     "tiny_llama/gpg/seed4: 4; tiny_llama/gpg/seed5: 4"),
    # beta's default written out is the same run, with one more checkpoint
    ("quick", {"matrix": [{"models": [Q], "methods": [m], "seeds": [1], "steps": [n]}
                          for m, n in (("tepo", 4), ("tepo+beta=0.001", 12))]}, f"{Q}/tepo/seed1: 4,12"),
    # The paper's TEPO of this model is another one than Qwen2.5's.
    ("paper", {"methods": "grpo,tepo", "models": "qwen3_14b,mistral_7b_instruct_v0.2"},
     "qwen3_14b/grpo/seed2: 72; qwen3_14b/tepo+beta=1/seed2: 72; mistral_7b_instruct_v0.2/grpo/seed2: 72; "
     "mistral_7b_instruct_v0.2/tepo/seed2: 72"),
    ("embedded", {"methods": "sapo,tepo_kl_all+beta=0.5", "models": Q, "seeds": "1", "training": {"rollouts": "4"}},
     f"{Q}/sapo/seed1: 4; {Q}/tepo_kl_all+beta=0.5/seed1: 4"),
]  # fmt: skip


def test_the_command_line_chooses_from_the_matrix_and_adds_to_it() -> None:
    for scale, options, expected in CHOSEN:
        planned = Matrix(load(files_of(scale), options)).planned
        runs = {f"{p.run.path.as_posix()}: {','.join(map(str, p.steps))}" for p in planned}
        assert runs == set(expected.split("; ")), options


def test_the_command_line_is_typed_as_the_files_are(quick: dict[str, Any]) -> None:
    config = load(
        files_of("quick"),
        {
            "seeds": "1,2,3", "models": "tiny_qwen2", "methods": "grpo,tepo", "name": "007", "baseline": "tepo",
            "training": {"learning_rate": "3e-5", "rollouts": "4", "passes": "1", "filter": "none"},
            "sweep": {"training": {"learning_rate": "5e-5,1e-4", "passes": ["1", "2"]}, "beta": "0.1,1"},
        },
    )  # fmt: skip
    assert (config["seeds"], config["models"], config["methods"]) == ([1, 2, 3], ["tiny_qwen2"], ["grpo", "tepo"])
    training = config["training"]
    assert (training["learning_rate"], training["rollouts"], training["passes"]) == (3e-5, 4, 1)
    assert (config["scale"], config["title"]) == ("007", "007")
    assert config["note"] == f"Settings of the scale quick. {quick['note']}"
    assert (config["evaluation"]["table_step"], Matrix(config).content()["baseline"]) == (4, "tepo")
    assert config["sweep"] == {"training.learning_rate": [5e-5, 1e-4], "training.passes": [1, 2], "beta": [0.1, 1]}


def test_training_problems_of_another_file_than_the_configured_one_are_refused(tmp_path: Path) -> None:
    """Whoever imports the file by hand may have left out --sha256, and Snakemake takes a file that is there."""
    files, place = files_of("one_gpu"), {"results": str(tmp_path)}
    wanted = place | {"prompts": {"sha256": "1" * 64}}
    name = Matrix(load(files)).data_name
    record = tmp_path / "cache" / "data" / f"{name}.json"
    write_json(record, {"sha256": "2" * 64})
    plan(files, wanted)  # a record alone: the problems are not there
    write_text(record.with_suffix(".jsonl"), "")
    with pytest.raises(
        ConfigError, match=rf"prompts\.sha256: 1{{64}}, but .*{name}\.jsonl is made of .* 2{{64}}; remove"
    ):
        plan(files, wanted)
    plan(files, place | {"prompts": {"sha256": "2" * 64}})
    plan(files, place)


def test_a_variant_and_a_control_are_in_the_specification_and_in_the_record_of_the_matrix(
    quick: dict[str, Any],
) -> None:
    """And nowhere else: the specification of every other run has not one key more."""
    quick["variants"]["slow"] = {"title": "slow", "trainer": "verl", "training": {"learning_rate": 1e-6}}
    block = quick["matrix"][0] | {"methods": ["grpo"]}
    quick["matrix"] += [block | {"variant": name} for name in ("coin", "format", "again", "slow")]
    made = Matrix(quick)
    given = {p.run.method: made.specification(p, "base", "prompts") for p in made.planned if p.run.key == "grpo"}
    plain = given["grpo"]
    assert not {"placebo", "stream", "variant"} & plain.keys()
    assert given["grpo@coin"] == plain | {"placebo": "evals.placebo:coin", "variant": "coin"}
    assert given["grpo@format"] == plain | {"placebo": "evals.placebo:boxes", "variant": "format"}
    assert given["grpo@again"] == plain | {"stream": 1, "variant": "again"}
    training = plain["training"] | {"learning_rate": 1e-6}
    assert given["grpo@slow"] == plain | {"variant": "slow", "trainer": "verl", "training": training}
    for document in given.values():
        spec.check(document)
    written = made.content()
    changes = {name: body["changes"] for name, body in written["variants"].items() if name != "slow"}
    own = {"coin": {"reward": "coin"}, "format": {"reward": "format"}, "again": {"stream": 1}}
    assert changes == own | {"flat": {"training.kl_target": 0.012}}
    assert written["settings"]["variants.coin.reward"] == "coin"


@pytest.mark.parametrize(
    ("entries", "config"),
    [
        (["training.passes=2", "training={filter: none}"], {"training": {"passes": "2", "filter": "none"}}),
        (["seeds=1,2", "methods=tepo+beta=1,grpo"], {"seeds": "1,2", "methods": "tepo+beta=1,grpo"}),
        (["sweep.training.passes=1,2"], {"sweep": {"training": {"passes": "1,2"}}}),
        (
            ["name=1_2", "title=a: b # ü 🎲", "note=1e5", "seeds=007"],
            {"name": "1_2", "title": "a: b # ü 🎲", "note": "1e5", "seeds": "007"},
        ),
    ],
)
def test_snakemake_reads_a_converted_entry_as_what_was_meant(entries: list[str], config: dict[str, Any]) -> None:
    once = [command_line.converted_entry(entry) for entry in entries]
    assert parse_config(once) == config
    # A job's own Snakemake gets the converted entries; converting these again would change nothing.
    assert [command_line.converted_entry(entry) for entry in once] == once


QUICK_TREE = ("--configfile", "config/quick.yaml")


@pytest.mark.parametrize(
    ("typed", "target"),
    [("0.02", 0.02), ("0.02,0.01", [0.02, 0.01]), ("null", None), ({"yoke": "tepo"}, {"yoke": "tepo"})],
)
def test_a_movement_on_the_command_line_is_a_number_a_list_or_a_method(typed: Any, target: Any) -> None:
    config, _ = configuration.resolved([EMBEDDED], {"training": {"kl_target": typed}})
    assert config["training"]["kl_target"] == target


def planned(output: str) -> dict[str, int]:
    """Jobs by rule, from the table that `snakemake -n` prints."""
    return {name: int(count) for name, count in re.findall(r"^([a-z_0-9]+) +(\d+)$", output, re.MULTILINE)}


def test_quick_plans_each_thing_once(dry_run: Snakemake) -> None:
    said = dry_run(*QUICK_TREE, "--config", 'evaluation.thoughts=["<{plan}>","</plan>"]')
    assert "grades/tiny_qwen2/base/seed1/step0 --thoughts '<{plan}>' '</plan>' 2>&1" in said.stdout
    assert said.returncode == 0, said.stdout + said.stderr
    # One argument of a command may be 128 KiB long, 3,600 checkpoints are longer.
    assert re.search(r"--checkpoints @logs/quick/asked/[0-9a-f]{12}/checkpoints\.txt", said.stdout)
    expected = {"base": 1, "prompts": 1, "train": 6, "benchmark_data": 7, "generate": 5, "grade": 5, "score": 1}
    assert {name: planned(said.stdout).get(name) for name in expected} == expected


@pytest.mark.slow
@pytest.mark.slow
def test_a_folder_of_any_name_works_and_a_stale_lock_is_one_line_with_what_unlocks(tmp_path: Path) -> None:
    folder = copy_of(tmp_path / """My {x} {} [a] $HOME 'it"s' * %""", "Makefile")
    locks = folder / ".snakemake/locks"  # as a closed terminal leaves it
    write_text(locks / "0.output.lock", "results/cache/benchmarks/syn_seq1.jsonl\n")
    words = ("results/cache/benchmarks/syn_seq1.jsonl", "--cores", "1", *QUICK_TREE)
    done = run_snakemake(folder, *words)
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if "lock" in line]
    found = re.fullmatch(r"error: this folder cannot be locked: .* if none does, unlock it: (.*)", line)
    assert found is not None, line
    subprocess.run(["bash", "-c", found[1]], cwd=folder, check=True, capture_output=True)
    assert run_snakemake(folder, *words).returncode == 0
    assert (folder / words[0]).is_file()
    named = folder.rename(tmp_path / "a:b")
    refused = subprocess.run(["make", "help"], cwd=named, capture_output=True, text=True, check=False)
    assert "a colon in the path of the project" in refused.stderr


def test_what_a_site_needs_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the profile is as it is; a wrong key is one line."""
    (tmp_path / "profiles").symlink_to(copy_of(tmp_path / "copy") / "profiles")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command_line, "OF_THE_SITE", [])
    for name in ("HF_HUB_OFFLINE", "TEPO_ENGINE_CACHE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    folder = tmp_path / "profiles/slurm"

    def read() -> dict[str, Any]:
        return dict(yte.process_yaml((folder / "config.yaml").read_text(encoding="utf-8")))

    assert (read()["default-resources"], "generate" in read()["set-resources"]) == ({"runtime": 30, "mem_mb": 4000}, 0)
    shutil.copyfile(folder / "site.example.yaml", folder / "site.yaml")
    given, gpu = read(), {"slurm_partition": "gpu", "gpu_model": "h100"}
    assert given["default-resources"]["slurm_account"] == "my_project"
    assert given["set-resources"]["generate"] == gpu
    assert gpu.items() <= given["set-resources"]["train"].items()
    nodes = given["set-resources"]["train_nodes"]
    assert (nodes["slurm_partition"], "--gpus-per-node=h100:8 " in nodes["slurm_extra"]) == ("gpu", True)
    assert "gpu_model" not in nodes, "the plugin would request that model's GPUs a second time"
    assert command_line.OF_THE_SITE == ["results=/scratch/me/tepo", "evaluation.data=/scratch/me/benchmarks"]
    assert (os.environ["HF_HUB_OFFLINE"], os.environ["TEPO_ENGINE_CACHE"]) == ("1", "/scratch/me/engines")
    write_text(folder / "site.yaml", "job: {}\n")
    with pytest.raises(SystemExit):
        command_line.site()


@pytest.mark.slow
def test_a_dry_run_needs_neither_conda_nor_slurm(clone: Path, tmp_path: Path) -> None:
    for name in ("bash", "which"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    environment = os.environ | {"PATH": str(tmp_path)}
    words = ("-n", "-p", "--profile", "profiles/slurm", *QUICK_TREE)
    site = clone / "profiles/slurm/site.yaml"
    write_text(site, f"results: {tmp_path}/site\ndata: {tmp_path}/data\n")
    done, other = (
        run_snakemake(clone, *words, *more, environment=environment) for more in ((), ("--config", "results=mine"))
    )
    site.unlink()
    assert planned(done.stdout).get("train") == 6, done.stdout + done.stderr
    for said, folder in ((done.stdout, f"{tmp_path}/site"), (other.stdout, "mine")):
        assert f"--data {tmp_path}/data --seed 1234 --out {folder}/quick/samples/" in said


@pytest.mark.slow
def test_what_is_accepted_stays_although_rules_changed_and_what_is_cheap_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = copy_of(tmp_path / "clone", "README.md")
    monkeypatch.chdir(here)
    of = plan(files_of("quick"), {"methods": "grpo,tepo"})
    finish(of, {path for _, path, _ in of._codes()})
    made = [of.benchmark_data / f"{key}.jsonl" for key in of.config["evaluation"]["benchmarks"]]
    made += [of.cache / "models" / build.clean / "clean.json" for build in of.builds.values()]
    made += [of.base("tiny_qwen2", 1) / "base.json", of.prompts(of.planned[0].run), of.results.scores]
    for path in made:
        write_text(path, "{}")
    grades = [of.grades(checkpoint).as_posix() for checkpoint in of.checkpoints]
    words = (*grades, of.results.scores.as_posix(), *QUICK_TREE, "--config", "methods=grpo,tepo")
    done = run_snakemake(here, "--touch", "--forceall", "--cores", "1", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Nothing to be done" in run_snakemake(here, "-n", *words).stdout

    for name, old, new in (
        ("train", "--wait 600", "--wait 700"),
        ("train", "--count {wildcards.prompts}", "--count={wildcards.prompts}"),
        ("evaluate", "seed=config[", "seed=1 + config["),
        ("evaluate", "samples=subpath(input.samples, parent=True)", 'samples="elsewhere"'),
    ):
        rules = here / f"workflow/rules/{name}.smk"
        text = rules.read_text(encoding="utf-8")
        assert old in text
        write_text(rules, text.replace(old, new))
    assert {"prompts", "train", "generate", "grade", "score"} <= planned(
        run_snakemake(here, "-n", *words).stdout
    ).keys()
    accepted = (*words, "accept_code=true")
    assert "Nothing to be done" in run_snakemake(here, "-n", *accepted).stdout
    write_text(rules, rules.read_text(encoding="utf-8").replace('made_by("score")', '"other"'))
    assert planned(run_snakemake(here, "-n", *accepted).stdout) == {"score": 1, "total": 1}


DAMAGED = {
    "samples/tiny_qwen2/tepo/seed1/step4/syn_seq1.parquet": {"generate", "grade", "score"},
    "scores.csv": {"score", "table"},
    "manifest.json": {"manifest"},
}


@pytest.mark.demo
def test_in_the_demos_tree_an_edit_makes_its_jobs_again_and_another_question_adds(tmp_path: Path) -> None:
    target = copy_of(tmp_path / "clone", "README.md", "results/quick", "results/cache", ".snakemake")
    # Asking for a logger makes nothing again: it gets the curves that are there.
    logged = run_snakemake(target, "-n", *QUICK_TREE, "--config", "log=tensorboard")
    assert planned(logged.stdout).keys() == {"all", "log_curves", "total"}, logged.stdout
    more = run_snakemake(target, "-n", *QUICK_TREE, "--config", "methods=gpg,tepo+beta=1")
    assert "results/quick: 6 finished runs of earlier questions stay in its tables" in more.stderr
    assert planned(more.stdout)["train"] == 2
    # What is removed or damaged is made again, and what needs it; checkpoints and bases of finished work are not.
    tree = target / "results/quick"
    shutil.rmtree(tree / "runs/tiny_qwen2/grpo/seed1/checkpoints")
    bases = (target / "results/cache/models").rename(target / "moved")
    done = run_snakemake(target, "-n", *QUICK_TREE)
    assert "Nothing to be done" in done.stdout + done.stderr
    bases.rename(target / "results/cache/models")
    for name, again in DAMAGED.items():
        path = tree / name
        content = path.read_bytes()
        times = path.stat()
        path.write_bytes(content[: len(content) // 2])
        done = run_snakemake(target, "-n", *QUICK_TREE)
        assert again <= planned(done.stdout).keys(), (name, done.stdout + done.stderr)
        path.write_bytes(content)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    # Of the demo's methods, GSPO alone uses this reducer.
    path = target / "methods/parts/objective.py"
    text = path.read_text(encoding="utf-8")
    edited = text.replace("means_B = row_sums(x, batch) /", "means_B = 1.0 * row_sums(x, batch) /")
    assert edited != text
    path.write_text(edited, encoding="utf-8")
    jobs = planned(run_snakemake(target, "-n", *QUICK_TREE).stdout)
    assert [jobs[name] for name in ("train", "generate", "grade", "score")] == [1, 1, 1, 1]
    assert not {"base", "prompts", "benchmark_data"} & set(jobs)


def test_ray_runs_on_every_node_of_a_job_and_the_command_on_the_first(tmp_path: Path) -> None:
    """With stand-ins for srun and Ray: two nodes need a cluster. USR1 is Slurm's warning before the time limit."""
    stubs = {
        "srun": 'printf "srun %s\\n" "$*" | head -1; while [[ $1 == --* ]]; do shift; done; exec "$@"',
        "ray": 'kill -USR1 $$; while [[ $1 != -- ]]; do shift; done; shift; exec "$@"',
    }
    for name, text in stubs.items():
        write_text(tmp_path / name, f"#!/usr/bin/env bash\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = 'echo "$RAY_ADDRESS" "$TEPO_ENGINE_CACHE"; exit 75'
    line = ["workflow/ray_nodes.sh", "2", "8", "4", "bash", "-c", command]
    environment = os.environ | {
        "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}",
        "SLURM_JOB_ID": f"9{os.getpid()}",
    }
    done = subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 75, "saved and to be continued, which must reach Snakemake"
    step, said = done.stdout.splitlines()
    assert re.match(r"srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 --cpus-per-task=4 --mem=0 bash", step)
    assert re.fullmatch(rf"\S+:6379 /tmp/ray-9{os.getpid()}/caches", said)
    assert not Path(f"/tmp/ray-9{os.getpid()}").exists()
