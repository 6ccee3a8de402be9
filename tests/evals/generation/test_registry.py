"""The registry says what the sets are; the sets say whether that is true."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evals import arithmetic, benchmark, data
from evals.benchmark import Decoding, Generated
from records.errors import ConfigError, CorruptInputError, MissingInputError

KEYS = benchmark.keys()
SYNTHETIC = [key for key in KEYS if benchmark.benchmark(key).synthetic]
TASKS = sorted(Path(benchmark.__file__).parent.glob("tasks/*.py"))

# evaluation.md section 3: rows, counted responses, decoding
PAPER = {
    "aime24": (30, 960, 0.6),
    "aime25": (30, 960, 0.6),
    "amc": (83, 2656, 0.6),
    "math500": (500, 500, 0.0),
    "omni_math": (2821, 2821, 0.0),
    "olympiadbench": (675, 675, 0.0),
    "minerva": (272, 272, 0.0),
}


@pytest.mark.parametrize("key", benchmark.PAPER)
def test_paper_sets_have_the_papers_denominators(key: str) -> None:
    found = benchmark.benchmark(key)
    assert (found.n, found.responses, found.decoding.temperature) == PAPER[key]
    assert (found.decoding.top_p, found.decoding.max_tokens, found.prompt) == (1.0, 8192, "system")


def test_the_pool_is_the_papers() -> None:
    assert sum(benchmark.benchmark(key).responses for key in benchmark.PAPER) == 8844


def test_all_means_the_papers_seven_in_its_order() -> None:
    assert tuple(b.key for b in benchmark.select(["all"])) == tuple(PAPER)
    assert benchmark.keys()[:7] == tuple(PAPER)


@pytest.mark.parametrize(
    ("names", "said"),
    [(["amie24"], "nearest: aime24"), ([], "none given"), (["all", "amc"], "amc is given twice")],
)
def test_a_wrong_selection_is_one_clear_line(names: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        benchmark.select(names)


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_every_task_file_shows_an_item(path: Path) -> None:
    assert path.stem == "__init__" or 'answer "' in (
        ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    )


@pytest.mark.parametrize("key", benchmark.keys())
def test_entries_are_complete(key: str) -> None:
    found = benchmark.benchmark(key)
    assert len(found.sha256) == 64
    assert found.licence
    assert found.checked_against
    assert found.synthetic == key.startswith("syn_")
    assert (found.stands_for in benchmark.PAPER) == (key not in benchmark.PAPER)
    if not found.synthetic:
        assert len(found.revision) == 40, "a commit, not a branch"


@pytest.mark.parametrize("key", SYNTHETIC)
def test_generated_sets_are_the_registered_ones_and_held_out(key: str) -> None:
    found = benchmark.benchmark(key)
    assert isinstance(found.source, Generated)
    items = data.items(found.source.make())
    data.verify(found, items, key)
    assert all(arithmetic.is_test(item.problem) for item in items)
    assert len({item.item_id for item in items}) == found.n


@pytest.mark.parametrize("scale", [("syn_mix4", 7), ("syn_mix3", 7)])
def test_each_scale_stands_for_each_set_once(scale: tuple[str, int]) -> None:
    start = SYNTHETIC.index(scale[0])
    assert [benchmark.benchmark(key).stands_for for key in SYNTHETIC[start : start + 7]] == list(benchmark.PAPER)


@pytest.mark.parametrize("key", benchmark.PAPER)
def test_registered_content_is_the_shared_copys(key: str, shared: Path) -> None:
    """The same sha256 as from the pinned upstream files (`checked_against`), so fetch and these copies agree."""
    found = benchmark.benchmark(key)
    items = data.load(found, shared)
    ids = {item.item_id for item in items}
    assert len(ids) == found.n
    assert {bad.item_id for bad in found.known_bad} <= ids


def test_registered_quirks_are_in_the_shared_copies(shared: Path) -> None:
    def load(key: str) -> list[data.Item]:
        return data.load(benchmark.benchmark(key), shared)

    assert all(item.answer.endswith(".0") for item in load("amc"))
    copies = Counter(data.item_id(item.problem) for item in load("omni_math"))
    assert (len(copies), sum(count == 1 for count in copies.values())) == (2816, 2811)
    olympiad = load("olympiadbench")
    marked = [sum(bool(getattr(item, name)) for item in olympiad) for name in ("multiple", "tolerance", "unit")]
    assert marked == [94, 1, 8]
    assert sum(re.fullmatch(r"-?[\d.]+e-?\d+", item.answer) is not None for item in load("minerva")) == 58


ROWS: list[dict[str, Any]] = [
    {"problem": "What is $1+1$?", "answer": "2"},
    {"problem": "What is $2+2$?", "answer": "4", "multiple": True},
    {"problem": "What is  $1+1$?\n", "answer": "2"},
]


def test_ids_follow_the_text_not_the_row() -> None:
    forward, backward = data.items(ROWS), data.items(ROWS[::-1])
    assert {i.item_id for i in forward} == {i.item_id for i in backward}
    assert forward[2].item_id == forward[0].item_id + "-2"
    assert forward[1].item_id == backward[1].item_id


@pytest.mark.parametrize("field", ["problem", "answer", "multiple", "tolerance", "unit"])
def test_the_digest_sees_every_field_that_is_graded(field: str) -> None:
    items = data.items(ROWS)
    other: dict[str, Any] = {field: "7"}
    changed = [dataclasses.replace(items[0], **other), *items[1:]]
    assert data.content_sha256(changed) != data.content_sha256(items)


def test_the_digest_sees_order_and_ignores_facts() -> None:
    items = data.items(ROWS)
    assert data.content_sha256(items[::-1]) != data.content_sha256(items)
    assert data.content_sha256(data.items([{**row, "level": 3} for row in ROWS])) == data.content_sha256(items)


def test_a_written_row_reads_back() -> None:
    items = data.items([{**row, "level": 3, "tol": "1e-1"} for row in ROWS])
    assert data.items([data.row(item) for item in items]) == items


@pytest.mark.parametrize("row", [{"problem": "x"}, {"problem": "", "answer": "1"}, {"problem": "x", "answer": 3}])
def test_a_row_without_texts_is_refused(row: dict[str, object]) -> None:
    with pytest.raises(CorruptInputError, match="row 1"):
        data.items([row], "file.jsonl")


def test_loading_what_is_not_there_says_the_command(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"python -m evals.fetch --benchmarks amc --data"):
        data.load(benchmark.benchmark("amc"), tmp_path)


@pytest.mark.parametrize(
    ("samples", "temperature", "said"), [(2, 0.0, "copies of one response"), (0, 0.6, "positive"), (1, -1.0, "range")]
)
def test_impossible_decoding_is_refused(samples: int, temperature: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Decoding(samples, temperature, 1.0, 8)
