"""Problems as training prompts: a fixed choice, read as evaluation reads it; bad files are named; seeds of bases."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from transformers import AutoTokenizer

from core.errors import ConfigError, CorruptInputError
from core.files import read_json, read_jsonl
from core.provenance import sha256_file
from evals.generation import prompts as evaluation
from models import prompts, recipe, registry, tiny, training_data
from tests.models.test_fetch_model import COMMIT, command, environment, hub

KEY = "dapo_math_17k"
SOURCE = training_data.source(KEY)
PROBLEMS = {f"How many corners have ${n}$ triangles that share none?": str(3 * n) for n in range(1, 41)}


def row(problem: str, answer: str, **changes: Any) -> dict[str, Any]:
    message = {"role": "user", "content": training_data.DAPO_BEFORE + problem + training_data.DAPO_AFTER}
    return {
        "data_source": "math_dapo", "prompt": [message], "ability": "MATH",
        "reward_model": {"ground_truth": answer, "style": "rule"}, "extra_info": {"index": "1"},
    } | changes  # fmt: skip


def parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each problem three times, one of them spaced otherwise, and one problem with two answers."""
    rows = [row(problem, answer) for problem, answer in PROBLEMS.items()] * 2
    rows += [row(problem.replace(" ", "  ") + "\n", answer) for problem, answer in PROBLEMS.items()]
    return parquet(tmp_path_factory.mktemp("data") / "set.parquet", [*rows, row("Torn?", "1"), row("Torn?", "2")])


@pytest.fixture(scope="module")
def data(file: Path) -> Path:
    out = file.with_name("problems.jsonl")
    training_data.write(KEY, out, file=file)
    return out


def test_problems_are_distinct_and_contradictions_left_out_and_counted(data: Path, file: Path) -> None:
    assert {row["problem"]: row["answer"] for row in read_jsonl(data)} == PROBLEMS
    record = read_json(data.with_suffix(".json"))
    assert (record["rows"], record["distinct"], record["contradictory"]) == (122, 40, 1)
    assert (record["sha256"], record["commit"]) == (sha256_file(file), None)


def test_the_choice_depends_on_seed_and_text_alone() -> None:
    chosen = prompts.choose(PROBLEMS, 12, 0, "here")
    backwards = dict(reversed(PROBLEMS.items()))
    assert prompts.choose(backwards, 12, 0, "here") == chosen
    assert prompts.choose(PROBLEMS, 20, 0, "here")[:12] == chosen
    assert set(prompts.choose(PROBLEMS, 12, 1, "here")) != set(chosen)
    with pytest.raises(ConfigError, match=r"here: 40 distinct problems; prompts\.count is 41"):
        prompts.choose(PROBLEMS, 41, 0, "here")


TEMPLATE = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]"


def test_a_prompt_is_what_evaluation_would_ask(tmp_path: Path, data: Path) -> None:
    model, out = tmp_path / "model", tmp_path / "prompts.jsonl"
    tiny.tokenizer().save_pretrained(model)  # what making prompts needs of a model
    for template in (None, TEMPLATE):
        if template:
            (model / "chat_template.jinja").write_text(template)
        prompts.main(
            ["--source", KEY, "--data", str(data), "--model", str(model), "--max-tokens", "400", "--count", "7",
             "--seed", "3", "--out", str(out)]
        )  # fmt: skip
        reader = AutoTokenizer.from_pretrained(model)
        for found, problem in zip(read_jsonl(out), prompts.choose(PROBLEMS, 7, 3, "here"), strict=True):
            asked = evaluation.build(reader, "system", problem, 400)
            assert (found["prompt"], found["answer"], found["cut"]) == (asked.text, PROBLEMS[problem], 0)
            assert evaluation.INSTRUCTION in found["prompt"]
            assert ("[assistant]" in found["prompt"]) == (template is not None)
            assert "Answer:" not in found["prompt"], "the data set's own instruction is replaced"
        (long,) = prompts.hub_rows({(text := "Begin. " + "x" * 900 + " end?"): "1"}, [text], reader, 50)
        assert long["cut"] > 200
        assert "Begin" not in str(long["prompt"])


BAD = {
    "row 1: prompt: not within": [row("Why?", "1", prompt=[{"role": "user", "content": "Why?"}])],
    "row 2: answer: is empty": [row("Why?", "1"), row("How?", " ")],
    "not a readable parquet file|row 1: must have one message": [{"question": "Why?"}],
}


def test_a_bad_file_is_named_with_its_row(tmp_path: Path, file: Path) -> None:
    bad, out = tmp_path / "set.parquet", tmp_path / "out.jsonl"
    for message, rows in BAD.items():
        with pytest.raises(CorruptInputError, match=message) as caught:
            training_data.write(KEY, out, file=parquet(bad, rows))
        assert "\n" not in str(caught.value)
    with pytest.raises(CorruptInputError, match=r"sha256 is [0-9a-f]+; prompts\.sha256 is 0+"):
        training_data.write(KEY, out, file=file, sha256="0" * 64)
    assert list(tmp_path.iterdir()) == [bad]


SOLUTIONS = {
    r"so it is $\boxed{\frac{1}{2}}$.": r"\frac{1}{2}",
    r"first $\boxed{3}$, then $\boxed{\{4\}}$": r"\{4\}",
    r"the sum is $\boxed -12,$ as said": "-12",
    "nothing is boxed": None,
}


def test_the_answer_of_math_is_the_last_box_and_few_rows_may_lack_one(tmp_path: Path) -> None:
    for solution, answer in SOLUTIONS.items():
        assert training_data.read_math({"problem": " Why? ", "solution": solution}) == ("Why?", answer)
    out, path = tmp_path / "out.jsonl", tmp_path / "set.parquet"
    rows = [{"problem": f"What is ${n}$?", "solution": rf"It is $\boxed{{{n}}}$."} for n in range(197)]
    rows += [{"problem": f"Why ${n}$?", "solution": "Nobody knows."} for n in range(2)]
    with pytest.raises(CorruptInputError, match=r"no answer can be read from 2 of 199 rows"):
        training_data.write("math_train", out, file=parquet(path, rows))
    record = training_data.write("math_train", out, file=parquet(path, [*rows[:-1], rows[0]]))
    assert (record["rows"], record["distinct"], record["without_answer"]) == (199, 197, 1)


def test_the_hub_file_is_fetched_with_its_commit(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "out.jsonl"
    with hub({f"datasets/{SOURCE.dataset}": {SOURCE.path: file.read_bytes()}}) as (address, _):
        words = ("models.training_data", "--source", KEY, "--out", str(out))
        done = command(*words, **environment(address, tmp_path / "home"))
        assert done.returncode == 0, done.stderr
    record = read_json(out.with_suffix(".json"))
    assert (record["commit"], record["sha256"]) == (COMMIT, sha256_file(file))
    assert [json.loads(line)["answer"] for line in out.read_text().splitlines()] == list(PROBLEMS.values())


def test_each_seed_has_a_base_of_its_own_from_few_clean_models() -> None:
    """As many consecutive seeds as there are clean models share none."""
    for model in filter(lambda key: registry.model(key).made_here, registry.keys()):
        starts = recipe.starts(model, "wide") or 0
        made = [recipe.recipe(model, "wide", seed) for seed in range(17, 37)]
        assert len({recipe.hash_of(one) for one in made}) == len(made)
        clean = [recipe.name_of_clean(one.start) for one in made]
        assert len(set(clean)) == len(set(clean[3 : 3 + starts])) == starts
