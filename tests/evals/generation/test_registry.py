"""The registry says what the sets are; the sets say whether that is true."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError, CorruptInputError, MissingInputError
from evals import arithmetic, benchmark, data
from evals.benchmark import Decoding, Generated

KEYS = benchmark.keys()
SYNTHETIC = [key for key in KEYS if benchmark.benchmark(key).synthetic]

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


def test_paper_sets_have_the_papers_denominators_and_order() -> None:
    found = [benchmark.benchmark(key) for key in benchmark.PAPER]
    assert {b.key: (b.n, b.responses, b.decoding.temperature) for b in found} == PAPER
    assert {(b.decoding.top_p, b.decoding.max_tokens, b.prompt) for b in found} == {(1.0, 8192, "system")}
    assert sum(b.responses for b in found) == 8844
    assert tuple(b.key for b in benchmark.select(["all"])) == benchmark.keys()[:7] == tuple(PAPER)


def test_a_wrong_selection_or_decoding_is_one_clear_line() -> None:
    for names, said in ((["amie24"], "nearest: aime24"), ([], "none given"), (["all", "amc"], "amc is given twice")):
        with pytest.raises(ConfigError, match=said):
            benchmark.select(names)
    for samples, temperature, said in ((2, 0.0, "copies of one response"), (0, 0.6, "positive"), (1, -1.0, "range")):
        with pytest.raises(ConfigError, match=said):
            Decoding(samples, temperature, 1.0, 8)


def test_entries_are_complete() -> None:
    for key in KEYS:
        found = benchmark.benchmark(key)
        assert len(found.sha256) == 64, key
        assert found.licence, key
        assert found.checked_against, key
        assert found.synthetic == key.startswith("syn_")
        assert (found.stands_for in benchmark.PAPER) == (key not in benchmark.PAPER), key
        if not found.synthetic:
            assert len(found.revision) == 40, f"{key}: a commit, not a branch"
    for first in ("syn_mix4", "syn_mix3"):  # each scale stands for each set once
        start = SYNTHETIC.index(first)
        assert [benchmark.benchmark(key).stands_for for key in SYNTHETIC[start : start + 7]] == list(benchmark.PAPER)


def test_generated_sets_are_the_registered_ones_and_held_out() -> None:
    for key in SYNTHETIC:
        found = benchmark.benchmark(key)
        assert isinstance(found.source, Generated)
        items = data.items(found.source.make())
        data.verify(found, items, key)
        assert all(arithmetic.is_test(item.problem) for item in items), key
        assert len({item.item_id for item in items}) == found.n, key


def test_registered_content_is_the_shared_copys(shared: Path) -> None:
    """The same sha256 as from the pinned upstream files (`checked_against`), so fetch and these copies agree."""
    for key in benchmark.PAPER:
        found = benchmark.benchmark(key)
        ids = {item.item_id for item in data.load(found, shared / "benchmarks")}
        assert len(ids) == found.n
        assert {bad.item_id for bad in found.known_bad} <= ids, key


def test_registered_quirks_are_in_the_shared_copies(shared: Path) -> None:
    def load(key: str) -> list[data.Item]:
        return data.load(benchmark.benchmark(key), shared / "benchmarks")

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


def test_the_digest_sees_order_and_every_field_that_is_graded_and_no_facts() -> None:
    items = data.items(ROWS)
    for field in ("problem", "answer", "multiple", "tolerance", "unit"):
        other: dict[str, Any] = {field: "7"}
        changed = [dataclasses.replace(items[0], **other), *items[1:]]
        assert data.content_sha256(changed) != data.content_sha256(items), field
    assert data.content_sha256(items[::-1]) != data.content_sha256(items)
    assert data.content_sha256(data.items([{**row, "level": 3} for row in ROWS])) == data.content_sha256(items)


def test_a_written_row_reads_back() -> None:
    items = data.items([{**row, "level": 3, "tol": "1e-1"} for row in ROWS])
    assert data.items([data.row(item) for item in items]) == items


def test_a_row_without_texts_is_refused_and_a_missing_file_says_the_command(tmp_path: Path) -> None:
    for row in ({"problem": "x"}, {"problem": "", "answer": "1"}, {"problem": "x", "answer": 3}):
        with pytest.raises(CorruptInputError, match="row 1"):
            data.items([row], "file.jsonl")
    with pytest.raises(MissingInputError, match=r"python -m evals.fetch --benchmarks amc --data"):
        data.load(benchmark.benchmark("amc"), tmp_path)
