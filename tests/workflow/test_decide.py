"""Seeds are added to what is undecided, up to the budget; what a call adds follows from decide.csv and matrix.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core import digests
from core.errors import BenchError, ConfigError, CorruptInputError
from core.files import to_csv, write_json
from core.layout import Results
from report import decide as deciding
from tests.merged_config import load
from workflow import decide, matrix
from workflow.plan import plan

ROOT = Path(__file__).resolve().parents[2]
FILES = [ROOT / "config/embedded.yaml", ROOT / "config/quick.yaml"]


def asked(**keys: Any) -> dict[str, Any]:
    config = load(FILES, {"methods": "grpo,tepo,gspo", "seeds": "1,2", "decide": "true"} | keys)
    config["matrix"] = matrix.blocks(config)
    return config | {"models": None, "methods": None, "seeds": None}


def call(tmp_path: Path, config: dict[str, Any], before: dict[str, Any] | None = None) -> decide.Round:
    return decide.next_round(config, Results(tmp_path), before, lambda path: "config")


def seeds(config: dict[str, Any], found: decide.Round) -> dict[str, list[int]]:
    """By method, of a call that adds these blocks."""
    by_method: dict[str, list[int]] = {}
    for planned in matrix.plan(config | {"matrix": config["matrix"] + found.blocks}):
        by_method.setdefault(planned.run.method, []).append(planned.run.seed)
    return {method: sorted(listed) for method, listed in by_method.items()}


def tree(config: dict[str, Any], found: decide.Round) -> dict[str, Any]:
    """matrix.json of a call that adds these blocks."""
    return matrix.matrix(config | {"matrix": config["matrix"] + found.blocks})


def write(tmp_path: Path, verdicts: dict[str, tuple[str, int]], **columns: Any) -> Path:
    common = dict.fromkeys(deciding.HEADER) | {"model": "tiny_qwen2", "baseline": "grpo", "by": "area"} | columns
    rows = [common | {"method": m, "verdict": verdict, "seeds": n} for m, (verdict, n) in verdicts.items()]
    digests.write(tmp_path / decide.FILE, to_csv(deciding.HEADER, rows))
    return tmp_path / decide.FILE


def test_without_a_file_the_seeds_of_the_matrix_come_first(tmp_path: Path) -> None:
    found = call(tmp_path, asked())
    assert (found.blocks, found.added) == ([], [])
    assert found.only == "tiny_qwen2/tepo,tiny_qwen2/gspo"
    assert found.line() == "decide: nothing is looked at yet"


def test_what_is_undecided_and_its_baseline_get_the_next_batch(tmp_path: Path) -> None:
    write(tmp_path, {"tepo": ("undecided", 2), "gspo": ("lower", 2)})
    config = asked()
    found = call(tmp_path, config, matrix.matrix(config))
    assert seeds(config, found) == {"grpo": [1, 2, 3, 4, 5, 6], "tepo": [1, 2, 3, 4, 5, 6], "gspo": [1, 2]}
    assert found.line() == "decide: 1 of 2 decided (gspo lower); undecided: tepo; adds seeds 3, 4, 5, 6"
    assert found.line(over=True).endswith("; type the same command again, which adds seeds 3, 4, 5, 6")
    own = next(b for b in config["matrix"] if "tepo" in b["methods"])
    assert {tuple(b["steps"]) for b in found.blocks} == {tuple(own["steps"])}, "as the other seeds are trained"


def test_a_call_that_was_interrupted_is_continued(tmp_path: Path) -> None:
    """As a job reads it after matrix.json is written again, and as decide.csv is missing while it is made."""
    path = write(tmp_path, {"tepo": ("undecided", 2), "gspo": ("lower", 2)})
    config = asked()
    first = call(tmp_path, config, matrix.matrix(config))
    again = call(tmp_path, config, tree(config, first))
    assert seeds(config, again) == seeds(config, first)
    assert again.added == []
    assert "not all seeds that are planned are looked at" in again.line()
    path.unlink()
    assert seeds(config, call(tmp_path, config, tree(config, first))) == seeds(config, first)


def test_rounds_go_on_to_the_budget_and_then_add_nothing(tmp_path: Path) -> None:
    config = asked(decide={"budget": "9", "batch": "3"})
    before, numbers = matrix.matrix(config), []
    for _ in range(10):
        looked_at = len({run["seed"] for run in before["runs"] if run["method"] == "tepo"})
        write(tmp_path, {"tepo": ("undecided", looked_at)})
        found = call(tmp_path, config, before)
        before = tree(config, found)
        numbers.append(found.added)
    assert numbers[:4] == [[3, 4, 5], [6, 7, 8], [9], []]
    assert not any(numbers[4:])
    assert found.line() == "decide: 0 of 1 decided (none); undecided: tepo; the budget of 9 seeds is spent"
    assert seeds(config, found)["tepo"] == list(range(1, 10))
    assert call(tmp_path, asked(decide={"budget": "10"}), before).added == [10], "a larger budget goes on"


def test_what_is_decided_stays_decided_with_the_seeds_that_it_has(tmp_path: Path) -> None:
    write(tmp_path, {"tepo": ("higher", 4), "gspo": ("equal", 6)})
    config = asked()
    before = matrix.matrix(asked(seeds="1,2,3,4,5,6"))
    found = call(tmp_path, config, before)
    assert found.line() == "decide: 2 of 2 decided (tepo higher, gspo equal); nothing is left to decide"
    assert seeds(config, found) == {key: [1, 2, 3, 4, 5, 6] for key in ("grpo", "tepo", "gspo")}


@pytest.mark.parametrize("columns", [{"by": "score"}, {"margin": 0.02}, {"model": "tiny_llama"}])
def test_a_file_of_another_question_adds_nothing(tmp_path: Path, columns: dict[str, Any]) -> None:
    write(tmp_path, {"tepo": ("undecided", 2)}, **columns)
    assert call(tmp_path, asked()).line() == "decide: nothing is looked at yet"


def test_a_margin_is_the_same_question_however_it_is_spelt(tmp_path: Path) -> None:
    write(tmp_path, {"tepo": ("undecided", 2)}, margin=0.02)
    assert call(tmp_path, asked(decide={"margin": "2e-2"})).added == [3, 4, 5, 6]


def test_blocks_with_a_variant_get_no_seeds(tmp_path: Path) -> None:
    files = [FILES[0], FILES[0].with_name("readings.yaml")]
    config = load(files, {"methods": "grpo,tepo", "seeds": "1", "decide": "true"})
    config["matrix"] = matrix.blocks(config)
    config |= {"models": None, "methods": None, "seeds": None}
    write(tmp_path, {"tepo": ("undecided", 1)})
    found = call(tmp_path, config)
    assert any("variant" in block for block in config["matrix"])
    assert found.blocks
    assert not any("variant" in block for block in found.blocks)
    assert {step for b in found.blocks for step in b["steps"]} == {7}


def test_a_damaged_file_is_one_line_that_says_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, {"tepo": ("undecided", 2)})
    path.write_text(path.read_text().replace("undecided", "higher"))
    with pytest.raises(CorruptInputError, match=r"^\S*decide.csv: differs from its sha256 .*; remove \S*/decide to"):
        call(tmp_path, asked())


@pytest.mark.parametrize("verdict", [("perhaps", 2), ("undecided", "two")])
def test_a_cell_that_is_none_is_named(tmp_path: Path, verdict: tuple[str, Any]) -> None:
    write(tmp_path, {"tepo": verdict})
    with pytest.raises(BenchError, match=r"decide.csv: .*('perhaps'; allowed: |'two')"):
        call(tmp_path, asked())


@pytest.mark.parametrize(
    ("keys", "error"),
    [
        ({"decide": {"bugdet": "3"}}, r"decide.bugdet: unknown key; allowed: .*; nearest: budget"),
        ({"decide": {"budget": "1"}}, r"decide.budget: must be greater than or equal to 2, got 1"),
        ({"decide": {"batch": "0"}}, r"decide.batch: must be greater than or equal to 1, got 0"),
        ({"decide": {"by": "reward"}}, r"decide.by: unknown value 'reward'; allowed: area, score"),
        ({"decide": {"margin": "2"}}, r"decide.margin: must be less than or equal to 1, got 2"),
        ({"decide": "yes"}, r"command line .*: decide: must be true, false or keys and values, got 'yes'"),
        ({"methods": "grpo"}, r"config: decide: no model has a method beside the baseline grpo"),
        ({"sweep": {"beta": "0.1,1"}}, r"config: decide: has no meaning with sweep"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, keys: dict[str, Any], error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        call(tmp_path, asked(**keys))


def test_it_is_off_unless_asked_for() -> None:
    assert load(FILES)["decide"] is None
    assert load(FILES, {"decide": "false"})["decide"] is None
    assert asked()["decide"] == {}
    assert decide.settings(asked()).model_dump() == {"by": "area", "budget": 20, "batch": 4, "margin": None}


def test_the_same_command_again_plans_one_more_batch_and_keeps_the_rest(tmp_path: Path) -> None:
    options = {"methods": "grpo,tepo", "seeds": "1,2", "decide": "true"}
    first = plan(FILES, options, root=tmp_path)
    assert first.notes == ["decide: nothing is looked at yet"]
    assert {planned.run.seed for planned in first.runs.values()} == {1, 2}

    write_json(first.results.matrix, digests.with_own(first.matrix))
    write(first.results.root, {"tepo": ("undecided", 2)})
    again = plan(FILES, options, root=tmp_path)
    assert "decide: 0 of 1 decided (none); undecided: tepo; adds seeds 3, 4, 5, 6" in again.notes
    trained = {(planned.run.method, planned.run.seed) for planned in again.runs.values()}
    assert trained == {(method, seed) for method in ("grpo", "tepo") for seed in range(1, 7)}
