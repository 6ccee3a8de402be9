"""A user's problems, reward, model and benchmark: planned from the command line, and trained, graded and shown."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core.errors import BenchError
from evals import benchmark
from models import registry, training_data
from tests.evals.generation.tiny import save_tiny
from tests.workflow.conftest import copy_of, run_snakemake
from tests.workflow.test_config import files_of
from workflow.plan import Plan, plan

REWARD = """def short(completions, **columns):
    return [float(len(text) < 20) for text in completions]
"""


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """What one test makes known to this process, another one's files do not find."""
    known = set(benchmark.keys())
    yield
    for key in set(benchmark.keys()) - known:
        del benchmark._registry()[key]
    registry._OWN.clear()


def problems(path: Path, count: int = 100) -> Path:
    lines = [json.dumps({"problem": f"{n // 10}+{n % 10}?", "answer": str(n // 10 + n % 10)}) for n in range(count)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def planned(tmp_path: Path, **options: Any) -> Plan:
    return plan(files_of("quick"), {"methods": "grpo", "name": "own", "results": str(tmp_path), **options})


def test_own_problems_are_a_data_set_whose_commit_is_their_content(tmp_path: Path) -> None:
    file = problems(tmp_path / "train.jsonl")
    first = planned(tmp_path, prompts={"file": str(file)})
    (run,) = first.planned
    digest = first.config["prompts"]["sha256"]
    assert first.data_file is not None
    assert first.data_file.name == f"file-{digest[:40]}.jsonl"
    name = first.prompts(run.run).as_posix()
    assert re.search(rf"prompts/file-{digest[:40]}-all-0-2048-\w+-arithmetic/tiny_qwen2-\w+\.jsonl$", name)
    assert first.settings()["prompts.sha256"] == digest
    given = {"file": str(file), "template": "user", "count": "60", "seed": "2"}
    other = planned(tmp_path, prompts=given)
    assert re.search(r"-60-2-2048-\w+-user/", other.prompts(run.run).as_posix())
    problems(file, 99)
    assert planned(tmp_path, prompts={"file": str(file)}).data_file != first.data_file


def test_own_problems_are_read_in_the_forms_of_trl_and_lm_eval(tmp_path: Path) -> None:
    rows = [{"problem": "1+1?", "answer": "2"}, {"prompt": "1+2?", "answer": 3, "level": "easy"}]
    rows += [{"prompt": [{"role": "user", "content": "1+3?"}], "answer": "4"}, {"problem": "1+1?", "answer": "2"}]
    file, out = tmp_path / "train.jsonl", tmp_path / "out.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    record = training_data.write("file", out, file=file)
    assert [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] == [
        {"problem": f"1+{n}?", "answer": str(n + 1)} for n in (1, 2, 3)
    ]
    assert (record["rows"], record["distinct"]) == (4, 3)
    for bad, message in (
        ({"problem": "1?", "answer": [1]}, "row 5: must have a `problem`"),
        ({"problem": " ", "answer": "1"}, "row 5: problem: is empty"),
    ):
        file.write_text("\n".join(map(json.dumps, [*rows, bad])), encoding="utf-8")
        with pytest.raises(BenchError, match=message):
            training_data.write("file", out, file=file)


def test_an_own_reward_is_in_the_specification_and_in_the_settings_of_a_tree(tmp_path: Path) -> None:
    ours, other = "evals.reward:boxed", "tests.adapters.worlds:even"
    made = planned(tmp_path, reward=f"{ours},{other}", reward_weights="1,0.5", reward_timeout="9")
    given = made.specification(made.planned[0], "base", "prompts")
    assert (given["reward"], given["reward_weights"]) == ([ours, other], [1, 0.5])
    assert "reward_timeout" not in given, "another limit trains nothing again"
    assert {key: made.settings()[key] for key in ("reward", "reward_weights")} == {
        "reward": [ours, other], "reward_weights": [1, 0.5],
    }  # fmt: skip
    assert planned(tmp_path, reward=ours).specification(made.planned[0], "", "")["reward"] == ours
    assert "reward" not in planned(tmp_path).settings(), "older trees have no such key"


def test_own_models_and_benchmarks_are_planned_by_their_names(tmp_path: Path) -> None:
    folder, file = save_tiny(tmp_path / "My model", seed=0), problems(tmp_path / "sums.jsonl", 30)
    made = planned(
        tmp_path, model=str(folder), benchmarks=f"{file},syn_mix3", evaluation={"samples": "2", "prompt": "none"}
    )
    assert made.models == ["My-model"]
    assert made.matrix["benchmarks"][0] == {
        "key": "sums", "title": "sums", "stands_for": None, "items": 30, "samples": 2,
    }  # fmt: skip
    assert made.config["evaluation"]["benchmarks"] == ["sums", "syn_mix3"]
    assert made.drawn() == {"samples": 2, "prompt": "none"}
    assert made.benchmark_data == tmp_path / "own/data", "another tree may have other problems of this name"
    assert planned(tmp_path).benchmark_data == tmp_path / "cache/benchmarks"
    base = made.base("My-model", 1)
    save_tiny(folder, seed=1)
    registry._OWN.clear()
    assert planned(tmp_path, model=str(folder)).base("My-model", 1) != base, "other weights are another model"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no file": ({"prompts": {"file": "nope"}}, "prompts.file: nope: no such file; set it to JSON lines"),
    "a template": (
        {"prompts": {"file": "Snakefile", "template": "usr"}},
        "template: unknown value 'usr'.*nearest: user",
    ),
    "another source": (
        {"prompts": {"file": "Snakefile", "source": "math_train"}},
        "prompts.source: math_train: does not go with prompts.file",
    ),
    "greedy copies": ({"evaluation": {"temperature": "0"}}, "evaluation: syn_mix3: decoding: .* greedy samples"),
    "model twice": ({"model": "tiny_qwen2", "models": "tiny_llama"}, "model: set model or models"),
    "no module": ({"reward": "nope:f"}, r"command line \(--config\): reward: 'nope:f' cannot be imported"),
    "weights": ({"reward_weights": "1,2"}, "reward_weights: 2 weights for 1 rewards; give one for each"),
    "no folder": ({"model": "build/nope"}, "build/nope: no config.json there; set it to a folder"),
    "no benchmark": ({"benchmarks": "build/nope.jsonl"}, "build/nope.jsonl: own benchmark is missing"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_one_line_before_any_job(case: str, tmp_path: Path) -> None:
    options, message = REFUSED[case]
    with pytest.raises(BenchError, match=message) as caught:
        planned(tmp_path, **options)
    assert "\n" not in str(caught.value)


def test_a_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="aime24: is the key of another benchmark"):
        benchmark.own(problems(tmp_path / "aime24.jsonl", 3))
    for name in ("all", "avg_pooled", "задачи"):
        with pytest.raises(BenchError, match="cannot be the key of a benchmark; rename the file"):
            benchmark.own(problems(tmp_path / f"{name}.jsonl", 3))
    same = problems(tmp_path / "sums.jsonl", 3)
    with pytest.raises(BenchError, match="sums is given twice"):
        planned(tmp_path, benchmarks=f"{same},{same.parent}/./sums.jsonl")
    (tmp_path / "own/data").mkdir(parents=True)
    with pytest.raises(BenchError, match=r"lies in .*own/data, whose files are replaced; move it"):
        planned(tmp_path, benchmarks=str(problems(tmp_path / "own/data/inside.jsonl", 3)))
    with pytest.raises(BenchError, match=r"nine: 9 problems .* one rollout draws 48"):
        planned(tmp_path, prompts={"file": str(problems(tmp_path / "nine", 9))})
    for place in ("a", "b"):
        save_tiny(tmp_path / place / "mine", seed=0)
    with pytest.raises(BenchError, match="mine is the key of another model; rename the folder"):
        planned(tmp_path, models=f"{tmp_path}/a/mine,{tmp_path}/b/mine")


@pytest.mark.slow
def test_everything_of_a_user_is_trained_drawn_graded_and_shown(tmp_path: Path) -> None:
    here = copy_of(tmp_path / "clone", "README.md")
    save_tiny(here / "build/my-model", seed=0)
    problems(here / "build/train.jsonl")
    problems(here / "build/sums.jsonl", 20)
    (here / "shaped.py").write_text(REWARD, encoding="utf-8")
    options = [
        "prompts.file=build/train.jsonl", "prompts.template=arithmetic", "reward=evals.reward:boxed,shaped:short",
        "reward_weights=1,0.5", "model=build/my-model", "benchmarks=build/sums.jsonl", "evaluation.prompt=arithmetic",
        "evaluation.samples=2", "evaluation.max_tokens=24", "methods=grpo,tepo", "training.rollouts=3", "name=own",
    ]  # fmt: skip
    words = ["--cores", "2", "--configfile", "config/quick.yaml", "--config", *options]
    done = run_snakemake(here, *words, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    with open(here / "results/own/scores.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    trained = {(row["method"], row["step"]) for row in rows if row["benchmark"] == "sums" and row["score"]}
    assert trained == {("base", "0"), ("grpo", "3"), ("tepo", "3")}
    assert {path.parent for path in here.rglob("sums.jsonl")} == {here / "build", here / "results/own/data"}
    record = json.loads((here / "results/own/runs/my-model/tepo/seed1/run.json").read_text(encoding="utf-8"))
    assert record["spec"]["reward"] == ["evals.reward:boxed", "shaped:short"]
    assert "everything stands" in run_snakemake(here, "verify", *words[2:]).stdout
    # The reward is part of the run: after an edit both runs are trained again, and nothing else is wrong.
    (here / "shaped.py").write_text(REWARD.replace("20", "30"), encoding="utf-8")
    dry = run_snakemake(here, "-n", *words[2:])
    assert re.search(r"^train +2$", dry.stdout, re.MULTILINE), dry.stdout + dry.stderr
